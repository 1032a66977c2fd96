"""Inter-token latencies of all requests together, exactly, without a number per token.

The gaps of one row of steps form an arithmetic progression: the context grows by one token per request
and step. Each gap counts once for every request that decodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, sqrt

import numpy as np
from numpy.typing import NDArray

from simulator.metrics.latency import PERCENTILES, Distribution
from simulator.record import PREEMPTION_COLUMNS, STEP_COLUMNS, Floats, Record, column

_Part = tuple[Floats, Floats, Floats, Floats]

_EXPAND = 8192
"""Gaps that are spelled out and sorted once the search has come so close."""
_SAME = 1e-13
"""Relative distance at which gaps are one value."""


@dataclass(frozen=True)
class Gaps:
    """Progressions ``first_s + i*slope_s`` for i from 0 to ``steps`` (excluded), ``weight`` times each."""

    first_s: Floats
    slope_s: Floats
    steps: Floats
    weight: Floats

    @property
    def count(self) -> int:
        """Gaps in all."""
        return int((self.steps * self.weight).sum())


def gaps(record: Record, row_s: Sequence[Floats], row_growth_s: Sequence[Floats]) -> Gaps:
    """The gaps between tokens of a record, those across an eviction, a failure or a hand-over included.

    ``row_s`` are the seconds of each row of steps and ``row_growth_s`` the seconds that each step of it takes
    more than the one before, both per replica.
    """
    parts: list[_Part] = []
    for replica, (steps, seconds, growth_s) in enumerate(zip(record.steps, row_s, row_growth_s, strict=True)):
        joined = np.flatnonzero(record.transfer("decode_replica") == replica)
        joined = joined[~np.isnan(record.transfer("joined_row")[joined])]
        parts += _gaps_of_rows(record, steps, seconds, growth_s, joined)
    parts.append(_single(column(record.preemptions, PREEMPTION_COLUMNS, "gap_s")))
    parts.append(_single(record.reroute("gap_s")))
    return Gaps(*(np.concatenate(column_parts) for column_parts in zip(*parts, strict=True)))


def _single(gaps_s: Floats) -> _Part:
    """Gaps one by one."""
    gaps_s = gaps_s[~np.isnan(gaps_s)]
    once = np.ones_like(gaps_s)
    return gaps_s, np.zeros_like(gaps_s), once, once


def _gaps_of_rows(
    record: Record, steps: Floats, seconds: Floats, growth_s: Floats, joined: NDArray[np.intp]
) -> list[_Part]:
    """Gaps of the rows of one replica, and of what ``joined`` there: these rows of the table of transfers.

    Where requests joined, the first step of the row is their gap with all the time since their last token.
    """
    decodes = column(steps, STEP_COLUMNS, "decodes")
    count = column(steps, STEP_COLUMNS, "steps")
    first_s = seconds / count - 0.5 * growth_s * (count - 1.0)
    if not len(joined):
        rows = decodes > 0.0
        return [(first_s[rows], growth_s[rows], count[rows], decodes[rows])]
    row = record.transfer("joined_row")[joined].astype(np.intp)
    waited_s = (record.transfer("joined_s") - record.transfer("prefill_end_s"))[joined]
    others = decodes - np.bincount(row, minlength=len(steps))
    alone = others < decodes
    rows = (decodes > 0.0) & ~alone
    first = alone & (others > 0.0)
    later = alone & (count > 1.0)
    return [
        (first_s[rows], growth_s[rows], count[rows], decodes[rows]),
        (first_s[first], growth_s[first], np.ones(int(first.sum())), others[first]),
        ((first_s + growth_s)[later], growth_s[later], count[later] - 1.0, decodes[later]),
        _single(waited_s + first_s[row]),
    ]


def distribution(found: Gaps) -> Distribution | None:
    """Mean, deviation and percentiles (numpy's linear rule) over all gaps; None without any."""
    count = found.count
    if not count:
        return None
    mean_s = _mean_s(found, count)
    return Distribution(
        count=count,
        mean=mean_s,
        std=_std_s(found, count, mean_s),
        percentiles={percent: _percentile_s(found, count, percent) for percent in PERCENTILES},
    )


def _mean_s(found: Gaps, count: int) -> float:
    sums_s = found.steps * found.first_s + found.slope_s * (0.5 * found.steps * (found.steps - 1.0))
    return float((sums_s * found.weight).sum()) / count


def _std_s(found: Gaps, count: int, mean_s: float) -> float:
    steps, slope_s = found.steps, found.slope_s
    offset_s = found.first_s - mean_s
    squares = offset_s * offset_s * steps
    squares += offset_s * slope_s * (steps * (steps - 1.0))
    squares += slope_s * slope_s * ((steps - 1.0) * steps * (2.0 * steps - 1.0) / 6.0)
    return sqrt(max(float((squares * found.weight).sum()), 0.0) / count)


def _percentile_s(found: Gaps, count: int, percent: float) -> float:
    position = percent / 100.0 * (count - 1)
    rank = floor(position)
    low_s, high_s = neighbours(found, rank)
    return low_s if position == rank else low_s + (position - rank) * (high_s - low_s)


def neighbours(found: Gaps, rank: int) -> tuple[float, float]:
    """The gap that has ``rank`` gaps before it in order of size, and the next one (or itself, the last).

    Bisects on the value; of each progression only the indices ``begin`` to ``end`` are still in question.
    """
    first_s, slope_s, weight = found.first_s, found.slope_s, found.weight
    begin, end = np.zeros_like(found.steps), found.steps
    below = 0.0
    while True:
        low_s = float((first_s + slope_s * begin).min())
        high_s = float((first_s + slope_s * (end - 1.0)).max())
        if high_s - low_s <= _SAME * high_s:
            return high_s, high_s
        if (end - begin).sum() <= _EXPAND:
            return _expanded(first_s, slope_s, weight, begin, end, rank - below)
        split = np.clip(_gaps_up_to(_between(low_s, high_s), first_s, slope_s), begin, end)
        up_to = below + float(((split - begin) * weight).sum())
        if up_to == rank + 1:  # the two gaps lie on either side of the split
            left, right = split > begin, end > split
            return (
                float((first_s + slope_s * (split - 1.0))[left].max()),
                float((first_s + slope_s * split)[right].min()) if right.any() else high_s,
            )
        if up_to > rank:
            end = split
        else:
            below = up_to
            begin = split
        kept = end > begin
        first_s, slope_s, weight, begin, end = (
            values[kept] for values in (first_s, slope_s, weight, begin, end)
        )


def _between(low_s: float, high_s: float) -> float:
    """The geometric middle, which gets rid of few very long gaps soon; the arithmetic one at the end."""
    if low_s > 0.0 and high_s > 1.1 * low_s:
        return sqrt(low_s * high_s)
    return 0.5 * (low_s + high_s)


def _gaps_up_to(value_s: float, first_s: Floats, slope_s: Floats) -> Floats:
    """Indices of each progression that do not exceed a value; may exceed its length."""
    reach = np.where(first_s <= value_s, np.inf, -1.0)
    np.divide(value_s - first_s, slope_s, out=reach, where=slope_s > 0.0)
    return np.asarray(np.floor(reach) + 1.0)


def _expanded(
    first_s: Floats, slope_s: Floats, weight: Floats, begin: Floats, end: Floats, rank: float
) -> tuple[float, float]:
    counts = (end - begin).astype(np.int64)
    index = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(begin, counts)
    values_s = np.repeat(first_s, counts) + np.repeat(slope_s, counts) * index
    order = np.argsort(values_s, kind="stable")
    up_to = np.cumsum(np.repeat(weight, counts)[order])
    places = np.searchsorted(up_to, (rank, min(rank + 1.0, up_to[-1] - 1.0)), side="right")
    low_s, high_s = values_s[order[places]].tolist()
    return low_s, high_s
