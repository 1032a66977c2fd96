"""A box of GPUs joined by NVSwitch planes, with PCIe switches, sockets, NICs and host memory."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from simulator.spec import Bytes, Count, Sourced, Spec
from simulator.topology.builder import CPU, GPU, MEMORY, NIC, NVSWITCH, PCIE_SWITCH, GraphBuilder


class NvswitchBox(Spec):
    """HGX and DGX boxes. GPU i and NIC i hang on one PCIe switch; the sockets share those evenly."""

    kind: Literal["nvswitch-box"]
    device: str
    gpus: Count
    nvlink: str
    links_per_switch: Sourced[tuple[Count, ...]]
    """Links of a GPU to each NVSwitch; one entry per switch."""
    sockets: Count
    pcie_switches: Count
    pcie: str
    socket_link: str
    memory: Sourced[Bytes]
    """Of one socket."""
    memory_link: str
    network: str

    @model_validator(mode="after")
    def _shares_are_even(self) -> NvswitchBox:
        if self.gpus % self.pcie_switches or self.pcie_switches % self.sockets:
            raise ValueError(
                f"{self.gpus} GPUs, {self.pcie_switches} PCIe switches, {self.sockets} sockets: uneven shares"
            )
        return self

    @property
    def device_names(self) -> tuple[str, ...]:
        """Devices that it names."""
        return (self.device,)

    @property
    def link_names(self) -> tuple[str, ...]:
        """Classes of link that it names."""
        return (self.nvlink, self.pcie, self.network, self.socket_link, self.memory_link)

    def build(self, builder: GraphBuilder) -> None:
        """Add the box to a graph."""
        links = self.links_per_switch.value
        switches = [builder.node(f"nvsw{index}", NVSWITCH) for index in range(len(links))]
        for socket in range(self.sockets):
            cpu = builder.node(f"cpu{socket}", CPU, socket)
            memory = builder.node(f"mem{socket}", MEMORY, socket, capacity_bytes=self.memory.value)
            builder.join(cpu, memory, self.memory_link)
            if socket:
                builder.join(f"cpu{socket - 1}", cpu, self.socket_link)
        for index in range(self.pcie_switches):
            socket = index * self.sockets // self.pcie_switches
            builder.join(builder.node(f"pcisw{index}", PCIE_SWITCH, socket), f"cpu{socket}", self.pcie)
        for index in range(self.gpus):
            socket = index * self.sockets // self.gpus
            pcie_switch = f"pcisw{index * self.pcie_switches // self.gpus}"
            gpu = builder.node(f"gpu{index}", GPU, socket, device=self.device)
            builder.join(gpu, pcie_switch, self.pcie)
            builder.join(builder.node(f"nic{index}", NIC, socket, port=self.network), pcie_switch, self.pcie)
            for switch, count in zip(switches, links, strict=True):
                builder.join(gpu, switch, self.nvlink, count)
