"""All-reduce as rounds of transfers over the graph, and its cost as an affine function of the message.

A round is a set of transfers that run together; it takes as long as its most loaded link. The constants of
the algorithm on that class of link (a library's fixed time, its efficiency) come from the link's file, or,
where it has none, from the latency of the path and the efficiency of the link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from simulator.errors import InputError
from simulator.hardware import Algorithm
from simulator.topology.graph import Edge, Topology

Transfer = tuple[str, str, float]
"""Source, destination, bytes as a share of the message."""


@dataclass(frozen=True)
class Round:
    """Transfers that run together, ``times`` times over."""

    transfers: tuple[Transfer, ...]
    times: int = 1


@dataclass(frozen=True)
class Ring:
    """Reduce-scatter and all-gather along a ring: each rank passes on a share 1/n, 2(n-1) times."""

    name: Algorithm = "ring"

    def rounds(self, topology: Topology, ranks: Sequence[str]) -> tuple[Round, ...]:
        """All rounds have one shape."""
        size = len(ranks)
        following = zip(ranks, [*ranks[1:], ranks[0]], strict=True)
        return (Round(tuple((one, after, 1 / size) for one, after in following), 2 * (size - 1)),)


@dataclass(frozen=True)
class OneShot:
    """Each rank sends its whole message to every other and adds up what it gets."""

    name: Algorithm = "one-shot"

    def rounds(self, topology: Topology, ranks: Sequence[str]) -> tuple[Round, ...]:
        """One round of all pairs."""
        return (Round(tuple((one, other, 1.0) for one, other in permutations(ranks, 2))),)


@dataclass(frozen=True)
class TwoShot:
    """Each rank adds up a share 1/n for all, then sends the sum to all."""

    name: Algorithm = "two-shot"

    def rounds(self, topology: Topology, ranks: Sequence[str]) -> tuple[Round, ...]:
        """Two rounds of all pairs."""
        size = len(ranks)
        return (Round(tuple((one, other, 1 / size) for one, other in permutations(ranks, 2)), 2),)


@dataclass(frozen=True)
class RecursiveDoubling:
    """Partners at distance 1, 2, 4, ... exchange the whole message and add; n is a power of two."""

    name: Algorithm = "recursive-doubling"

    def rounds(self, topology: Topology, ranks: Sequence[str]) -> tuple[Round, ...]:
        """log2(n) rounds; none where n is no power of two."""
        size = len(ranks)
        if size & (size - 1):
            return ()
        distances = [1 << bit for bit in range(size.bit_length() - 1)]
        return tuple(
            Round(tuple((rank, ranks[index ^ distance], 1.0) for index, rank in enumerate(ranks)))
            for distance in distances
        )


@dataclass(frozen=True)
class InSwitch:
    """The switches add up (NVLink SHARP): a rank sends its message and 1/n of the sum, and receives as much.

    Each rank pulls its share 1/n of the sum through the switch, which reads all messages, and pushes it
    back, which the switch copies to all.
    """

    name: Algorithm = "in-switch"

    def rounds(self, topology: Topology, ranks: Sequence[str]) -> tuple[Round, ...]:
        """One round between ranks and switches; none where the switches do not reach all or do not add."""
        switches = topology.reducing_switches(tuple(ranks))
        if not switches:
            return ()
        size = len(ranks)
        transfers: list[Transfer] = []
        for rank in ranks:
            widths = [topology.bandwidth_bytes_per_s((rank, switch)) for switch in switches]
            for switch, width in zip(switches, widths, strict=True):
                share = (size + 1) / size * width / sum(widths)
                transfers += [(rank, switch, share), (switch, rank, share)]
        return (Round(tuple(transfers)),)


ALGORITHMS = (Ring(), OneShot(), TwoShot(), RecursiveDoubling(), InSwitch())
"""A new algorithm is a class and a name here, and one in ``hardware.Algorithm``."""


@dataclass(frozen=True)
class Phase:
    """The rounds of one shape, together: what they put on each link and how long they take alone."""

    loads: Mapping[Edge, float]
    """Bytes on each direction of each link, per byte of the message."""
    s_per_byte: float
    """Seconds per byte of the message, the efficiency of the links included."""


@dataclass(frozen=True)
class AffineCost:
    """``latency_s + s_per_byte * bytes``, up to ``max_bytes`` where there is a limit."""

    algorithm: Algorithm
    latency_s: float
    s_per_byte: float
    measured: bool
    """Whether its constants are those of a library on this class of link."""
    max_bytes: float | None = None
    phases: tuple[Phase, ...] = field(compare=False, default=())
    """In order; their seconds per byte sum to ``s_per_byte``. Equal costs may be on different links."""

    def allows(self, nbytes: float) -> bool:
        """Whether the algorithm takes a message of that size."""
        return self.max_bytes is None or nbytes <= self.max_bytes


@dataclass(frozen=True)
class AllReduceModel:
    """All-reduce of one group: the fastest algorithm at each size; free for a group of one."""

    costs: tuple[AffineCost, ...]

    def best(self, nbytes: float) -> AffineCost | None:
        """The fastest algorithm for a message of that size; None for a group of one."""
        allowed = [cost for cost in self.costs if cost.allows(nbytes)]
        return min(allowed, key=lambda cost: cost.latency_s + cost.s_per_byte * nbytes, default=None)

    def cost(self, nbytes: float) -> tuple[Algorithm | None, float, float]:
        """The algorithm, its seconds of latency and its seconds of bandwidth."""
        best = self.best(nbytes)
        if best is None:
            return None, 0.0, 0.0
        return best.algorithm, best.latency_s, best.s_per_byte * nbytes


def all_reduce_model(
    topology: Topology, ranks: Sequence[str], force: Algorithm | None = None
) -> AllReduceModel:
    """What an all-reduce over ``ranks`` costs; ``force`` leaves one algorithm, at any size.

    Where the file of a link has constants for some algorithms, those are what the libraries implement on it
    and the only ones to choose from; any other can still be forced. Raises InputError where the forced
    algorithm does not work on these ranks.
    """
    if len(ranks) == 1:
        return AllReduceModel(())
    found = {
        algorithm.name: affine_cost(topology, algorithm.name, len(ranks), rounds)
        for algorithm in ALGORITHMS
        if (rounds := algorithm.rounds(topology, ranks))
    }
    if force is None:
        implemented = tuple(cost for cost in found.values() if cost.measured)
        if implemented and all(cost.max_bytes is not None for cost in implemented):
            raise InputError(
                f"no all-reduce of the links of {topology.system.name} carries messages of every size",
                remedy="leave max_message out of one of their collectives",
            )
        return AllReduceModel(implemented or tuple(found.values()))
    if force not in found:
        raise InputError(
            f"{force} all-reduce does not work on {len(ranks)} GPUs of {topology.system.name}",
            field="all_reduce",
            remedy="use " + ", ".join(found),
        )
    forced = found[force]
    return AllReduceModel((replace(forced, max_bytes=None),))


def affine_cost(topology: Topology, algorithm: Algorithm, size: int, rounds: Iterable[Round]) -> AffineCost:
    """The cost of rounds over ``size`` ranks."""
    rounds = tuple(rounds)
    loads = [link_loads(topology, one) for one in rounds]
    slowest = [_slowest_link(topology, load) for load in loads]
    link = topology.link(max(slowest, key=lambda found: found[1])[0])
    constants = link.collectives.get(algorithm)
    if constants is None:
        latency_s = sum(one.times * _latency_s(topology, one) for one in rounds)
        efficiencies = [topology.link(edge).efficiency.value for edge, _ in slowest]
        limit = None
    else:
        latency_s = constants.fixed.value + constants.per_peer.value * (size - 1)
        efficiencies = [constants.efficiency.value] * len(rounds)
        limit = None if constants.max_message is None else constants.max_message.value
    phases = tuple(
        Phase({edge: one.times * share for edge, share in load.items()}, one.times * s_per_byte / efficiency)
        for one, load, (_, s_per_byte), efficiency in zip(rounds, loads, slowest, efficiencies, strict=True)
    )
    return AffineCost(
        algorithm,
        latency_s,
        sum(phase.s_per_byte for phase in phases),
        measured=constants is not None,
        max_bytes=limit,
        phases=phases,
    )


def link_loads(topology: Topology, one: Round) -> dict[Edge, float]:
    """Bytes on each direction of each link in a round, as a share of the message."""
    loads: dict[Edge, float] = defaultdict(float)
    for source, target, share in one.transfers:
        for hop in topology.route(source, target):
            loads[hop.edge] += share * hop.share
    return loads


def _slowest_link(topology: Topology, loads: Mapping[Edge, float]) -> tuple[Edge, float]:
    """The most loaded link of a round and its seconds per byte of the message, at its full bandwidth."""
    times = {edge: load / topology.bandwidth_bytes_per_s(edge) for edge, load in loads.items()}
    edge = max(times, key=times.__getitem__)
    return edge, times[edge]


def _latency_s(topology: Topology, one: Round) -> float:
    return max(topology.latency_s(source, target) for source, target, _ in one.transfers)
