"""What no collective can beat: the bytes that must cross a cut of the graph over what the cut carries.

Let ranks A be on one side and B on the other, a and b in number, n together, and let all links between the
sides carry C bytes per second each way. What the far side has to end up with and cannot make itself crosses:

- all-reduce: the sum needs the messages of both sides, and what A adds to it is as long as a message however
  it is added up, in ranks or in switches. So a whole message crosses each way.
- reduce-scatter: B ends up with b/n of the sum, which needs that much from A: b/n one way, a/n the other.
- all-gather: B lacks the shares of A: a/n one way, b/n the other.
- all-to-all: each of A sends 1/n to each of B: a*b/n each way.

So seconds per byte of message are at least the larger of the two over C, with reduction in the switches too.
Nothing is said of how much each rank sends: for an all-reduce by the ranks alone that is 2(n-1)/n on average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from simulator.topology.graph import Topology

Collective = Literal["all-reduce", "reduce-scatter", "all-gather", "all-to-all"]

_CROSSING: dict[Collective, Callable[[int, int], float]] = {
    "all-reduce": lambda _one, _other: 1.0,
    "reduce-scatter": lambda one, other: max(one, other) / (one + other),
    "all-gather": lambda one, other: max(one, other) / (one + other),
    "all-to-all": lambda one, other: one * other / (one + other),
}
"""Bytes that cross a cut in the busier direction, per byte of message, by the ranks on its two sides."""


def cut_bound_s_per_byte(
    topology: Topology, ranks: Sequence[str], side: Sequence[str], collective: Collective = "all-reduce"
) -> float:
    """The least seconds per byte of message by the narrowest cut between ``side`` and the other ranks."""
    others = [rank for rank in ranks if rank not in side]
    crossing = _CROSSING[collective](len(side), len(others))
    return crossing / topology.cut_bytes_per_s(side, others)


def lower_bound_s_per_byte(
    topology: Topology, ranks: Sequence[str], collective: Collective = "all-reduce"
) -> float:
    """The largest bound of the cuts around each rank and each node; 0 for a group of one."""
    bounds = (cut_bound_s_per_byte(topology, ranks, side, collective) for side in _sides(topology, ranks))
    return max(bounds, default=0.0)


def _sides(topology: Topology, ranks: Sequence[str]) -> Iterator[Sequence[str]]:
    if len(ranks) == 1:
        return
    yield from ((rank,) for rank in ranks)
    nodes = topology.hosts(ranks)
    if len(nodes) > 1:
        yield from (node for node in nodes.values() if len(node) > 1)
