"""What the steps of a plan send over links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.metrics.links import Messages

if TYPE_CHECKING:
    from simulator.simulation import Plan

ALL_REDUCE = "all-reduce"


def messages(plan: Plan) -> tuple[Messages, ...]:
    """Of every step log: the all-reduces of each stage that its steps pass through."""
    found = []
    first = 0
    for pool in plan.pools:
        stages = pool.pipeline_parallel_size
        for replica, costs in enumerate(pool.stages):
            for lane in range(stages):
                for index, stage in enumerate(costs):
                    ways = pool.all_reduces[replica * stages + index].costs
                    if ways:
                        log = first + replica * stages + lane
                        each = stage.all_reduce_bytes_per_token
                        found.append(Messages(log, ALL_REDUCE, stage.all_reduces, each, ways))
        first += pool.logs
    return tuple(found)
