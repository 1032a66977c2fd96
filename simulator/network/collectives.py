"""Collectives of a group of ranks: algorithms as rounds over the graph, and the fastest at each size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import ClassVar, Protocol

from simulator.errors import InputError
from simulator.hardware import Algorithm
from simulator.network.rings import node_groups, rail_rings, ring_order
from simulator.network.rounds import (
    AffineCost,
    CollectiveModel,
    Method,
    Part,
    Phase,
    Round,
    Transfer,
    affine_cost,
    link_loads,
    together,
)
from simulator.topology.graph import Topology

__all__ = [
    "ALGORITHMS",
    "AffineCost",
    "AllReduceModel",
    "CollectiveModel",
    "Phase",
    "Round",
    "Transfer",
    "all_gather_model",
    "all_reduce_model",
    "all_to_all_model",
    "link_loads",
    "reduce_scatter_model",
]


class AllReduceAlgorithm(Protocol):
    """A way to all-reduce, with its name and what it can do."""

    @property
    def name(self) -> Algorithm:
        """Its name in scenarios and in the files of links."""
        ...

    @property
    def across_nodes(self) -> bool:
        """Whether a library does it over a network."""
        ...

    def variants(self, topology: Topology, ranks: Sequence[str]) -> Iterator[tuple[Part, ...]]:
        """The parts of each of its forms; none where it does not work on these ranks."""
        ...


@dataclass(frozen=True)
class Ring:
    """Reduce-scatter and all-gather along a ring: each rank passes on a share 1/n, 2(n-1) times.

    Across nodes also as several rings, one for each rank of a node, so that every NIC carries its part.
    """

    name: Algorithm = "ring"
    across_nodes: ClassVar[bool] = True

    def variants(self, topology: Topology, ranks: Sequence[str]) -> Iterator[tuple[Part, ...]]:
        """One ring; one ring a rail."""
        for rings in _rings(topology, ranks):
            yield (_ring_part(rings, 2),)


@dataclass(frozen=True)
class OneShot:
    """Each rank sends its whole message to every other and adds up what it gets."""

    name: Algorithm = "one-shot"
    across_nodes: ClassVar[bool] = False

    def variants(self, topology: Topology, ranks: Sequence[str]) -> Iterator[tuple[Part, ...]]:
        """One round of all pairs."""
        yield (Part("one-shot", len(ranks), (_pairs(ranks, 1.0),)),)


@dataclass(frozen=True)
class TwoShot:
    """Each rank adds up a share 1/n for all, then sends the sum to all."""

    name: Algorithm = "two-shot"
    across_nodes: ClassVar[bool] = False

    def variants(self, topology: Topology, ranks: Sequence[str]) -> Iterator[tuple[Part, ...]]:
        """Two rounds of all pairs."""
        yield (Part("two-shot", len(ranks), (_pairs(ranks, 1 / len(ranks), 2),)),)


@dataclass(frozen=True)
class RecursiveDoubling:
    """Partners at distance 1, 2, 4, ... exchange the whole message and add; n is a power of two."""

    name: Algorithm = "recursive-doubling"
    across_nodes: ClassVar[bool] = False

    def variants(self, topology: Topology, ranks: Sequence[str]) -> Iterator[tuple[Part, ...]]:
        """log2(n) rounds; none where n is no power of two."""
        if rounds := _doubling(ranks):
            yield (Part("recursive-doubling", len(ranks), rounds),)


@dataclass(frozen=True)
class InSwitch:
    """The switches add up (NVLink SHARP): a rank sends its message and 1/n of the sum, and receives as much.

    Each rank pulls its share 1/n of the sum through the switch, which reads all messages, and pushes it
    back, which the switch copies to all.
    """

    name: Algorithm = "in-switch"
    across_nodes: ClassVar[bool] = False

    def variants(self, topology: Topology, ranks: Sequence[str]) -> Iterator[tuple[Part, ...]]:
        """One round between ranks and switches; none where the switches do not reach all or do not add."""
        switches = topology.reducing_switches(tuple(ranks))
        if not switches:
            return
        size = len(ranks)
        transfers: list[Transfer] = []
        for rank in ranks:
            widths = [topology.bandwidth_bytes_per_s((rank, switch)) for switch in switches]
            for switch, width in zip(switches, widths, strict=True):
                share = (size + 1) / size * width / sum(widths)
                transfers += [(rank, switch, share), (switch, rank, share)]
        yield (Part("in-switch", size, (Round(tuple(transfers)),)),)


@dataclass(frozen=True)
class Hierarchical:
    """Reduce-scatter inside each node, all-reduce between nodes, all-gather inside.

    Each local rank joins its peers of the same place in the other nodes, for a share 1/g of the message. The
    halves inside have the constants of half an all-reduce on the links of the node.
    """

    name: Algorithm = "hierarchical"
    across_nodes: ClassVar[bool] = True

    def variants(self, topology: Topology, ranks: Sequence[str]) -> Iterator[tuple[Part, ...]]:
        """Each way inside with each way between; none but on nodes with as many ranks each, two or more."""
        nodes = _even_nodes(topology, ranks)
        if not nodes:
            return
        columns = list(zip(*nodes, strict=True))
        for half, between in product(_halves(topology, nodes), _between(columns)):
            yield half, between, half


ALGORITHMS: tuple[AllReduceAlgorithm, ...] = (
    Ring(),
    OneShot(),
    TwoShot(),
    RecursiveDoubling(),
    InSwitch(),
    Hierarchical(),
)
"""A new algorithm is a class and a name here, and one in ``hardware.Algorithm``."""


@dataclass(frozen=True)
class AllReduceModel(CollectiveModel):
    """All-reduce of one group."""

    def cost(self, nbytes: float) -> tuple[Method | None, float, float]:
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
    and the only ones to choose from; otherwise, within a node, all are, and across nodes those that libraries
    do over a network. Any other can still be forced. Raises InputError where the forced algorithm does not
    work on these ranks.
    """
    if len(ranks) == 1:
        return AllReduceModel(())
    if force is not None:
        return AllReduceModel(_forced(topology, ranks, force))
    several = len(node_groups(topology, ranks)) > 1
    found = [
        cost
        for algorithm in ALGORITHMS
        if algorithm.across_nodes or not several
        for cost in _costs(topology, ranks, algorithm)
    ]
    return AllReduceModel(_implemented(topology, found))


def reduce_scatter_model(topology: Topology, ranks: Sequence[str]) -> CollectiveModel:
    """Each rank gets the sum of a share 1/n; a message is what each rank holds before."""
    return CollectiveModel(_implemented(topology, _half_costs(topology, ranks, inside_first=True)))


def all_gather_model(topology: Topology, ranks: Sequence[str]) -> CollectiveModel:
    """Each rank gets the shares 1/n of all; a message is what each rank holds after."""
    return CollectiveModel(_implemented(topology, _half_costs(topology, ranks, inside_first=False)))


def all_to_all_model(topology: Topology, ranks: Sequence[str]) -> CollectiveModel:
    """Each rank sends a share 1/n of its message to every rank, with the constants of half a two-shot."""
    if len(ranks) == 1:
        return CollectiveModel(())
    cost = affine_cost(topology, "all-to-all", [_pairs_half(len(ranks), [ranks])])
    return CollectiveModel((replace(cost, max_bytes=None),))


def _forced(topology: Topology, ranks: Sequence[str], force: Algorithm) -> tuple[AffineCost, ...]:
    by_name = {algorithm.name: algorithm for algorithm in ALGORITHMS}
    found = _costs(topology, ranks, by_name[force])
    if not found:
        works = [name for name, one in by_name.items() if any(True for _ in one.variants(topology, ranks))]
        raise InputError(
            f"{force} all-reduce does not work on {len(ranks)} GPUs of {topology.system.name}",
            field="all_reduce",
            remedy="use " + ", ".join(works),
        )
    return tuple(replace(cost, max_bytes=None) for cost in found)


def _implemented(topology: Topology, found: Sequence[AffineCost]) -> tuple[AffineCost, ...]:
    """Those with constants of a library, if any; all otherwise."""
    implemented = tuple(cost for cost in found if cost.measured) or tuple(found)
    if implemented and all(cost.max_bytes is not None for cost in implemented):
        raise InputError(
            f"no collective on the links of {topology.system.name} carries messages of every size",
            remedy="leave max_message out of one of their collectives",
        )
    return implemented


def _costs(topology: Topology, ranks: Sequence[str], algorithm: AllReduceAlgorithm) -> list[AffineCost]:
    return [affine_cost(topology, algorithm.name, parts) for parts in algorithm.variants(topology, ranks)]


def _half_costs(topology: Topology, ranks: Sequence[str], *, inside_first: bool) -> list[AffineCost]:
    """Of a reduce-scatter or an all-gather: along a ring, between all pairs, or node by node.

    NCCL's ring does half of its all-reduce; the kernels of vLLM that are measured as two-shot do no halves.
    """
    if len(ranks) == 1:
        return []
    found = [affine_cost(topology, "ring", [_ring_part(rings, 1)]) for rings in _rings(topology, ranks)]
    nodes = _even_nodes(topology, ranks)
    if len(node_groups(topology, ranks)) == 1:
        direct = replace(_pairs_half(len(ranks), [ranks]), algorithm=None)
        found.append(affine_cost(topology, "two-shot", [direct]))
    if nodes:
        columns = list(zip(*nodes, strict=True))
        for inside, between in product(_halves(topology, nodes), _halves_between(columns)):
            parts = [inside, between] if inside_first else [between, inside]
            found.append(affine_cost(topology, "hierarchical", parts))
    return found


def _even_nodes(topology: Topology, ranks: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The ranks by node, where there are several nodes with two ranks or more, as many in each."""
    nodes = node_groups(topology, ranks)
    even = len(nodes) > 1 and len(nodes[0]) > 1 and len({len(node) for node in nodes}) == 1
    return nodes if even else ()


def _rings(topology: Topology, ranks: Sequence[str]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """One ring over all ranks; as many as a node has ranks, by rail."""
    yield (ring_order(topology, ranks),)
    if nodes := _even_nodes(topology, ranks):
        yield rail_rings(nodes)


def _ring_part(rings: Sequence[Sequence[str]], laps: int) -> Part:
    """Rings that share the message evenly; two laps are an all-reduce."""
    rounds = together(((_around(ring, laps),) for ring in rings), 1 / len(rings))
    return Part("ring", len(rings[0]), rounds, laps / 2)


def _halves(topology: Topology, nodes: Sequence[Sequence[str]]) -> Iterator[Part]:
    """Half an all-reduce inside all nodes at once."""
    yield replace(_ring_part([nodes[0]], 1), rounds=together((_around(node, 1),) for node in nodes))
    yield _pairs_half(len(nodes[0]), nodes)


def _pairs_half(size: int, groups: Iterable[Sequence[str]]) -> Part:
    """Every pair of a group exchanges a share 1/n, in all groups at once: half a two-shot."""
    return Part("two-shot", size, together((_pairs(group, 1 / size),) for group in groups), 0.5)


def _between(columns: Sequence[Sequence[str]]) -> Iterator[Part]:
    """An all-reduce of each column on its share of the message."""
    size, share = len(columns[0]), 1 / len(columns)
    yield Part("ring", size, together(((_around(column, 2),) for column in columns), share))
    if doubling := together((_doubling(column) for column in columns), share):
        yield Part("recursive-doubling", size, doubling)


def _halves_between(columns: Sequence[Sequence[str]]) -> Iterator[Part]:
    size, share = len(columns[0]), 1 / len(columns)
    yield Part("ring", size, together(((_around(column, 1),) for column in columns), share), 0.5)


def _around(ring: Sequence[str], laps: int) -> Round:
    """Each rank passes a share 1/n on to the next, all the way round but one hop, so many times."""
    size = len(ring)
    following = zip(ring, [*ring[1:], ring[0]], strict=True)
    return Round(tuple((one, after, 1 / size) for one, after in following), laps * (size - 1), size)


def _pairs(ranks: Sequence[str], share: float, times: int = 1) -> Round:
    return Round(tuple((one, other, share) for one, other in permutations(ranks, 2)), times)


def _doubling(ranks: Sequence[str]) -> tuple[Round, ...]:
    size = len(ranks)
    if size & (size - 1):
        return ()
    distances = [1 << bit for bit in range(size.bit_length() - 1)]
    return tuple(
        Round(tuple((rank, ranks[index ^ distance], 1.0) for index, rank in enumerate(ranks)))
        for distance in distances
    )
