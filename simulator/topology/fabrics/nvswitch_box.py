"""A box of GPUs joined by NVSwitch planes, with PCIe switches, sockets, NICs and host memory."""

from __future__ import annotations

from typing import Literal

from simulator.spec import Count, Sourced
from simulator.topology.builder import NVSWITCH, GraphBuilder
from simulator.topology.fabrics.box import Box


class NvswitchBox(Box):
    """HGX and DGX boxes. GPU i and NIC i hang on one PCIe switch; the sockets share those evenly."""

    kind: Literal["nvswitch-box"]
    nvlink: str
    links_per_switch: Sourced[tuple[Count, ...]]
    """Links of a GPU to each NVSwitch; one entry per switch."""

    @property
    def link_names(self) -> tuple[str, ...]:
        """Classes of link that it names."""
        return (self.nvlink, *super().link_names)

    def build(self, builder: GraphBuilder) -> None:
        """Add the box to a graph."""
        links = self.links_per_switch.value
        switches = [builder.node(f"nvsw{index}", NVSWITCH) for index in range(len(links))]
        self.build_host(builder)
        self.build_devices(builder)
        for index in range(self.gpus):
            for switch, count in zip(switches, links, strict=True):
                builder.join(f"gpu{index}", switch, self.nvlink, count)
