"""``llmsim compare``: several systems, the same traffic."""

from __future__ import annotations

from typing import Any

import click

from simulator.cli.flags import SpreadGoodput, read_scenario, scenario_flags, systems_document
from simulator.cli.options import Output, output_options, served


@click.command("compare", cls=SpreadGoodput)
@click.argument("systems", nargs=-1, metavar="A B [C ...] | SCENARIO.yaml")
@scenario_flags("--topology")
@output_options
def command(
    systems: tuple[str, ...],
    output: Output,
    **flags: Any,
) -> None:
    """Serve the same traffic on several systems and show them side by side.

    The systems are names of the catalogue or YAML files; or one SCENARIO.yaml lists them under topology.

    \b
    llmsim compare hgx-h200-8 gb300-nvl72
    llmsim compare hgx-h200-8 gb300-nvl72 --model llama-3.1-405b --request-rate 4 --scale-load gpus
    """
    document = systems_document(systems, flags, "name two or more to compare")
    asked = read_scenario(document)
    if len(asked.topologies) == 1:
        raise document.error("names one system", ("topology",), "list two or more to compare")
    output.put(document, asked, served)
