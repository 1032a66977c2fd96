"""What a run sends over links: messages of its steps, and KV cache from one replica to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from simulator.metrics.links import Messages, Shipments, shipments
from simulator.pools import kv_ways

if TYPE_CHECKING:
    from simulator.pools import Pool
    from simulator.record import Record
    from simulator.simulation import Plan

ALL_REDUCE, PIPELINE, KV = "all-reduce", "pipeline", "kv"


def messages(plan: Plan) -> tuple[Messages, ...]:
    """Of every step log: the all-reduces of each stage that its steps pass through, the sends between."""
    found: list[Messages] = []
    first = 0
    for pool in plan.pools:
        for log in range(pool.logs):
            found += _of_log(pool, log, first)
        first += pool.logs
    return tuple(found)


def _of_log(pool: Pool, log: int, first: int) -> Iterator[Messages]:
    """What the steps of one log of a pool send; the logs of the pool are numbered from ``first``."""
    count = pool.pipeline_parallel_size
    replica = log // count
    for index, stage in enumerate(pool.stages[replica]):
        ways = pool.all_reduces[replica * count + index].costs
        if ways:
            each = stage.all_reduce_bytes_per_token
            yield Messages(first + log, ALL_REDUCE, stage.all_reduces, each, ways)
    for stage, send in zip(pool.stages[replica], pool.sends[replica], strict=False):
        yield Messages(first + log, PIPELINE, 1, stage.send_bytes(1), (send,))


def kv_cache(plan: Plan, record: Record) -> tuple[Shipments, ...]:
    """KV cache that was moved from one pool to the other."""
    if len(plan.pools) == 1:
        return ()
    return shipments(record, KV, kv_ways(plan.topology, plan.model, *plan.pools))
