"""The comparison as rows: a label with its unit, one value per system, and which way is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from simulator.metrics.latency import Distribution
from simulator.metrics.summary import Growth, Summary
from simulator.report.evaluation import Evaluation

if TYPE_CHECKING:
    from simulator.pools import Pool

BEST = "*"
NOTHING = "-"
_SAME = 0.01
"""Relative difference below which two values count as one."""


@dataclass(frozen=True)
class Row:
    """One line of the comparison; a value of None is one that there is none of."""

    group: str
    label: str
    values: tuple[float | str | None, ...]
    better: Literal["low", "high"] | None = None

    def best(self) -> set[int]:
        """The systems with the best value, if there is a choice and a difference."""
        known = {index: value for index, value in enumerate(self.values) if isinstance(value, float | int)}
        if self.better is None or len(known) < 2:
            return set()
        best = (min if self.better == "low" else max)(known.values())
        near = {index for index, value in known.items() if abs(value - best) <= _SAME * abs(best)}
        return set() if len(near) == len(known) else near

    def cells(self) -> list[str]:
        """The values as text."""
        return [
            NOTHING if value is None else value if isinstance(value, str) else number(value)
            for value in self.values
        ]


def number(value: float) -> str:
    """About four digits, thousands apart."""
    size = abs(value)
    if size >= 1000.0 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if size >= 100.0 else f"{value:,.2f}" if size >= 1.0 else f"{value:.3g}"


def signed(value: float) -> str:
    """A change: ``number`` with its sign, where there is one."""
    return f"{'-' if value < 0.0 else '+'}{number(abs(value))}" if value else "0"


def comparison(evaluations: Sequence[Evaluation]) -> list[Row]:
    """Every row of the comparison; rows that no system has a value for are left out."""
    summaries = [evaluation.summary for evaluation in evaluations]
    rows = [
        Row("System", "GPUs in use", tuple(float(one.result.plan.gpus_used) for one in evaluations)),
        Row("System", "replicas x tensor parallel size", tuple(_replicas(one) for one in evaluations)),
        *_latency(summaries),
        *_throughput(summaries),
        *_health(summaries),
        *_hand_overs(summaries),
        *_bounds(evaluations),
    ]
    return [row for row in rows if any(value is not None for value in row.values)]


def _replicas(evaluation: Evaluation) -> str:
    pools = evaluation.result.plan.pools
    if len(pools) == 1:
        return _size(pools[0])
    return " + ".join(
        f"{_size(pool)} {role}" for pool, role in zip(pools, ("prefill", "decode"), strict=True)
    )


def _size(pool: Pool) -> str:
    stages = pool.pipeline_parallel_size
    return f"{pool.replicas} x {pool.tensor_parallel_size}" + (f", {stages} stages" if stages > 1 else "")


def _latency(summaries: Sequence[Summary]) -> list[Row]:
    rows = []
    metrics: tuple[tuple[str, str, float, Callable[[Summary], Distribution | None]], ...] = (
        ("TTFT", "ms", 1e3, lambda one: one.ttft),
        ("TPOT", "ms", 1e3, lambda one: one.tpot),
        ("ITL", "ms", 1e3, lambda one: one.itl),
        ("E2E", "s", 1.0, lambda one: one.e2e),
    )
    for name, unit, scale, of in metrics:
        for percent in (50.0, 90.0, 99.0):
            values = tuple(_percentile(of(one), percent, scale) for one in summaries)
            rows.append(Row("Latency", f"{name} p{percent:.0f}, {unit}", values, "low"))
    return rows


def _percentile(found: Distribution | None, percent: float, scale: float) -> float | None:
    return None if found is None else scale * found.percentiles[percent]


def _throughput(summaries: Sequence[Summary]) -> list[Row]:
    fields: tuple[tuple[str, Callable[[Summary], float | None], Literal["low", "high"]], ...] = (
        ("requests/s", lambda one: one.request_throughput, "high"),
        ("output tokens/s", lambda one: one.output_throughput, "high"),
        ("input + output tokens/s", lambda one: one.total_token_throughput, "high"),
        ("output tokens/s per GPU", lambda one: one.output_throughput_per_gpu, "high"),
        (
            "output tokens/s per kW, nameplate of the GPUs in use",
            lambda one: one.output_throughput_per_kw,
            "high",
        ),
        (
            "output tokens/s per 1,000 USD, price of the GPUs in use",
            lambda one: one.output_throughput_per_kusd,
            "high",
        ),
        (
            "USD per million output tokens, rent of the GPUs in use",
            lambda one: one.usd_per_million_output_tokens,
            "low",
        ),
        ("goodput, requests/s", lambda one: one.goodput, "high"),
        ("good requests, %", lambda one: _percent(one.good_fraction), "high"),
    )
    return [Row("Throughput", label, tuple(map(of, summaries)), better) for label, of, better in fields]


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100.0 * fraction


def _health(summaries: Sequence[Summary]) -> list[Row]:
    reasons = list(dict.fromkeys(reason for one in summaries for reason in one.rejected))
    return [
        Row("Load", "kept up with arrivals", tuple(_kept_up(one.growth) for one in summaries)),
        Row(
            "Load",
            "requests waiting at the middle and the last arrival",
            tuple(_waiting(one.growth) for one in summaries),
        ),
        Row(
            "Load", "queue time p99, s", tuple(_percentile(one.queue, 99.0, 1.0) for one in summaries), "low"
        ),
        Row("Load", "most requests at once", tuple(float(one.max_concurrent_requests) for one in summaries)),
        Row("Load", "requests offered", tuple(float(one.num_prompts) for one in summaries)),
        Row("Load", "requests finished", tuple(float(one.completed) for one in summaries)),
        *(
            Row("Load", reason, tuple(float(one.rejected.get(reason, 0)) for one in summaries), "low")
            for reason in reasons
        ),
        Row("Load", "failures of replicas", tuple(_failures(one, one.failures.outages) for one in summaries)),
        Row("Load", "requests sent on", tuple(_failures(one, one.failures.rerouted) for one in summaries)),
        Row("Load", "preemptions", tuple(float(one.preemptions) for one in summaries), "low"),
        Row("Load", "KV cache peak, % of blocks", tuple(100.0 * one.kv_peak_fraction for one in summaries)),
        Row("Load", "replicas busy, % of the time", tuple(100.0 * one.busy_fraction for one in summaries)),
        Row("Load", "requests that decode together, mean", tuple(one.mean_decodes for one in summaries)),
    ]


def _hand_overs(summaries: Sequence[Summary]) -> list[Row]:
    found = [one.hand_overs for one in summaries]
    rows = [
        Row("KV transfer", "hand-overs", tuple(None if one is None else float(one.count) for one in found)),
        Row(
            "KV transfer", "GB moved", tuple(None if one is None else one.total_bytes / 1e9 for one in found)
        ),
    ]
    for percent in (50.0, 99.0):
        moved = tuple(None if one is None else _percentile(one.transfer, percent, 1e3) for one in found)
        rows.append(Row("KV transfer", f"transfer after the prompt p{percent:.0f}, ms", moved, "low"))
    for percent in (50.0, 99.0):
        waited = tuple(None if one is None else _percentile(one.wait, percent, 1e3) for one in found)
        rows.append(Row("KV transfer", f"wait for blocks and a seat p{percent:.0f}, ms", waited, "low"))
    return rows


def _failures(summary: Summary, count: int) -> float | None:
    return float(count) if summary.failures.outages else None


def _kept_up(growth: Growth) -> str | None:
    return "n/a" if growth.kept_up is None else "yes" if growth.kept_up else "NO, the queue grew"


def _waiting(growth: Growth) -> str | None:
    return None if growth.kept_up is None else f"{growth.waiting_at_middle:,}, {growth.waiting_at_last:,}"


def _bounds(evaluations: Sequence[Evaluation]) -> list[Row]:
    """What physics allows, and how near the run came to it."""
    found = [{bound.name: bound for bound in evaluation.bounds} for evaluation in evaluations]
    names = dict.fromkeys(name for bounds in found for name in bounds)
    rows = []
    for name in names:
        bounds = [bounds.get(name) for bounds in found]
        known = next(bound for bound in bounds if bound is not None)
        if known.sense == "at least":
            label = f"{name} over its own roofline, the nearest one"
            cells = tuple(None if bound is None else f"{bound.margin:.3g} x" for bound in bounds)
        else:
            label = f"{name} ceiling, tokens/s (used)"
            cells = tuple(
                None
                if bound is None
                else f"{number(bound.limit)} ({100.0 * bound.value / bound.limit:.2g} %)"
                for bound in bounds
            )
        rows.append(Row("Bounds", label, cells))
    return rows
