"""Files for other programs: requests.csv and result.json."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator import __version__
from simulator.metrics.latency import PERCENTILES, Distribution
from simulator.metrics.summary import HandOvers
from simulator.record import CAUSES, STATUS_NAMES, STEP_CAUSES, STEP_WAITS, Floats, Record, Status
from simulator.report.evaluation import Evaluation
from simulator.report.links import links_object

if TYPE_CHECKING:
    from simulator.pools import Pool
    from simulator.simulation import Plan

_LATER_CAUSES = ("lost", "kv_wait", "kv_transfer", *STEP_WAITS)
_FIRST_CAUSES = tuple(cause for cause in CAUSES if cause not in _LATER_CAUSES)

REQUEST_FIELDS = (
    "request_id",
    "status",
    "arrival_s",
    "queue_s",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "input_tokens",
    "output_tokens",
    "preemptions",
    "replica",
    *(f"ledger_{cause}_s" for cause in _FIRST_CAUSES),
    "reroutes",
    "prefill_replica",
    *(f"ledger_{cause}_s" for cause in _LATER_CAUSES),
)

_ROWS_AT_ONCE = 16384

Column = list[Any]


def write_requests(evaluation: Evaluation, path: Path) -> None:
    """One line per request; what has not happened is empty."""
    prefill_replica = _prefill_replica(evaluation.result.record)
    line = ",".join(["%s"] * len(REQUEST_FIELDS)) + "\n"
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(REQUEST_FIELDS) + "\n")
        for start in range(0, len(evaluation.result.record.requests), _ROWS_AT_ONCE):
            columns = _columns(evaluation, prefill_replica, slice(start, start + _ROWS_AT_ONCE))
            file.write("".join([line % row for row in zip(*columns, strict=True)]))


def _columns(evaluation: Evaluation, prefill_replica: Floats, rows: slice) -> Iterator[Column]:
    record, found = evaluation.result.record, evaluation.latencies
    yield _whole(record.request("id")[rows])
    yield [STATUS_NAMES[Status(code)] for code in _whole(record.request("status")[rows])]
    yield record.request("arrival_s")[rows].tolist()
    for latency_s in (found.queue_s, found.ttft_s, found.tpot_s, found.e2e_s):
        yield _seconds(latency_s[rows])
    for name in ("input_tokens", "output_tokens", "preemptions"):
        yield _whole(record.request(name)[rows])
    yield _replicas(record, record.request("replica")[rows])
    for cause in _FIRST_CAUSES:
        yield _seconds(evaluation.ledger.by_request[rows, CAUSES.index(cause)])
    yield _whole(record.request("reroutes")[rows])
    yield _replicas(record, prefill_replica[rows])
    for cause in _LATER_CAUSES:
        yield _seconds(evaluation.ledger.by_request[rows, CAUSES.index(cause)])


def _prefill_replica(record: Record) -> Floats:
    """Where the prompt of each request was processed last before it was handed over; -1 if it was not."""
    found = np.full(len(record.requests), -1.0)
    found[record.transfer("id").astype(np.intp)] = record.transfer("prefill_replica")
    return found


def _replicas(record: Record, logs: Floats) -> Column:
    return ["" if log < 0 else record.owner(log) for log in _whole(logs)]


def _busy_by_replica(evaluation: Evaluation) -> list[float]:
    """Seconds in which each replica stepped; of a pipeline, the mean of its batches."""
    record, busy_s = evaluation.result.record, evaluation.ledger.busy_s
    owners = [record.owner(log) for log in range(len(record.steps))]
    sums: list[float] = (np.bincount(owners, busy_s) / np.bincount(owners)).tolist()
    return sums


def _whole(values: Floats) -> list[int]:
    whole: list[int] = values.astype(np.int64).tolist()
    return whole


def _seconds(values: Floats) -> Column:
    seconds = values.tolist()
    if np.isnan(values).any():
        return ["" if value != value else value for value in seconds]
    return list(seconds)


def result_object(evaluation: Evaluation) -> dict[str, Any]:
    """The flat fields of ``vllm bench serve``, and beside them ``llmsim`` with what only we know.

    ``date`` is null: the same scenario gives the same bytes.
    """
    plan, summary, workload = (
        evaluation.result.plan,
        evaluation.summary,
        evaluation.result.plan.scenario.workload,
    )
    flat: dict[str, Any] = {
        "date": None,
        "endpoint_type": "llmsim",
        "backend": plan.engine.name,
        "label": evaluation.name,
        "model_id": plan.model.name,
        "tokenizer_id": plan.model.name,
        "num_prompts": summary.num_prompts,
        "request_rate": _request_rate(evaluation),
        "burstiness": 1.0 if workload.burstiness is None else workload.burstiness,
        "max_concurrency": workload.max_concurrency,
        "duration": summary.duration_s,
        "completed": summary.completed,
        "failed": summary.num_prompts - summary.completed,
        "total_input_tokens": summary.total_input_tokens,
        "total_output_tokens": summary.total_output_tokens,
        "request_throughput": summary.request_throughput,
        "request_goodput": summary.goodput,
        "output_throughput": summary.output_throughput,
        "total_token_throughput": summary.total_token_throughput,
        "max_output_tokens_per_s": summary.max_output_tokens_per_s,
        "max_concurrent_requests": summary.max_concurrent_requests,
        "rtfx": 0.0,
    }
    for metric, found in (
        ("ttft", summary.ttft),
        ("tpot", summary.tpot),
        ("itl", summary.itl),
        ("e2el", summary.e2e),
    ):
        flat |= _milliseconds(metric, found)
    flat["mean_client_queue_time_ms"] = 1e3 * summary.client_queue_mean_s
    return {**flat, "llmsim": _llmsim(evaluation)}


def _request_rate(evaluation: Evaluation) -> float | str:
    asked = evaluation.result.plan.scenario.workload.request_rate
    return asked or evaluation.result.traffic.mean_rate_per_s or "inf"


def _milliseconds(metric: str, found: Distribution | None) -> dict[str, float | None]:
    if found is None:
        names = ("mean", "median", "std", *(f"p{percent:g}" for percent in PERCENTILES))
        return {f"{name}_{metric}_ms": None for name in names}
    values = {"mean": found.mean, "median": found.median, "std": found.std}
    values |= {f"p{percent:g}": value for percent, value in found.percentiles.items()}
    return {f"{name}_{metric}_ms": 1e3 * value for name, value in values.items()}


def _llmsim(evaluation: Evaluation) -> dict[str, Any]:
    plan, summary, causes = evaluation.result.plan, evaluation.summary, evaluation.ledger
    traffic, growth = evaluation.result.traffic, summary.growth
    return {
        "versions": {"llmsim": __version__, "python": platform.python_version(), "numpy": np.__version__},
        "seed": plan.scenario.seed,
        "scenario": plan.scenario.plain(),
        "deployment": {
            "gpus": len(plan.topology.gpus),
            "gpus_used": plan.gpus_used,
            "kv_cache_dtype": plan.kv_dtype,
            "max_model_len": plan.max_model_len,
            **_by_role(plan, _deployment),
        },
        "memory": _by_role(plan, lambda pool: _memory(pool, plan.max_model_len)),
        "traffic": {
            "requests": traffic.requests,
            "span_s": traffic.span_s,
            "mean_input_tokens": traffic.mean_input_tokens,
            "mean_output_tokens": traffic.mean_output_tokens,
            "mean_rate_per_s": traffic.mean_rate_per_s,
        },
        "rejected": summary.rejected,
        "preemptions": summary.preemptions,
        "reroutes": summary.reroutes,
        "failures": {
            "outages": summary.failures.outages,
            "rerouted_requests": summary.failures.rerouted,
            "lost_kv_tokens": summary.failures.lost_tokens,
            "failed_requests": summary.failures.failed,
        },
        "kv_transfer": _hand_overs(summary.hand_overs),
        "good_fraction": summary.good_fraction,
        "kept_up": growth.kept_up,
        "growth": {
            "waiting_at_middle": growth.waiting_at_middle,
            "waiting_at_last": growth.waiting_at_last,
            "queue_second_quarter_s": growth.queue_second_quarter_s,
            "queue_last_quarter_s": growth.queue_last_quarter_s,
        },
        "per_unit": {
            "output_throughput_per_gpu": summary.output_throughput_per_gpu,
            "output_throughput_per_kw": summary.output_throughput_per_kw,
            "output_throughput_per_kusd": summary.output_throughput_per_kusd,
            "usd_per_million_output_tokens": summary.usd_per_million_output_tokens,
        },
        "utilisation": {
            "busy_fraction": summary.busy_fraction,
            "busy_fraction_by_replica": [
                _share(busy_s, summary.duration_s) for busy_s in _busy_by_replica(evaluation)
            ],
            "step_seconds_by_cause": dict(
                zip(STEP_CAUSES, causes.by_replica.sum(axis=0).tolist(), strict=True)
            ),
            "kv_peak_fraction": summary.kv_peak_fraction,
            "mean_decodes": summary.mean_decodes,
        },
        "bounds": [
            {
                "name": bound.name,
                "sense": bound.sense,
                "limit": bound.limit,
                "value": bound.value,
                "unit": bound.unit,
                "holds": bound.holds,
            }
            for bound in evaluation.bounds
        ],
        "ledger": {
            "mean_s": dict(zip(CAUSES, causes.mean_s().tolist(), strict=True)),
            "p99_s": dict(zip(CAUSES, causes.at_percentile_s(99.0).tolist(), strict=True)),
        },
        **links_object(evaluation),
        "warnings": list(evaluation.warnings),
    }


def _hand_overs(found: HandOvers | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "count": found.count,
        "bytes": found.total_bytes,
        **_milliseconds("transfer", found.transfer),
        **_milliseconds("wait", found.wait),
    }


def _by_role(plan: Plan, of: Callable[[Pool], dict[str, Any]]) -> dict[str, Any]:
    """Facts of the only pool, or of each by its role."""
    if len(plan.pools) == 1:
        return of(plan.pools[0])
    return {role: of(pool) for role, pool in zip(plan.scenario.deployment.pools, plan.pools, strict=True)}


def _deployment(pool: Pool) -> dict[str, Any]:
    return {
        "replicas": pool.replicas,
        "tensor_parallel_size": pool.tensor_parallel_size,
        "pipeline_parallel_size": pool.pipeline_parallel_size,
        "max_num_seqs": pool.limits.max_num_seqs,
        "max_num_batched_tokens": pool.limits.max_num_batched_tokens,
        "block_size": pool.limits.block_size,
    }


def _memory(pool: Pool, max_model_len: int) -> dict[str, Any]:
    memory = pool.memory
    return {
        "capacity_bytes": memory.capacity_bytes,
        "gpu_memory_utilization": memory.gpu_memory_utilization,
        "weights_bytes": memory.weights_bytes,
        "activation_bytes": memory.activation_bytes,
        "cuda_graph_bytes": memory.cuda_graph_bytes,
        "communication_bytes": memory.communication_bytes,
        "runtime_bytes": memory.runtime_bytes,
        "kv_bytes": memory.kv_bytes,
        "num_gpu_blocks": memory.num_blocks,
        "kv_tokens": memory.kv_tokens,
        "max_concurrency_at_max_model_len": memory.max_concurrency(max_model_len),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else 0.0


def to_json(value: dict[str, Any]) -> str:
    """The text of a JSON file; a NaN in it is an error of ours."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
