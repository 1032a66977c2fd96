"""Where the nodes of a graph stand in a plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from matplotlib.axes import Axes

from simulator.topology.builder import GPU, LEAF, NIC, NVSWITCH, SPINE
from simulator.topology.graph import Topology

Place = tuple[float, float]
"""Along the row from 0 to 1, and minus the number of the row."""

_ASIDE = (0.5, 0.25, 0.75, 0.4, 0.6, 0.1, 0.9)
"""Where the nodes of a row may stand in their shares of it: the first that is farthest from passing links."""

_ARC = 0.07
"""Height of a link within a row, per node that it passes, in rows."""

_HIGHEST_ARC = 0.42
_ARC_POINTS = 24
_NETWORK = (NIC, LEAF, SPINE)

_WRITTEN_NODES = 20
"""Nodes of one row up to which each has its name beside it."""


@dataclass(frozen=True)
class Layout:
    """Where the nodes of a graph stand: in rows by kind, GPUs in one of them."""

    rows: tuple[tuple[str, list[str]], ...]
    """Kind and nodes."""
    places: dict[str, Place]

    @property
    def width_inches(self) -> float:
        """A width at which the fullest row is readable."""
        return min(16.0, 5.0 + 0.6 * max(len(nodes) for _, nodes in self.rows))

    @property
    def height_inches(self) -> float:
        """The height that goes with it."""
        return 1.3 * len(self.rows)

    def draw_nodes(self, panel: Axes, colours: Sequence[str]) -> None:
        """Draw every row and its name; ``colours`` are of the rows, in turn."""
        for row, (kind, nodes) in enumerate(self.rows):
            size = min(90.0, (0.75 * 72 * self.width_inches / len(nodes)) ** 2)
            xs = [self.places[node][0] for node in nodes]
            look: Any = {"marker": "s" if kind == GPU else "o", "color": colours[row % len(colours)]}
            panel.scatter(xs, [-row] * len(xs), s=size, edgecolors="white", zorder=3, **look)
            panel.text(-0.01, -row, f"{len(nodes)} x {kind}", ha="right", va="center", fontweight="bold")
            if len(nodes) <= _WRITTEN_NODES:
                self._write_names(panel, nodes)
        panel.set_xlim(0.0, 1.0)
        panel.set_ylim(-len(self.rows) + 0.4, 0.5)
        panel.axis("off")

    def _write_names(self, panel: Axes, nodes: Iterable[str]) -> None:
        """Below each node its name, on paper of its own."""
        look: Any = {
            "ha": "center",
            "va": "center",
            "fontsize": 6.5,
            "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            "zorder": 4,
        }
        for node in nodes:
            panel.annotate(node, self.places[node], (0.0, -13.0), textcoords="offset points", **look)

    def line(self, ends: Iterable[str]) -> list[Place]:
        """Points of the link between two nodes: straight, or an arc over those between them in their row."""
        (x0, y), (x1, y1) = both = sorted(self.places[node] for node in ends)
        passed = round((x1 - x0) / self._spacing[y]) - 1
        if y != y1 or passed < 1:
            return both
        lowest = min(self._spacing)
        height = min(_HIGHEST_ARC, _ARC * passed) * (-1 if y == lowest and y < 0 else 1)
        steps = [step / _ARC_POINTS for step in range(_ARC_POINTS + 1)]
        return [(x0 + (x1 - x0) * step, y + 4 * height * step * (1 - step)) for step in steps]

    @cached_property
    def _spacing(self) -> dict[float, float]:
        """Between the nodes of each row."""
        return {y: 1 / count for y, count in Counter(y for _, y in self.places.values()).items()}


def layout(topology: Topology) -> Layout:
    """Where the nodes of a system stand."""
    rows = _rows(topology.graph)
    return Layout(tuple(rows), _places(topology.graph, rows))


def _places(graph: Any, rows: Sequence[tuple[str, list[str]]]) -> dict[str, Place]:
    """Nodes evenly along their rows, each row shifted off the links that pass through it."""
    places = {
        node: ((index + 0.5) / len(nodes), float(-row))
        for row, (_, nodes) in enumerate(rows)
        for index, node in enumerate(nodes)
    }
    for row, (_, nodes) in enumerate(rows):
        passing = list(_passing(graph, places, float(-row)))
        aside = max(_ASIDE, key=lambda share: _clearance(passing, len(nodes), share))
        places.update({node: ((index + aside) / len(nodes), float(-row)) for index, node in enumerate(nodes)})
    return places


def _passing(graph: Any, places: dict[str, Place], y: float) -> Iterator[float]:
    """Where links between nodes of other rows cross a row."""
    for tail, head in graph.edges:
        (x0, y0), (x1, y1) = places[tail], places[head]
        if min(y0, y1) < y < max(y0, y1):
            yield x0 + (x1 - x0) * (y - y0) / (y1 - y0)


def _clearance(passing: Sequence[float], nodes: int, share: float) -> float:
    """Distance of the nearest passing link from a node, as a share of the row; rounded, so that ties stay."""
    spots = [(index + share) / nodes for index in range(nodes)]
    return round(min((abs(x - spot) for x in passing for spot in spots), default=0.0), 4)


def _rows(graph: Any) -> list[tuple[str, list[str]]]:
    """Nodes by kind: switches over the GPUs, all else below them; neighbours stand together."""
    kinds: dict[str, list[str]] = {}
    for node, kind in graph.nodes(data="kind"):
        kinds.setdefault(kind, []).append(node)
    above = [kind for kind in kinds if kind == NVSWITCH]
    below = [GPU, *_depths(graph, kinds)]
    places: dict[str, float] = {}
    for kind in [*below, *above]:
        kinds[kind].sort(key=lambda node: _mean([places[peer] for peer in graph.adj[node] if peer in places]))
        places.update({node: (index + 0.5) / len(kinds[kind]) for index, node in enumerate(kinds[kind])})
    return [(kind, kinds[kind]) for kind in [*above, *below]]


def _depths(graph: Any, kinds: Mapping[str, list[str]]) -> list[str]:
    """Kinds of node below the GPUs, the nearest first; between hosts the network is below all else."""
    hops = _hops_from(graph, kinds[GPU])
    joined = any(
        graph.nodes[peer]["kind"] in _NETWORK for nic in kinds.get(NIC, ()) for peer in graph.adj[nic]
    )

    def depth(kind: str) -> tuple[int, int, int]:
        network = 1 + _NETWORK.index(kind) if joined and kind in _NETWORK else 0
        first = kinds[kind][0]
        return network, hops[first], graph.degree(first)

    return sorted((kind for kind in kinds if kind not in (GPU, NVSWITCH)), key=depth)


def _hops_from(graph: Any, nodes: list[str]) -> dict[str, int]:
    """Links between each node and the nearest of some."""
    hops = dict.fromkeys(nodes, 0)
    queue = list(nodes)
    for node in queue:
        for peer in graph.adj[node]:
            if peer not in hops:
                hops[peer] = hops[node] + 1
                queue.append(peer)
    return hops


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
