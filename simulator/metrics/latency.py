"""Latencies of requests, and the numbers that sum them up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.record import Floats, Record, Status

PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True)
class Latencies:
    """Seconds per request, in order of id; NaN for what did not happen."""

    client_queue_s: Floats
    """From its creation to its sending: above zero only under a limit of concurrency."""
    queue_s: Floats
    """From its arrival to its first admission."""
    ttft_s: Floats
    """From its arrival to its first token."""
    tpot_s: Floats
    """Mean time between its tokens; NaN where there is only one."""
    e2e_s: Floats
    """From its arrival to its last token."""


@dataclass(frozen=True)
class Distribution:
    """What is left of many values; percentiles follow numpy's linear rule."""

    count: int
    mean: float
    std: float
    percentiles: dict[float, float]

    @property
    def median(self) -> float:
        return self.percentiles[50.0]


def finished(record: Record) -> NDArray[np.bool_]:
    """Which requests finished."""
    return np.equal(record.request("status"), Status.FINISHED)


def latencies(record: Record) -> Latencies:
    """The latencies of every request that finished, NaN for the others."""
    arrival_s = record.request("arrival_s")
    first_token_s = record.request("first_token_s")
    finish_s = np.where(finished(record), record.request("finish_s"), np.nan)
    gaps = record.request("output_tokens") - 1.0
    return Latencies(
        client_queue_s=arrival_s - record.request("created_s"),
        queue_s=record.request("admitted_s") - arrival_s,
        ttft_s=first_token_s - arrival_s,
        tpot_s=(finish_s - first_token_s) / np.where(gaps > 0.0, gaps, np.nan),
        e2e_s=finish_s - arrival_s,
    )


def distribution(values: Floats) -> Distribution | None:
    """Mean, deviation and percentiles of the values that exist; None where none does."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    found = np.percentile(known, PERCENTILES)
    return Distribution(
        count=len(known),
        mean=float(known.mean()),
        std=float(known.std()),
        percentiles=dict(zip(PERCENTILES, found.tolist(), strict=True)),
    )
