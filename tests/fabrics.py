"""Small systems made in memory: a full mesh, a switch, a PCIe tree."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx

from simulator.hardware import Algorithm, CollectiveConstants, Link, LinkKind
from simulator.spec import Sourced
from simulator.topology.graph import Topology
from simulator.topology.system import System


def sourced(value: object) -> Sourced[object]:
    return Sourced[object].model_construct(value=value, source="test", status="assumed", note=None)


def link(
    name: str,
    kind: LinkKind,
    bytes_per_s: float,
    latency_s: float = 1e-6,
    efficiency: float = 1.0,
    collectives: Mapping[Algorithm, CollectiveConstants] | None = None,
) -> Link:
    return Link.model_construct(
        name=name,
        title=name,
        kind=kind,
        bandwidth=sourced(bytes_per_s),
        latency=sourced(latency_s),
        efficiency=sourced(efficiency),
        collectives=dict(collectives or {}),
        sources={"test": "made up"},
    )


def topology(edges: list[tuple[str, str, Link]], reduces: bool = False) -> Topology:
    """A graph from its edges; a node's kind is its name without digits."""
    graph: nx.Graph = nx.Graph()
    for one, other, joint in edges:
        for node in (one, other):
            graph.add_node(node, kind=node.rstrip("0123456789"), group=0)
        graph.add_edge(one, other, link=joint, bandwidth_bytes_per_s=joint.bandwidth.value)
    system = System.model_construct(name="made-up", title="made up", in_network_reduction=sourced(reduces))
    return Topology(system, graph, {})


def full_mesh(size: int, joint: Link) -> Topology:
    """Each pair of GPUs has a link of its own."""
    return topology(
        [(f"gpu{one}", f"gpu{other}", joint) for one in range(size) for other in range(one + 1, size)]
    )


def switch(size: int, joint: Link, reduces: bool = False) -> Topology:
    """Each GPU has one link to one switch."""
    return topology([(f"gpu{index}", "nvswitch0", joint) for index in range(size)], reduces)


def pcie_tree(joint: Link) -> Topology:
    """Two PCIe switches with two GPUs each, under one root complex."""
    leaves = [(f"gpu{index}", f"pcie-switch{index // 2}", joint) for index in range(4)]
    return topology([*leaves, ("pcie-switch0", "cpu0", joint), ("pcie-switch1", "cpu0", joint)])
