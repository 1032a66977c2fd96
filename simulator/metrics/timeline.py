"""What went on over time: tokens, queue, batch and KV cache, in bins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.metrics.latency import finished
from simulator.record import (
    PREEMPTION_COLUMNS,
    REROUTE_COLUMNS,
    STEP_COLUMNS,
    TRANSFER_COLUMNS,
    Floats,
    Record,
    column,
)

BINS = 240


@dataclass(frozen=True)
class Timeline:
    """Means over equal bins of the run; ``edges_s`` has one entry more than the others."""

    edges_s: Floats
    output_tokens_per_s: Floats
    waiting: Floats
    """Requests sent, evicted or sent on that wait for admission, and prompts processed that wait for their
    KV cache to reach the replica where they decode."""
    running: Floats
    """Requests in the batches."""
    kv_fraction: Floats
    """KV blocks in use, of all replicas together."""


def timeline(
    record: Record, row_s: Sequence[Floats], row_growth_s: Sequence[Floats], bins: int = BINS
) -> Timeline:
    """The run in bins.

    ``row_s`` are the seconds of each row of steps and ``row_growth_s`` the seconds that each step of it takes
    more than the one before, both per replica.
    """
    edges_s = np.linspace(0.0, record.end_s or 1.0, bins + 1)
    bin_s = np.diff(edges_s)
    waiting_s, running_s = _request_seconds(record, edges_s)
    return Timeline(
        edges_s=edges_s,
        output_tokens_per_s=output_tokens(record, row_s, row_growth_s, edges_s) / bin_s,
        waiting=waiting_s / bin_s,
        running=running_s / bin_s,
        kv_fraction=_kv_blocks(record, row_s, edges_s) / sum(record.kv_blocks),
    )


def _kv_blocks(record: Record, row_s: Sequence[Floats], edges_s: Floats) -> Floats:
    """Blocks in use, of all replicas together; all batches of a pipeline see those of its one pool."""
    bin_s = np.diff(edges_s)
    block_s, step_s = (np.zeros((len(record.kv_blocks), len(bin_s))) for _ in range(2))
    for log, (steps, seconds) in enumerate(zip(record.steps, row_s, strict=True)):
        owner = record.owner(log)
        block_s[owner] += _spread(steps, seconds, column(steps, STEP_COLUMNS, "kv_blocks") * seconds, edges_s)
        step_s[owner] += _spread(steps, seconds, seconds, edges_s)
    return np.asarray((block_s / np.maximum(step_s, bin_s)).sum(axis=0))


def output_tokens(
    record: Record, row_s: Sequence[Floats], row_growth_s: Sequence[Floats], edges_s: Floats
) -> Floats:
    """Output tokens in each bin; those of one step are spread evenly over it."""
    until = np.zeros(len(edges_s))
    for steps, seconds, growth_s in zip(record.steps, row_s, row_growth_s, strict=True):
        if len(steps):
            until += _tokens_until(edges_s, steps, seconds, growth_s)
    return np.asarray(np.diff(until))


def _tokens_until(times_s: Floats, steps: Floats, seconds: Floats, growth_s: Floats) -> Floats:
    """Output tokens of one replica up to each time."""
    per_step = column(steps, STEP_COLUMNS, "decodes") + column(steps, STEP_COLUMNS, "completions")
    tokens = per_step * column(steps, STEP_COLUMNS, "steps")
    before = np.cumsum(tokens) - tokens
    start_s = column(steps, STEP_COLUMNS, "start_s")
    row = np.maximum(np.searchsorted(start_s, times_s, side="right") - 1, 0)
    elapsed_s = np.clip(times_s - start_s[row], 0.0, seconds[row])
    return before[row] + per_step[row] * _steps_until(elapsed_s, steps[row], seconds[row], growth_s[row])


def _steps_until(elapsed_s: Floats, steps: Floats, seconds: Floats, slope_s: Floats) -> Floats:
    """Steps done after a time in each row, with the share of the step under way.

    Step i lasts ``first + i*slope``, so k steps last ``slope/2*k**2 + (first - slope/2)*k``.
    """
    count = column(steps, STEP_COLUMNS, "steps")
    first_s = seconds / count - 0.5 * slope_s * (count - 1.0)
    linear_s = first_s - 0.5 * slope_s
    divisor_s = linear_s + np.sqrt(linear_s * linear_s + 2.0 * slope_s * elapsed_s)
    whole = np.floor(
        np.divide(2.0 * elapsed_s, divisor_s, out=np.zeros_like(divisor_s), where=divisor_s > 0.0)
    )
    whole = np.minimum(whole, count - 1.0)
    left_s = elapsed_s - whole * (first_s + 0.5 * slope_s * (whole - 1.0))
    return np.asarray(np.minimum(whole + left_s / (first_s + slope_s * whole), count))


def _spread(steps: Floats, seconds: Floats, amounts: Floats, edges_s: Floats) -> Floats:
    """What falls into each bin of amounts that are spread evenly over the time of their row."""
    if not len(steps):
        return np.zeros(len(edges_s) - 1)
    start_s = column(steps, STEP_COLUMNS, "start_s")
    times_s = np.column_stack((start_s, start_s + seconds)).ravel()
    after = np.cumsum(amounts)
    totals = np.column_stack((after - amounts, after)).ravel()
    found = np.interp(edges_s, np.maximum.accumulate(times_s), totals, left=0.0, right=after[-1])
    return np.asarray(np.diff(found))


def _request_seconds(record: Record, edges_s: Floats) -> tuple[Floats, Floats]:
    """Seconds that requests spent waiting and running in each bin, summed over the requests."""
    done = finished(record)
    arrived, admitted, ended = (
        _seconds_since(record.request(name)[done], edges_s)
        for name in ("arrival_s", "admitted_s", "finish_s")
    )
    paused = sum(
        (_seconds_since(since_s, edges_s) - _seconds_since(until_s, edges_s))
        for since_s, until_s in _pauses(record)
    )
    waiting_s = np.diff(arrived - admitted + paused)
    running_s = np.diff(admitted - ended - paused)
    return np.maximum(waiting_s, 0.0), np.maximum(running_s, 0.0)


def _pauses(record: Record) -> Iterator[tuple[Floats, Floats]]:
    """From and until when requests that finished were out of the batches: evicted, handed over, lost."""
    done = finished(record)
    for table, columns, since, until in (
        (record.preemptions, PREEMPTION_COLUMNS, "evicted_s", "readmitted_s"),
        (record.transfers, TRANSFER_COLUMNS, "prefill_end_s", "joined_s"),
        (record.reroutes[record.reroute("ran") > 0.0], REROUTE_COLUMNS, "lost_s", "readmitted_s"),
    ):
        ids, since_s, until_s = (column(table, columns, name) for name in ("id", since, until))
        over = done[ids.astype(np.intp)] & ~np.isnan(until_s)
        yield since_s[over], until_s[over]


def _seconds_since(events_s: Floats, times_s: Floats) -> Floats:
    """Seconds since each event up to each time, summed over the events that lie before it."""
    ordered_s = np.sort(events_s)
    before = np.searchsorted(ordered_s, times_s)
    sums_s = np.concatenate(([0.0], np.cumsum(ordered_s)))
    return np.asarray(before * times_s - sums_s[before])
