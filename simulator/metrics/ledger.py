"""Where the seconds of every request went, by cause, adding up to its end-to-end latency.

A request's share of a step is the whole step. So its seconds by cause are the difference of two prefix
sums over the steps of its replica, less the steps it missed between an eviction and its resumption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from simulator.errors import PhysicsError
from simulator.metrics.latency import finished
from simulator.record import CAUSES, PREEMPTION_COLUMNS, STEP_CAUSES, Floats, Record, column

Breakdown = Callable[[Floats], Floats]
"""Seconds by cause (STEP_CAUSES) of each row of a step log."""

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
        done = self.by_request[~np.isnan(self.by_request[:, 0])]
        if not len(done):
            return np.zeros(len(CAUSES))
        order = np.argsort(done.sum(axis=1), kind="stable")
        return np.asarray(done[order[max(ceil(percent / 100.0 * len(done)) - 1, 0)]])


def ledger(record: Record, breakdowns: Sequence[Breakdown]) -> Ledger:
    """The ledger of a record; ``breakdowns`` has one entry per replica.

    Raises PhysicsError where the causes of a request do not sum to its latency.
    """
    by_request = np.full((len(record.requests), len(CAUSES)), np.nan)
    by_replica = np.zeros((len(record.steps), len(STEP_CAUSES)))
    row_s = []
    done = finished(record)
    by_request[done] = 0.0
    by_request[done, CAUSES.index("queue")] = (record.request("admitted_s") - record.request("arrival_s"))[
        done
    ]
    for replica, (steps, breakdown) in enumerate(zip(record.steps, breakdowns, strict=True)):
        prefix_s, seconds = _prefix_sums(steps, breakdown)
        by_replica[replica] = prefix_s[-1]
        row_s.append(seconds)
        of_replica = np.flatnonzero(done & (record.request("replica") == replica))
        _add_steps(by_request, record, of_replica, prefix_s)
        _move_preemptions(by_request, record, replica, prefix_s)
    _close(by_request, record)
    return Ledger(by_request, by_replica, tuple(row_s))


def _prefix_sums(steps: Floats, breakdown: Breakdown) -> tuple[Floats, Floats]:
    """Seconds by cause before each row (and after the last), and the seconds of each row.

    Sums run within a stretch of rows and restart with the next: seconds stay small, rounding too.
    """
    prefix_s = np.zeros((len(steps) + 1, len(STEP_CAUSES)))
    row_s = np.empty(len(steps))
    for start in range(0, len(steps), _ROWS_AT_ONCE):
        stretch = breakdown(steps[start : start + _ROWS_AT_ONCE])
        end = start + len(stretch)
        row_s[start:end] = stretch.sum(axis=1)
        np.cumsum(stretch, axis=0, out=prefix_s[start + 1 : end + 1])
        prefix_s[start + 1 : end + 1] += prefix_s[start]
    return prefix_s, row_s


def _add_steps(by_request: Floats, record: Record, ids: NDArray[np.intp], prefix_s: Floats) -> None:
    admitted = record.request("admitted_row")[ids].astype(np.intp)
    finish = record.request("finish_row")[ids].astype(np.intp)
    for cause in range(len(STEP_CAUSES)):
        seconds = prefix_s[finish, cause] - prefix_s[admitted, cause]
        by_request[ids, _FIRST_STEP_CAUSE + cause] = seconds


def _move_preemptions(by_request: Floats, record: Record, replica: int, prefix_s: Floats) -> None:
    """Seconds from an eviction to the resumption are waiting and recomputation, not steps."""
    rows = record.preemptions[column(record.preemptions, PREEMPTION_COLUMNS, "replica") == replica]
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


def _close(by_request: Floats, record: Record) -> None:
    """Check the sums, then book what rounding of the clock left over to the largest cause.

    Every row of steps rounds the clock once, by half a unit in its last place at most.
    """
    done = np.flatnonzero(finished(record))
    finish_s = record.request("finish_s")[done]
    rows = record.request("finish_row")[done] - record.request("admitted_row")[done]
    found = by_request[done]
    left_s = finish_s - record.request("arrival_s")[done] - found.sum(axis=1)
    over_s = np.abs(left_s) - (TOLERANCE_S + rows * _ULP * finish_s)
    if len(over_s) and not over_s.max() <= 0.0:
        worst = int(np.argmax(over_s))
        raise PhysicsError(f"the ledger of request {done[worst]} misses its latency by {left_s[worst]:.3g} s")
    by_request[done, found.argmax(axis=1)] += left_s
