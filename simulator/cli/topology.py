"""``llmsim topology``: the facts of a system's graph."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import click

from simulator.catalog import Catalog
from simulator.errors import InputError
from simulator.simulation import load_topology
from simulator.topology.graph import Facts, Topology
from simulator.topology.join import Join, JoinKind


@click.command("topology")
@click.argument("name")
@click.option("--nodes", type=click.IntRange(min=1), default=1, help="How many of the system.  [default: 1]")
@click.option("--fabric", type=click.Choice(get_args(JoinKind)), help="What joins them.  [default: rail]")
@click.option(
    "--oversubscription",
    type=click.FloatRange(min=1),
    default=1.0,
    metavar="X",
    help="Bandwidth of a leaf's NICs over that of its uplinks.  [default: 1]",
)
@click.option("--plot", metavar="FILE", help="Draw the graph to a PNG or SVG file.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON object.")
def command(
    name: str,
    nodes: int,
    fabric: JoinKind | None,
    oversubscription: float,
    plot: str | None,
    as_json: bool,
) -> None:
    """Show what the graph of the system NAME comes to.

    GPUs, bisection bandwidth, and bandwidth, hops and latency between any two GPUs, all one direction.
    NAME is of the catalogue, or the path of a YAML file.
    """
    if nodes == 1 and (fabric is not None or oversubscription > 1):
        raise InputError(
            "there is one node, and nothing to join", field="--nodes", remedy="use --nodes 2 or more"
        )
    join = (
        None if nodes == 1 else Join(nodes=nodes, fabric=fabric or "rail", oversubscription=oversubscription)
    )
    topology = load_topology(name, Catalog(), join)
    if plot is not None:
        _draw(topology, Path(plot))
    facts = topology.facts()
    click.echo(_json(facts) if as_json else "\n".join(_lines(facts)))


def _draw(topology: Topology, path: Path) -> None:
    from simulator.report.plots.style import save  # matplotlib is slow to import
    from simulator.report.plots.topology import draw

    save(draw(topology), path)


def _json(facts: Facts) -> str:
    pairs = [asdict(pair) | {"pairs": count} for pair, count in facts.pairs.items()]
    plain = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
    return json.dumps(plain | {"pairs": pairs}, indent=2)


def _lines(facts: Facts) -> Iterator[str]:
    yield f"{facts.name}: {facts.title}"
    yield f"  GPUs       {facts.gpus}"
    yield f"  nodes      {facts.nodes} ({', '.join(f'{n} {kind}' for kind, n in facts.kinds.items())})"
    yield f"  links      {facts.links}"
    yield f"  bisection  {facts.bisection_bytes_per_s / 1e9:,.0f} GB/s each way"
    for pair, count in facts.pairs.items():
        yield (
            f"  GPU to GPU {pair.bandwidth_bytes_per_s / 1e9:,.0f} GB/s each way, {pair.hops} hops, "
            f"{pair.latency_s * 1e6:.3g} us ({count} ordered pairs)"
        )
