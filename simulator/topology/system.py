"""A whole system as data: one file of ``topologies/``."""

from __future__ import annotations

from collections.abc import Sequence
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

    @property
    def nodes(self) -> int:
        """Boxes or racks that it is."""
        return 1 if self.joined is None else self.joined.nodes

    def beside(self, others: Sequence[System], join: Join) -> System:
        """Joined with nodes of another system, under one name; ``fabric`` is that of the first.

        Raises InputError where one is of several nodes by itself.
        """
        other = others[0]
        for system, nodes in ((self, join.nodes - len(others)), (other, 1)):
            if system.nodes != nodes:
                raise InputError(
                    f"{system.name} is {system.nodes} nodes already",
                    field="deployment.decode.system",
                    remedy="name systems of one node",
                )
        name = other.name if len(others) == 1 else f"{other.name}-x{len(others)}"
        changes: dict[str, Any] = {
            "name": f"{self.name}+{name}",
            "joined": join,
            "title": f"{self.title} and {len(others)} x {other.title}, joined by {JOINED_BY[join.fabric]}",
            "power": self.power.model_copy(
                update={"value": self.power.value + len(others) * other.power.value}
            ),
            "price": None,
        }
        if self.price is not None and other.price is not None:
            one, two = self.price.value, other.price.value
            total = {"low": one.low + len(others) * two.low, "high": one.high + len(others) * two.high}
            changes["price"] = self.price.model_copy(update={"value": one.model_copy(update=total)})
        return self.model_copy(update=changes)

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
