"""A result with everything that is computed from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from simulator.cost.layers import ACTIVATION_BYTES
from simulator.metrics import bounds
from simulator.metrics.bounds import Bound, Ceiling
from simulator.metrics.latency import Latencies, finished, latencies
from simulator.metrics.ledger import Ledger, ledger
from simulator.metrics.links import Blame, Links, Messages, Shipments, blame, links
from simulator.metrics.summary import Hardware, Slo, Summary, summarise
from simulator.metrics.timeline import Timeline, timeline
from simulator.record import STEP_COLUMNS, Floats, Record, column
from simulator.report.messages import kv_cache, messages

if TYPE_CHECKING:
    from simulator.hardware import UsdPerHourRange, UsdRange
    from simulator.pools import Pool
    from simulator.scenario import Goodput
    from simulator.simulation import Plan, Result
    from simulator.topology.graph import Topology


@dataclass(frozen=True)
class Evaluation:
    """One system: its result and the metrics of it."""

    name: str
    result: Result
    latencies: Latencies
    ledger: Ledger
    summary: Summary
    bounds: tuple[Bound, ...]
    warnings: tuple[str, ...]

    @cached_property
    def timeline(self) -> Timeline:
        """What went on over time."""
        return timeline(self.result.record, self.ledger.row_s, self.ledger.row_growth_s)

    @cached_property
    def links(self) -> Links:
        """What the links carried."""
        topology = self.result.plan.topology
        return links(
            self.result.record,
            self.ledger.row_s,
            self.messages,
            topology.bandwidths_bytes_per_s,
            self.shipments,
        )

    @cached_property
    def blames(self) -> list[Blame]:
        """The seconds that the mean and the p99 request spend on messages; none where no request finished."""
        tail = self.ledger.request_at(99.0)
        if tail is None:
            return []
        record = self.result.record
        return blame(record, self.messages, np.flatnonzero(finished(record)), tail, self.shipments)

    @cached_property
    def messages(self) -> tuple[Messages, ...]:
        """What the steps send over links."""
        return messages(self.result.plan, self.result.record)

    @cached_property
    def shipments(self) -> tuple[Shipments, ...]:
        """KV cache that was moved between replicas."""
        return kv_cache(self.result.plan, self.result.record)


def evaluate(results: Sequence[Result]) -> tuple[Evaluation, ...]:
    """Compute and check the metrics of each result. Raises PhysicsError."""
    names = [result.plan.topology.system.name for result in results]
    return tuple(
        _evaluate(result, name if names.count(name) == 1 else f"{name}-{index + 1}")
        for index, (name, result) in enumerate(zip(names, results, strict=True))
    )


def _evaluate(result: Result, name: str) -> Evaluation:
    plan, record = result.plan, result.record
    found = latencies(record)
    costs = [[fitting.step_cost.breakdown for fitting in several] for several in plan.fittings_of_logs]
    causes = ledger(record, costs)
    summary = summarise(record, found, causes, _hardware(plan), _slo(plan.scenario.goodput))
    prefill, decode = plan.pools[0], plan.pools[-1]
    prompts, tokens = prefill.costs[0].roofline, decode.costs[0].roofline
    limits = bounds.bounds(
        record,
        found,
        # chunks of one prompt may be in all stages at once
        floor_prefill_s=lambda tokens: (
            prompts.floor_step_s(0, 0, tokens, 0.5 * tokens * (tokens + 1)) / prefill.pipeline_parallel_size
        ),
        floor_decode_s=lambda context: tokens.floor_step_s(1, context, 0, 0),
        ceilings=_ceilings(plan, record),
        kv_tokens=sum(pool.memory.kv_tokens * pool.replicas for pool in plan.pools),
    )
    bounds.check(limits)
    return Evaluation(name, result, found, causes, summary, limits, _warnings(result, summary))


def _slo(goodput: Goodput | None) -> Slo | None:
    return None if goodput is None else Slo(goodput.ttft, goodput.tpot, goodput.e2el)


def _hardware(plan: Plan) -> Hardware:
    """What serves: GPUs that idle for want of a replica count neither for power nor for price."""
    topology = plan.topology
    power_w, rent_usd, system_usd = 0.0, 0.0, 0.0
    for pool in plan.pools:
        system, rental = topology.system_of(pool.groups[0][0]), pool.device.rental
        share = pool.gpus_used / (system.nodes * topology.gpus_of_a_node(pool.groups[0][0]))
        power_w += system.power.value * share
        rent_usd += pool.gpus_used * (nan if rental is None else _middle(rental.value))
        system_usd += share * (nan if system.price is None else _middle(system.price.value))
    return Hardware(
        gpus=plan.gpus_used,
        power_w=power_w,
        usd_per_gpu_hour=None if isnan(rent_usd) else rent_usd / plan.gpus_used,
        system_usd=None if isnan(system_usd) else system_usd,
    )


def _middle(price: UsdRange | UsdPerHourRange) -> float:
    return 0.5 * (price.low + price.high)


def _ceilings(plan: Plan, record: Record) -> list[Ceiling]:
    """Compute, HBM and links of each pool, and what joins two."""
    if len(plan.pools) == 1:
        return _ceilings_of_pool(plan, plan.pools[0], record, record.steps, "")
    prefill, decode = plan.pools
    return [
        *_ceilings_of_pool(plan, prefill, record, record.steps[: prefill.logs], "prefill "),
        *_ceilings_of_pool(plan, decode, record, record.steps[prefill.logs :], "decode "),
        Ceiling(
            "KV transfer",
            float(record.transfer("bytes").sum()),
            plan.topology.cut_bytes_per_s(list(chain(*prefill.groups)), list(chain(*decode.groups))),
        ),
    ]


def _ceilings_of_pool(
    plan: Plan, pool: Pool, record: Record, logs: Sequence[Floats], role: str
) -> list[Ceiling]:
    """Of all replicas together; work is that of one rank of each stage, its peers do theirs."""
    totals = dict.fromkeys(("steps", "decode_steps", "decodes", "kv_tokens", "chunk_tokens"), 0.0)
    for rows in logs:
        by_name = {name: column(rows, STEP_COLUMNS, name) for name in STEP_COLUMNS}
        totals["steps"] += float(by_name["steps"].sum())
        totals["decode_steps"] += float((by_name["steps"] * (by_name["decodes"] > 0)).sum())
        totals["decodes"] += float((by_name["steps"] * by_name["decodes"]).sum())
        totals["kv_tokens"] += float(by_name["kv_tokens"].sum())
        totals["chunk_tokens"] += float(by_name["chunk_tokens"].sum())
    prompts = record.request("input_tokens")[finished(record)]
    prompt_pairs = 0.0 if role == "decode " else float(np.sum(0.5 * prompts * (prompts + 1.0)))
    tokens = totals["decodes"] + totals["chunk_tokens"]
    roofline = pool.costs[0].roofline
    compute_s = roofline.compute_s(
        totals["decodes"], totals["kv_tokens"], totals["chunk_tokens"], prompt_pairs
    )
    hbm_bytes = (
        roofline.weight_bytes * totals["steps"]
        + roofline.head_bytes * totals["decode_steps"]
        + roofline.kv_bytes_per_token * (totals["kv_tokens"] + tokens)
    )
    ranks = pool.replicas * pool.pipeline_parallel_size
    ceilings = [
        Ceiling(f"{role}compute", compute_s, float(ranks)),
        Ceiling(f"{role}HBM", hbm_bytes, roofline.bytes_per_s * ranks),
    ]
    if pool.tensor_parallel_size > 1:
        links = _gpu_links(plan.topology, pool) * ranks
        ceilings.append(Ceiling(f"{role}links", _all_reduce_bytes(plan) * tokens, links))
    return ceilings


def _all_reduce_bytes(plan: Plan) -> float:
    """Bytes per token that every rank receives at least: each all-reduce brings its whole result."""
    return float(
        sum(count * layer.all_reduces * layer.hidden for layer, count in plan.model.layer_groups)
        * ACTIVATION_BYTES
    )


def _gpu_links(topology: Topology, pool: Pool) -> float:
    """Bandwidth of one direction of all links of a GPU."""
    return max(
        sum(float(edge["bandwidth_bytes_per_s"]) for _, _, edge in topology.graph.edges(gpu, data=True))
        for gpu in chain(*pool.groups)
    )


def _warnings(result: Result, summary: Summary) -> tuple[str, ...]:
    plan = result.plan
    found = list(result.warnings)
    idle = len(plan.topology.gpus) - plan.gpus_used
    if idle:
        fits = any(idle >= pool.gpus_per_replica for pool in plan.pools)
        why = "no replica is asked for there" if fits else "no replica fits into them"
        found.append(f"{idle} of {len(plan.topology.gpus)} GPUs idle: {why}")
    failures = summary.failures
    rejected = sum(summary.rejected.values()) - failures.failed
    if failures.outages:
        found.append(
            f"replicas failed {failures.outages} times: {failures.rerouted} requests were sent on,"
            f" {failures.lost_tokens:,} tokens of KV cache lost"
        )
    if failures.failed:
        found.append(
            f"{failures.failed} of {summary.num_prompts} requests failed: no replica was up any more"
        )
    if rejected:
        found.append(f"{rejected} of {summary.num_prompts} requests were rejected")
    if summary.preemptions:
        found.append(
            f"the KV cache was full: {summary.preemptions} evictions, whose tokens were computed again"
        )
    if summary.growth.kept_up is False:
        found.append("the queue grew to the end: latencies depend on how long the run is")
    return tuple(found)
