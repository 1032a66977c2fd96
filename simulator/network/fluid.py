"""Flows that share resources max-min fairly while simulated time passes.

A flow takes several resources at once, in fixed proportions: the bytes of a collective on every link that it
uses, the arithmetic and the memory traffic of a kernel on every GPU that runs it. Rates change only where a
flow starts or ends. All changes of one instant are solved together, and only for the flows that they reach:
first those held by a resource whose flows changed, then also those that their new rates would wrong, until
nobody is wronged.

Max-min fairness is the steady state of ideal congestion control. It does not know packets, incast, pauses or
the ramp of DCQCN; what those cost is in the efficiency of a link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from math import inf

from simpy import Event
from simpy.events import EventPriority

from simulator.clock import ARRIVAL_PRIORITY, Clock
from simulator.network.maxmin import max_min
from simulator.network.parties import Party

Resource = Hashable
"""Anything with a capacity: a direction of a link, the compute or the HBM of a GPU."""

SETTLE_PRIORITY = EventPriority(1 << 40)
"""Rates are solved when everything else of an instant has happened."""

SAME = 1e-9
"""Rates that differ by less than this part of them are the same."""


class Footprint:
    """What one unit of a rate takes of each resource. Made once, used by many flows."""

    __slots__ = ("_parties", "_parties_version", "demands", "shares")

    def __init__(self, demands: Mapping[Resource, float]) -> None:
        self.demands = dict(demands)
        self.shares: dict[_Bundle, float] = {}
        self._parties: list[Party] = []
        self._parties_version = -1

    def rivals(self, parties: Sequence[Party], version: int) -> list[Party]:
        """Parties that use a resource of it; looked up anew where ``version`` is another."""
        if self._parties_version != version:
            self._parties = [party for party in parties if not party.resources.isdisjoint(self.demands)]
            self._parties_version = version
        return self._parties


Parts = Sequence[tuple[Footprint, float]]
"""Footprints without a common resource, and the units of each per unit of a flow's rate."""


class _Bundle:
    """Resources that every footprint loads in the same proportion to their capacity: one stands for all."""

    __slots__ = ("flows", "members", "shares")

    def __init__(self, members: Iterable[Resource]) -> None:
        self.members = dict.fromkeys(members)
        self.shares: dict[Footprint, float] = {}
        self.flows: dict[Flow, float] = {}

    def left_by(self, flows: Container[Flow]) -> float:
        """What all but ``flows`` leave of it."""
        left = 1.0
        for flow, amount in self.flows.items():
            if flow not in flows:
                left -= flow.rate * amount
        return left

    def wronged_by(self, flows: Container[Flow]) -> list[Flow]:
        """Others on it whose rates are not fair any more, now that ``flows`` have new ones.

        A rate is fair if a full resource of its flow, or its limit, holds it, and nobody has more there.
        """
        used = highest = held_use = 0.0
        held_at = inf
        others = []
        for flow, amount in self.flows.items():
            rate = flow.rate
            held = flow.bottleneck is self
            used += rate * amount
            if flow not in flows:
                others.append(flow)
                if held:
                    held_use += rate * amount
            else:
                if held:
                    held_at = rate
                if rate > highest:
                    highest = rate
        if 1.0 - used > SAME * held_use:
            highest = inf  # the held could have more
        too_much = held_at * (1.0 + SAME)
        too_little = highest * (1.0 - SAME)
        return [
            other
            for other in others
            if other.rate > too_much or (other.rate < too_little and other.bottleneck is self)
        ]


class Flow:
    """Work in progress at a rate; ``lost_s`` are its seconds beyond those that it takes alone."""

    __slots__ = (
        "bottleneck",
        "demands",
        "event",
        "left",
        "limit",
        "lost_s",
        "on_done",
        "parts",
        "rate",
        "rivals",
        "since_s",
        "solo",
        "traffic",
    )

    def __init__(
        self, work: float, limit: float, on_done: Callable[[Flow], None], traffic: str, since_s: float
    ) -> None:
        self.demands: dict[_Bundle, float] = {}
        self.left = work
        self.limit = limit
        self.lost_s = 0.0
        self.on_done = on_done
        self.traffic = traffic
        self.since_s = since_s
        self.solo = limit
        self.rate = 0.0
        self.bottleneck: _Bundle | None = None
        self.event: Event | None = None
        self.parts: Parts = ()
        self.rivals: list[Party] = []


class FluidNetwork:
    """Everything that has a capacity, and the flows on it.

    ``lost_s`` gives, per resource that held somebody back and per kind of traffic that it held back, the
    seconds beyond those that the flows would have taken alone.
    """

    def __init__(self, clock: Clock, capacities: Mapping[Resource, float]) -> None:
        self.lost_s: dict[tuple[Resource, str], float] = defaultdict(float)
        self.changes = 0
        self._clock = clock
        self._capacities = dict(capacities)
        self._bundles: dict[Resource, _Bundle] = {}
        self._parties: list[Party] = []
        self._parties_version = 0
        self._flows: dict[Flow, None] = {}
        self._touched: dict[_Bundle, None] = {}

    def footprint(self, demands: Mapping[Resource, float]) -> Footprint:
        """A footprint of so many units of each resource per unit of rate; all above zero."""
        made = Footprint(demands)
        groups: dict[tuple[_Bundle | None, float], list[Resource]] = {}
        for resource, amount in made.demands.items():
            share = amount / self._capacities[resource]
            groups.setdefault((self._bundles.get(resource), share), []).append(resource)
        for (bundle, share), members in groups.items():
            mine = self._split(bundle, members)
            mine.shares[made] = share
            made.shares[mine] = share
        return made

    def capacity(self, resource: Resource) -> float:
        """What the resource gives per second."""
        return self._capacities[resource]

    def party(self, footprints: Iterable[Footprint], on_disturbed: Callable[[], None]) -> Party:
        """Somebody who uses these footprints; ``on_disturbed`` is called while it is active and was alone."""
        made = Party(on_disturbed)
        self._parties.append(made)
        self.move(made, footprints)
        return made

    def move(self, party: Party, footprints: Iterable[Footprint]) -> None:
        """From now on the party uses these footprints and no others; none of its flows is under way."""
        active = party.active
        party.leave()
        party.part()
        party.resources = frozenset(resource for one in footprints for resource in one.demands)
        for other in self._parties:
            if other is not party:
                party.meet(other)
        self._parties_version += 1
        for flow in self._flows:
            flow.rivals = self._rivals(flow.parts)
            party.busy_rivals += party in flow.rivals
        if active:
            party.enter()

    def start(
        self,
        parts: Parts,
        work: float,
        on_done: Callable[[Flow], None],
        *,
        traffic: str,
        limit: float = inf,
        of_party: bool = False,
    ) -> Flow:
        """A flow of ``work`` units, at a rate of ``limit`` units per second at most.

        ``on_done`` is called when it is through. The flows of a party are announced by its ``enter``.
        """
        flow = Flow(work, limit, on_done, traffic, self._clock.now)
        self._flows[flow] = None
        alone = True
        for footprint, weight in parts:
            for bundle, share in footprint.shares.items():
                alone = alone and not bundle.flows
                amount = flow.demands[bundle] = bundle.flows[flow] = weight * share
                if amount * flow.solo > 1.0:
                    flow.solo = 1.0 / amount
                    flow.bottleneck = bundle
        if alone:
            self._set_rate(flow, flow.solo)
        else:
            self._touch(flow.demands)
        if not of_party:
            flow.parts = parts
            flow.rivals = self._rivals(parts)
            for rival in flow.rivals:
                rival.rival_enters()
        return flow

    def cancel(self, flow: Flow) -> None:
        """The flow is given up; ``on_done`` is not called."""
        self._remove(flow)

    def set_capacity(self, resource: Resource, capacity: float) -> None:
        """The resource has another capacity, above zero, for footprints that are made from now on.

        A flow with an older one goes on with the shares that it had: what is under way ends as it began.
        """
        self._capacities[resource] = capacity

    def waiting(self) -> list[str]:
        """Flows that make no progress, in words."""
        return [
            f"a flow of {flow.traffic} waits for {_first(flow.bottleneck)}"
            for flow in self._flows
            if flow.rate <= 0.0
        ]

    def _rivals(self, parts: Parts) -> list[Party]:
        version = self._parties_version
        found = (footprint.rivals(self._parties, version) for footprint, _ in parts)
        return list(dict.fromkeys(chain.from_iterable(found)))

    def _split(self, bundle: _Bundle | None, members: list[Resource]) -> _Bundle:
        """The bundle of exactly ``members``, which are of one bundle or of none."""
        if bundle is not None and len(bundle.members) == len(members):
            return bundle
        made = _Bundle(members)
        for member in members:
            self._bundles[member] = made
        if bundle is not None:
            for member in members:
                del bundle.members[member]
            made.flows.update(bundle.flows)
            for flow, amount in made.flows.items():
                flow.demands[made] = amount
            made.shares.update(bundle.shares)
            for footprint, share in made.shares.items():
                footprint.shares[made] = share
        return made

    def _touch(self, bundles: Iterable[_Bundle]) -> None:
        """Other flows are on these than were."""
        settled = not self._touched
        self._touched.update(dict.fromkeys(bundles))
        if settled and self._touched:
            self._clock.call_at(self._clock.now, SETTLE_PRIORITY, self._settle)

    def _settle(self, event: Event) -> None:
        """Solve the rates that the changes of this instant reach."""
        reached = [
            flow
            for bundle in self._touched
            for flow in bundle.flows
            if flow.bottleneck is bundle or not flow.rate
        ]
        self._touched = {}
        before: dict[Flow, float] = {}
        while reached:
            for flow in reached:
                self._progress(flow)
                before[flow] = flow.rate
            bundles = _share(before)
            reached = [flow for bundle in bundles for flow in bundle.wronged_by(before)]
        for flow, rate in before.items():
            if flow.rate != rate or flow.event is None:
                self._set_rate(flow, flow.rate)
        self.changes += bool(before)

    def _set_rate(self, flow: Flow, rate: float) -> None:
        """From now on it has this rate; its progress until now is known."""
        flow.rate = rate
        flow.event = None
        if rate > 0.0:
            flow.event = self._clock.call_at(
                self._clock.now + flow.left / rate,
                ARRIVAL_PRIORITY,
                lambda event: self._complete(event, flow),
            )

    def _progress(self, flow: Flow) -> None:
        """Account for the time since the last change of the flow's rate."""
        now_s = self._clock.now
        passed_s = now_s - flow.since_s
        flow.since_s = now_s
        if passed_s > 0.0:
            flow.left = max(flow.left - flow.rate * passed_s, 0.0)
            if flow.rate < flow.solo:
                lost_s = passed_s * (1.0 - flow.rate / flow.solo)
                flow.lost_s += lost_s
                self.lost_s[_first(flow.bottleneck), flow.traffic] += lost_s

    def _complete(self, event: Event, flow: Flow) -> None:
        if event is not flow.event:
            return  # its rate changed since
        self._progress(flow)
        self._remove(flow)
        flow.on_done(flow)

    def _remove(self, flow: Flow) -> None:
        del self._flows[flow]
        flow.event = None
        for bundle in flow.demands:
            del bundle.flows[flow]
        self._touch(bundle for bundle in flow.demands if bundle.flows)
        for rival in flow.rivals:
            rival.rival_leaves()


def _share(flows: Collection[Flow]) -> dict[_Bundle, float]:
    """Give each its fair rate of what all others leave; returns what that is of every bundle."""
    left: dict[_Bundle, float] = {}
    for flow in flows:
        for bundle in flow.demands:
            if bundle not in left:
                left[bundle] = bundle.left_by(flows)
    demands = [flow.demands.items() for flow in flows]
    rates, bottlenecks = max_min(demands, left, [flow.limit for flow in flows])
    for flow, rate, bottleneck in zip(flows, rates, bottlenecks, strict=True):
        flow.rate = rate
        flow.bottleneck = bottleneck
    return left


def _first(bundle: _Bundle | None) -> Resource:
    return None if bundle is None else next(iter(bundle.members))
