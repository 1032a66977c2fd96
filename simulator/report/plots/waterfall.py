"""From one system to another: a panel per metric, a floating bar per class of properties."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.report.headline import Metric
from simulator.report.plots.style import BETTER, WORSE, panels
from simulator.report.rows import number
from simulator.report.waterfall import WaterfallPage, bracketed

_COLUMNS = 2
_WHOLE = "#bbbbbb"
_ROOM = 1.35
"""Width of a panel over its longest bar: room for the figures."""


def draw(page: WaterfallPage) -> Figure:
    """The first system on top, what each class changes below it, the second system at the bottom."""
    names = [page.first.name, *page.titles.values(), page.second.name]
    rows = max(-(-len(page.metrics) // _COLUMNS), 1)
    figure, axes = panels(rows, _COLUMNS, (10.0, 0.5 + rows * (0.9 + 0.26 * len(names))))
    for index, panel in enumerate(axes):
        if index >= len(page.metrics):
            panel.set_axis_off()
            continue
        _draw_metric(panel, page, page.metrics[index])
        panel.set_yticks(range(len(names)), names if index % _COLUMNS == 0 else [""] * len(names))
        panel.invert_yaxis()
        panel.grid(axis="y", visible=False)
    heading = f"{page.heading}; in brackets the changes in the reverse order"
    figure.suptitle(heading, fontsize=10, x=0.01, ha="left")
    return figure


def _draw_metric(panel: Axes, page: WaterfallPage, metric: Metric) -> None:
    values, changes, reverse = page.values(metric), page.changes(metric), page.reverse_changes(metric)
    look: dict[str, Any] = {"height": 0.7, "edgecolor": "white", "linewidth": 0.5}
    last = len(values)
    for row, whole in ((0, values[0]), (last, values[-1])):
        panel.barh(row, whole, color=_WHOLE, **look)
        panel.text(whole, row, f" {number(whole)}", va="center", fontsize=7.5)
    for row, ((before, after), change) in enumerate(zip(pairwise(values), changes, strict=True), start=1):
        colour, hatch = BETTER if (change < 0.0) == (metric.better == "low") else WORSE
        panel.barh(row, change, left=before, color=colour, hatch=hatch, **look)
        label = bracketed(change, reverse[row - 1])
        panel.text(max(before, after), row, f" {label}", va="center", fontsize=7.5)
        panel.plot([before, before], [row - 1, row], color="black", linewidth=0.6)
    panel.plot([values[-1]] * 2, [last - 1, last], color="black", linewidth=0.6)
    panel.set_xlim(0.0, _ROOM * (max(values) or 1.0))
    panel.set_xlabel(metric.unit)
    panel.set_title(metric.title)
