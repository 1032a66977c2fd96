"""The graph of a system."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.report.plots.layout import Layout, layout
from simulator.report.plots.style import LINES, OKABE_ITO, house_style, panels
from simulator.topology.graph import Edge, Topology

_COLOURS = 6
"""Of the palette those that are neither black nor too light for a line."""

MANY_LINKS = 200
"""Links of one class from which they are drawn thin."""

_CHARACTER_INCHES = 0.06
_LEGEND_KEY_INCHES = 0.7


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


def _draw_links(panel: Axes, graph: Any, found: Layout) -> list[Line2D]:
    """One collection of lines per class of link, and its entry in the legend."""
    handles = []
    for index, (label, pairs) in enumerate(_classes(graph).items()):
        many = len(pairs) > MANY_LINKS
        colour, dashes = OKABE_ITO[(index + 1) % _COLOURS], LINES[index % len(LINES)]
        look: Any = {"color": colour, "linestyle": dashes}
        lines = LineCollection(
            [found.line(pair) for pair in pairs],
            linewidths=0.4 if many else 1.0,
            alpha=0.35 if many else 0.8,
            **look,
        )
        panel.add_collection(lines)
        handles.append(Line2D([], [], label=f"{label} ({len(pairs):,} drawn)", **look))
    return handles


def _classes(graph: Any) -> dict[str, list[Edge]]:
    """Links by what they are, and how many stand for one."""
    classes: dict[str, list[Edge]] = defaultdict(list)
    for tail, head, edge in graph.edges(data=True):
        link, bytes_per_s = edge["link"], edge["bandwidth_bytes_per_s"]
        count = bytes_per_s / link.bandwidth.value
        several = "" if abs(count - 1) < 1e-6 else f"{count:.3g} x "
        classes[f"{several}{link.title}, {bytes_per_s / 1e9:,.4g} GB/s each way"].append((tail, head))
    return classes
