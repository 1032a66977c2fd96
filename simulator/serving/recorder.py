"""Writes down what happens, in flat columns."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from math import nan

import numpy as np

from simulator.record import (
    OUTAGE_COLUMNS,
    PREEMPTION_COLUMNS,
    REQUEST_COLUMNS,
    REROUTE_COLUMNS,
    STEP_COLUMNS,
    TRANSFER_COLUMNS,
    Floats,
    Record,
    Status,
)
from simulator.serving.disaggregation import Handover
from simulator.serving.request import Request

PROGRESS_EVERY = 64
"""Ended requests between two reports of progress."""


def _known(time_or_row: float | None) -> float:
    return nan if time_or_row is None else time_or_row


class Recorder:
    """Collects the facts of one run; ``owners`` are the replicas that the step logs belong to."""

    def __init__(self, owners: tuple[int, ...], on_progress: Callable[[int], None] | None = None) -> None:
        self.steps = tuple(array("d") for _ in owners)
        self._owners = owners
        self.ended = 0
        self._cost_rows = [[0] for _ in owners]
        self._requests = array("d")
        self._preemptions = array("d")
        self._transfers = array("d")
        self._reroutes = array("d")
        self._outages: list[list[float]] = []
        self._on_progress = on_progress

    def end(self, request: Request, status: Status, end_s: float, replica: int, row: int) -> None:
        """The request is finished, or will never be."""
        if request.loss is not None:
            self.rerouted(request, nan, nan)
        self._requests.extend(
            (
                request.id,
                status,
                request.created_s,
                request.arrival_s,
                _known(request.admitted_s),
                _known(request.first_token_s),
                end_s,
                request.input_tokens,
                request.output_tokens,
                request.preemptions,
                replica,
                _known(request.admitted_row),
                row,
                request.reroutes,
            )
        )
        self.ended += 1
        if self._on_progress is not None and self.ended % PROGRESS_EVERY == 0:
            self._on_progress(self.ended)

    def resumed(self, request: Request, replica: int, row: int, now_s: float, gap_s: float) -> None:
        """Recomputation after an eviction is over (or cut off by the next eviction)."""
        self._preemptions.extend(
            (
                request.id,
                replica,
                _known(request.evicted_row),
                _known(request.evicted_s),
                _known(request.readmitted_row),
                _known(request.readmitted_s),
                row,
                now_s,
                gap_s,
            )
        )

    def handed_over(self, handover: Handover) -> None:
        """The hand-over is over, or a failure put an end to it."""
        target = handover.target
        self._transfers.extend(
            (
                handover.request.id,
                _known(handover.source_log),
                _known(handover.prefill_admitted_row),
                _known(handover.prefill_end_row),
                _known(handover.prefill_end_s),
                _known(handover.reserved_s),
                _known(handover.moved_s),
                _known(handover.joined_s),
                _known(handover.joined_row),
                _known(None if target is None else target.index),
                handover.nbytes,
            )
        )

    def rerouted(self, request: Request, until_s: float, gap_s: float) -> None:
        """A lost request has a token again, or is lost again at ``until_s`` before it was admitted."""
        loss = request.loss
        assert loss is not None
        readmitted_s = until_s if loss.readmitted_s is None else loss.readmitted_s
        where = self._owners[loss.log]
        self._reroutes.extend((request.id, where, loss.lost_s, loss.ran, readmitted_s, gap_s, loss.tokens))
        request.loss = None

    def failed(self, replica: int, now_s: float) -> None:
        """The replica is down."""
        self._outages.append([replica, now_s, nan])

    def back(self, replica: int, now_s: float) -> None:
        """The replica is up again."""
        for outage in self._outages:
            if outage[0] == replica and outage[2] != outage[2]:
                outage[2] = now_s

    def cost_changes(self, replica: int, row: int) -> None:
        """Steps from this row of the step log on have another cost."""
        self._cost_rows[replica].append(row)

    def record(self, kv_blocks: tuple[int, ...]) -> Record:
        """The facts as arrays, requests in order of their id."""
        requests = _by_id(_table(self._requests, len(REQUEST_COLUMNS)))
        preemptions = _by_id(_table(self._preemptions, len(PREEMPTION_COLUMNS)))
        transfers = _by_id(_table(self._transfers, len(TRANSFER_COLUMNS)))
        reroutes = _by_id(_table(self._reroutes, len(REROUTE_COLUMNS)))
        end_s = float(requests[:, REQUEST_COLUMNS.index("finish_s")].max()) if len(requests) else 0.0
        return Record(
            requests=requests,
            steps=tuple(_table(rows, len(STEP_COLUMNS)) for rows in self.steps),
            preemptions=preemptions,
            kv_blocks=kv_blocks,
            end_s=end_s,
            owners=self._owners,
            transfers=transfers,
            reroutes=reroutes,
            outages=np.array(self._outages).reshape(-1, len(OUTAGE_COLUMNS)),
            cost_rows=tuple(map(tuple, self._cost_rows)),
        )


def _by_id(table: Floats) -> Floats:
    return table[np.argsort(table[:, 0], kind="stable")]


def _table(values: array[float], columns: int) -> Floats:
    return np.frombuffer(values, dtype=np.float64).reshape(-1, columns) if values else np.empty((0, columns))
