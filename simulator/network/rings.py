"""The order of a ring: short hops first, long ones as few as the graph allows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from simulator.topology.graph import Topology


def ring_order(topology: Topology, ranks: Sequence[str]) -> tuple[str, ...]:
    """The ranks in an order whose hops are cheap: bridged pairs adjacent, sockets and nodes entered once.

    Pairs are joined from the nearest on (the greedy edge method), then parts are turned round while that
    shortens the ring. In a tree of switches the first step alone is the best there is: a subtree is joined
    into one path before anything leaves it. Ties are broken by place in ``ranks``, never by name: the order
    given is kept where none is shorter, and the ring begins at the first rank.
    """
    size = len(ranks)
    if size < 4:
        return tuple(ranks)
    distances = [[0 if a == b else topology.distance(a, b) for b in ranks] for a in ranks]
    if len({distances[a][b] for a, b in combinations(range(size), 2)}) == 1:
        return tuple(ranks)
    order = _turned(_joined(distances), distances)
    if _length(order, distances) == _length(range(size), distances):
        return tuple(ranks)
    start = order.index(0)
    order = order[start:] + order[:start]
    if order[-1] < order[1]:
        order[1:] = reversed(order[1:])
    return tuple(ranks[place] for place in order)


def node_groups(topology: Topology, ranks: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The ranks of each node, each in the order of its ring; nodes in the order of their first rank."""
    return tuple(ring_order(topology, group) for group in topology.hosts(ranks).values())


def rail_rings(nodes: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """As many rings over all ranks as a node has, each crossing between nodes at another local rank.

    A ring enters a node at the local rank at which it left the one before, so it stays on one rail; over all
    rings each rank sends to the next node once.
    """
    return tuple(
        tuple(rank for lap in _laps([(*node[first:], *node[:first]) for node in nodes]) for rank in lap)
        for first in range(len(nodes[0]))
    )


def _laps(nodes: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Each node from end to end, down and up in turn.

    In an odd number of nodes the ring would close on another rail. There the first node is left one place
    early and the second brings the ring back, which takes three ranks a node.
    """
    up = [tuple(reversed(node)) for node in nodes]
    if len(nodes) % 2 == 0 or len(nodes[0]) < 3:
        return [node if index % 2 == 0 else up[index] for index, node in enumerate(nodes)]
    first = (*nodes[0][:-2], nodes[0][-1], nodes[0][-2])
    second = (*up[1][1:], up[1][0])
    rest = [up[index] if index % 2 == 0 else nodes[index] for index in range(2, len(nodes))]
    return [first, second, *rest]


def _length(order: Sequence[int], distances: Sequence[Sequence[int]]) -> int:
    return sum(distances[order[index - 1]][place] for index, place in enumerate(order))


def _joined(distances: Sequence[Sequence[int]]) -> list[int]:
    """One path over all places, from the shortest joints of two ends on."""
    size = len(distances)
    path_of = {place: [place] for place in range(size)}
    for one, other in sorted(combinations(range(size), 2), key=lambda pair: distances[pair[0]][pair[1]]):
        left, right = path_of[one], path_of[other]
        if left is right or one not in (left[0], left[-1]) or other not in (right[0], right[-1]):
            continue
        if left[-1] != one:
            left.reverse()
        if right[0] != other:
            right.reverse()
        left += right
        path_of.update(dict.fromkeys(right, left))
    return path_of[0]


def _turned(order: list[int], distances: Sequence[Sequence[int]]) -> list[int]:
    """The ring with stretches turned round as long as one can be that makes it shorter (2-opt)."""
    size = len(order)
    shorter = True
    while shorter:
        shorter = False
        for start, end in combinations(range(size), 2):
            before, first = order[start - 1], order[start]
            last, after = order[end], order[(end + 1) % size]
            if before == last:
                continue
            now = distances[before][first] + distances[last][after]
            if distances[before][last] + distances[first][after] < now:
                order[start : end + 1] = reversed(order[start : end + 1])
                shorter = True
    return order
