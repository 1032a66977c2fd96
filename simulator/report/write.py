"""A comparison as a page of the terminal, and as a folder: result.json, tables, plots and report.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from simulator.report.evaluation import Evaluation
from simulator.report.exports import result_object, to_json, write_requests
from simulator.report.folder import LINKS, PLOTS, REPORT, REQUESTS, RESULT
from simulator.report.links import write_links
from simulator.report.markdown import markdown
from simulator.report.tables import overview


@dataclass(frozen=True)
class Comparison:
    """One system, or several side by side."""

    evaluations: tuple[Evaluation, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know of each system."""
        return tuple(
            f"{evaluation.name}: {warning}"
            for evaluation in self.evaluations
            for warning in evaluation.warnings
        )

    def plain(self) -> dict[str, Any]:
        """The object of result.json."""
        return combined(self.evaluations)

    def overview(self) -> RenderableType:
        """What a terminal shows."""
        return overview(self.evaluations)

    def write(self, folder: Path, *, plots: bool) -> None:
        """Fill an empty folder."""
        write(self.evaluations, folder, plots=plots)


def combined(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """The result object of one system, or of several under ``results``."""
    objects = [result_object(evaluation) for evaluation in evaluations]
    return objects[0] if len(objects) == 1 else {"results": objects}


def write(evaluations: Sequence[Evaluation], folder: Path, *, plots: bool = True) -> None:
    """Fill an empty folder; of several systems each has a folder of its own within it."""
    _write(folder / RESULT, to_json(combined(evaluations)))
    if len(evaluations) == 1:
        _write_tables(evaluations[0], folder)
    else:
        for evaluation in evaluations:
            own = folder / evaluation.name
            own.mkdir()
            _write(own / RESULT, to_json(result_object(evaluation)))
            _write_tables(evaluation, own)
    drawn: list[tuple[str, str]] = []
    if plots:
        from simulator.report.plots import draw_all  # matplotlib takes half a second to import

        drawn = [(title, f"{PLOTS}/{name}.png") for name, title in draw_all(evaluations, folder / PLOTS)]
    _write(folder / REPORT, markdown(evaluations, drawn))


def _write_tables(evaluation: Evaluation, folder: Path) -> None:
    write_requests(evaluation, folder / REQUESTS)
    write_links(evaluation, folder / LINKS)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="")
