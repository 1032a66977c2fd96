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
    KEEPS_UP,
    THROUGHPUT,
    TPOT_MEAN,
    TPOT_P99,
    TTFT_MEAN,
    TTFT_P99,
    Metric,
    keeps_up,
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
    nudged: tuple[Summary, ...]
    """Of runs that differ from the base run by chance."""

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """What is shown: what every run has a value of that is not zero."""
        known = measured(METRICS, self._summaries)
        return tuple(m for m in known if all(value(m, summary) > 0.0 for summary in self._summaries))

    @cached_property
    def _summaries(self) -> list[Summary]:
        effects = (effect.summary for effect in self.effects)
        return [self.base.summary, self.together.summary, *effects, *self.nudged]

    @cached_property
    def ranked(self) -> tuple[Effect, ...]:
        """The parts that matter, the one with the largest effect beyond chance on any metric first."""
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
        return self._change_percent(effect.summary, metric)

    def chance_percent(self, metric: Metric) -> float:
        """By how much a metric changes where nothing to speak of does: the most among the ``nudged``."""
        return max((abs(self._change_percent(summary, metric)) for summary in self.nudged), default=0.0)

    def tells(self, effect: Effect, metric: Metric) -> bool:
        """Whether a change is more than chance."""
        return abs(self.change_percent(effect, metric)) > self.chance_percent(metric)

    def _change_percent(self, summary: Summary, metric: Metric) -> float:
        return 100.0 * (value(metric, summary) / value(metric, self.base.summary) - 1.0)

    def elasticity(self, effect: Effect, metric: Metric) -> float:
        """``ln(metric after / before) / ln(factor)``."""
        ratio = value(metric, effect.summary) / value(metric, self.base.summary)
        return log(ratio) / log(self.factor)

    def _largest(self, effect: Effect) -> float:
        beyond = (
            abs(self.change_percent(effect, metric)) - self.chance_percent(metric) for metric in self.metrics
        )
        return max(beyond, default=0.0)

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
                "chance_percent": {metric.name: self.chance_percent(metric) for metric in self.metrics},
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
        up = keeps_up(self.base.result.plan, self._summaries)
        found = [KEEPS_UP if up and m is THROUGHPUT else self._most(m) for m in self.metrics]
        if self.idle:
            names = ", ".join(effect.title for effect in self.idle)
            found.append(f"No request would notice more of: {names}.")
        return found

    def _most(self, metric: Metric) -> str:
        gains = [self.change_percent(effect, metric) for effect in self.ranked]
        sign = -1.0 if metric.better == "low" else 1.0
        best = max(range(len(gains)), key=lambda index: sign * gains[index], default=None)
        chance = self.chance_percent(metric)
        least = max(chance, _SMALL_PERCENT)
        if best is None or sign * gains[best] <= least:
            why = ", which chance does too" if least == chance else ""
            return f"No part alone makes the {metric.title} better by more than {least:.2g} %{why}."
        word = "less" if metric.better == "low" else "more"
        part = self.ranked[best].title
        return (
            f"For the {metric.title} {part} matters most: {self.percent:g} % better gives"
            f" {abs(gains[best]):.1f} % {word}."
        )

    def _rows(self) -> list[tuple[Effect, list[str]]]:
        """Cells of the ranked effects and of all together."""
        return [
            (effect, [self._cell(effect, metric) for metric in self.metrics])
            for effect in (*self.ranked, self.together)
        ]

    def _cell(self, effect: Effect, metric: Metric) -> str:
        elasticity = f"{self.elasticity(effect, metric):+.2f}" if self.tells(effect, metric) else CHANCE
        return f"{self.change_percent(effect, metric):+.1f} ({elasticity})"

    def _chance(self) -> list[str]:
        return [f"up to {self.chance_percent(metric):.2g}" for metric in self.metrics]

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
        found.add_row(CHANCE_TITLE, *self._chance())
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
        lines.append([CHANCE_TITLE, *self._chance()])
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


CHANCE = "~"
CHANCE_TITLE = "by chance"
CAPTION = (
    "in brackets the elasticity, d ln metric / d ln part; ranked by the largest change; traffic, seed and"
    f" deployment are the same in every run; {CHANCE} is no more than chance: what a few runs change in which"
    " everything is faster or slower by at most 0.03 %"
)
