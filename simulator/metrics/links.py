"""What the links carried and whom they kept waiting, from the step logs.

What a step sends follows from its tokens, so that a leap over many steps tells the bytes of its collectives
without a flow for each. Bytes are those of the message on its way, without what a protocol adds to them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.record import (
    PREEMPTION_COLUMNS,
    STEP_COLUMNS,
    TRANSFER_COLUMNS,
    Edge,
    Floats,
    Record,
    column,
)

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


class _Rows(NamedTuple):
    """The messages of each row of a step log."""

    cost: Indices
    """Which of the costs they have."""
    number: Floats
    nbytes: Floats
    """Of them all together."""


def _rows(messages: Messages, steps: Floats) -> _Rows:
    tokens = column(steps, STEP_COLUMNS, "decodes") + column(steps, STEP_COLUMNS, "chunk_tokens")
    number = messages.per_step * column(steps, STEP_COLUMNS, "steps")
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
            binned = _spread(steps, row_s[messages.log], amounts, edges_s)
            for phase in cost.phases:
                for edge, load in phase.loads.items():
                    loads[edge].append((len(totals), load))
            totals.append((messages.traffic, float(amounts.sum()), binned))
    return Links(edges_s, _uses(loads, totals, bandwidths, bins), _queueing_s(record, bandwidths))


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


def blame(record: Record, sent: Sequence[Messages], done: Indices, tail: int) -> list[Blame]:
    """For the seconds of messages in the mean request of ``done`` and in the request ``tail``."""
    found = []
    presence: dict[int, tuple[Floats, Floats]] = {}
    kinds: list[tuple[str, tuple[Cost, ...]]] = []
    for messages in sent:
        kind = messages.traffic, messages.costs
        if kind not in kinds:
            kinds.append(kind)
        if messages.log not in presence:
            of_all = _presence(record, messages.log, done) / len(done)
            presence[messages.log] = of_all, _presence(record, messages.log, np.array([tail]))
        rows = _rows(messages, record.steps[messages.log])
        size = len(messages.costs)
        counts, nbytes = (
            [np.bincount(rows.cost, weight * amount, size) for weight in presence[messages.log]]
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
                    kinds.index(kind),
                    Requests(*(phase.latency_s * number for number in many)),
                    Requests(*(phase.s_per_byte * amount for amount in much)),
                )
                for phase in cost.phases
            ]
    return found


def _presence(record: Record, log: int, ids: Indices) -> Floats:
    """How many of these requests take part in the steps of each row of a log."""
    change = np.zeros(len(record.steps[log]) + 1)
    here = ids[record.request("replica")[ids] == log]
    np.add.at(change, record.request("admitted_row")[here].astype(np.intp), 1.0)
    np.add.at(change, record.request("finish_row")[here].astype(np.intp), -1.0)
    moved = record.transfers[np.isin(record.transfer("id"), ids)]
    moved = moved[column(moved, TRANSFER_COLUMNS, "prefill_replica") == log]
    for name, sign in (("prefill_admitted_row", 1.0), ("prefill_end_row", -1.0)):
        np.add.at(change, column(moved, TRANSFER_COLUMNS, name).astype(np.intp), sign)
    evictions = record.preemptions[np.isin(column(record.preemptions, PREEMPTION_COLUMNS, "id"), here)]
    for name, sign in (("evicted_row", -1.0), ("resumed_row", 1.0)):
        np.add.at(change, column(evictions, PREEMPTION_COLUMNS, name).astype(np.intp), sign)
    return np.cumsum(change)[:-1]
