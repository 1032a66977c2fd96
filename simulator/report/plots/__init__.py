"""One file per plot. Each draws all systems of a comparison into one figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from simulator.report.evaluation import Evaluation
from simulator.report.plots import kv_occupancy, latency, ledger, links, load
from simulator.report.plots.style import house_style, save

PLOTS: dict[str, tuple[str, Callable[[Sequence[Evaluation]], Figure]]] = {
    "latency": ("Latency of requests", latency.draw),
    "ledger": ("Where requests spend their time", ledger.draw),
    "load": ("Throughput and queue over time", load.draw),
    "links": ("Use of the links", links.draw),
    "kv_occupancy": ("KV cache in use over time", kv_occupancy.draw),
}
"""File name, title and drawing function of each plot."""


def draw_all(evaluations: Sequence[Evaluation], folder: Path) -> list[tuple[str, str]]:
    """Draw every plot as PNG and SVG into ``folder``; file names and titles."""
    for name, (_, draw) in PLOTS.items():
        save_figure(partial(draw, evaluations), folder, name)
    return [(name, title) for name, (title, _) in PLOTS.items()]


def save_figure(draw: Callable[[], Figure], folder: Path, name: str) -> None:
    """Draw one plot as PNG and SVG into ``folder``."""
    folder.mkdir(exist_ok=True)
    with house_style():
        figure = draw()
        for suffix in (".png", ".svg"):
            save(figure, folder / f"{name}{suffix}")
