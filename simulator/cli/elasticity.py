"""``llmsim elasticity``: what a faster part would buy."""

from __future__ import annotations

from typing import Any

import click

from simulator.catalog import Catalog
from simulator.cli.flags import SpreadGoodput, one_system, read_scenario, scenario_document, scenario_flags
from simulator.cli.options import Output, output_options
from simulator.cli.progress import Bars
from simulator.errors import InputError
from simulator.metrics.summary import Summary
from simulator.report.elasticity import Effect, ElasticityPage
from simulator.report.evaluation import evaluate
from simulator.scenario import Scenario
from simulator.simulation import simulate
from simulator.study.elasticity import NUDGES, Outcome, elasticity, nudged, variants

LARGEST_PERCENT = 1000.0


@click.command("elasticity", cls=SpreadGoodput)
@click.argument("scenario", required=False, metavar="[SCENARIO.yaml]")
@click.option("--percent", type=float, default=10.0, help="How much faster each part is.  [default: 10]")
@scenario_flags("--scale-load")
@output_options
def command(
    scenario: str | None,
    percent: float,
    output: Output,
    **flags: Any,
) -> None:
    """Serve the same traffic with each part of the system a tenth faster, one at a time.

    Parts are HBM bandwidth, compute, bandwidth and latency of each class of link, host overhead, kernel
    launch and KV capacity. The deployment is that of the system as it is, in every run.

    \b
    llmsim elasticity --topology hgx-h200-8 --tensor-parallel-size 8 --goodput ttft:2000 tpot:50
    """
    if not 0.0 < percent <= LARGEST_PERCENT:
        raise InputError(
            f"{percent:g} is not above 0 and at most {LARGEST_PERCENT:g}",
            field="--percent",
            remedy="use for example 10",
        )
    document = scenario_document(scenario, flags)
    asked = one_system(document, read_scenario(document))
    output.put(document, asked, lambda found: _page(found, 1.0 + percent / 100.0))


def _page(scenario: Scenario, factor: float) -> ElasticityPage:
    catalog = Catalog()
    base = simulate(scenario, catalog)
    (evaluated,) = evaluate([base])
    effects: list[Effect] = []
    by_chance: list[Summary] = []
    with Bars() as shown:
        advance = shown.bar("runs", len(variants(base)) + len(NUDGES))
        for outcome in elasticity(scenario, catalog, base, factor):
            effects.append(_effect(outcome))
            advance(len(effects))
        for result in nudged(scenario, catalog, base):
            (other,) = evaluate([result])
            by_chance.append(other.summary)
            advance(len(effects) + len(by_chance))
    *parts, together = effects
    return ElasticityPage(evaluated, factor, tuple(parts), together, tuple(by_chance))


def _effect(outcome: Outcome) -> Effect:
    (evaluated,) = evaluate([outcome.result])
    return Effect(outcome.variant.name, outcome.variant.title, evaluated.summary, outcome.idle)
