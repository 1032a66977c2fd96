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
        label = f"{evaluation.name} ({blocks:,} blocks)"
        panel.stairs(
            100.0 * found.kv_fraction, found.edges_s, baseline=None, label=label, **line_style(index)
        )
    panel.axhline(100.0, color="#999999", linewidth=0.8)
    panel.set_ylim(0.0, 105.0)
    panel.set_xlabel("time, s")
    panel.set_ylabel("KV blocks in use, %")
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper left", ncols=len(evaluations))
    return figure
