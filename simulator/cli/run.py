"""``llmsim run``: one system."""

from __future__ import annotations

from typing import Any

import click

from simulator.cli.flags import SpreadGoodput, one_system, read_scenario, scenario_document, scenario_flags
from simulator.cli.options import Output, output_options, served


@click.command("run", cls=SpreadGoodput)
@click.argument("scenario", required=False, metavar="[SCENARIO.yaml]")
@scenario_flags("--scale-load")
@output_options
def command(
    scenario: str | None,
    output: Output,
    **flags: Any,
) -> None:
    """Serve a workload on one system and report what happened.

    The scenario is a YAML file, flags, or both: a flag wins over its twin in the file.

    \b
    llmsim run --topology hgx-h200-8 --trace my.csv --tensor-parallel-size 4
    llmsim run --topology hgx-h200-8 --request-rate 5 --goodput ttft:2000 tpot:50 --save-scenario s.yaml
    llmsim run s.yaml --seed 1 --out out/mine
    """
    document = scenario_document(scenario, flags)
    asked = one_system(document, read_scenario(document))
    output.put(document, asked, served)
