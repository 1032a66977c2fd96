"""A step piece by piece, on devices and links that others may use at the same time.

Kernels between two collectives hold the compute and the HBM of every GPU of their group; a collective is a
wait for its latency and one flow per shape of its rounds. Alone, a step takes what the cost model says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from math import inf, ulp
from typing import NamedTuple, Protocol

from simpy import Event
from simpy.events import EventPriority

from simulator.clock import Clock
from simulator.cost.passage import Collective, Passage, Work
from simulator.network.collectives import AffineCost, AllReduceModel
from simulator.network.fluid import Flow, FluidNetwork, Footprint, Parts
from simulator.network.transfers import PhaseFootprint, phase_footprints

COMPUTE, HBM = "compute", "hbm"

SLACK_ULPS = 1024
"""A walk is this much ahead: rounding piece by piece must not pass the end of the step as a whole."""


class Shape(NamedTuple):
    """What the seconds of one step depend on."""

    decodes: int
    kv_tokens: int
    chunk_tokens: int
    chunks: int
    completions: int
    attention_s: float


class Step(NamedTuple):
    """A step under way, with the times it has when it is alone."""

    shape: Shape
    start_s: float
    end_s: float


class Waits(NamedTuple):
    """Seconds of a step beyond those that its kernels and collectives take alone."""

    device_s: float = 0.0
    link_s: float = 0.0
    bubble_s: float = 0.0
    send_s: float = 0.0


NO_WAITS = Waits()


class Pieces(Protocol):
    """What a step consists of."""

    def passage(
        self,
        decodes: int,
        kv_tokens: int,
        chunk_tokens: int,
        chunks: int,
        completions: int,
        attention_s: float,
    ) -> Passage:
        """The pieces of a step."""


class Leg(NamedTuple):
    """A piece of a step as the network sees it; without parts it is a wait."""

    seconds: float
    """Alone."""
    parts: Parts
    work: float
    limit: float
    link: bool
    """Whether it is on links rather than on devices."""


class GroupFootprints:
    """What the flows of one tensor-parallel group take of devices and links."""

    def __init__(self, network: FluidNetwork, gpus: Sequence[str], all_reduce: AllReduceModel) -> None:
        self._network = network
        self._all_reduce = all_reduce
        self._compute = network.footprint({(gpu, COMPUTE): 1.0 for gpu in gpus})
        self._hbm = network.footprint({(gpu, HBM): 1.0 for gpu in gpus})
        self._phases: dict[AffineCost, list[PhaseFootprint]] = {}
        self._collectives: dict[float, tuple[Leg, ...]] = {}

    def prepare(self, costs: Sequence[AffineCost]) -> tuple[Footprint, ...]:
        """Every footprint of the group, for collectives that may be ``costs``."""
        phases = chain.from_iterable(map(self._phases_of, costs))
        links = [footprint for phase in phases for footprint, _ in phase.parts]
        return (self._compute, self._hbm, *links)

    def work(self, piece: Work) -> Leg:
        """Kernels that run one after another."""
        seconds = piece.seconds
        parts = [
            (footprint, busy_s / seconds)
            for footprint, busy_s in ((self._compute, piece.compute_s), (self._hbm, piece.hbm_s))
            if busy_s > 0.0
        ]
        return Leg(seconds, parts, seconds, 1.0, link=False)

    def collective(self, nbytes: float) -> tuple[Leg, ...]:
        """An all-reduce: its latency, then a flow for each shape of its rounds."""
        known = self._collectives.get(nbytes)
        if known is None:
            cost = self._all_reduce.best(nbytes)
            known = self._collectives[nbytes] = () if cost is None else tuple(self._legs(cost, nbytes))
        return known

    def _legs(self, cost: AffineCost, nbytes: float) -> Iterator[Leg]:
        yield Leg(cost.latency_s, (), 0.0, 0.0, link=True)
        for parts, heaviest, s_per_byte in self._phases_of(cost):
            yield Leg(s_per_byte * nbytes, parts, heaviest * nbytes, inf, link=True)

    def _phases_of(self, cost: AffineCost) -> list[PhaseFootprint]:
        known = self._phases.get(cost)
        if known is None:
            known = self._phases[cost] = phase_footprints(self._network, cost)
        return known


class Equipment(NamedTuple):
    """What the steps of a group consist of, and what these pieces take of devices and links."""

    pieces: Pieces
    footprints: GroupFootprints
    all_footprints: Sequence[Footprint]


class Execution:
    """Steps of one group of GPUs on the shared network.

    ``closely``: every step piece by piece, not only those that may be disturbed. ``on_disturbed`` is called
    when somebody else becomes active on its devices or links.
    """

    def __init__(
        self,
        clock: Clock,
        network: FluidNetwork,
        equipment: Equipment,
        priority: EventPriority,
        *,
        closely: bool,
        on_disturbed: Callable[[], None],
    ) -> None:
        self._device_wait_s = 0.0
        self._link_wait_s = 0.0
        self.walking = False
        self._clock = clock
        self._network = network
        self.equipment = equipment
        self._priority = priority
        self._closely = closely
        self._party = network.party(equipment.all_footprints, on_disturbed)
        self._legs: Iterator[Leg] = iter(())
        self._leg: Leg | None = None
        self._flow: Flow | None = None
        self._event: Event | None = None
        self._end_s = 0.0
        self._slack_s = 0.0
        self._on_end: Callable[[float], None] = lambda end_s: None

    def equip(self, equipment: Equipment) -> None:
        """The next step is of other pieces, or on other devices and links."""
        if equipment is not self.equipment:
            self.equipment = equipment
            self._network.move(self._party, equipment.all_footprints)

    def enter(self) -> bool:
        """A step begins; whether it has to go piece by piece."""
        self._party.enter()
        return self._closely or not self._party.alone

    def leave(self) -> None:
        """No step follows for now."""
        self._party.leave()

    def waits(self) -> Waits:
        """What the walk that just ended waited for; asked once."""
        if not self._device_wait_s and not self._link_wait_s:
            return NO_WAITS
        waits = Waits(self._device_wait_s, self._link_wait_s)
        self._device_wait_s = self._link_wait_s = 0.0
        return waits

    def walk(self, step: Step, on_end: Callable[[float], None]) -> None:
        """Go on with a step piece by piece; ``on_end`` is called with the time of its end.

        A step that nobody slows down ends at ``step.end_s``.
        """
        self.walking = True
        self._device_wait_s = self._link_wait_s = 0.0
        self._end_s = step.end_s
        self._slack_s = SLACK_ULPS * ulp(step.end_s)
        self._on_end = on_end
        self._legs = self._all_legs(self.equipment.pieces.passage(*step.shape))
        self._skip(self._clock.now - step.start_s + self._slack_s)

    def abort(self) -> None:
        """The step is void."""
        if self._flow is not None:
            self._network.cancel(self._flow)
        self._flow = self._event = None
        self.walking = False
        self._party.leave()

    def _all_legs(self, passage: Passage) -> Iterator[Leg]:
        layer = self._legs_of(passage.layer)
        return chain(
            self._legs_of(passage.before),
            chain.from_iterable(repeat(layer, passage.layers)),
            self._legs_of(passage.after),
        )

    def _legs_of(self, pieces: Sequence[Work | Collective]) -> list[Leg]:
        footprints = self.equipment.footprints
        legs: list[Leg] = []
        for piece in pieces:
            if isinstance(piece, Collective):
                legs += footprints.collective(piece.nbytes)
            elif piece.seconds > 0.0:
                legs.append(footprints.work(piece))
        return legs

    def _skip(self, elapsed_s: float) -> None:
        """Begin with the leg that is under way after so many seconds."""
        for leg in self._legs:
            if elapsed_s < leg.seconds:
                self._begin(leg, elapsed_s)
                return
            elapsed_s -= leg.seconds
        self._finish()

    def _begin(self, leg: Leg, elapsed_s: float = 0.0) -> None:
        self._leg = leg
        if not leg.parts:
            end_s = self._clock.now + leg.seconds - elapsed_s
            self._event = self._clock.call_at(end_s, self._priority, self._waited)
            return
        left = leg.work * (1.0 - elapsed_s / leg.seconds) if elapsed_s else leg.work
        self._flow = self._network.start(
            leg.parts,
            left,
            self._flowed,
            traffic="all-reduce" if leg.link else "kernels",
            limit=leg.limit,
            of_party=True,
        )

    def _waited(self, event: Event) -> None:
        if event is self._event:
            self._next()

    def _flowed(self, flow: Flow) -> None:
        assert self._leg is not None
        if flow.lost_s:
            if self._leg.link:
                self._link_wait_s += flow.lost_s
            else:
                self._device_wait_s += flow.lost_s
        self._flow = None
        self._next()

    def _next(self) -> None:
        leg = next(self._legs, None)
        if leg is None:
            self._finish()
        else:
            self._begin(leg)

    def _finish(self) -> None:
        self.walking = False
        self._event = None
        now_s = self._clock.now
        if self._device_wait_s or self._link_wait_s:
            now_s += self._slack_s
        end_s = max(now_s, self._end_s)
        self._settle(end_s - self._end_s)
        self._on_end(end_s)

    def _settle(self, late_s: float) -> None:
        """Make the waits what the step ended late by: rounding piece by piece leaves them a little off."""
        waits_s = self._device_wait_s + self._link_wait_s
        if waits_s:
            self._link_wait_s *= late_s / waits_s
            self._device_wait_s = late_s - self._link_wait_s
