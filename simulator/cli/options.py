"""What the commands that simulate share: the options of the output, and the way from scenario to output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, Protocol

import click
from rich.console import Console, RenderableType

from simulator.catalog import Catalog, Document, dump_yaml
from simulator.cli.flags import located
from simulator.cli.progress import Bars
from simulator.errors import InputError
from simulator.report.evaluation import evaluate
from simulator.report.exports import to_json
from simulator.report.folder import result_folder
from simulator.report.write import Comparison
from simulator.scenario import Scenario
from simulator.study.compare import compare

PIPE_COLUMNS = 160
"""Width of a table that goes to a file or another program."""

_OPTIONS = (
    click.option("--out", metavar="DIR", help="Folder for result.json, requests.csv, plots and report.md."),
    click.option("--plots/--no-plots", default=True, help="Draw plots into the folder.  [default: plots]"),
    click.option("--force", is_flag=True, help="Replace the result that the folder holds."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON and nothing else."),
    click.option("--save-scenario", metavar="FILE", help="Write the scenario, flags included, as YAML."),
)


class Page(Protocol):
    """What a command has found, in every form in which it is put out."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know."""

    def plain(self) -> dict[str, Any]:
        """The object of result.json."""

    def overview(self) -> RenderableType:
        """What a terminal shows."""

    def write(self, folder: Path, *, plots: bool) -> None:
        """Fill an empty folder."""


@dataclass(frozen=True)
class Output:
    """Where the result goes."""

    out: str | None
    plots: bool
    force: bool
    as_json: bool
    save_scenario: str | None

    def put(self, document: Document, scenario: Scenario, study: Callable[[Scenario], Page]) -> None:
        """Study the scenario and put out what was found.

        The folder is checked before the study, and appears only when it is whole.
        """
        folder = nullcontext() if self.out is None else result_folder(Path(self.out), force=self.force)
        with folder as path, located(document):
            if self.save_scenario is not None:
                _save(scenario, Path(self.save_scenario))
            page = study(scenario)
            if path is not None:
                page.write(path, plots=self.plots)
        self._print(page)

    def _print(self, page: Page) -> None:
        if self.as_json:
            click.echo(to_json(page.plain()), nl=False)
            for warning in page.warnings:
                click.echo(f"llmsim: warning: {warning}", err=True)
            return
        Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS).print(page.overview())
        if self.out is not None:
            click.echo(f"written to {self.out}")


def output_options(command: Callable[..., object]) -> Callable[..., object]:
    """The options of where the result goes; the command gets them as ``output``."""

    @wraps(command)
    def with_output(**values: Any) -> object:
        output = Output(**{one.name: values.pop(one.name) for one in fields(Output)})
        return command(output=output, **values)

    with_options: Callable[..., object] = with_output
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def served(scenario: Scenario) -> Comparison:
    """The scenario on each of its systems."""
    requests = scenario.workload.num_prompts if scenario.scale_load == "total" else None
    with Bars() as shown:
        results = compare(scenario, Catalog(), lambda system: shown.bar(system, requests))
    return Comparison(evaluate(results))


def _save(scenario: Scenario, path: Path) -> None:
    try:
        path.write_text(dump_yaml(scenario.plain()), encoding="utf-8")
    except OSError as error:
        raise InputError(error.strerror or "cannot be written", file=path, field="--save-scenario") from None
