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

FORWARDING = frozenset({NVSWITCH, PCIE_SWITCH, CPU, NIC})
"""Kinds of node that pass on what is not for them; a GPU or a memory does not."""


class GraphBuilder:
    """Collects the nodes and links of a system.

    Nodes have ``kind`` and ``group`` (tray or socket). Edges have ``link`` and ``bandwidth_bytes_per_s`` of
    one direction, all parallel links together.
    """

    def __init__(self, links: Mapping[str, Link]) -> None:
        self.graph: nx.Graph[str] = nx.Graph()
        self._links = links

    def node(self, name: str, kind: str, group: int = 0, **attributes: Any) -> str:
        """A new node."""
        self.graph.add_node(name, kind=kind, group=group, **attributes)
        return name

    def join(self, one: str, other: str, link: str, count: int = 1) -> None:
        """``count`` parallel links between two nodes."""
        described = self._links[link]
        self.graph.add_edge(
            one, other, link=described, bandwidth_bytes_per_s=count * described.bandwidth.value
        )
