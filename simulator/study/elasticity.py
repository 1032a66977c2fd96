"""What a faster part would buy: the same traffic and deployment, one part a little faster at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.catalog import Catalog
from simulator.record import Record
from simulator.scenario import Scenario
from simulator.simulation import Result, prepare, run
from simulator.study.deployment import pinned
from simulator.study.parts import FasterCatalog, KvCapacity, Part, parts

TOGETHER = "all"
"""Name of the variant in which every rate and every time is better at once."""

NUDGES = (0.9997, 0.9998, 0.9999, 1.0001, 1.0002, 1.0003)
"""Factors that no one would notice, were it not for who then shares a step with whom."""


@dataclass(frozen=True)
class Variant:
    """A run to be, in which some parts are faster."""

    name: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Outcome:
    """A variant and what happened."""

    variant: Variant
    result: Result
    idle: bool
    """Every request was served at the same times as in the base run: the part matters to none."""


def variants(base: Result) -> tuple[Variant, ...]:
    """Each part of the system alone, then all that are a rate or a time together."""
    found = parts(base.plan.topology)
    alone = tuple(Variant(part.name, part.title, (part,)) for part in found)
    fast = tuple(part for part in found if not isinstance(part, KvCapacity))
    return (*alone, Variant(TOGETHER, "all but the KV capacity", fast))


def elasticity(scenario: Scenario, catalog: Catalog, base: Result, factor: float) -> Iterator[Outcome]:
    """Serve the traffic of the base run with each variant, in the deployment that the base run chose."""
    for variant in variants(base):
        result = _run(scenario, catalog, base, variant, factor)
        yield Outcome(variant, result, _same_times(base.record, result.record))


def nudged(scenario: Scenario, catalog: Catalog, base: Result) -> Iterator[Result]:
    """The base run on hardware that is faster or slower in all by next to nothing.

    What differs beyond that is chance: a step that ends before an arrival, not after it, changes every later
    batch of an open load. So these runs show which changes of a percentile or a mean tell nothing of a part.
    """
    *_, together = variants(base)
    for factor in NUDGES:
        yield _run(scenario, catalog, base, together, factor)


def _run(scenario: Scenario, catalog: Catalog, base: Result, variant: Variant, factor: float) -> Result:
    def blocks(held: int) -> int:
        for part in variant.parts:
            held = part.blocks(held, factor)
        return held

    faster = FasterCatalog(catalog.root, variant.parts, factor)
    return run(prepare(pinned(scenario, base.plan, blocks), faster), catalog)


def _same_times(one: Record, other: Record) -> bool:
    return all(
        np.array_equal(one.request(name), other.request(name), equal_nan=True)
        for name in ("status", "arrival_s", "first_token_s", "finish_s")
    )
