"""What slows down or fails, when, and what is left then.

Each kind of event names one part and says in what state it is from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_serializer, field_validator

from simulator.errors import InputError, nearest
from simulator.spec import Seconds, Spec
from simulator.topology.builder import GPU, NIC, NVSWITCH
from simulator.topology.graph import Edge, Topology

Factor = Annotated[float, Field(gt=0, le=1)]
State = Literal["down", "up"]
Place = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Condition:
    """What is slower than built, or gone; nothing, if nothing is said."""

    bandwidth: Mapping[Edge, float] = field(default_factory=dict)
    """Factor on both directions of a link, under its edge of the graph."""
    lost: frozenset[str] = frozenset()
    """Nodes of the graph."""
    speed: Mapping[str, float] = field(default_factory=dict)
    """Factor on compute and HBM of a GPU."""
    down: frozenset[int] = frozenset()
    """Replicas."""

    def of(self, topology: Topology) -> Topology:
        """What is left of the topology."""
        return topology.damaged(self.lost, self.bandwidth)

    def slowest(self, gpus: Iterable[str]) -> float:
        """The speed of a group, whose ranks wait for each other."""
        return min(self.speed.get(gpu, 1.0) for gpu in gpus)


class _Event(Spec):
    """Something that happens to one part at one time."""

    at: Seconds

    @field_validator("at")
    @classmethod
    def _not_before_the_run(cls, at_s: float) -> float:
        if at_s < 0:
            raise ValueError("a run begins at 0 s")
        return at_s

    @field_serializer("at")
    def _with_unit(self, at_s: float) -> str:
        return f"{at_s!r} s"


class LinkEvent(_Event):
    """Links at another bandwidth: all of a class, or the one between two nodes, as ``gpu0--nvsw1``."""

    link: str
    bandwidth: Factor

    def change(self, condition: Condition, topology: Topology, replicas: int) -> Condition:
        """The condition after it."""
        edges = self._edges(topology)
        return replace(condition, bandwidth={**condition.bandwidth, **dict.fromkeys(edges, self.bandwidth)})

    def _edges(self, topology: Topology) -> list[Edge]:
        edges = list(topology.graph.edges)
        ends = tuple(self.link.split("--"))
        found = [
            edge for edge in edges if ends in (edge, edge[::-1]) or topology.link(edge).name == self.link
        ]
        if not found:
            classes = {topology.link(edge).name for edge in edges}
            known = ["--".join(edge) for edge in edges] if len(ends) == 2 else sorted(classes)
            raise _unknown("link", self.link, known, topology)
        return found


class _NodeEvent(_Event):
    """A node of the graph fails, or is back."""

    state: State

    def _after(self, condition: Condition, node: str) -> Condition:
        lost = condition.lost | {node} if self.state == "down" else condition.lost - {node}
        return replace(condition, lost=lost)


class NicEvent(_NodeEvent):
    """A NIC by its name, or by its place among all, from 0."""

    nic: Place | str

    def change(self, condition: Condition, topology: Topology, replicas: int) -> Condition:
        """The condition after it."""
        return self._after(condition, _named("nic", self.nic, NIC, topology))


class NvswitchEvent(_NodeEvent):
    """An NVSwitch plane by its name, or by its place among all, from 0."""

    nvswitch: Place | str

    def change(self, condition: Condition, topology: Topology, replicas: int) -> Condition:
        """The condition after it."""
        return self._after(condition, _named("nvswitch", self.nvswitch, NVSWITCH, topology))


class GpuEvent(_Event):
    """A GPU by its name or place computes and reads its memory at another speed."""

    gpu: Place | str
    speed: Factor

    def change(self, condition: Condition, topology: Topology, replicas: int) -> Condition:
        """The condition after it."""
        gpu = _named("gpu", self.gpu, GPU, topology)
        return replace(condition, speed={**condition.speed, gpu: self.speed})


class ReplicaEvent(_Event):
    """A replica by its number fails, or is back with an empty cache."""

    replica: Place
    state: State

    def change(self, condition: Condition, topology: Topology, replicas: int) -> Condition:
        """The condition after it."""
        if self.replica >= replicas:
            raise InputError(
                f"no replica {self.replica} among {replicas}",
                field="replica",
                remedy=f"count from 0 to {replicas - 1}",
            )
        down = condition.down | {self.replica} if self.state == "down" else condition.down - {self.replica}
        return replace(condition, down=down)


PARTS = ("link", "nic", "nvswitch", "gpu", "replica")
"""Keys that name the part, one for each kind of event."""


def _part(data: Any) -> str | None:
    """The tag of the kind of event that plain data or an event is."""
    named = [part for part in PARTS if (part in data if isinstance(data, dict) else hasattr(data, part))]
    return f"{named[0]} event" if len(named) == 1 else None


Event = Annotated[
    Annotated[LinkEvent, Tag("link event")]
    | Annotated[NicEvent, Tag("nic event")]
    | Annotated[NvswitchEvent, Tag("nvswitch event")]
    | Annotated[GpuEvent, Tag("gpu event")]
    | Annotated[ReplicaEvent, Tag("replica event")],
    Discriminator(
        _part,
        custom_error_type="part",
        custom_error_message="an event names one part: " + ", ".join(PARTS),
    ),
]


def conditions(
    events: Iterable[Event], topology: Topology, replicas: int
) -> Iterator[tuple[float, Condition]]:
    """When something changes, and the condition from then on; events of one time in their order.

    Raises InputError for a part that there is not.
    """
    condition = Condition()
    in_order = sorted(enumerate(events), key=lambda numbered: numbered[1].at)
    for at_s, together in groupby(in_order, key=lambda numbered: numbered[1].at):
        for index, event in together:
            try:
                condition = event.change(condition, topology, replicas)
            except InputError as error:
                where = f"events.{index}.{error.field}"
                raise InputError(error.reason, field=where, remedy=error.remedy) from None
        yield at_s, condition


def _named(part: str, name: str | int, kind: str, topology: Topology) -> str:
    """A node of a kind by its name or its place."""
    nodes = [node for node, data in topology.graph.nodes(data=True) if data["kind"] == kind]
    if isinstance(name, int) and name < len(nodes):
        return nodes[name]
    if name not in nodes:
        raise _unknown(part, name, nodes, topology)
    return str(name)


def _unknown(part: str, name: str | int, known: list[str], topology: Topology) -> InputError:
    system = topology.system.name
    if not known:
        return InputError(f"{system} has no {part}", field=part, remedy="leave the event out")
    if isinstance(name, int):
        reason = f"no {part} {name} among the {len(known)} of {system}"
        return InputError(reason, field=part, remedy=f"count from 0 to {len(known) - 1}")
    return InputError(f"no {part} of {system} is called {name!r}", field=part, remedy=nearest(name, known))
