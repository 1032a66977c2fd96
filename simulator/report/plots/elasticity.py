"""What a faster part would buy: a panel per metric, a bar per part."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.report.elasticity import Effect, ElasticityPage
from simulator.report.headline import Metric
from simulator.report.plots.style import BETTER, WORSE, panels

_COLUMNS = 3
_TOGETHER = "#bbbbbb"
_CHANCE = "#eeeeee"
_ROOM = 0.24
"""Room for the figure beside a bar, as a share of the width of all bars."""


def draw(page: ElasticityPage) -> Figure:
    """Bars of percent change on one scale; the first part on top, all together below a gap."""
    effects = (*page.ranked, page.together)
    rows = -(-len(page.metrics) // _COLUMNS)
    figure, axes = panels(rows, _COLUMNS, (10.0, 0.5 + rows * (0.9 + 0.26 * len(effects))))
    limits = _limits(page, effects)
    for index, panel in enumerate(axes):
        if index >= len(page.metrics):
            panel.set_axis_off()
            continue
        _draw_metric(panel, page, effects, page.metrics[index])
        first = index % _COLUMNS == 0
        panel.set_yticks(_places(len(effects)), [effect.title if first else "" for effect in effects])
        panel.invert_yaxis()
        panel.grid(axis="y", visible=False)
        panel.set_xlim(*limits)
        panel.set_xlabel("change, %")
    figure.suptitle(f"{page.heading}; grey band: chance", fontsize=10, x=0.01, ha="left")
    return figure


def _places(count: int) -> list[float]:
    """A place for each bar; the last one stands apart."""
    return [*(float(index) for index in range(count - 1)), count - 0.5]


def _limits(page: ElasticityPage, effects: tuple[Effect, ...]) -> tuple[float, float]:
    """One scale for all panels, with room for the figures."""
    changes = [page.change_percent(effect, metric) for effect in effects for metric in page.metrics]
    chance = max(map(page.chance_percent, page.metrics), default=0.0)
    low, high = min([-chance, *changes]), max([chance, *changes])
    room = _ROOM * ((high - low) or 1.0)
    return low - room, high + room


def _draw_metric(panel: Axes, page: ElasticityPage, effects: tuple[Effect, ...], metric: Metric) -> None:
    chance = page.chance_percent(metric)
    panel.axvspan(-chance, chance, color=_CHANCE, linewidth=0.0)
    for place, effect in zip(_places(len(effects)), effects, strict=True):
        change = page.change_percent(effect, metric)
        colour, hatch = BETTER if (change < 0.0) == (metric.better == "low") else WORSE
        together = effect is page.together
        panel.barh(
            place,
            change,
            height=0.7,
            color=_TOGETHER if together else colour,
            hatch="" if together else hatch,
            edgecolor="white",
            linewidth=0.5,
        )
        side = "left" if change >= 0.0 else "right"
        panel.text(change, place, f" {change:+.1f} ", va="center", ha=side, fontsize=7.5)
    panel.axvline(0.0, color="black", linewidth=0.8)
    panel.set_title(metric.title)
