"""The report as one page: table, where the difference comes from, plots, bounds, warnings."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.record import CAUSES
from simulator.report.culprits import link_sentences
from simulator.report.evaluation import Evaluation
from simulator.report.rows import BEST, NOTHING, Row, comparison, number
from simulator.report.sentences import CAUSE_TITLES, differences
from simulator.report.tables import title


def markdown(evaluations: Sequence[Evaluation], plots: Sequence[tuple[str, str]]) -> str:
    """The page; ``plots`` are titles with paths relative to it."""
    parts = [
        f"# {' against '.join(evaluation.name for evaluation in evaluations)}",
        title(evaluations) + ".",
        *_warnings(evaluations),
        _comparison(evaluations),
        "## Where the time goes",
        *differences(evaluations),
        _ledger(evaluations),
        "## What the links did",
        *("\n".join(_listed(link_sentences(evaluation))) for evaluation in evaluations),
        *(f"## {name}\n\n![{name}]({path})" for name, path in plots),
        "## Bounds",
        "What physics allows at the peak figures of the data sheets, and what the run came to. Of latencies "
        "it is the request that comes nearest to its own limit.",
        _bounds(evaluations),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _warnings(evaluations: Sequence[Evaluation]) -> list[str]:
    return [
        f"**Warning, {evaluation.name}:** {warning}."
        for evaluation in evaluations
        for warning in evaluation.warnings
    ]


def _comparison(evaluations: Sequence[Evaluation]) -> str:
    lines = []
    group = ""
    for row in comparison(evaluations):
        if row.group != group:
            group = row.group
            lines.append([f"**{group}**", *[""] * len(evaluations)])
        lines.append([row.label, *_marked(row)])
    note = f"\n\n{BEST} marks the best of a row." if len(evaluations) > 1 else ""
    return markdown_table(["", *(evaluation.name for evaluation in evaluations)], lines) + note.replace(
        BEST, "\\" + BEST
    )


def _marked(row: Row) -> list[str]:
    best = row.best()
    return [f"**{cell}** \\{BEST}" if index in best else cell for index, cell in enumerate(row.cells())]


def _ledger(evaluations: Sequence[Evaluation]) -> str:
    """Seconds by cause of the mean and the p99 request of each system, and their sums."""
    columns = [
        (f"{evaluation.name}, {which}, s", causes_s)
        for evaluation in evaluations
        if evaluation.summary.e2e is not None
        for which, causes_s in (
            ("mean", evaluation.ledger.mean_s()),
            ("p99", evaluation.ledger.at_percentile_s(99.0)),
        )
    ]
    if not columns:
        return ""
    lines = [
        [CAUSE_TITLES[cause], *(_seconds(float(causes_s[index])) for _, causes_s in columns)]
        for index, cause in enumerate(CAUSES)
        if any(causes_s[index] for _, causes_s in columns)
    ]
    lines.append(["**sum = E2E**", *(f"**{_seconds(float(causes_s.sum()))}**" for _, causes_s in columns)])
    return markdown_table(["cause", *(name for name, _ in columns)], lines)


def _listed(sentences: Sequence[str]) -> list[str]:
    """Indented lines as items of a list, after the line that they belong to."""
    return [f"- {line.strip()}" if line.startswith(" ") else f"{line}\n" for line in sentences]


def _seconds(value: float) -> str:
    return f"{value:.4f}" if value else NOTHING


def _bounds(evaluations: Sequence[Evaluation]) -> str:
    lines = [
        [
            evaluation.name,
            bound.name,
            f"{number(bound.value)} {bound.unit}",
            bound.sense,
            f"{number(bound.limit)} {bound.unit}",
        ]
        for evaluation in evaluations
        for bound in evaluation.bounds
    ]
    return markdown_table(["system", "bound", "simulated", "physics says", "limit"], lines)


def markdown_table(header: list[str], lines: list[list[str]]) -> str:
    """A table, its first column to the left and the others to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *lines))
