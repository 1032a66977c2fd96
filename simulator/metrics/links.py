"""What the links carried and whom they kept waiting, from the step logs and the table of transfers.

What a step sends follows from its tokens, so that a leap over many steps tells the bytes of its collectives
without a flow for each. Bytes are those of the message on its way, without what a protocol adds to them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.metrics.ledger import presence, transfer_waits_s
from simulator.record import STEP_COLUMNS, Edge, Floats, Record, column

Indices = NDArray[np.intp]

BINS = 120

_DIGITS = 12
"""Of loads: sums over routes that differ in rounding alone are equal."""


class Phase(Protocol):
    """What goes on at once in a message."""

    @property
    def loads(self) -> Mapping[Edge, float]:
        """Bytes on each direction of each link, per byte of the message."""

    @property
    def s_per_byte(self) -> float:
        """Seconds per byte of the message."""

    @property
    def latency_s(self) -> float:
        """Seconds whatever its size."""

    @property
    def bottlenecks(self) -> tuple[Edge, ...]:
        """Links that it is waited for, all equally."""


class Cost(Protocol):
    """One way for a message to travel; it takes ``latency_s + s_per_byte * bytes``."""

    @property
    def latency_s(self) -> float:
        """Seconds whatever its size."""

    @property
    def s_per_byte(self) -> float:
        """Seconds per byte."""

    @property
    def max_bytes(self) -> float | None:
        """The largest message, where there is a limit."""

    @property
    def phases(self) -> Sequence[Phase]:
        """In order; what they take sums to what the whole takes."""


@dataclass(frozen=True)
class Messages:
    """What each step of one log sends: so many messages, of so many bytes per token of the step."""

    log: int
    traffic: str
    per_step: int
    bytes_per_token: float
    costs: tuple[Cost, ...]
    """Ways to go; a message takes the fastest that allows its size, the first of equals."""
    rows: tuple[int, int | None] = (0, None)
    """First and last (excluded) of the log, where other steps send something else."""


@dataclass(frozen=True)
class Shipments:
    """Messages of requests that no step waits for, all of one way."""

    traffic: str
    cost: Cost
    ids: Indices
    """Requests that they belong to."""
    nbytes: Floats
    start_s: Floats
    end_s: Floats
    waited_s: Floats
    """Seconds that the request waited for each: fewer than it took where it overlapped with work, more than
    it takes alone where others were in its way."""


def shipments(
    record: Record,
    traffic: str,
    way: Callable[[int, int], Cost],
    from_s: float = 0.0,
    until_s: float = np.inf,
) -> tuple[Shipments, ...]:
    """What the table of transfers began to move in a span of time, by the logs that it went from and to.

    ``way`` gives the cost between two logs. What a failure cut off counts as a whole, at its start.
    """
    ids, source, target, nbytes = (
        record.transfer(name) for name in ("id", "prefill_replica", "decode_replica", "bytes")
    )
    start_s = _starts_s(record)
    end_s = np.fmax(record.transfer("moved_s"), start_s)
    waited_s = transfer_waits_s(record)
    found = []
    moved = (nbytes > 0.0) & (start_s >= from_s) & (start_s < until_s)
    for pair in np.unique(np.column_stack([source, target])[moved], axis=0):
        rows = np.flatnonzero((source == pair[0]) & (target == pair[1]) & moved)
        times = (start_s[rows], end_s[rows], waited_s[rows])
        cost = way(int(pair[0]), int(pair[1]))
        found.append(Shipments(traffic, cost, ids[rows].astype(np.intp), nbytes[rows], *times))
    return tuple(found)


def _starts_s(record: Record) -> Floats:
    """When KV cache began to move: with the first chunk, or when prompt and blocks were both there."""
    end_s, reserved_s = record.transfer("prefill_end_s"), record.transfer("reserved_s")
    start_s = np.fmax(end_s, reserved_s)
    source, admitted_row = record.transfer("prefill_replica"), record.transfer("prefill_admitted_row")
    for log, steps in enumerate(record.steps):
        rows = np.flatnonzero((reserved_s < end_s) & (source == log))
        start_s[rows] = column(steps, STEP_COLUMNS, "start_s")[admitted_row[rows].astype(np.intp)]
    return start_s


class _Rows(NamedTuple):
    """The messages of each row of a step log."""

    cost: Indices
    """Which of the costs they have."""
    number: Floats
    nbytes: Floats
    """Of them all together."""


def _rows(messages: Messages, steps: Floats) -> _Rows:
    tokens = column(steps, STEP_COLUMNS, "decodes") + column(steps, STEP_COLUMNS, "chunk_tokens")
    number = np.zeros(len(steps))
    mine = slice(*messages.rows)
    number[mine] = messages.per_step * column(steps, STEP_COLUMNS, "steps")[mine]
    return _Rows(
        _fastest(messages, tokens.astype(np.intp)), number, number * (messages.bytes_per_token * tokens)
    )


def _fastest(messages: Messages, tokens: Indices) -> Indices:
    """The cost of a message of each number of tokens."""
    if not len(tokens) or len(messages.costs) == 1:
        return np.zeros(len(tokens), dtype=np.intp)
    nbytes = messages.bytes_per_token * np.arange(int(tokens.max()) + 1)
    seconds = [
        np.where(
            nbytes <= (np.inf if cost.max_bytes is None else cost.max_bytes),
            cost.latency_s + cost.s_per_byte * nbytes,
            np.inf,
        )
        for cost in messages.costs
    ]
    return np.asarray(np.argmin(seconds, axis=0)[tokens])


@dataclass(frozen=True)
class LinkUse:
    """Links that carry the same, each in one direction."""

    edges: tuple[Edge, ...]
    bandwidth_bytes_per_s: float
    """Of each."""
    nbytes: Mapping[str, float]
    """Of each, by traffic."""
    binned_bytes: Floats
    """Of each, in the bins of the run."""


@dataclass(frozen=True)
class Links:
    """What the links of a run carried; links that carried nothing are left out."""

    edges_s: Floats
    """Of the bins, from 0 to the end of the run."""
    uses: tuple[LinkUse, ...]
    queueing_s: Mapping[tuple[Edge, str], float]
    """Seconds that each link made each kind of traffic wait for its share, beyond what it takes alone."""

    def utilisation(self, use: LinkUse) -> Floats:
        """Share of the bandwidth that was used in each bin."""
        return np.asarray(use.binned_bytes / (use.bandwidth_bytes_per_s * np.diff(self.edges_s)))

    def mean(self, use: LinkUse) -> float:
        """Share of the bandwidth that was used, of the run."""
        return sum(use.nbytes.values()) / (use.bandwidth_bytes_per_s * float(self.edges_s[-1]))

    def peak(self, use: LinkUse) -> float:
        """The most in any bin.

        The bytes of a row are spread evenly over it; where rows of several replicas overlap they may seem to
        use more of a link in an instant than it has, hence the limit.
        """
        return min(1.0, float(self.utilisation(use).max()))

    @cached_property
    def by_edge(self) -> dict[Edge, LinkUse]:
        """What each link carried."""
        return {edge: use for use in self.uses for edge in use.edges}


def links(
    record: Record,
    row_s: Sequence[Floats],
    sent: Sequence[Messages],
    bandwidths: Mapping[Edge, float],
    shipped: Sequence[Shipments] = (),
    bins: int = BINS,
) -> Links:
    """What each link carried; ``row_s`` are the seconds of each row, per log."""
    edges_s = np.linspace(0.0, record.end_s or 1.0, bins + 1)
    loads: dict[Edge, list[tuple[int, float]]] = defaultdict(list)
    totals: list[tuple[str, float, Floats]] = []
    for messages in sent:
        steps = record.steps[messages.log]
        rows = _rows(messages, steps)
        for index, cost in enumerate(messages.costs):
            amounts = np.where(rows.cost == index, rows.nbytes, 0.0)
            if not amounts.any():
                continue
            _load(loads, cost, len(totals))
            binned = _spread(steps, row_s[messages.log], amounts, edges_s)
            totals.append((messages.traffic, float(amounts.sum()), binned))
    for group in shipped:
        _load(loads, group.cost, len(totals))
        totals.append((group.traffic, float(group.nbytes.sum()), _spread_each(group, edges_s)))
    return Links(edges_s, _uses(loads, totals, bandwidths, bins), _queueing_s(record, bandwidths))


def _load(loads: Mapping[Edge, list[tuple[int, float]]], cost: Cost, index: int) -> None:
    for phase in cost.phases:
        for edge, load in phase.loads.items():
            loads[edge].append((index, load))


def _uses(
    loads: Mapping[Edge, Sequence[tuple[int, float]]],
    totals: Sequence[tuple[str, float, Floats]],
    bandwidths: Mapping[Edge, float],
    bins: int,
) -> tuple[LinkUse, ...]:
    """One for all links of a bandwidth with the same loads, which are shares of ``totals``."""
    alike: dict[tuple[float, tuple[tuple[int, float], ...]], list[Edge]] = defaultdict(list)
    for edge, shares in loads.items():
        rounded = tuple((index, round(load, _DIGITS)) for index, load in shares)
        alike[bandwidths[edge], rounded].append(edge)
    found = []
    for (bandwidth, _), edges in alike.items():
        nbytes: dict[str, float] = defaultdict(float)
        binned = np.zeros(bins)
        for index, load in loads[edges[0]]:
            traffic, amount, spread = totals[index]
            nbytes[traffic] += load * amount
            binned += load * spread
        found.append(LinkUse(tuple(edges), bandwidth, dict(nbytes), binned))
    return tuple(found)


def _queueing_s(record: Record, bandwidths: Mapping[Edge, float]) -> dict[tuple[Edge, str], float]:
    """Of the links among what held somebody back."""
    if record.network is None:
        return {}
    lost_s = record.network.lost_s
    kinds = dict.fromkeys(traffic for _, traffic in lost_s)
    return {
        (edge, traffic): lost_s[edge, traffic]
        for edge in bandwidths
        for traffic in kinds
        if lost_s.get((edge, traffic), 0.0) > 0.0
    }


def _spread(steps: Floats, seconds: Floats, amounts: Floats, edges_s: Floats) -> Floats:
    """What falls into each bin of amounts that are spread evenly over the time of their row."""
    before = np.concatenate(([0.0], np.cumsum(amounts)))
    start_s = column(steps, STEP_COLUMNS, "start_s")
    row = np.searchsorted(start_s, edges_s[1:-1], side="right") - 1
    at = np.maximum(row, 0)
    share = np.clip((edges_s[1:-1] - start_s[at]) / np.maximum(seconds[at], np.finfo(float).tiny), 0.0, 1.0)
    until = np.where(row < 0, 0.0, before[at] + share * amounts[at])
    return np.diff(until, prepend=0.0, append=before[-1])


def _spread_each(group: Shipments, edges_s: Floats) -> Floats:
    """What falls into each bin of messages that flow evenly from their start to their end."""
    seconds = np.maximum(group.end_s - group.start_s, np.finfo(float).tiny)
    until = [
        float(group.nbytes @ np.clip((edge_s - group.start_s) / seconds, 0.0, 1.0))
        for edge_s in edges_s[1:-1].tolist()
    ]
    return np.diff(until, prepend=0.0, append=float(group.nbytes.sum()))


class Requests(NamedTuple):
    """Two ways to look at the requests of a run."""

    mean: float
    """Of the mean request."""
    p99: float
    """Of the request at the 99th percentile of E2E."""


@dataclass(frozen=True)
class Blame:
    """Seconds that requests spend on one phase of messages, and the links that decide how long it takes."""

    bottlenecks: tuple[Edge, ...]
    """All equally tight."""
    traffic: str
    alike: int
    """The same for messages of other logs that cost the same, whatever links they are on."""
    latency_s: Requests
    """Fixed time of the messages, whatever their size."""
    bandwidth_s: Requests
    """Time of their bytes."""
    lost_s: Requests
    """What others took, of messages that are booked one by one."""


_NONE = Requests(0.0, 0.0)


def blame(
    record: Record, sent: Sequence[Messages], done: Indices, tail: int, shipped: Sequence[Shipments] = ()
) -> list[Blame]:
    """For the seconds of messages in the mean request of ``done`` and in the request ``tail``."""
    found = []
    of_mean, of_tail = np.zeros(len(record.requests)), np.zeros(len(record.requests))
    of_mean[done], of_tail[tail] = 1.0 / len(done), 1.0
    weights = of_mean, of_tail
    present: dict[int, list[Floats]] = {}
    kinds: list[tuple[str, tuple[Cost, ...]]] = []
    for messages in sent:
        alike = _number(kinds, (messages.traffic, messages.costs))
        if messages.log not in present:
            present[messages.log] = [presence(record, messages.log, weight) for weight in weights]
        rows = _rows(messages, record.steps[messages.log])
        size = len(messages.costs)
        counts, nbytes = (
            [np.bincount(rows.cost, weight * amount, size) for weight in present[messages.log]]
            for amount in (rows.number, rows.nbytes)
        )
        for index, cost in enumerate(messages.costs):
            many = Requests(*(float(count[index]) for count in counts))
            much = Requests(*(float(amount[index]) for amount in nbytes))
            if not any(many):
                continue
            found += [
                Blame(
                    phase.bottlenecks,
                    messages.traffic,
                    alike,
                    Requests(*(phase.latency_s * number for number in many)),
                    Requests(*(phase.s_per_byte * amount for amount in much)),
                    _NONE,
                )
                for phase in cost.phases
            ]
    for group in shipped:
        alike = _number(kinds, (group.traffic, (group.cost,)))
        found += _blame_shipments(group, weights, alike)
    return found


def _number(kinds: list[tuple[str, tuple[Cost, ...]]], kind: tuple[str, tuple[Cost, ...]]) -> int:
    """The same for the same kind."""
    if kind not in kinds:
        kinds.append(kind)
    return kinds.index(kind)


def _blame_shipments(group: Shipments, weights: Sequence[Floats], alike: int) -> list[Blame]:
    """What was waited for: fixed time first, then the bytes, as long as they take alone; the rest is lost."""
    cost = group.cost
    latency_s = np.minimum(cost.latency_s, group.waited_s)
    bandwidth_s = np.minimum(cost.s_per_byte * group.nbytes, group.waited_s - latency_s)
    lost_s = group.waited_s - latency_s - bandwidth_s
    totals = [
        Requests(*(float(seconds @ weight[group.ids]) for weight in weights))
        for seconds in (latency_s, bandwidth_s, lost_s)
    ]
    found = []
    for phase in cost.phases:
        fixed, moving = (
            part / whole if whole else 0.0
            for part, whole in ((phase.latency_s, cost.latency_s), (phase.s_per_byte, cost.s_per_byte))
        )
        parts = (
            Requests(*(share * seconds for seconds in total))
            for share, total in zip((fixed, moving, moving), totals, strict=True)
        )
        found.append(Blame(phase.bottlenecks, group.traffic, alike, *parts))
    return found
