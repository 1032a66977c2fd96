"""A whole system as data: one file of ``topologies/``."""

from __future__ import annotations

from typing import Any

from simulator.errors import InputError
from simulator.hardware import UsdRange, WithSources
from simulator.spec import Sourced, Watts
from simulator.topology.fabrics import Fabric
from simulator.topology.join import JOINED_BY, Join


class System(WithSources):
    """A system that is bought and placed as one."""

    fabric: Fabric
    joined: Join | None = None
    """How many of ``fabric`` it is; None is one. Power and price are of all together."""
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

    def times(self, join: Join) -> System:
        """Several of this system, joined; power and price without the switches between them."""
        if self.joined is not None:
            raise InputError(
                f"{self.name} is {self.joined.nodes} nodes already",
                field="nodes",
                remedy="name the system of one node, or leave --nodes and --fabric out",
            )
        changes: dict[str, Any] = {
            "name": f"{self.name}-x{join.nodes}",
            "joined": join,
            "title": f"{join.nodes} x {self.title}, joined by {JOINED_BY[join.fabric]}",
            "power": self.power.model_copy(update={"value": join.nodes * self.power.value}),
        }
        if self.price is not None:
            each = self.price.value
            total = each.model_copy(update={"low": join.nodes * each.low, "high": join.nodes * each.high})
            changes["price"] = self.price.model_copy(update={"value": total})
        return self.model_copy(update=changes)
