"""All best paths of a graph, over some classes of link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush

import networkx as nx

from simulator.hardware import LinkKind
from simulator.topology.builder import FORWARDING

Path = tuple[str, ...]


class Paths:
    """Paths of least cost, all of equal ones; only switches, CPUs and NICs pass on what is not for them.

    The searches are Dijkstra's, one a source, kept. Ties are in the order of the edges: names do not matter.
    """

    def __init__(self, graph: nx.Graph[str], costs: Mapping[LinkKind, int]) -> None:
        """``costs`` of a hop by the kind of its link; kinds that it leaves out are not used."""
        self._peers: dict[str, list[tuple[str, int]]] = {
            node: [
                (peer, costs[edge["link"].kind])
                for peer, edge in graph.adj[node].items()
                if edge["link"].kind in costs
            ]
            for node in graph
        }
        self._forwards = {node: graph.nodes[node]["kind"] in FORWARDING for node in graph}
        self._found: dict[str, tuple[dict[str, int], dict[str, list[str]]]] = {}

    def between(self, source: str, target: str) -> list[Path]:
        """All best paths; none where nothing leads there."""
        distances, predecessors = self._from(source)
        if target not in distances:
            return []
        return list(_unwind(predecessors, source, target))

    def nearest(self, source: str, candidates: Iterable[str]) -> str | None:
        """The first of the nearest candidates that can be reached."""
        distances, _ = self._from(source)
        reached = [node for node in candidates if node in distances]
        return min(reached, key=distances.__getitem__, default=None)

    def _from(self, source: str) -> tuple[dict[str, int], dict[str, list[str]]]:
        """Distance of each node in reach, and the nodes before it on best paths."""
        known = self._found.get(source)
        if known is not None:
            return known
        distances = {source: 0}
        predecessors: dict[str, list[str]] = {source: []}
        heap = [(0, 0, source)]
        pushed = 0
        done: set[str] = set()
        while heap:
            distance, _, node = heappop(heap)
            if node in done or not (node == source or self._forwards[node]):
                continue
            done.add(node)
            for peer, cost in self._peers[node]:
                through = distance + cost
                known_distance = distances.get(peer)
                if known_distance is None or through < known_distance:
                    distances[peer] = through
                    predecessors[peer] = [node]
                    pushed += 1
                    heappush(heap, (through, pushed, peer))
                elif through == known_distance:
                    predecessors[peer].append(node)
        self._found[source] = distances, predecessors
        return distances, predecessors


def _unwind(predecessors: Mapping[str, list[str]], source: str, node: str) -> Iterator[Path]:
    if node == source:
        yield (source,)
        return
    for before in predecessors[node]:
        for path in _unwind(predecessors, source, before):
            yield (*path, node)
