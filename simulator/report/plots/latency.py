"""Latency: the share of requests that are at least so fast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from simulator.record import Floats
from simulator.report.evaluation import Evaluation
from simulator.report.plots.style import line_style, panels

_SHARES = np.unique(np.concatenate((np.linspace(0.0, 1.0, 301), 1.0 - np.geomspace(0.1, 1e-4, 60))))


def draw(evaluations: Sequence[Evaluation]) -> Figure:
    """CDFs of TTFT, TPOT and E2E."""
    figure, axes = panels(1, 3, (11.0, 3.6))
    for panel, (name, unit, scale) in zip(
        axes, (("TTFT", "ms", 1e3), ("TPOT", "ms", 1e3), ("E2E", "s", 1.0)), strict=True
    ):
        for index, evaluation in enumerate(evaluations):
            found = evaluation.latencies
            values = {"TTFT": found.ttft_s, "TPOT": found.tpot_s, "E2E": found.e2e_s}[name]
            _curve(panel, scale * values, index, evaluation.name)
        panel.set_xlabel(f"{name}, {unit}")
        panel.set_ylim(0.0, 1.01)
        for share, label in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99")):
            panel.axhline(share, color="#999999", linewidth=0.6)
            panel.annotate(label, (1.0, share), xycoords=("axes fraction", "data"), fontsize=7, va="center")
    axes[0].set_ylabel("share of requests")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=len(evaluations))
    return figure


def _curve(panel: Axes, values: Floats, index: int, name: str) -> None:
    known = values[~np.isnan(values)]
    if len(known):
        found = np.quantile(known, _SHARES)
        panel.plot(found, _SHARES, label=name, **line_style(index))
        if found[0] > 0.0 and found[-1] > 20.0 * found[0]:
            _logarithmic(panel)


def _logarithmic(panel: Axes) -> None:
    """A logarithmic axis that is labelled with plain numbers: 1, 3, 10, ..."""
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(axis="x", labelsize=8)
