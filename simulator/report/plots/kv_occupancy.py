"""KV cache in use over time."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from simulator.report.evaluation import Evaluation
from simulator.report.plots.style import line_style, panels


def draw(evaluations: Sequence[Evaluation]) -> Figure:
    """Blocks in use, as a share of those of all replicas of the system."""
    figure, (panel,) = panels(1, 1, (9.0, 3.2))
    for index, evaluation in enumerate(evaluations):
        found = evaluation.timeline
        blocks = sum(evaluation.result.record.kv_blocks)
        peak = 100.0 * evaluation.summary.kv_peak_fraction
        label = f"{evaluation.name}: {blocks:,} blocks, fullest replica {peak:.3g} %"
        panel.stairs(
            100.0 * found.kv_fraction, found.edges_s, baseline=None, label=label, **line_style(index)
        )
    panel.set_ylim(0.0, min(105.0, 1.2 * panel.get_ylim()[1]))
    panel.set_xlabel("time, s")
    panel.set_ylabel("KV blocks in use, %")
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper left", ncols=len(evaluations))
    return figure
