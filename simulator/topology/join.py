"""Joins several boxes or racks by their NICs: rails, leaf and spine, or a cable.

The spine is one node and its links are as wide as those of all spine switches together, as if traffic spread
over them evenly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import networkx as nx
from pydantic import Field

from simulator.errors import InputError
from simulator.hardware import Link
from simulator.spec import Count, Spec
from simulator.topology.builder import LEAF, NIC, SPINE, GraphBuilder, connect

JoinKind = Literal["rail", "leaf-spine", "direct"]
JOINED_BY: dict[JoinKind, str] = {"rail": "rails", "leaf-spine": "leaf and spine", "direct": "cable"}


class Join(Spec):
    """How many of a system there are, and what joins them."""

    nodes: Count
    fabric: JoinKind = "rail"
    oversubscription: Annotated[float, Field(ge=1)] = 1.0
    """Bandwidth of a leaf's NICs over that of its uplinks."""


def join_hosts(graph: nx.Graph[str], links: Mapping[str, Link], join: Join) -> None:
    """Add the switches or cables between hosts; raises InputError where the hosts cannot be joined so."""
    nics = {node: data for node, data in graph.nodes(data=True) if data["kind"] == NIC}
    hosts = {data["host"] for _, data in graph.nodes(data=True)}
    if len({data["host"] for data in nics.values()}) < len(hosts):
        raise InputError(
            f"{join.nodes} of a system without NICs cannot be joined", field="nodes", remedy="use --nodes 1"
        )
    if join.fabric == "direct":
        _cable(graph, links, join, nics)
        return
    leaves: dict[int, list[str]] = defaultdict(list)
    for nic, data in nics.items():
        leaves[data["rail" if join.fabric == "rail" else "host"]].append(nic)
    _switches(graph, links, join, [leaves[index] for index in sorted(leaves)])


def _cable(graph: nx.Graph[str], links: Mapping[str, Link], join: Join, nics: Mapping[str, Any]) -> None:
    """NIC i of one host to NIC i of the other."""
    if join.nodes != 2:
        raise InputError(
            f"a direct cable joins two nodes, not {join.nodes}",
            field="fabric",
            remedy="use --fabric rail or --fabric leaf-spine",
        )
    if join.oversubscription > 1:
        raise InputError(
            "a direct cable has no switch to oversubscribe",
            field="oversubscription",
            remedy="leave it out, or use --fabric rail or --fabric leaf-spine",
        )
    one, other = ([nic for nic, data in nics.items() if data["host"] == host] for host in (0, 1))
    if [nics[nic]["port"] for nic in one] != [nics[nic]["port"] for nic in other]:
        raise InputError(
            "a direct cable joins NICs that are alike",
            field="fabric",
            remedy="use --fabric rail or --fabric leaf-spine",
        )
    for left, right in zip(one, other, strict=True):
        connect(graph, left, right, links[nics[left]["port"]])


def _switches(graph: nx.Graph[str], links: Mapping[str, Link], join: Join, leaves: list[list[str]]) -> None:
    """A leaf for each group of NICs, and a spine above them if there are several."""
    builder = GraphBuilder(graph, links, host=None)
    for index, group in enumerate(leaves):
        leaf = builder.node(f"leaf{index}", LEAF, index)
        for nic in group:
            connect(graph, nic, leaf, links[graph.nodes[nic]["port"]])
    if len(leaves) == 1:
        return
    spine = builder.node("spine0", SPINE)
    for index, group in enumerate(leaves):
        ports = [links[graph.nodes[nic]["port"]] for nic in group]
        widths = sum(port.bandwidth.value for port in ports) / ports[0].bandwidth.value
        connect(graph, f"leaf{index}", spine, _uplink(ports[0]), widths / join.oversubscription)


def _uplink(port: Link) -> Link:
    """From leaf to spine: a port whose latency is that of one switch."""
    if port.switch_hop is None:
        raise InputError(
            f"link {port.name} does not say what a switch adds, so {port.name} cannot be switched",
            field="fabric",
            remedy="use --fabric direct, or give the link a switch_hop",
        )
    return port.model_copy(
        update={
            "name": f"{port.name}-uplink",
            "title": f"Leaf to spine, each {port.title}",
            "latency": port.switch_hop,
            "switch_hop": None,
        }
    )
