"""The graph of a system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.report.plots.style import LINES, OKABE_ITO, house_style, panels

if TYPE_CHECKING:
    from simulator.topology.graph import Topology

_COLOURS = 6
"""Of the palette those that are neither black nor too light for a line."""

_MANY_LINKS = 200
"""Links of one class from which they are drawn thin."""

_ASIDE = 0.25
"""Where NICs stand in their share of the row: off the middle, so that no link passes behind them."""

_WRITTEN_NODES = 20
"""Nodes of one row up to which each has its name beside it."""


def draw(topology: Topology) -> Figure:
    """Nodes in rows by kind, GPUs in one of them; edges by class of link."""
    graph = topology.graph
    rows = _rows(graph)
    widest = max(len(nodes) for _, nodes in rows)
    with house_style():
        figure, (panel,) = panels(1, 1, (min(16.0, 5.0 + 0.6 * widest), 1.2 + 1.3 * len(rows)))
        places = {
            node: ((index + (_ASIDE if kind == "nic" else 0.5)) / len(nodes), float(-row))
            for row, (kind, nodes) in enumerate(rows)
            for index, node in enumerate(nodes)
        }
        handles = _draw_links(panel, graph, places)
        for row, (kind, nodes) in enumerate(rows):
            colour = OKABE_ITO[row % _COLOURS]
            _draw_nodes(panel, kind, nodes, [places[node][0] for node in nodes], -row, colour)
        panel.set_title(topology.system.title)
        panel.set_xlim(0.0, 1.0)
        panel.set_ylim(-len(rows) + 0.4, 0.5)
        panel.axis("off")
        figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)), fontsize=8)
    return figure


def _draw_nodes(
    panel: Axes, kind: str, nodes: Sequence[str], xs: Sequence[float], y: float, colour: str
) -> None:
    marker = "s" if kind == "gpu" else "o"
    panel.scatter(xs, [y] * len(xs), s=90, marker=marker, color=colour, edgecolors="white", zorder=3)
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
    below = ["gpu", *sorted(others, key=lambda kind: (hops[kinds[kind][0]], graph.degree(kinds[kind][0])))]
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


def _draw_links(panel: Axes, graph: Any, places: dict[str, tuple[float, float]]) -> list[Line2D]:
    """One collection of lines per class of link, and its entry in the legend."""
    lines: dict[str, dict[frozenset[str], None]] = {}
    titles: dict[str, str] = {}
    for tail, head, edge in graph.edges(data=True):
        link = edge["link"]
        bundle = round(edge["bandwidth_bytes_per_s"] / link.bandwidth.value)
        several = f"{bundle} x " if bundle > 1 else ""
        label = f"{several}{link.title}, {edge['bandwidth_bytes_per_s'] / 1e9:,.4g} GB/s each way"
        titles[label] = link.name
        lines.setdefault(label, {})[frozenset((tail, head))] = None
    handles = []
    for index, (label, pairs) in enumerate(lines.items()):
        many = len(pairs) > _MANY_LINKS
        colour, dashes = OKABE_ITO[(index + 1) % _COLOURS], LINES[index % len(LINES)]
        segments = [[places[node] for node in sorted(pair)] for pair in pairs]
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
