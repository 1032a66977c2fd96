"""What the steps of a plan send over links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from simulator.metrics.links import Messages, Shipments, shipments
from simulator.pools import Fitting, kv_ways

if TYPE_CHECKING:
    from simulator.record import Record
    from simulator.simulation import Plan

ALL_REDUCE, PIPELINE, KV = "all-reduce", "pipeline", "kv"


def messages(plan: Plan, record: Record) -> tuple[Messages, ...]:
    """Of every step log: the all-reduces of each stage that its steps pass through, the sends between."""
    found: list[Messages] = []
    for log, fittings in enumerate(plan.fittings_of_logs):
        for fitting, rows in zip(fittings, record.row_ranges(log), strict=False):
            found += _of_steps(fitting, log, rows)
    return tuple(found)


def _of_steps(fitting: Fitting, log: int, rows: tuple[int, int]) -> Iterator[Messages]:
    """What the steps of some rows of a log send."""
    for stage, all_reduce in zip(fitting.stages, fitting.all_reduces, strict=True):
        if all_reduce.costs:
            each = stage.all_reduce_bytes_per_token
            yield Messages(log, ALL_REDUCE, stage.all_reduces, each, all_reduce.costs, rows)
    for stage, send in zip(fitting.stages, fitting.sends, strict=False):
        yield Messages(log, PIPELINE, 1, stage.send_bytes(1), (send,), rows)


def kv_cache(plan: Plan, record: Record) -> tuple[Shipments, ...]:
    """KV cache that was moved from one pool to the other, by the ways that were open when it began to."""
    if len(plan.pools) == 1:
        return ()
    starts = [(0.0, plan.topology), *((refit.at_s, refit.topology) for refit in plan.refits)]
    ends_s = [at_s for at_s, _ in starts[1:]] + [float("inf")]
    return tuple(
        shipment
        for (start_s, topology), end_s in zip(starts, ends_s, strict=True)
        for shipment in shipments(record, KV, kv_ways(topology, plan.model, *plan.pools), start_s, end_s)
    )
