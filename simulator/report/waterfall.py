"""Where the difference between two systems comes from, as a table, sentences and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
    TTFT_MEAN,
    Metric,
    keeps_up,
    measured,
    value,
)
from simulator.report.markdown import markdown_table
from simulator.report.rows import number, signed
from simulator.report.tables import title

if TYPE_CHECKING:
    from simulator.simulation import Plan

METRICS = (TTFT_MEAN, TPOT_MEAN, THROUGHPUT, GOODPUT)

CAPTION = (
    "each row replaces one class of properties more, in the order of the rows, and finds those above it in"
    " place; the changes sum to the whole difference; in brackets the change in the reverse order, which"
    " finds those below in place"
)

_MENTIONED = 4
_WORTH_MENTIONING = 0.03
_FAR_APART = 0.1
"""Of the sum of all changes: how far those of two orders differ before a sentence says so."""


@dataclass(frozen=True)
class WaterfallPage:
    """Two systems and those between them, which have some classes of properties from the second."""

    first: Evaluation
    second: Evaluation
    titles: Mapping[str, str]
    """Of the classes, by name, in the order in which they are replaced."""
    summaries: Mapping[frozenset[str], Summary]
    """By the classes from the second system: the first few of the order, or the last few."""
    choices: tuple[str, ...]
    """What each system would choose by itself, where that differs from the deployment of both."""

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the classes."""
        return tuple(self.titles)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """What every run has a value of."""
        return measured(METRICS, list(self.summaries.values()))

    def values(self, metric: Metric) -> list[float]:
        """Of the first system and after each class."""
        return [self._value(metric, self.order[:count]) for count in range(len(self.order) + 1)]

    def changes(self, metric: Metric) -> list[float]:
        """What each class changes after those before it."""
        return [after - before for before, after in pairwise(self.values(metric))]

    def reverse_changes(self, metric: Metric) -> list[float]:
        """What each class changes after those that follow it."""
        values = [self._value(metric, self.order[index:]) for index in range(len(self.order) + 1)]
        return [after - before for after, before in pairwise(values)]

    def _value(self, metric: Metric, taken: Sequence[str]) -> float:
        return value(metric, self.summaries[frozenset(taken)])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the two systems, and of queues that grow."""
        found = [f"{one.name}: {warning}" for one in (self.first, self.second) for warning in one.warnings]
        grew = sum(summary.growth.kept_up is False for summary in self.summaries.values())
        if grew:
            found.append(
                f"{grew} of the {len(self.summaries)} runs did not keep up with the traffic: the parts of"
                " TTFT and TPOT depend on how long the run is; a lower --request-rate tells more"
            )
        return tuple(found)

    @property
    def heading(self) -> str:
        """What becomes what, and how both serve."""
        return f"From {self.first.name} to {self.second.name}, both with {self.first.result.plan.layout}"

    def plain(self) -> dict[str, Any]:
        """The object of result.json."""
        metrics = self.metrics
        return {
            "waterfall": {
                "order": list(self.order),
                "choices": list(self.choices),
                "first": {metric.name: self.values(metric)[0] for metric in metrics},
                "second": {metric.name: self.values(metric)[-1] for metric in metrics},
                "steps": [
                    {
                        "name": name,
                        "title": title,
                        "change": {metric.name: self.changes(metric)[index] for metric in metrics},
                        "reverse_change": {
                            metric.name: self.reverse_changes(metric)[index] for metric in metrics
                        },
                        "after": {metric.name: self.values(metric)[index + 1] for metric in metrics},
                    }
                    for index, (name, title) in enumerate(self.titles.items())
                ],
            },
            "first": result_object(self.first),
            "second": result_object(self.second),
        }

    def sentences(self) -> list[str]:
        """The largest parts of each metric, and how both were deployed."""
        up = keeps_up(self.first.result.plan, self.summaries.values())
        found = [KEEPS_UP if up and m is THROUGHPUT else self._sentence(m) for m in self.metrics]
        if self.choices:
            found.append(
                "Both serve in one deployment, so this is not the difference that llmsim compare shows: more"
                " GPUs, or memory that lets fewer of them hold the model, count for nothing here."
                f" Left to itself, {'; '.join(self.choices)}."
            )
        return found

    def _sentence(self, metric: Metric) -> str:
        values = self.values(metric)
        whole = values[-1] - values[0]
        head = f"The {metric.title} is {number(values[0])} {metric.unit} on {self.first.name}"
        parts = self._parts(metric)
        if not parts:
            return f"{head} and on {self.second.name}."
        return (
            f"{head} and {number(values[-1])} on {self.second.name}, {number(abs(whole))}"
            f" {'more' if whole > 0.0 else 'less'}{_share(values[0], values[-1])}: {', '.join(parts)}."
        )

    def _parts(self, metric: Metric) -> list[str]:
        """The few largest changes of either order, with both where they are far apart."""
        changes = list(
            zip(self.titles.values(), self.changes(metric), self.reverse_changes(metric), strict=True)
        )
        total = sum(abs(change) for _, change, _ in changes)
        changes.sort(key=lambda one: -max(map(abs, one[1:])))
        found = []
        for name, change, reverse in changes[:_MENTIONED]:
            if max(abs(change), abs(reverse)) > _WORTH_MENTIONING * total:
                far = abs(change - reverse) > _FAR_APART * total
                found.append(
                    f"{name} {signed(change)}" + (f" (in the reverse order {signed(reverse)})" if far else "")
                )
        return found

    def _rows(self) -> list[list[str]]:
        """The first system, the classes, the second system."""
        before, after = _figures(self.first.result.plan), _figures(self.second.result.plan)
        values = [self.values(metric) for metric in self.metrics]
        changes = [
            list(map(bracketed, self.changes(metric), self.reverse_changes(metric)))
            for metric in self.metrics
        ]
        return [
            [self.first.name, "", *(number(of[0]) for of in values)],
            *(
                [title, _both(before[name], after[name]), *(cells[index] for cells in changes)]
                for index, (name, title) in enumerate(self.titles.items())
            ),
            [self.second.name, "", *(number(of[-1]) for of in values)],
        ]

    def _columns(self) -> list[str]:
        return ["", "", *(f"{metric.title}, {metric.unit}" for metric in self.metrics)]

    def overview(self) -> RenderableType:
        """Table, sentences and warnings for a terminal."""
        found = Table(title=Text(self.heading), title_justify="left", pad_edge=False)
        for index, name in enumerate(self._columns()):
            justify: Literal["left", "right"] = "right" if index > 1 else "left"
            found.add_column(name.replace(", ", "\n"), justify=justify, overflow="fold")
        rows = self._rows()
        for index, cells in enumerate(rows):
            if index in (1, len(rows) - 1):
                found.add_section()
            found.add_row(*map(Text, cells))
        found.caption = CAPTION
        found.caption_justify = "left"
        parts: list[RenderableType] = [Text(title([self.first])), found]
        parts += [Text(sentence) for sentence in self.sentences()]
        parts += [Text(f"warning: {warning}", style="yellow") for warning in self.warnings]
        return Group(*parts)

    def write(self, folder: Path, *, plots: bool) -> None:
        """Fill an empty folder."""
        (folder / RESULT).write_text(to_json(self.plain()), encoding="utf-8", newline="")
        drawn = []
        if plots:
            from simulator.report.plots import save_figure, waterfall  # matplotlib is slow to import

            save_figure(lambda: waterfall.draw(self), folder / PLOTS, "waterfall")
            drawn = [f"![{self.heading}]({PLOTS}/waterfall.png)"]
        (folder / REPORT).write_text(self._markdown(drawn), encoding="utf-8", newline="")

    def _markdown(self, drawn: Sequence[str]) -> str:
        parts = [
            f"# From {self.first.name} to {self.second.name}",
            title([self.first]) + ".",
            *(f"**Warning, {warning}.**" for warning in self.warnings),
            *self.sentences(),
            f"{self.heading}.",
            markdown_table(self._columns(), self._rows()),
            f"{CAPTION}.",
            *drawn,
        ]
        return "\n\n".join(parts) + "\n"


def _figures(plan: Plan) -> dict[str, str]:
    """What a system brings, by class of properties."""
    device, dtype = plan.pools[0].device, plan.scenario.deployment.weights
    return {
        "memory-bandwidth": f"{device.memory_bandwidth.value / 1e12:.3g} TB/s",
        "capacity": f"{device.memory_capacity.value / 1e9:.0f} GB",
        "compute": f"{device.peak[dtype].value / 1e12:,.0f} {dtype} TFLOP/s",
        "scale-up": _pair(plan),
        "overheads": f"{device.family}, host x {plan.topology.system.host_slowdown.value:g}",
        "kernels": device.family,
    }


def _pair(plan: Plan) -> str:
    """What joins two ranks that are side by side, or two GPUs where there is one rank."""
    ranks = plan.groups[0] if plan.pools[0].tensor_parallel_size > 1 else plan.topology.gpus
    if len(ranks) < 2:
        return "none"
    one, other = ranks[:2]
    link = plan.topology.link((one, plan.topology.paths(one, other)[0][1]))
    return f"{link.name} {plan.topology.pair(one, other).bandwidth_bytes_per_s / 1e9:.0f} GB/s"


def _share(before: float, after: float) -> str:
    """A change beside what it changes, in percent up to twice as much."""
    if not before:
        return ""
    if after > 2.0 * before:
        return f" ({number(after / before)} times as much)"
    return f" ({100.0 * abs(after / before - 1.0):.0f} %)"


def _both(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def bracketed(change: float, reverse: float) -> str:
    """A change with that of the reverse order in brackets."""
    return f"{signed(change)} ({signed(reverse)})" if change or reverse else "0"
