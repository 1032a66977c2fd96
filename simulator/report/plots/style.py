"""How plots look: colours that colour-blind readers tell apart, lines that a black print tells apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.errors import InputError

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
BETTER, WORSE = (OKABE_ITO[0], ""), (OKABE_ITO[1], "////")
"""Colour and hatching of a change."""
LINES: tuple[Any, ...] = ("-", "--", "-.", ":")

_STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "llmsim",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the style of the house."""
    with matplotlib.rc_context(_STYLE):
        yield


def line_style(index: int) -> dict[str, Any]:
    """Colour and dashes of a system."""
    return {"color": OKABE_ITO[index % len(OKABE_ITO)], "linestyle": LINES[index % len(LINES)]}


def panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure with axes row by row; ``size`` in inches."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, [figure.add_subplot(rows, columns, index + 1) for index in range(rows * columns)]


def save(figure: Figure, path: Path) -> None:
    """Write a PNG or SVG file whose bytes depend on the drawing alone."""
    suffix = path.suffix.lower()
    if suffix not in (".png", ".svg"):
        raise InputError(
            f"{path.suffix or 'no suffix'} is no format of plots", file=path, remedy="use .png or .svg"
        )
    metadata = {"Software": None} if suffix == ".png" else {"Date": None, "Creator": None}
    try:
        figure.savefig(path, dpi=130, metadata=metadata)
    except OSError as error:
        raise InputError(error.strerror or "cannot be written", file=path) from None
