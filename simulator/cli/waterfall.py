"""``llmsim waterfall``: where the difference between two systems comes from."""

from __future__ import annotations

from typing import Any

import click

from simulator.catalog import Catalog
from simulator.cli.flags import SpreadGoodput, read_scenario, scenario_flags, systems_document
from simulator.cli.options import Output, output_options
from simulator.cli.progress import Bars
from simulator.metrics.summary import Summary
from simulator.report.evaluation import Evaluation, evaluate
from simulator.report.waterfall import WaterfallPage
from simulator.scenario import Scenario
from simulator.study.waterfall import CLASSES, way, whole_order


@click.command("waterfall", cls=SpreadGoodput)
@click.argument("systems", nargs=-1, metavar="A B | SCENARIO.yaml")
@click.option(
    "--order",
    metavar="CLASS,...",
    default="",
    help=f"Classes to replace first; the others follow in this order: {', '.join(CLASSES)}.",
)
@scenario_flags("--topology", "--scale-load")
@output_options
def command(
    systems: tuple[str, ...],
    order: str,
    output: Output,
    **flags: Any,
) -> None:
    """Replace the properties of system A by those of B, one class at a time, until it is B.

    The changes sum to the whole difference. Traffic and deployment are the same in every run: the larger
    tensor parallel size of the two, the smaller number of replicas. Beside each change stands that of the
    reverse order: where the two are far apart, the class cannot be told from the others.

    \b
    llmsim waterfall hgx-h200-8 gb300-nvl72 --tensor-parallel-size 4
    llmsim waterfall hgx-h200-8 gb300-nvl72 --order compute,scale-up
    """
    classes = whole_order([name.strip() for name in order.split(",") if name.strip()])
    document = systems_document(systems, flags, "name two")
    asked = read_scenario(document)
    if len(asked.topologies) != 2:
        count = len(asked.topologies)
        what = "names one system" if count == 1 else f"names {count} systems"
        raise document.error(what, ("topology",), "name two, the second against the first")
    if asked.scale_load == "gpus":
        raise document.error("both systems serve on as many GPUs", ("scale_load",), "use total")
    output.put(document, asked, lambda found: _page(found, classes))


def _page(scenario: Scenario, order: tuple[str, ...]) -> WaterfallPage:
    catalog = Catalog()
    found = way(scenario, catalog, order)
    ends: list[Evaluation] = []
    summaries: dict[frozenset[str], Summary] = {}
    with Bars() as shown:
        advance = shown.bar("runs", len(found.stops))
        for taken in found.stops:
            (evaluated,) = evaluate([found.run(taken, catalog)])
            summaries[taken] = evaluated.summary
            if len(taken) in (0, len(order)):
                ends.append(evaluated)
            advance(len(summaries))
    first, second = ends
    return WaterfallPage(first, second, {name: CLASSES[name] for name in order}, summaries, found.choices)
