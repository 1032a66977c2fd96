"""Where the seconds of every request went, by cause, adding up to its end-to-end latency.

A request's share of a step is the whole step. So its seconds by cause are the difference of two prefix
sums over the steps of its replica, less the steps it missed between an eviction and its resumption. Where
it was handed over, there is a difference on either replica. What it spent before a failure is lost, whatever
it was spent on: only what came after its last failure is split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from simulator.errors import PhysicsError
from simulator.metrics.latency import finished
from simulator.record import (
    CAUSES,
    PREEMPTION_COLUMNS,
    STEP_CAUSES,
    STEP_COLUMNS,
    STEP_WAITS,
    Floats,
    Record,
    column,
)

Breakdown = Callable[[Floats], Floats]
"""Seconds by cause (STEP_CAUSES) of each row of a step log; zero for the causes of STEP_WAITS."""

TOLERANCE_S = 1e-9

_ROWS_AT_ONCE = 8192
_ULP = 2.0**-52
_FIRST_STEP_CAUSE = len(CAUSES) - len(STEP_CAUSES)


@dataclass(frozen=True)
class Ledger:
    """Seconds by cause."""

    by_request: Floats
    """One row per request in order of id, CAUSES; NaN for a request that did not finish."""
    by_replica: Floats
    """One row per replica, STEP_CAUSES: what its steps consisted of."""
    row_s: tuple[Floats, ...]
    """Per replica, the seconds of each row of its step log."""
    row_growth_s: tuple[Floats, ...]
    """Per replica and row, the seconds that each step takes more than the one before: its growing context."""

    @property
    def busy_s(self) -> Floats:
        """Per replica, the seconds in which it stepped."""
        return np.asarray(self.by_replica.sum(axis=1))

    def mean_s(self) -> Floats:
        """Seconds by cause of the mean request, which sum to the mean E2E."""
        done = self.by_request[~np.isnan(self.by_request[:, 0])]
        return np.asarray(done.mean(axis=0)) if len(done) else np.zeros(len(CAUSES))

    def at_percentile_s(self, percent: float) -> Floats:
        """Seconds by cause of the request at a percentile of E2E (nearest rank), which sum to its E2E."""
        found = self.request_at(percent)
        return np.zeros(len(CAUSES)) if found is None else self.by_request[found]

    def request_at(self, percent: float) -> int | None:
        """The request at a percentile of E2E (nearest rank); None where none finished."""
        done = np.flatnonzero(~np.isnan(self.by_request[:, 0]))
        if not len(done):
            return None
        order = np.argsort(self.by_request[done].sum(axis=1), kind="stable")
        return int(done[order[max(ceil(percent / 100.0 * len(done)) - 1, 0)]])


def ledger(record: Record, breakdowns: Sequence[Breakdown | Sequence[Breakdown]]) -> Ledger:
    """The ledger of a record.

    ``breakdowns`` has one entry per replica; where the cost of a replica changed, one for each of its costs.
    Raises PhysicsError where the causes of a request do not sum to its latency.
    """
    by_request = np.full((len(record.requests), len(CAUSES)), np.nan)
    by_replica = np.zeros((len(record.steps), len(STEP_CAUSES)))
    row_s, row_growth_s = [], []
    done = finished(record)
    since_s = _last_start_s(record)
    by_request[done] = 0.0
    by_request[done, CAUSES.index("queue")] = (_last_admission_s(record) - since_s)[done]
    by_request[done, CAUSES.index("lost")] = (since_s - record.request("arrival_s"))[done]
    handed_over = _hand_overs(record, since_s)
    _add_transfers(by_request, record, handed_over, since_s)
    for replica, breakdown in enumerate(breakdowns):
        costs = [breakdown] if callable(breakdown) else breakdown
        prefix_s, seconds, growth_s = _prefix_sums(record, replica, costs)
        by_replica[replica] = prefix_s[-1]
        row_s.append(seconds)
        row_growth_s.append(growth_s)
        for part in (_of_replica(record, done, replica), _of_prefill(record, handed_over, replica)):
            _add_steps(by_request, *part, prefix_s)
        _move_preemptions(by_request, record, replica, since_s, prefix_s)
    _close(by_request, record, handed_over)
    return Ledger(by_request, by_replica, tuple(row_s), tuple(row_growth_s))


def transfer_waits_s(record: Record) -> Floats:
    """For each row of the table of transfers the ``kv_transfer`` seconds of its request; 0 if undone."""
    waits_s = np.zeros(len(record.transfers))
    kept = _hand_overs(record, _last_start_s(record))
    end_s, reserved_s, moved_s = (
        record.transfer(name)[kept] for name in ("prefill_end_s", "reserved_s", "moved_s")
    )
    waits_s[kept] = moved_s - np.maximum(end_s, reserved_s)
    return waits_s


def presence(record: Record, replica: int, weights: Floats) -> Floats:
    """For each row of a step log the weights of the requests whose latency its steps are part of, summed.

    ``weights`` has one for each request; those that did not finish have no part in any.
    """
    since_s = _last_start_s(record)
    change = np.zeros(len(record.steps[replica]) + 1)
    for ids, first, last in (
        _of_replica(record, finished(record), replica),
        _of_prefill(record, _hand_overs(record, since_s), replica),
    ):
        np.add.at(change, first.astype(np.intp), weights[ids])
        np.subtract.at(change, last.astype(np.intp), weights[ids])
    evictions = _evictions(record, replica, since_s)
    missed = weights[column(evictions, PREEMPTION_COLUMNS, "id").astype(np.intp)]
    np.subtract.at(change, column(evictions, PREEMPTION_COLUMNS, "evicted_row").astype(np.intp), missed)
    np.add.at(change, column(evictions, PREEMPTION_COLUMNS, "resumed_row").astype(np.intp), missed)
    return np.cumsum(change)[:-1]


def _last_start_s(record: Record) -> Floats:
    """When each request was sent on after its last failure; its arrival where there was none."""
    since_s = record.request("arrival_s").copy()
    np.maximum.at(since_s, record.reroute("id").astype(np.intp), record.reroute("lost_s"))
    return since_s


def _last_admission_s(record: Record) -> Floats:
    """The first admission of each request after its last failure."""
    admitted_s = record.request("admitted_s")
    if len(record.reroutes):
        admitted_s = admitted_s.copy()
        np.fmax.at(admitted_s, record.reroute("id").astype(np.intp), record.reroute("readmitted_s"))
    return admitted_s


def _hand_overs(record: Record, since_s: Floats) -> NDArray[np.intp]:
    """Rows of the table of transfers that no failure undid, of requests that finished."""
    ids = record.transfer("id").astype(np.intp)
    kept = finished(record)[ids] & (record.transfer("prefill_end_s") >= since_s[ids])
    return np.flatnonzero(kept)


def _add_transfers(by_request: Floats, record: Record, rows: NDArray[np.intp], since_s: Floats) -> None:
    """Waiting for blocks and a seat, and moving, from the end of the prompt to the first decode step.

    Blocks that were reserved before the prompt was processed were waited for before it was admitted.
    """
    ids = record.transfer("id")[rows].astype(np.intp)
    end_s, reserved_s, moved_s, joined_s = (
        record.transfer(name)[rows] for name in ("prefill_end_s", "reserved_s", "moved_s", "joined_s")
    )
    before_s = np.where(reserved_s < end_s, reserved_s - since_s[ids], 0.0)
    ready_s = np.maximum(end_s, reserved_s)
    by_request[ids, CAUSES.index("queue")] -= before_s
    by_request[ids, CAUSES.index("kv_wait")] = before_s + (ready_s - end_s) + (joined_s - moved_s)
    by_request[ids, CAUSES.index("kv_transfer")] = moved_s - ready_s


def _prefix_sums(
    record: Record, replica: int, breakdowns: Sequence[Breakdown]
) -> tuple[Floats, Floats, Floats]:
    """Seconds by cause before each row (and after the last), the seconds of each row, and their growth.

    Sums run within a stretch of rows and restart with the next: seconds stay small, rounding too.
    """
    steps = record.steps[replica]
    prefix_s = np.zeros((len(steps) + 1, len(STEP_CAUSES)))
    row_s, growth_s = np.empty(len(steps)), np.empty(len(steps))
    for (first, last), breakdown in zip(record.row_ranges(replica), breakdowns, strict=False):
        for start in range(first, last, _ROWS_AT_ONCE):
            rows = steps[start : min(start + _ROWS_AT_ONCE, last)]
            stretch = _seconds_by_cause(rows, breakdown)
            end = start + len(rows)
            row_s[start:end] = stretch.sum(axis=1)
            growth_s[start:end] = _growth_s(rows, stretch)
            np.cumsum(stretch, axis=0, out=prefix_s[start + 1 : end + 1])
            prefix_s[start + 1 : end + 1] += prefix_s[start]
    return prefix_s, row_s, growth_s


def _seconds_by_cause(rows: Floats, breakdown: Breakdown) -> Floats:
    seconds = breakdown(rows)
    for cause, name in STEP_WAITS.items():
        seconds[:, STEP_CAUSES.index(cause)] = column(rows, STEP_COLUMNS, name)
    return seconds


def _growth_s(rows: Floats, seconds: Floats) -> Floats:
    """Each request that decodes adds a token to the context of the next step."""
    kv_tokens, decodes = (column(rows, STEP_COLUMNS, name) for name in ("kv_tokens", "decodes"))
    kv_s = seconds[:, STEP_CAUSES.index("kv")]
    return decodes * np.divide(kv_s, kv_tokens, out=np.zeros(len(rows)), where=kv_tokens > 0.0)


Stay = tuple[NDArray[np.intp], Floats, Floats]
"""Requests, and the rows of a step log that lie before they came and before they left."""


def _of_replica(record: Record, done: NDArray[np.bool_], replica: int) -> Stay:
    ids = np.flatnonzero(done & (record.request("replica") == replica))
    return ids, record.request("admitted_row")[ids], record.request("finish_row")[ids]


def _of_prefill(record: Record, handed_over: NDArray[np.intp], replica: int) -> Stay:
    rows = handed_over[record.transfer("prefill_replica")[handed_over] == replica]
    first, last = (record.transfer(name)[rows] for name in ("prefill_admitted_row", "prefill_end_row"))
    return record.transfer("id")[rows].astype(np.intp), first, last


def _add_steps(
    by_request: Floats, ids: NDArray[np.intp], first: Floats, last: Floats, prefix_s: Floats
) -> None:
    if not len(ids):
        return
    before, after = first.astype(np.intp), last.astype(np.intp)
    for cause in np.flatnonzero(prefix_s[-1]):
        seconds = prefix_s[after, cause] - prefix_s[before, cause]
        by_request[ids, _FIRST_STEP_CAUSE + cause] += seconds


def _evictions(record: Record, replica: int, since_s: Floats) -> Floats:
    """Rows of the table of preemptions that no failure undid, of requests that finished."""
    rows = record.preemptions[column(record.preemptions, PREEMPTION_COLUMNS, "replica") == replica]
    ids = column(rows, PREEMPTION_COLUMNS, "id").astype(np.intp)
    evicted_s = column(rows, PREEMPTION_COLUMNS, "evicted_s")
    kept: Floats = rows[finished(record)[ids] & (evicted_s >= since_s[ids])]
    return kept


def _move_preemptions(
    by_request: Floats, record: Record, replica: int, since_s: Floats, prefix_s: Floats
) -> None:
    """Seconds from an eviction to the resumption are waiting and recomputation, not steps."""
    rows = _evictions(record, replica, since_s)
    if not len(rows):
        return
    ids, evicted, resumed = (
        column(rows, PREEMPTION_COLUMNS, name).astype(np.intp)
        for name in ("id", "evicted_row", "resumed_row")
    )
    evicted_s, readmitted_s, resumed_s = (
        column(rows, PREEMPTION_COLUMNS, name) for name in ("evicted_s", "readmitted_s", "resumed_s")
    )
    np.add.at(by_request[:, CAUSES.index("preempted")], ids, readmitted_s - evicted_s)
    np.add.at(by_request[:, CAUSES.index("recompute")], ids, resumed_s - readmitted_s)
    for cause in range(len(STEP_CAUSES)):
        missed_s = prefix_s[resumed, cause] - prefix_s[evicted, cause]
        np.subtract.at(by_request[:, _FIRST_STEP_CAUSE + cause], ids, missed_s)


def _close(by_request: Floats, record: Record, handed_over: NDArray[np.intp]) -> None:
    """Check the sums, then book what rounding of the clock left over to the largest cause.

    Every row of steps rounds the clock once, by half a unit in its last place at most.
    """
    done = np.flatnonzero(finished(record))
    finish_s = record.request("finish_s")[done]
    rows = record.request("finish_row") - record.request("admitted_row")
    before = (record.transfer("prefill_end_row") - record.transfer("prefill_admitted_row"))[handed_over]
    rows[record.transfer("id")[handed_over].astype(np.intp)] += before
    rows = rows[done]
    found = by_request[done]
    left_s = finish_s - record.request("arrival_s")[done] - found.sum(axis=1)
    over_s = np.abs(left_s) - (TOLERANCE_S + rows * _ULP * finish_s)
    if len(over_s) and not over_s.max() <= 0.0:
        worst = int(np.argmax(over_s))
        raise PhysicsError(f"the ledger of request {done[worst]} misses its latency by {left_s[worst]:.3g} s")
    by_request[done, found.argmax(axis=1)] += left_s
