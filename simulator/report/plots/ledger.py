"""The ledger: where the mean and the p99 request spent their time on each system."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simulator.record import CAUSES, Floats
from simulator.report.evaluation import Evaluation
from simulator.report.plots.style import OKABE_ITO, panels
from simulator.report.sentences import CAUSE_TITLES

_BLUE, _VERMILION, _GREEN, _PINK, _ORANGE, _SKY, _BLACK, _YELLOW = OKABE_ITO
_LOOK = {
    "queue": ("#bbbbbb", ""),
    "lost": (_BLACK, "////"),
    "preempted": ("#bbbbbb", "////"),
    "recompute": (_BLACK, ""),
    "kv_wait": (_PINK, "////"),
    "kv_transfer": (_PINK, ""),
    "host": (_YELLOW, ""),
    "launch": (_YELLOW, "////"),
    "weights": (_BLUE, ""),
    "kv": (_SKY, ""),
    "activations": (_SKY, "////"),
    "compute": (_VERMILION, ""),
    "attention": (_ORANGE, ""),
    "allreduce_latency": (_GREEN, "////"),
    "allreduce_bandwidth": (_GREEN, ""),
    "pipeline_send": (_GREEN, "...."),
    "pipeline_bubble": ("#bbbbbb", "...."),
    "device_sharing": (_VERMILION, "////"),
    "link_sharing": (_GREEN, "xxxx"),
}
"""Colour and hatching of each cause: kin share a colour and differ in hatching."""

_WRITTEN_SHARE = 0.06


def draw(evaluations: Sequence[Evaluation]) -> Figure:
    """One bar per system, its parts the causes, its length the latency."""
    height = 1.6 + 0.55 * len(evaluations)
    figure, axes = panels(1, 2, (11.0, height))
    bars = [(one.name, one.ledger.mean_s(), one.ledger.at_percentile_s(99.0)) for one in evaluations]
    used = [
        cause
        for index, cause in enumerate(CAUSES)
        if any(mean[index] + p99[index] > 0.0 for _, mean, p99 in bars)
    ]
    for panel, which, label in ((axes[0], 1, "mean request"), (axes[1], 2, "p99 request")):
        causes_s = [bar[which] for bar in bars]
        _draw_bars(
            panel, [name for name, *_ in bars], [part for part in causes_s if not isinstance(part, str)]
        )
        panel.set_xlabel(f"seconds of the {label}, arrival to last token")
    axes[1].set_yticklabels([])
    patches = [
        Patch(facecolor=_LOOK[cause][0], hatch=_LOOK[cause][1], edgecolor="white", label=CAUSE_TITLES[cause])
        for cause in used
    ]
    figure.legend(handles=patches, loc="outside upper left", ncols=6, fontsize=8)
    return figure


def _draw_bars(panel: Axes, names: list[str], causes_s: list[Floats]) -> None:
    longest_s = max(float(part.sum()) for part in causes_s)
    for row, seconds in enumerate(causes_s):
        left_s = 0.0
        for cause, part_s in zip(CAUSES, seconds.tolist(), strict=True):
            colour, hatch = _LOOK[cause]
            panel.barh(
                row,
                part_s,
                left=left_s,
                height=0.62,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.5,
            )
            if part_s > _WRITTEN_SHARE * longest_s:
                dark = colour in (_BLUE, _VERMILION, _GREEN, _BLACK)
                panel.text(
                    left_s + 0.5 * part_s,
                    row,
                    f"{part_s:.2g}",
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color="white" if dark else "black",
                )
            left_s += part_s
        panel.text(left_s + 0.01 * longest_s, row, f"{left_s:.3g} s", va="center", fontweight="bold")
    panel.set_xlim(0.0, 1.14 * longest_s if longest_s else 1.0)
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.grid(axis="y", visible=False)
