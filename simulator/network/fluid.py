"""Flows that share resources max-min fairly while simulated time passes.

A flow takes several resources at once, in fixed proportions: the bytes of a collective on every link that it
uses, the arithmetic and the memory traffic of a kernel on every GPU that runs it. Rates change only where a
flow starts or ends; all changes of one instant are solved together, and only flows that share something,
directly or through others, are solved again.

Max-min fairness is the steady state of ideal congestion control. It does not know packets, incast, pauses or
the ramp of DCQCN; what those cost is in the efficiency of a link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import inf

from simpy import Event
from simpy.events import EventPriority

from simulator.clock import ARRIVAL_PRIORITY, Clock
from simulator.network.maxmin import max_min

Resource = Hashable
"""Anything with a capacity: a direction of a link, the compute or the HBM of a GPU."""

SETTLE_PRIORITY = EventPriority(1 << 40)
"""Rates are solved when everything else of an instant has happened."""


class Footprint:
    """What one unit of a rate takes of each resource. Made once, used by many flows."""

    __slots__ = ("_parties", "_parties_known", "demands", "shares")

    def __init__(self, demands: Mapping[Resource, float]) -> None:
        self.demands = dict(demands)
        self.shares: dict[_Bundle, float] = {}
        self._parties: list[Party] = []
        self._parties_known = 0

    @property
    def peak(self) -> float:
        """Share of the capacity of its tightest resource that one unit of the rate takes."""
        return max(self.shares.values())

    def rivals(self, parties: Sequence[Party]) -> list[Party]:
        """Parties that use a resource of it."""
        if self._parties_known != len(parties):
            self._parties = [party for party in parties if not party.resources.isdisjoint(self.demands)]
            self._parties_known = len(parties)
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


class Flow:
    """Work in progress at a rate; ``lost_s`` are its seconds beyond those that it takes alone."""

    __slots__ = (
        "_event",
        "_left",
        "_rate",
        "_since_s",
        "_solo",
        "_squeezed_by",
        "limit",
        "lost_s",
        "on_done",
    )

    def __init__(self, work: float, solo: float, limit: float, on_done: Callable[[Flow], None]) -> None:
        self.limit = limit
        self.lost_s = 0.0
        self.on_done = on_done
        self._left = work
        self._solo = solo
        self._rate = 0.0
        self._since_s = 0.0
        self._event: Event | None = None
        self._squeezed_by: Resource | None = None


class Party:
    """Somebody whose flows come and go over known resources, told when others may get into its way."""

    __slots__ = ("_on_disturbed", "_rivals", "active", "busy_rivals", "resources")

    def __init__(self, resources: frozenset[Resource], on_disturbed: Callable[[], None]) -> None:
        self.resources = resources
        self.active = False
        self.busy_rivals = 0
        self._rivals: list[Party] = []
        self._on_disturbed = on_disturbed

    @property
    def alone(self) -> bool:
        """Whether nobody else is active on its resources."""
        return not self.busy_rivals

    @property
    def has_rivals(self) -> bool:
        """Whether another party ever could be."""
        return bool(self._rivals)

    def meet(self, other: Party) -> None:
        """Become rivals where both use a resource."""
        if not self.resources.isdisjoint(other.resources):
            self._rivals.append(other)
            other._rivals.append(self)

    def enter(self) -> None:
        """From now on its flows may come."""
        if not self.active:
            self.active = True
            for rival in self._rivals:
                rival.rival_enters()

    def leave(self) -> None:
        """No flow of it runs or comes before it enters again."""
        if self.active:
            self.active = False
            for rival in self._rivals:
                rival.rival_leaves()

    def rival_enters(self) -> None:
        """Somebody else is active on its resources."""
        self.busy_rivals += 1
        if self.busy_rivals == 1 and self.active:
            self._on_disturbed()

    def rival_leaves(self) -> None:
        """Somebody else is done."""
        self.busy_rivals -= 1


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
        self._flows: dict[Flow, tuple[Parts, str, list[Party]]] = {}
        self._unsettled: dict[Flow, None] = {}

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
        resources = frozenset(resource for one in footprints for resource in one.demands)
        made = Party(resources, on_disturbed)
        for other in self._parties:
            made.meet(other)
        self._parties.append(made)
        return made

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
        solo = limit
        for footprint, weight in parts:
            solo = min(solo, 1.0 / (weight * footprint.peak))
        flow = Flow(work, solo, limit, on_done)
        flow._since_s = self._clock.now
        rivals: list[Party] = [] if of_party else self._rivals(parts)
        self._flows[flow] = (parts, traffic, rivals)
        alone = True
        for footprint, weight in parts:
            for bundle, share in footprint.shares.items():
                if bundle.flows:
                    alone = False
                bundle.flows[flow] = weight * share
        if alone:
            self._set_rate(flow, solo, None)
        else:
            self._unsettle((flow,))
        for rival in rivals:
            rival.rival_enters()
        return flow

    def cancel(self, flow: Flow) -> None:
        """The flow is given up; ``on_done`` is not called."""
        self._remove(flow)

    def set_capacity(self, resource: Resource, capacity: float) -> None:
        """From now on the resource has another capacity, above zero."""
        factor = self._capacities[resource] / capacity
        self._capacities[resource] = capacity
        bundle = self._bundles.get(resource)
        if bundle is None or factor == 1.0:
            return
        alone = self._split(bundle, [resource])
        for footprint in alone.shares:
            alone.shares[footprint] *= factor
            footprint.shares[alone] *= factor
        for flow in alone.flows:
            alone.flows[flow] *= factor
        self._unsettle(alone.flows)

    def waiting(self) -> list[str]:
        """Flows that make no progress, in words."""
        stuck = [(flow, traffic) for flow, (_, traffic, _) in self._flows.items() if flow._rate <= 0.0]
        return [f"a flow of {traffic} waits for {flow._squeezed_by}" for flow, traffic in stuck]

    def _rivals(self, parts: Parts) -> list[Party]:
        found = dict.fromkeys(party for footprint, _ in parts for party in footprint.rivals(self._parties))
        return list(found)

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
            made.shares.update(bundle.shares)
            for footprint, share in made.shares.items():
                footprint.shares[made] = share
        return made

    def _unsettle(self, flows: Iterable[Flow]) -> None:
        if not self._unsettled:
            self._clock.call_at(self._clock.now, SETTLE_PRIORITY, self._settle)
        self._unsettled.update(dict.fromkeys(flows))

    def _settle(self, event: Event) -> None:
        """Solve the rates of all flows that share something with one that is not settled."""
        flows = self._related()
        self._unsettled = {}
        if not flows:
            return
        self.changes += 1
        demands = [demand for _, demand in flows]
        ones = {bundle: 1.0 for demand in demands for bundle, _ in demand}
        rates, bottlenecks = max_min(demands, ones, [flow.limit for flow, _ in flows])
        for (flow, _), rate, bundle in zip(flows, rates, bottlenecks, strict=True):
            if rate != flow._rate or flow._event is None:
                self._set_rate(flow, rate, None if bundle is None else next(iter(bundle.members)))

    def _related(self) -> list[tuple[Flow, list[tuple[_Bundle, float]]]]:
        """Flows that are not settled and all that share a resource with one of these, with their demands."""
        found = [flow for flow in self._unsettled if flow in self._flows]
        known = set(found)
        seen: set[_Bundle] = set()
        related = []
        for flow in found:  # grows in the loop
            demand = []
            for footprint, weight in self._flows[flow][0]:
                for bundle, share in footprint.shares.items():
                    demand.append((bundle, weight * share))
                    if bundle not in seen:
                        seen.add(bundle)
                        for other in bundle.flows:
                            if other not in known:
                                known.add(other)
                                found.append(other)
            related.append((flow, demand))
        return related

    def _set_rate(self, flow: Flow, rate: float, squeezed_by: Resource | None) -> None:
        self._progress(flow)
        flow._rate = rate
        flow._squeezed_by = squeezed_by
        now_s = self._clock.now
        if rate > 0.0:
            flow._event = self._clock.call_at(
                now_s + flow._left / rate, ARRIVAL_PRIORITY, lambda event: self._complete(event, flow)
            )

    def _progress(self, flow: Flow) -> None:
        """Account for the time since the last change of the flow's rate."""
        now_s = self._clock.now
        passed_s = now_s - flow._since_s
        flow._since_s = now_s
        if passed_s > 0.0:
            flow._left = max(flow._left - flow._rate * passed_s, 0.0)
            if flow._rate < flow._solo:
                lost_s = passed_s * (1.0 - flow._rate / flow._solo)
                flow.lost_s += lost_s
                self.lost_s[flow._squeezed_by, self._flows[flow][1]] += lost_s

    def _complete(self, event: Event, flow: Flow) -> None:
        if event is not flow._event:
            return  # its rate changed since
        self._progress(flow)
        self._remove(flow)
        flow.on_done(flow)

    def _remove(self, flow: Flow) -> None:
        parts, _, rivals = self._flows.pop(flow)
        flow._event = None
        for footprint, _ in parts:
            for bundle in footprint.shares:
                others = bundle.flows
                del others[flow]
                if others:
                    self._unsettle(others)
        for rival in rivals:
            rival.rival_leaves()
