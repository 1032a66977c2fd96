"""The comparison as a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from simulator.report.culprits import link_sentences
from simulator.report.evaluation import Evaluation
from simulator.report.rows import BEST, Row, comparison
from simulator.report.sentences import differences


def table(evaluations: Sequence[Evaluation]) -> Table:
    """One column per system, rows in groups, the best value of a row marked with a star."""
    rows = comparison(evaluations)
    found = Table(title=Text(title(evaluations)), title_justify="left", pad_edge=False)
    found.add_column("")
    for evaluation in evaluations:
        found.add_column(Text(evaluation.name), justify="right", no_wrap=True)
    group = ""
    for row in rows:
        if row.group != group:
            if group:
                found.add_section()
            group = row.group
            found.add_row(Text(group, style="bold"), *[""] * len(evaluations))
        found.add_row(f"  {row.label}", *_marked(row, len(evaluations) > 1))
    if len(evaluations) > 1:
        found.caption = f"{BEST} best of the row"
        found.caption_justify = "left"
    return found


def _marked(row: Row, several: bool) -> list[Text]:
    best = row.best()
    room = " " * (1 + len(BEST)) if several else ""
    return [
        Text(f"{cell} {BEST}", "bold") if index in best else Text(cell + room)
        for index, cell in enumerate(row.cells())
    ]


def title(evaluations: Sequence[Evaluation]) -> str:
    """What was served."""
    plan = evaluations[0].result.plan
    scenario = plan.scenario
    traffic = evaluations[0].result.traffic
    source = scenario.workload.trace or scenario.workload.preset
    requests = "request" if traffic.requests == 1 else "requests"
    rate = "" if traffic.mean_rate_per_s is None else f", drawn at {traffic.mean_rate_per_s:.3g}/s"
    return (
        f"{plan.model.title}, weights {scenario.deployment.weights}, KV cache {plan.kv_dtype}: "
        f"{traffic.requests:,} {requests} of {source}{rate}, "
        f"on average {traffic.mean_input_tokens:,.0f} input "
        f"and {traffic.mean_output_tokens:,.0f} output tokens, seed {scenario.seed}"
    )


def overview(evaluations: Sequence[Evaluation]) -> RenderableType:
    """Table, where the difference comes from, the links, and warnings."""
    parts: list[RenderableType] = [table(evaluations)]
    parts += [Text(sentence) for sentence in differences(evaluations)]
    parts += [Text(sentence) for evaluation in evaluations for sentence in link_sentences(evaluation)]
    parts += [
        Text(f"warning: {evaluation.name}: {warning}", style="yellow")
        for evaluation in evaluations
        for warning in evaluation.warnings
    ]
    return Group(*parts)
