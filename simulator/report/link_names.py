"""Links and their ends in few words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from simulator.record import Edge
from simulator.topology.graph import Topology

_FEW = 2
_NUMBER = re.compile(r"\d+")


def link_title(topology: Topology, edge: Edge) -> str:
    """The class of a link in few words."""
    return topology.link(edge).title.split(",")[0]


def sort_of(topology: Topology, edge: Edge) -> tuple[str, str]:
    """Title of the link, and what its ends are, whichever the direction."""
    ends = sorted(_NUMBER.sub("", node) for node in edge)
    return link_title(topology, edge), " ".join(ends)


def both_ends(edges: Sequence[Edge]) -> str:
    """Links of one sort in short, in both directions or in each that there is."""
    count = f" (x{len(edges)})" if len(edges) > 1 else ""
    if {edge[::-1] for edge in edges} == set(edges):
        return _ends([tuple(sorted(edge, key=_kind)) for edge in edges], "<->") + count
    directions: dict[tuple[str, str], list[Edge]] = defaultdict(list)
    for tail, head in edges:
        directions[_kind(tail), _kind(head)].append((tail, head))
    return ", ".join(_ends(alike, "->") for alike in directions.values()) + count


def _ends(edges: Sequence[tuple[str, ...]], arrow: str) -> str:
    return f"{short_name(edge[0] for edge in edges)} {arrow} {short_name(edge[1] for edge in edges)}"


def short_name(nodes: Iterable[str]) -> str:
    """Nodes of one kind in short: the numbers that occur at each place."""
    distinct = list(dict.fromkeys(nodes))
    numbers = zip(*(map(int, _NUMBER.findall(node)) for node in distinct), strict=True)
    ranges = iter([_range(sorted(set(found))) for found in numbers])
    return _NUMBER.sub(lambda match: next(ranges), distinct[0])


def _range(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if len(numbers) <= _FEW:
        return ",".join(map(str, numbers))
    return f"{first}-{last}" if last - first + 1 == len(numbers) else "*"


def unnumbered(node: str) -> str:
    """A node without its numbers: alike for those that differ in these alone."""
    return _NUMBER.sub("*", node)


def _kind(node: str) -> str:
    """What a node is called without its number and its place."""
    return _NUMBER.sub("", node.rpartition(".")[-1])
