"""What boxes with PCIe have in common: sockets, PCIe switches, GPUs, NICs and host memory."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator

from simulator.spec import Bytes, Count, Sourced, Spec
from simulator.topology.builder import CPU, GPU, MEMORY, NIC, PCIE_SWITCH, GraphBuilder


class Box(Spec):
    """GPUs and NICs on PCIe switches on sockets; each shares the next evenly, in order.

    NIC i is on rail i. A GPU's own NIC is one on its PCIe switch.
    """

    unit: ClassVar[str] = "node"
    device: str
    gpus: Count
    sockets: Count
    pcie_switches: Count
    pcie: str
    """From a PCIe switch to a GPU or a NIC."""
    uplink: str | None = None
    """From a PCIe switch to its CPU; None is that of ``pcie``."""
    socket_link: str | None = None
    memory: Sourced[Bytes]
    """Of one socket."""
    memory_link: str
    network: str

    @model_validator(mode="after")
    def _shares_are_even(self) -> Box:
        if self.gpus % self.pcie_switches or self.pcie_switches % self.sockets:
            raise ValueError(
                f"{self.gpus} GPUs, {self.pcie_switches} PCIe switches, {self.sockets} sockets: uneven shares"
            )
        if self.sockets > 1 and self.socket_link is None:
            raise ValueError(f"{self.sockets} sockets without a socket_link")
        return self

    @property
    def nics(self) -> int:
        """NICs for traffic between GPUs: one a GPU."""
        return self.gpus

    @property
    def device_names(self) -> tuple[str, ...]:
        """Devices that it names."""
        return (self.device,)

    @property
    def link_names(self) -> tuple[str, ...]:
        """Classes of link that it names."""
        optional = [link for link in (self.uplink, self.socket_link) if link is not None]
        return (self.pcie, self.network, self.memory_link, *optional)

    def build_host(self, builder: GraphBuilder) -> None:
        """Sockets, their memory and their PCIe switches."""
        for socket in range(self.sockets):
            cpu = builder.node(f"cpu{socket}", CPU, socket)
            memory = builder.node(f"mem{socket}", MEMORY, socket, capacity_bytes=self.memory.value)
            builder.join(cpu, memory, self.memory_link)
            if socket and self.socket_link is not None:
                builder.join(f"cpu{socket - 1}", cpu, self.socket_link)
        for index in range(self.pcie_switches):
            socket = index * self.sockets // self.pcie_switches
            builder.join(
                builder.node(f"pcisw{index}", PCIE_SWITCH, socket), f"cpu{socket}", self.uplink or self.pcie
            )

    def build_devices(self, builder: GraphBuilder, staged: bool = False) -> None:
        """GPUs, each with the NICs that come with it."""
        for index in range(self.gpus):
            socket = index * self.sockets // self.gpus
            own: dict[str, str] = {"nic": builder.name(f"nic{index * self.nics // self.gpus}")}
            if staged:
                own["staging"] = builder.name(f"mem{socket}")
            gpu = builder.node(f"gpu{index}", GPU, socket, device=self.device, **own)
            builder.join(gpu, f"pcisw{index * self.pcie_switches // self.gpus}", self.pcie)
        for index in range(self.nics):
            socket = index * self.sockets // self.nics
            nic = builder.node(f"nic{index}", NIC, socket, port=self.network, rail=index)
            builder.join(nic, f"pcisw{index * self.pcie_switches // self.nics}", self.pcie)
