"""Rounds of transfers over the graph, and their cost as an affine function of the message.

A round is a set of transfers that run together; it takes as long as its slowest link. The constants of an
algorithm on a class of link (a library's fixed time, its efficiency) come from the link's file, or, where
it has none, from the latency of the path and the efficiency of the link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from simulator.hardware import Algorithm, CollectiveConstants, Link
from simulator.topology.graph import HOP_COST, Edge, Topology

SAME = 1e-9
"""Relative difference up to which two links count as equally tight."""

Transfer = tuple[str, str, float]
"""Source, destination, bytes as a share of the message."""

Method = Algorithm | Literal["all-to-all", "send"]
"""How a message travels: an algorithm of the all-reduce, or what has no choice of algorithm."""


@dataclass(frozen=True)
class Round:
    """Transfers that run together, ``times`` times over.

    With ``ring``, the transfers come in rings of so many, each beginning where the one before it ends: a
    share is passed on at once and nobody waits for the slowest hop of others.
    """

    transfers: tuple[Transfer, ...]
    times: int = 1
    ring: int = 0


@dataclass(frozen=True)
class Part:
    """Rounds that one kernel of a library does: a whole collective, or a half of an all-reduce."""

    algorithm: Algorithm | None
    """Whose constants hold; None where no library has any."""
    size: int
    """Ranks of a group."""
    rounds: tuple[Round, ...]
    portion: float = 1.0
    """Of the fixed times of a whole all-reduce."""


@dataclass(frozen=True)
class Phase:
    """The rounds of one shape, together: what they put on each link and how long they take alone."""

    loads: Mapping[Edge, float]
    """Bytes on each direction of each link, per byte of the message."""
    s_per_byte: float
    """Seconds per byte of the message, the efficiency of the links included."""
    latency_s: float = 0.0
    """Its share of the fixed time of the whole."""
    bottlenecks: tuple[Edge, ...] = ()
    """Those of ``loads`` that it is waited for longest, all equally."""


@dataclass(frozen=True)
class AffineCost:
    """``latency_s + s_per_byte * bytes``, up to ``max_bytes`` where there is a limit."""

    algorithm: Method
    latency_s: float
    s_per_byte: float
    measured: bool
    """Whether its constants are those of a library on this class of link."""
    max_bytes: float | None = None
    phases: tuple[Phase, ...] = field(compare=False, default=())
    """In order; their latencies and seconds per byte sum to the whole. Equal costs may differ in links."""

    def allows(self, nbytes: float) -> bool:
        """Whether the algorithm takes a message of that size."""
        return self.max_bytes is None or nbytes <= self.max_bytes

    def seconds(self, nbytes: float) -> float:
        """Of a message of that size, alone on its links."""
        return self.latency_s + self.s_per_byte * nbytes


@dataclass(frozen=True)
class CollectiveModel:
    """A collective of one group: the fastest algorithm at each size; free for a group of one."""

    costs: tuple[AffineCost, ...]

    def best(self, nbytes: float) -> AffineCost | None:
        """The fastest algorithm for a message of that size; None for a group of one."""
        allowed = [cost for cost in self.costs if cost.allows(nbytes)]
        return min(allowed, key=lambda cost: cost.seconds(nbytes), default=None)


def together(groups: Iterable[tuple[Round, ...]], share: float = 1.0) -> tuple[Round, ...]:
    """The rounds of groups of one size that run side by side, each on a share of the message."""
    return tuple(
        Round(
            tuple((one, other, share * part) for round_ in abreast for one, other, part in round_.transfers),
            abreast[0].times,
            abreast[0].ring,
        )
        for abreast in zip(*groups, strict=True)
    )


def affine_cost(topology: Topology, algorithm: Method, parts: Sequence[Part]) -> AffineCost:
    """The cost of parts that run one after the other."""
    found = [_part_cost(topology, part) for part in parts]
    phases = tuple(phase for cost in found for phase in cost.phases)
    limits = [cost.max_bytes for cost in found if cost.max_bytes is not None]
    return AffineCost(
        algorithm,
        sum(phase.latency_s for phase in phases),
        sum(phase.s_per_byte for phase in phases),
        measured=all(cost.measured for cost in found),
        max_bytes=min(limits, default=None),
        phases=phases,
    )


def link_loads(topology: Topology, one: Round) -> dict[Edge, float]:
    """Bytes on each direction of each link in a round, as a share of the message."""
    loads: dict[Edge, float] = defaultdict(float)
    for source, target, share in one.transfers:  # to itself: no hops
        for hop in topology.route(source, target):
            loads[hop.edge] += share * hop.share
    return loads


@dataclass(frozen=True)
class _PartCost:
    phases: tuple[Phase, ...]
    measured: bool
    max_bytes: float | None


def _part_cost(topology: Topology, part: Part) -> _PartCost:
    loads = [link_loads(topology, one) for one in part.rounds]
    constants = _constants(topology, part, {edge: None for load in loads for edge in load})
    if constants:
        fixed_s = part.portion * max(
            one.fixed.value + one.per_peer.value * (part.size - 1) for one in constants
        )
        latencies_s = [fixed_s / len(part.rounds)] * len(part.rounds)
    else:
        latencies_s = [_latency_s(topology, one) for one in part.rounds]
    limits = [one.max_message.value for one in constants if one.max_message is not None]
    phases = tuple(
        _phase(topology, part.algorithm, *one) for one in zip(part.rounds, loads, latencies_s, strict=True)
    )
    return _PartCost(phases, bool(constants), min(limits, default=None))


def _phase(
    topology: Topology,
    algorithm: Algorithm | None,
    one: Round,
    loads: Mapping[Edge, float],
    latency_s: float,
) -> Phase:
    wire_s = {
        edge: load / (topology.bandwidth_bytes_per_s(edge) * _efficiency(topology.link(edge), algorithm))
        for edge, load in loads.items()
    }
    slowest_s = max(wire_s.values(), default=0.0)
    return Phase(
        {edge: one.times * load for edge, load in loads.items()},
        one.times * slowest_s,
        latency_s,
        tuple(edge for edge, seconds in wire_s.items() if seconds >= (1.0 - SAME) * slowest_s),
    )


def _efficiency(link: Link, algorithm: Algorithm | None) -> float:
    """That of a library's algorithm on the link, or the link's own."""
    constants = None if algorithm is None else link.collectives.get(algorithm)
    return link.efficiency.value if constants is None else constants.efficiency.value


def _constants(topology: Topology, part: Part, edges: Iterable[Edge]) -> tuple[CollectiveConstants, ...]:
    """What libraries measured for this algorithm on the links that decide; empty where one has nothing.

    Which links decide depends on their kind and place alone, never on their bandwidth, so that a faster link
    cannot swap one set of constants for another: those of the network where the part crosses it, otherwise
    the worst kind of link at the GPUs.
    """
    if part.algorithm is None:
        return ()
    gpus = set(topology.gpus)
    links = {edge: topology.link(edge) for edge in edges}
    deciding = [link for link in links.values() if link.kind == "network"] or [
        link for edge, link in links.items() if not gpus.isdisjoint(edge)
    ]
    worst = max((HOP_COST[link.kind] for link in deciding), default=0)
    named = {link.name: link for link in deciding if HOP_COST[link.kind] == worst}
    found = [link.collectives.get(part.algorithm) for link in named.values()]
    return () if None in found else tuple(one for one in found if one is not None)


def _latency_s(topology: Topology, one: Round) -> float:
    """Of all its repetitions: the slowest path each time, or, along a ring, the hops that a share takes."""
    hops_s = [topology.latency_s(source, target) for source, target, _ in one.transfers]
    if not one.ring:
        return one.times * max(hops_s, default=0.0)
    rings = [hops_s[start : start + one.ring] for start in range(0, len(hops_s), one.ring)]
    laps = one.times // (one.ring - 1)
    return laps * max(sum(ring) - min(ring) for ring in rings)
