"""The graph of a system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.report.plots.style import LINES, OKABE_ITO, house_style, panels

if TYPE_CHECKING:
    from simulator.topology.graph import Topology

Place = tuple[float, float]
"""Along the row from 0 to 1, and minus the number of the row."""

_COLOURS = 6
"""Of the palette those that are neither black nor too light for a line."""

MANY_LINKS = 200
"""Links of one class from which they are drawn thin."""

_ASIDE = (0.5, 0.25, 0.75, 0.4, 0.6, 0.1, 0.9)
"""Where the nodes of a row may stand in their shares of it: the first that is farthest from passing links."""

_ARC = 0.07
"""Height of a link within a row, per node that it passes, in rows."""

_HIGHEST_ARC = 0.42
_ARC_POINTS = 24
_NETWORK = ("nic", "leaf", "spine")
_CHARACTER_INCHES = 0.06
_LEGEND_KEY_INCHES = 0.7

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
            _draw_nodes(panel, kind, nodes, xs, -row, colours[row % len(colours)], size)
        panel.set_xlim(0.0, 1.0)
        panel.set_ylim(-len(self.rows) + 0.4, 0.5)
        panel.axis("off")

    def line(self, ends: Iterable[str]) -> list[Place]:
        """Of the link between two nodes: straight between rows and between neighbours; else an arc over the
        nodes between."""
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


def draw(topology: Topology) -> Figure:
    """Nodes in rows by kind, GPUs in one of them; edges by class of link."""
    found = layout(topology)
    width = found.width_inches
    with house_style():
        figure, (panel,) = panels(1, 1, (width, 1.4 + found.height_inches))
        handles = _draw_links(panel, topology.graph, found)
        found.draw_nodes(panel, OKABE_ITO[:_COLOURS])
        panel.set_title(topology.system.title)
        columns = legend_columns(width, [str(handle.get_label()) for handle in handles])
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8)
    return figure


def legend_columns(width_inches: float, labels: Iterable[str]) -> int:
    """So many entries of a legend, three at most, fit side by side."""
    longest = max(map(len, labels), default=0)
    return min(3, max(1, int(width_inches / (_CHARACTER_INCHES * longest + _LEGEND_KEY_INCHES))))


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


def _draw_nodes(
    panel: Axes, kind: str, nodes: Sequence[str], xs: Sequence[float], y: float, colour: str, size: float
) -> None:
    marker = "s" if kind == "gpu" else "o"
    panel.scatter(xs, [y] * len(xs), s=size, marker=marker, color=colour, edgecolors="white", zorder=3)
    panel.text(-0.01, y, f"{len(nodes)} x {kind}", ha="right", va="center", fontweight="bold")
    if len(nodes) > _WRITTEN_NODES:
        return
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    for node, x in zip(nodes, xs, strict=True):
        below = (0.0, -13.0)
        panel.annotate(
            node,
            (x, y),
            below,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=6.5,
            bbox=paper,
            zorder=4,
        )


def _rows(graph: Any) -> list[tuple[str, list[str]]]:
    """Nodes by kind: switches over the GPUs, all else below them by hops; neighbours stand together."""
    kinds: dict[str, list[str]] = {}
    for node, kind in graph.nodes(data="kind"):
        kinds.setdefault(kind, []).append(node)
    hops = _hops_from(graph, kinds["gpu"])
    others = [kind for kind in kinds if kind not in ("gpu", "nvswitch")]
    joined = any(
        graph.nodes[peer]["kind"] in _NETWORK for nic in kinds.get("nic", ()) for peer in graph.adj[nic]
    )

    def depth(kind: str) -> tuple[int, int, int]:
        """Between hosts, the network is below all else; elsewhere the nearest to GPUs are on top."""
        network = 1 + _NETWORK.index(kind) if joined and kind in _NETWORK else 0
        return network, hops[kinds[kind][0]], graph.degree(kinds[kind][0])

    below = ["gpu", *sorted(others, key=depth)]
    place: dict[str, float] = {}
    for kind in [*below, "nvswitch"] if "nvswitch" in kinds else below:
        nodes = sorted(
            kinds[kind], key=lambda node: _mean([place[peer] for peer in graph.adj[node] if peer in place])
        )
        place.update({node: (index + 0.5) / len(nodes) for index, node in enumerate(nodes)})
        kinds[kind] = nodes
    above = ["nvswitch"] if "nvswitch" in kinds else []
    return [(kind, kinds[kind]) for kind in [*above, *below]]


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


def _draw_links(panel: Axes, graph: Any, found: Layout) -> list[Line2D]:
    """One collection of lines per class of link, and its entry in the legend."""
    lines: dict[str, dict[frozenset[str], None]] = {}
    titles: dict[str, str] = {}
    for tail, head, edge in graph.edges(data=True):
        link = edge["link"]
        bundle = edge["bandwidth_bytes_per_s"] / link.bandwidth.value
        several = "" if abs(bundle - 1) < 1e-6 else f"{bundle:.3g} x "
        label = f"{several}{link.title}, {edge['bandwidth_bytes_per_s'] / 1e9:,.4g} GB/s each way"
        titles[label] = link.name
        lines.setdefault(label, {})[frozenset((tail, head))] = None
    handles = []
    for index, (label, pairs) in enumerate(lines.items()):
        many = len(pairs) > MANY_LINKS
        colour, dashes = OKABE_ITO[(index + 1) % _COLOURS], LINES[index % len(LINES)]
        segments = [found.line(pair) for pair in pairs]
        panel.add_collection(
            LineCollection(
                segments,
                colors=colour,
                linestyles=dashes,
                linewidths=0.4 if many else 1.0,
                alpha=0.35 if many else 0.8,
            )
        )
        handles.append(
            Line2D([], [], color=colour, linestyle=dashes, label=f"{label} ({len(segments):,} drawn)")
        )
    return handles
