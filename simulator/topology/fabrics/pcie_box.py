"""A box of PCIe cards, with or without NVLink bridges between some of them."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

from pydantic import model_validator

from simulator.spec import Count, Sourced, Spec
from simulator.topology.builder import GraphBuilder
from simulator.topology.fabrics.box import Box


class Bridges(Spec):
    """NVLink bridges that join each GPU of a group to each other: pairs or quads."""

    link: str
    group: Count
    links_per_peer: Sourced[Count]


class PcieBox(Box):
    """A NIC and some cards on each PCIe switch; beyond bridges, cards talk over those.

    Without ``peer_to_peer`` what one card sends another over PCIe passes through the memory of its socket.
    """

    kind: Literal["pcie-box"]
    peer_to_peer: Sourced[bool]
    bridges: Bridges | None = None

    @model_validator(mode="after")
    def _groups_are_even(self) -> PcieBox:
        if self.bridges is not None and self.gpus % self.bridges.group:
            raise ValueError(f"{self.gpus} GPUs do not make bridged groups of {self.bridges.group}")
        return self

    @property
    def nics(self) -> int:
        """One a PCIe switch."""
        return self.pcie_switches

    @property
    def link_names(self) -> tuple[str, ...]:
        """Classes of link that it names."""
        bridges = () if self.bridges is None else (self.bridges.link,)
        return (*bridges, *super().link_names)

    def build(self, builder: GraphBuilder) -> None:
        """Add the box to a graph."""
        self.build_host(builder)
        self.build_devices(builder, staged=not self.peer_to_peer.value)
        if self.bridges is not None:
            self._bridge(builder, self.bridges)

    def _bridge(self, builder: GraphBuilder, bridges: Bridges) -> None:
        for first in range(0, self.gpus, bridges.group):
            for one, other in combinations(range(first, first + bridges.group), 2):
                builder.join(f"gpu{one}", f"gpu{other}", bridges.link, bridges.links_per_peer.value)
