"""Puts nodes and links of a fabric into a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx

from simulator.hardware import Link

GPU = "gpu"
NVSWITCH = "nvswitch"
PCIE_SWITCH = "pcie-switch"
CPU = "cpu"
NIC = "nic"
MEMORY = "memory"
LEAF = "leaf"
SPINE = "spine"

FORWARDING = frozenset({NVSWITCH, PCIE_SWITCH, CPU, NIC, LEAF, SPINE})
"""Kinds of node that pass on what is not for them; a GPU or a memory does not."""


class GraphBuilder:
    """Collects the nodes and links of one host (a box or a rack), or of what stands between hosts.

    A fabric uses names of its own, such as ``gpu0``; where there are several hosts, each gets a prefix. Nodes
    have ``kind``, ``group`` (tray or socket) and ``host``; None is between hosts. A GPU may have ``nic``, the
    NIC that it reaches other hosts by, and ``staging``, the memory that its PCIe traffic to other GPUs passes
    through where the box has no peer-to-peer. Edges have ``link`` and ``bandwidth_bytes_per_s`` of one
    direction, all parallel links together.
    """

    def __init__(
        self, graph: nx.Graph[str], links: Mapping[str, Link], host: int | None = 0, prefix: str = ""
    ) -> None:
        self.graph = graph
        self._links = links
        self._host = host
        self._prefix = prefix

    def name(self, name: str) -> str:
        """The name in the graph of a node of this host."""
        return self._prefix + name

    def node(self, name: str, kind: str, group: int = 0, **attributes: Any) -> str:
        """A new node; returns the fabric's own name of it."""
        self.graph.add_node(self.name(name), kind=kind, group=group, host=self._host, **attributes)
        return name

    def join(self, one: str, other: str, link: str, count: int = 1) -> None:
        """``count`` parallel links between two nodes of this host."""
        connect(self.graph, self.name(one), self.name(other), self._links[link], count)


def connect(graph: nx.Graph[str], one: str, other: str, link: Link, count: float = 1) -> None:
    """Parallel links between two nodes; the uplinks of an oversubscribed switch may be a fraction."""
    graph.add_edge(one, other, link=link, bandwidth_bytes_per_s=count * link.bandwidth.value)
