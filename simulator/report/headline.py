"""The few numbers by which two runs are told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from simulator.metrics.latency import Distribution
from simulator.metrics.summary import Summary
from simulator.simulation import Plan


@dataclass(frozen=True)
class Metric:
    """A number of a run; ``of`` gives it in ``unit``, None where there is none."""

    name: str
    """As in JSON."""
    title: str
    unit: str
    better: Literal["low", "high"]
    of: Callable[[Summary], float | None]


def _milliseconds(
    of: Callable[[Summary], Distribution | None], pick: Callable[[Distribution], float]
) -> Callable[[Summary], float | None]:
    def milliseconds(summary: Summary) -> float | None:
        found = of(summary)
        return None if found is None else 1e3 * pick(found)

    return milliseconds


def _mean(found: Distribution) -> float:
    return found.mean


def _p99(found: Distribution) -> float:
    return found.percentiles[99.0]


TTFT_MEAN = Metric("mean_ttft_ms", "mean TTFT", "ms", "low", _milliseconds(lambda one: one.ttft, _mean))
TTFT_P99 = Metric("p99_ttft_ms", "p99 TTFT", "ms", "low", _milliseconds(lambda one: one.ttft, _p99))
TPOT_MEAN = Metric("mean_tpot_ms", "mean TPOT", "ms", "low", _milliseconds(lambda one: one.tpot, _mean))
TPOT_P99 = Metric("p99_tpot_ms", "p99 TPOT", "ms", "low", _milliseconds(lambda one: one.tpot, _p99))
THROUGHPUT = Metric(
    "output_throughput", "throughput", "output tokens/s", "high", lambda one: one.output_throughput
)
KEEPS_UP = (
    "Every run keeps up with the traffic, so the throughput is what the traffic asks for, not the most that"
    " the hardware can serve; a higher --request-rate shows that."
)
GOODPUT = Metric("request_goodput", "goodput", "requests/s", "high", lambda one: one.goodput)


def keeps_up(plan: Plan, summaries: Iterable[Summary]) -> bool:
    """Every run keeps up with requests that come at times of their own: throughput is that of the traffic."""
    open_load = plan.scenario.workload.max_concurrency is None
    return open_load and all(summary.growth.kept_up is True for summary in summaries)


def measured(metrics: tuple[Metric, ...], summaries: list[Summary]) -> tuple[Metric, ...]:
    """The metrics of which every run has a value."""
    return tuple(metric for metric in metrics if all(metric.of(summary) is not None for summary in summaries))


def value(metric: Metric, summary: Summary) -> float:
    """A metric that is ``measured``."""
    found = metric.of(summary)
    if found is None:
        raise ValueError(f"no {metric.title}")
    return found
