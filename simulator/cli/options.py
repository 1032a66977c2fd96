"""Options that say where the result goes, and the checks of their values before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from simulator.catalog import dump_yaml
from simulator.errors import InputError
from simulator.scenario import Scenario

Command = TypeVar("Command", bound=Callable[..., object])

_OUTPUT = (
    click.option("--out", metavar="DIR", help="Folder for result.json, requests.csv, plots and report.md."),
    click.option("--plots/--no-plots", default=True, help="Draw plots into the folder.  [default: plots]"),
    click.option("--force", is_flag=True, help="Replace the result that the folder holds."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON and nothing else."),
    click.option("--save-scenario", metavar="FILE", help="Write the scenario, flags included, as YAML."),
)


def output_options(command: Command) -> Command:
    """The options of ``run`` and ``compare`` beside those of the scenario."""
    for option in reversed(_OUTPUT):
        command = option(command)
    return command


def save_scenario(scenario: Scenario, file: str) -> None:
    """Write the scenario so that running the file gives the same result."""
    try:
        Path(file).write_text(dump_yaml(scenario.plain()), encoding="utf-8")
    except OSError as error:
        raise InputError(error.strerror or "cannot be written", file=file, field="--save-scenario") from None
