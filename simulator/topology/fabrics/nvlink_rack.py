"""A rack of trays, each with GPUs, Grace CPUs and NICs, joined by NVSwitch ASICs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from simulator.spec import Bytes, Count, Sourced, Spec
from simulator.topology.builder import CPU, GPU, MEMORY, NIC, NVSWITCH, GraphBuilder


class NvlinkRack(Spec):
    """NVL72: each GPU has one link to each ASIC; trays matter for CPU memory, NICs and failures.

    NIC i of every tray is on rail i.
    """

    unit: ClassVar[str] = "rack"
    kind: Literal["nvlink-rack"]
    device: str
    trays: Count
    gpus_per_tray: Count
    cpus_per_tray: Count
    nvlink: str
    switches: Sourced[Count]
    """ASICs of the rack; each GPU has one link to each."""
    c2c: str
    socket_link: str
    memory: Sourced[Bytes]
    """Of one CPU."""
    memory_link: str
    pcie: str
    network: str

    @model_validator(mode="after")
    def _shares_are_even(self) -> NvlinkRack:
        if self.gpus_per_tray % self.cpus_per_tray:
            raise ValueError("the GPUs of a tray do not share its CPUs evenly")
        return self

    @property
    def device_names(self) -> tuple[str, ...]:
        """Devices that it names."""
        return (self.device,)

    @property
    def link_names(self) -> tuple[str, ...]:
        """Classes of link that it names."""
        return (self.nvlink, self.c2c, self.socket_link, self.pcie, self.network, self.memory_link)

    def build(self, builder: GraphBuilder) -> None:
        """Add the rack to a graph."""
        switches = [builder.node(f"nvsw{index}", NVSWITCH) for index in range(self.switches.value)]
        for tray in range(self.trays):
            self._build_tray(builder, tray, switches)

    def _build_tray(self, builder: GraphBuilder, tray: int, switches: list[str]) -> None:
        for index in range(self.cpus_per_tray):
            cpu = builder.node(f"tray{tray}.grace{index}", CPU, tray)
            memory = builder.node(f"tray{tray}.mem{index}", MEMORY, tray, capacity_bytes=self.memory.value)
            builder.join(cpu, memory, self.memory_link)
            if index:
                builder.join(f"tray{tray}.grace{index - 1}", cpu, self.socket_link)
        for index in range(self.gpus_per_tray):
            nic = builder.node(f"tray{tray}.nic{index}", NIC, tray, port=self.network, rail=index)
            own = builder.name(nic)
            gpu = builder.node(f"tray{tray}.gpu{index}", GPU, tray, device=self.device, nic=own)
            cpu = f"tray{tray}.grace{index * self.cpus_per_tray // self.gpus_per_tray}"
            builder.join(gpu, cpu, self.c2c)
            builder.join(gpu, nic, self.pcie)
            for switch in switches:
                builder.join(gpu, switch, self.nvlink)
