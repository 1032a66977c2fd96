"""A small machine whose one GPU and CPU share one memory."""

from __future__ import annotations

from typing import ClassVar, Literal

from simulator.spec import Count, Sourced, Spec
from simulator.topology.builder import CPU, GPU, NIC, GraphBuilder


class UnifiedNode(Spec):
    """DGX Spark: the NIC is on the CPU's side, and what it sends comes out of the shared memory."""

    unit: ClassVar[str] = "node"
    kind: Literal["unified-node"]
    device: str
    """Its memory is that of the CPU too."""
    c2c: str
    pcie: str
    pcie_links: Sourced[Count]
    """Between CPU and NIC."""
    network: str

    @property
    def device_names(self) -> tuple[str, ...]:
        """Devices that it names."""
        return (self.device,)

    @property
    def link_names(self) -> tuple[str, ...]:
        """Classes of link that it names."""
        return (self.c2c, self.pcie, self.network)

    def build(self, builder: GraphBuilder) -> None:
        """Add the machine to a graph."""
        builder.node("cpu0", CPU)
        builder.node("gpu0", GPU, device=self.device, nic=builder.name("nic0"))
        builder.node("nic0", NIC, port=self.network, rail=0)
        builder.join("gpu0", "cpu0", self.c2c)
        builder.join("cpu0", "nic0", self.pcie, self.pcie_links.value)
