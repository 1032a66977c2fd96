"""All best paths of a graph, over some classes of link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

import networkx as nx

from simulator.hardware import LinkKind
from simulator.topology.builder import FORWARDING

Path = tuple[str, ...]


class Paths:
    """Paths of least cost, all of equal ones; only switches, CPUs and NICs pass on what is not for them.

    The searches are Dijkstra's, one a source, kept and taken no further than needed. Ties are in the order
    of the edges: names do not matter.
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
        self._searches: dict[str, _Search] = {}

    def between(self, source: str, target: str) -> list[Path]:
        """All best paths between two nodes; none where nothing leads there."""
        search = self._from(source)
        if not search.reach(target):
            return []
        return _unwind(search.predecessors, source, target)

    def nearest(self, source: str, candidates: Iterable[str]) -> str | None:
        """The first of the nearest candidates that can be reached."""
        search = self._from(source)
        reached = [node for node in candidates if search.reach(node)]
        return min(reached, key=search.costs.__getitem__, default=None)

    def _from(self, source: str) -> _Search:
        known = self._searches.get(source)
        if known is None:
            known = self._searches[source] = _Search(source, self._peers, self._forwards)
        return known


class _Search:
    """The search from one source, which goes only as far as it is asked to."""

    def __init__(
        self,
        source: str,
        peers: Mapping[str, list[tuple[str, int]]],
        forwards: Mapping[str, bool],
    ) -> None:
        self.costs = {source: 0}
        self.predecessors: dict[str, list[str]] = {source: []}
        self._peers = peers
        self._forwards = forwards
        self._settled = {source}
        self._heap: list[tuple[int, int, str]] = []
        self._pushed = 0
        self._leave(source)

    def reach(self, target: str) -> bool:
        """Settle all nodes nearer than ``target``, and it; false where nothing leads there."""
        while target not in self._settled and self._heap:
            _, _, node = heappop(self._heap)
            if node not in self._settled:
                self._settled.add(node)
                if self._forwards[node]:
                    self._leave(node)
        return target in self._settled

    def _leave(self, node: str) -> None:
        costs, so_far = self.costs, self.costs[node]
        for peer, step in self._peers[node]:
            through = so_far + step
            known = costs.get(peer)
            if known is None or through < known:
                costs[peer] = through
                self.predecessors[peer] = [node]
                self._pushed += 1
                heappush(self._heap, (through, self._pushed, peer))
            elif through == known:
                self.predecessors[peer].append(node)


def _unwind(predecessors: Mapping[str, list[str]], source: str, target: str) -> list[Path]:
    """Every path that the predecessors leave; short ones first."""
    whole: list[Path] = []
    ends: list[Path] = [(target,)]
    while ends:
        whole += [end for end in ends if end[0] == source]
        ends = [(before, *end) for end in ends for before in predecessors[end[0]]]
    return whole
