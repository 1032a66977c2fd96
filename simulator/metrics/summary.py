"""One run in numbers that a person can decide from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.metrics import itl
from simulator.metrics.latency import Distribution, Latencies, distribution, finished
from simulator.metrics.ledger import Ledger
from simulator.metrics.timeline import output_tokens
from simulator.record import (
    CAUSES,
    OUTAGE_COLUMNS,
    STATUS_NAMES,
    STEP_COLUMNS,
    Floats,
    Record,
    Status,
    column,
)


@dataclass(frozen=True)
class Slo:
    """Limits in seconds that a good request keeps, all of them, limits included; None is no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True)
class Hardware:
    """What the throughput is divided by; None where the catalogue does not know."""

    gpus: int
    power_w: float | None = None
    """Power of the whole system."""
    usd_per_gpu_hour: float | None = None
    system_usd: float | None = None


@dataclass(frozen=True)
class Growth:
    """Did the system keep up with its arrivals?

    It did not if all three hold: requests that wait at the last arrival are at least 1.5 times those at
    the middle arrival, the mean queue time of the last quarter of the requests is at least 1.5 times that
    of the second quarter, and it exceeds a tenth of the mean E2E. Under steady overload the queue grows
    linearly, and the first two ratios are 2 and 7/3. Of requests that all arrive at once there is no telling.
    """

    waiting_at_middle: int
    waiting_at_last: int
    queue_second_quarter_s: float
    queue_last_quarter_s: float
    kept_up: bool | None


@dataclass(frozen=True)
class HandOvers:
    """What moving KV cache from prefill to decode took."""

    count: int
    total_bytes: float
    transfer: Distribution | None
    """Seconds from a processed prompt, with blocks reserved for it, to all of its KV cache being there."""
    wait: Distribution | None
    """Seconds that a request waits for blocks and for a seat where it decodes."""


@dataclass(frozen=True)
class Failures:
    """What replicas that fail cost."""

    outages: int
    """Times that a replica failed, up to the last end of a request."""
    rerouted: int
    """Requests that were sent on at least once."""
    lost_tokens: int
    """Tokens of KV cache lost, which are computed again where the request goes on."""
    failed: int
    """Requests that were never served, as no replica came back."""


@dataclass(frozen=True)
class Summary:
    """Latencies in seconds, throughput per second of the run; None for what there is none of."""

    num_prompts: int
    completed: int
    rejected: dict[str, int]
    """Requests that did not finish, by reason; only reasons that occurred."""
    preemptions: int
    reroutes: int
    """Requests sent on because a replica failed, each time counted."""
    failures: Failures
    duration_s: float
    """From the first creation to the last end."""
    total_input_tokens: int
    total_output_tokens: int
    ttft: Distribution | None
    tpot: Distribution | None
    itl: Distribution | None
    e2e: Distribution | None
    queue: Distribution | None
    client_queue_mean_s: float
    request_throughput: float
    output_throughput: float
    total_token_throughput: float
    max_output_tokens_per_s: float
    """Most output tokens in any second from the start."""
    goodput: float | None
    """Good requests per second; None without an SLO."""
    good_fraction: float | None
    """Good requests among all that were sent."""
    output_throughput_per_gpu: float
    output_throughput_per_kw: float | None
    usd_per_million_output_tokens: float | None
    """At the rental price."""
    output_throughput_per_kusd: float | None
    """At the price of the system."""
    max_concurrent_requests: int
    kv_peak_fraction: float
    """Most KV blocks in use on any replica, of those it has."""
    mean_decodes: float
    """Requests that decode together, mean over the time that replicas step."""
    busy_fraction: float
    """Share of the run in which a replica steps, mean over the replicas."""
    hand_overs: HandOvers | None
    """None without a pool that only decodes."""
    growth: Growth = field(repr=False)


def summarise(
    record: Record,
    found: Latencies,
    causes: Ledger,
    hardware: Hardware,
    slo: Slo | None = None,
) -> Summary:
    """The summary of a record."""
    done = finished(record)
    input_tokens = int(record.request("input_tokens")[done].sum())
    tokens = int(record.request("output_tokens")[done].sum())
    created_s = record.request("created_s")
    duration_s = record.end_s - float(created_s.min()) if len(created_s) else 0.0
    output_rate = _rate(tokens, duration_s)
    good = None if slo is None else int((done & meets(found, slo)).sum())
    return Summary(
        num_prompts=len(done),
        completed=int(done.sum()),
        rejected=_rejected(record),
        preemptions=len(record.preemptions),
        reroutes=len(record.reroutes),
        failures=_failures(record),
        duration_s=duration_s,
        total_input_tokens=input_tokens,
        total_output_tokens=tokens,
        ttft=distribution(found.ttft_s),
        tpot=distribution(found.tpot_s),
        itl=itl.distribution(itl.gaps(record, causes.row_s, causes.row_growth_s)),
        e2e=distribution(found.e2e_s),
        queue=distribution(found.queue_s),
        client_queue_mean_s=float(found.client_queue_s.mean()) if len(done) else 0.0,
        request_throughput=_rate(int(done.sum()), duration_s),
        output_throughput=output_rate,
        total_token_throughput=_rate(input_tokens + tokens, duration_s),
        max_output_tokens_per_s=_peak_rate(record, causes),
        goodput=None if good is None else _rate(good, duration_s),
        good_fraction=None if good is None else good / max(len(done), 1),
        output_throughput_per_gpu=output_rate / hardware.gpus,
        output_throughput_per_kw=None if hardware.power_w is None else output_rate / (hardware.power_w / 1e3),
        usd_per_million_output_tokens=_usd_per_million(output_rate, hardware),
        output_throughput_per_kusd=None
        if hardware.system_usd is None
        else output_rate / (hardware.system_usd / 1e3),
        max_concurrent_requests=_max_concurrent(record),
        kv_peak_fraction=_kv_peak(record),
        mean_decodes=_mean_decodes(record, causes.row_s),
        busy_fraction=_rate(float(causes.busy_s.mean()), duration_s),
        hand_overs=_hand_overs(record, causes),
        growth=growth(record, found),
    )


def _hand_overs(record: Record, causes: Ledger) -> HandOvers | None:
    if not len(record.transfers):
        return None
    ids = np.unique(record.transfer("id").astype(np.intp))
    transfer_s, wait_s = (causes.by_request[ids, CAUSES.index(cause)] for cause in ("kv_transfer", "kv_wait"))
    return HandOvers(
        count=len(record.transfers),
        total_bytes=float(record.transfer("bytes").sum()),
        transfer=distribution(transfer_s),
        wait=distribution(wait_s),
    )


def meets(found: Latencies, slo: Slo) -> NDArray[np.bool_]:
    """Which requests keep every limit; the TPOT of a single token counts as zero."""
    good = np.ones(len(found.e2e_s), dtype=np.bool_)
    for values, limit_s in (
        (found.ttft_s, slo.ttft_s),
        (np.where(np.isnan(found.tpot_s), 0.0, found.tpot_s), slo.tpot_s),
        (found.e2e_s, slo.e2e_s),
    ):
        if limit_s is not None:
            good &= values <= limit_s
    return good


def growth(record: Record, found: Latencies) -> Growth:
    """Whether the queue grew, see Growth."""
    served = np.flatnonzero(finished(record))
    arrival_s = record.request("arrival_s")[served]
    order = np.argsort(arrival_s, kind="stable")
    arrival_s, served = arrival_s[order], served[order]
    if not len(served) or arrival_s[0] == arrival_s[-1]:
        return Growth(0, 0, 0.0, 0.0, None)
    quarters = np.array_split(found.queue_s[served], 4)
    second_s, last_s = (float(part.mean()) if len(part) else 0.0 for part in (quarters[1], quarters[3]))
    admitted_s = record.request("admitted_s")[served]
    at_middle, at_last = (
        int(((arrival_s <= time_s) & (admitted_s > time_s)).sum())
        for time_s in (arrival_s[(len(served) - 1) // 2], arrival_s[-1])
    )
    mean_e2e_s = float(found.e2e_s[served].mean())
    grew = at_last >= max(1.5 * at_middle, 1.0) and last_s >= 1.5 * second_s and last_s > 0.1 * mean_e2e_s
    return Growth(at_middle, at_last, second_s, last_s, not grew)


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0.0 else 0.0


def _rejected(record: Record) -> dict[str, int]:
    status = record.request("status")
    counts = {
        name: int((status == code).sum()) for code, name in STATUS_NAMES.items() if code != Status.FINISHED
    }
    return {name: count for name, count in counts.items() if count}


def _failures(record: Record) -> Failures:
    return Failures(
        outages=int((column(record.outages, OUTAGE_COLUMNS, "down_s") <= record.end_s).sum()),
        rerouted=int((record.request("reroutes") > 0).sum()),
        lost_tokens=int(record.reroute("tokens").sum()),
        failed=int((record.request("status") == Status.FAILED).sum()),
    )


def _peak_rate(record: Record, causes: Ledger) -> float:
    edges_s = _busy_seconds(record, causes.row_s)
    if len(edges_s) < 2:
        return 0.0
    return float(output_tokens(record, causes.row_s, causes.row_growth_s, edges_s).max())


def _busy_seconds(record: Record, row_s: tuple[Floats, ...]) -> Floats:
    """Edges of the whole seconds in which some replica steps: a long idle run costs nothing."""
    found = []
    for steps, seconds in zip(record.steps, row_s, strict=True):
        start_s = column(steps, STEP_COLUMNS, "start_s")
        first, last = np.floor(start_s), np.ceil(start_s + seconds)
        count = (last - first).astype(np.int64) + 1
        ahead = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        found.append(np.unique(np.repeat(first, count) + ahead))
    return np.unique(np.concatenate(found)) if found else np.empty(0)


def _usd_per_million(output_rate: float, hardware: Hardware) -> float | None:
    if hardware.usd_per_gpu_hour is None or output_rate <= 0.0:
        return None
    return hardware.gpus * hardware.usd_per_gpu_hour / 3600.0 / output_rate * 1e6


def _max_concurrent(record: Record) -> int:
    done = finished(record)
    if not done.any():
        return 0
    arrival_s = np.sort(record.request("arrival_s")[done])
    finish_s = np.sort(record.request("finish_s")[done])
    ended = np.searchsorted(finish_s, arrival_s, side="right")
    return int((np.arange(1, len(arrival_s) + 1) - ended).max())


def _kv_peak(record: Record) -> float:
    peaks = (
        float(column(steps, STEP_COLUMNS, "kv_blocks").max(initial=0.0)) / record.kv_blocks[record.owner(log)]
        for log, steps in enumerate(record.steps)
    )
    return max(peaks, default=0.0)


def _mean_decodes(record: Record, row_s: tuple[Floats, ...]) -> float:
    weighted = sum(
        float((column(steps, STEP_COLUMNS, "decodes") * seconds).sum())
        for steps, seconds in zip(record.steps, row_s, strict=True)
    )
    return _rate(weighted, float(sum(seconds.sum() for seconds in row_s)))
