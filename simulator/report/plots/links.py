"""What the links did: a heat map on the graph of each system, and the busiest links over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from simulator.report.evaluation import Evaluation
from simulator.report.link_names import link_title
from simulator.report.links import Bundle, bundles
from simulator.report.plots.layout import Layout, layout
from simulator.report.plots.style import line_style
from simulator.report.plots.topology import MANY_LINKS, legend_columns

_HEAT = "viridis_r"
_UNUSED = "#dddddd"
_NODES = "#777777"
_THICK, _THIN = (0.8, 3.2), (0.3, 0.9)
"""Line widths of a link that is hardly used and of the busiest, where there are few links and many."""

_OVER_TIME_INCHES = 2.8
_PANEL = 0.85
"""Share of the width that a panel has."""


def draw(evaluations: Sequence[Evaluation]) -> Figure:
    """For each system its graph, links coloured by mean utilisation, and utilisation over time below."""
    layouts = [layout(evaluation.result.plan.topology) for evaluation in evaluations]
    heights = [height for one in layouts for height in (0.6 + one.height_inches, _OVER_TIME_INCHES)]
    width = max(9.0, *(one.width_inches for one in layouts))
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    for index, (evaluation, found) in enumerate(zip(evaluations, layouts, strict=True)):
        _draw_heat(figure.add_subplot(grid[2 * index]), evaluation, found)
        _draw_over_time(figure.add_subplot(grid[2 * index + 1]), evaluation, width)
    return figure


def _draw_heat(panel: Axes, evaluation: Evaluation, found: Layout) -> None:
    """Each link in the colour of its busier direction."""
    topology = evaluation.result.plan.topology
    percent = _mean_percent(evaluation)
    links = list(topology.graph.edges)
    heat = {link: max(percent.get(link, 0.0), percent.get(link[::-1], 0.0)) for link in links}
    highest = max(heat.values(), default=0.0) or 1.0
    used = sorted((link for link in links if heat[link]), key=heat.__getitem__)
    unused = [link for link in links if not heat[link]]
    narrow, wide = _THIN if len(links) > MANY_LINKS else _THICK
    panel.add_collection(
        LineCollection([found.line(link) for link in unused], colors=_UNUSED, linewidths=narrow)
    )
    colours = ScalarMappable(Normalize(0.0, highest), _HEAT)
    panel.add_collection(
        LineCollection(
            [found.line(link) for link in used],
            colors=colours.to_rgba(np.array([heat[link] for link in used])),
            linewidths=[narrow + (wide - narrow) * heat[link] / highest for link in used],
        )
    )
    found.draw_nodes(panel, (_NODES,))
    panel.set_title(f"{evaluation.name}: mean utilisation of each link, of its busier direction")
    assert panel.figure is not None
    panel.figure.colorbar(colours, ax=panel, label="mean utilisation, % (grey: unused)", shrink=0.7, pad=0.01)


def _mean_percent(evaluation: Evaluation) -> dict[tuple[str, str], float]:
    found = evaluation.links
    return {edge: 100.0 * found.mean(use) for use in found.uses for edge in use.edges}


def _draw_over_time(panel: Axes, evaluation: Evaluation, width_inches: float) -> None:
    found = evaluation.links
    labels = []
    for index, bundle in enumerate(_busiest_of_each_class(evaluation)):
        labels.append(f"{link_title(evaluation.result.plan.topology, bundle.edges[0])} {bundle.name}")
        percent = 100.0 * found.utilisation(bundle.use)
        panel.stairs(percent, found.edges_s, baseline=None, label=labels[-1], **line_style(index))
    panel.set_ylim(0.0, min(100.0, 1.1 * panel.get_ylim()[1]))
    panel.set_xlabel("time, s")
    panel.set_ylabel("utilisation, %")
    if labels:
        columns = legend_columns(_PANEL * width_inches, labels)
        panel.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, fontsize=7.5)


def _busiest_of_each_class(evaluation: Evaluation) -> Iterator[Bundle]:
    """The bundle with the highest mean utilisation of each class of link."""
    found = evaluation.links
    busiest: dict[str, Bundle] = {}
    for bundle in bundles(evaluation.result.plan.topology, found):
        known = busiest.get(bundle.link)
        if known is None or found.mean(bundle.use) > found.mean(known.use):
            busiest[bundle.link] = bundle
    yield from busiest.values()
