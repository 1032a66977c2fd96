"""What a faster part would buy, as a table, sentences and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from simulator.metrics.summary import Summary
from simulator.report.evaluation import Evaluation
from simulator.report.exports import result_object, to_json
from simulator.report.folder import PLOTS, REPORT, RESULT
from simulator.report.headline import (
    GOODPUT,
    THROUGHPUT,
    TPOT_MEAN,
    TPOT_P99,
    TTFT_MEAN,
    TTFT_P99,
    Metric,
    measured,
    value,
)
from simulator.report.markdown import markdown_table
from simulator.report.tables import title

METRICS = (TTFT_MEAN, TTFT_P99, TPOT_MEAN, TPOT_P99, THROUGHPUT, GOODPUT)

_SMALL_PERCENT = 0.05
"""A change that one digit after the point does not show."""


@dataclass(frozen=True)
class Effect:
    """A run in which a part is faster."""

    name: str
    title: str
    summary: Summary
    idle: bool
    """Nothing changed for any request."""


@dataclass(frozen=True)
class ElasticityPage:
    """The effects of faster parts on a base run; the last one is that of all of them together."""

    base: Evaluation
    factor: float
    effects: tuple[Effect, ...]
    together: Effect

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """What is shown: what every run has a value of that is not zero."""
        summaries = [self.base.summary, self.together.summary, *(effect.summary for effect in self.effects)]
        known = measured(METRICS, summaries)
        return tuple(m for m in known if all(value(m, summary) > 0.0 for summary in summaries))

    @cached_property
    def ranked(self) -> tuple[Effect, ...]:
        """The parts that matter, the one with the largest effect on any metric first."""
        used = [effect for effect in self.effects if not effect.idle]
        return tuple(sorted(used, key=lambda effect: -self._largest(effect)))

    @cached_property
    def idle(self) -> tuple[Effect, ...]:
        """The parts that matter to no request."""
        return tuple(effect for effect in self.effects if effect.idle)

    @property
    def percent(self) -> float:
        """How much faster, in percent."""
        return 100.0 * (self.factor - 1.0)

    def change_percent(self, effect: Effect, metric: Metric) -> float:
        """By how much a metric changes."""
        return 100.0 * (value(metric, effect.summary) / value(metric, self.base.summary) - 1.0)

    def elasticity(self, effect: Effect, metric: Metric) -> float:
        """``ln(metric after / before) / ln(factor)``."""
        ratio = value(metric, effect.summary) / value(metric, self.base.summary)
        return log(ratio) / log(self.factor)

    def _largest(self, effect: Effect) -> float:
        return max((abs(self.elasticity(effect, metric)) for metric in self.metrics), default=0.0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the base run."""
        return tuple(f"{self.base.name}: {warning}" for warning in self.base.warnings)

    def plain(self) -> dict[str, Any]:
        """The object of result.json."""
        return {
            "elasticity": {
                "factor": self.factor,
                "base": {metric.name: value(metric, self.base.summary) for metric in self.metrics},
                "parts": [self._plain(effect) for effect in self.effects],
                "together": self._plain(self.together),
            },
            "base": result_object(self.base),
        }

    def _plain(self, effect: Effect) -> dict[str, Any]:
        metrics = self.metrics
        return {
            "name": effect.name,
            "title": effect.title,
            "matters": not effect.idle,
            "value": {metric.name: value(metric, effect.summary) for metric in metrics},
            "change_percent": {metric.name: self.change_percent(effect, metric) for metric in metrics},
            "elasticity": {metric.name: self.elasticity(effect, metric) for metric in metrics},
        }

    @property
    def heading(self) -> str:
        """What was changed."""
        return f"{self.base.name}, each part {self.percent:g} % faster: change in %"

    def sentences(self) -> list[str]:
        """The part that matters most to each metric, and the parts that do not matter."""
        found = [self._most(metric) for metric in self.metrics]
        if self.idle:
            names = ", ".join(effect.title for effect in self.idle)
            found.append(f"No request would notice more of: {names}.")
        return found

    def _most(self, metric: Metric) -> str:
        gains = [self.change_percent(effect, metric) for effect in self.ranked]
        sign = -1.0 if metric.better == "low" else 1.0
        best = max(range(len(gains)), key=lambda index: sign * gains[index], default=None)
        if best is None or sign * gains[best] < _SMALL_PERCENT:
            return f"No part alone makes the {metric.title} better by {_SMALL_PERCENT:g} %."
        word = "less" if metric.better == "low" else "more"
        part = self.ranked[best].title
        return (
            f"For the {metric.title} {part} matters most: {self.percent:g} % faster gives"
            f" {abs(gains[best]):.1f} % {word}."
        )

    def _rows(self) -> list[tuple[Effect, list[str]]]:
        """Cells of the ranked effects and of all together."""
        return [
            (effect, [self._cell(effect, metric) for metric in self.metrics])
            for effect in (*self.ranked, self.together)
        ]

    def _cell(self, effect: Effect, metric: Metric) -> str:
        change = self.change_percent(effect, metric)
        return f"{change:+.1f} ({self.elasticity(effect, metric):+.2f})"

    def _columns(self) -> list[str]:
        return [metric.title for metric in self.metrics]

    def overview(self) -> RenderableType:
        """Table, sentences and warnings for a terminal."""
        found = Table(title=Text(self.heading), title_justify="left", pad_edge=False)
        found.add_column("")
        for name in self._columns():
            found.add_column(name, justify="right", no_wrap=True)
        for effect, cells in self._rows():
            if effect is self.together:
                found.add_section()
            found.add_row(Text(effect.title), *cells)
        found.caption = CAPTION
        found.caption_justify = "left"
        parts: list[RenderableType] = [Text(title([self.base])), found]
        parts += [Text(sentence) for sentence in self.sentences()]
        parts += [Text(f"warning: {warning}", style="yellow") for warning in self.warnings]
        return Group(*parts)

    def write(self, folder: Path, *, plots: bool) -> None:
        """Fill an empty folder."""
        (folder / RESULT).write_text(to_json(self.plain()), encoding="utf-8", newline="")
        drawn = []
        if plots:
            from simulator.report.plots import elasticity, save_figure  # matplotlib is slow to import

            save_figure(lambda: elasticity.draw(self), folder / PLOTS, "elasticity")
            drawn = [f"![{self.heading}]({PLOTS}/elasticity.png)"]
        (folder / REPORT).write_text(self._markdown(drawn), encoding="utf-8", newline="")

    def _markdown(self, drawn: Sequence[str]) -> str:
        lines = [[effect.title, *cells] for effect, cells in self._rows()]
        parts = [
            f"# What a faster part would buy on {self.base.name}",
            title([self.base]) + ".",
            *(f"**Warning, {warning}.**" for warning in self.warnings),
            *self.sentences(),
            f"{self.heading}.",
            markdown_table(["", *self._columns()], lines),
            CAPTION + ".",
            *drawn,
        ]
        return "\n\n".join(parts) + "\n"


CAPTION = (
    "in brackets the elasticity, d ln metric / d ln part; ranked by the largest; traffic, seed and deployment"
    " are the same in every run"
)
