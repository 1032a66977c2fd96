"""Throughput and queue over time."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from simulator.report.evaluation import Evaluation
from simulator.report.plots.style import line_style, panels


def draw(evaluations: Sequence[Evaluation]) -> Figure:
    """Output tokens per second, requests that wait and requests in the batch, systems over one another.

    Events of the scenario are dotted lines.
    """
    figure, axes = panels(3, 1, (9.0, 6.6))
    for index, evaluation in enumerate(evaluations):
        found = evaluation.timeline
        style = line_style(index) | {"linewidth": 1.2}
        for panel, values in zip(
            axes, (found.output_tokens_per_s, found.waiting, found.running), strict=True
        ):
            panel.stairs(values, found.edges_s, baseline=None, label=evaluation.name, **style)
    for at_s in {refit.at_s for evaluation in evaluations for refit in evaluation.result.plan.refits}:
        if at_s <= max(evaluation.result.record.end_s for evaluation in evaluations):
            for panel in axes:
                panel.axvline(at_s, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    for panel, label in zip(axes, ("output tokens/s", "requests waiting", "requests running"), strict=True):
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0.0)
        panel.sharex(axes[0])
    axes[-1].set_xlabel("time, s")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=len(evaluations))
    return figure
