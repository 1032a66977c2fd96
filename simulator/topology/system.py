"""A whole system as data: one file of ``topologies/``."""

from __future__ import annotations

from simulator.hardware import UsdRange, WithSources
from simulator.spec import Sourced, Watts
from simulator.topology.fabrics import Fabric


class System(WithSources):
    """A system that is bought and placed as one."""

    fabric: Fabric
    in_network_reduction: Sourced[bool]
    """Whether its switches add up what they are sent (NVLink SHARP)."""
    host_slowdown: Sourced[float]
    """Host time of its CPU over that of the x86 hosts on which engine profiles are fitted."""
    power: Sourced[Watts]
    """Nameplate maximum of the whole system."""
    price: Sourced[UsdRange] | None = None

    @property
    def device_names(self) -> tuple[str, ...]:
        """Devices that it names."""
        return self.fabric.device_names

    @property
    def link_names(self) -> tuple[str, ...]:
        """Classes of link that it names."""
        return self.fabric.link_names
