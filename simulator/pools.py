"""Pools of replicas that are alike: how large they are, where they are placed, what their steps cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise

from simulator.cost.engine import EngineProfile
from simulator.cost.memory import MemoryBudget, MemoryEstimate
from simulator.cost.model import Model
from simulator.cost.pipeline import PipelineCost
from simulator.cost.stage import WHOLE, Stage, stages
from simulator.cost.step import StepCost
from simulator.errors import InputError
from simulator.hardware import Device, KernelFamily, KvDtype
from simulator.network.collectives import AffineCost, AllReduceModel, all_reduce_model
from simulator.network.rounds import Transfer
from simulator.network.sends import kv_transfers, send_cost, stage_transfers
from simulator.scenario import Deployment
from simulator.serving.pipeline import Pipeline
from simulator.serving.replica import Limits
from simulator.topology.graph import Topology


@dataclass(frozen=True)
class Pool:
    """Replicas that are alike, and what they run on."""

    deployment: Deployment
    device: Device
    memory: MemoryBudget
    costs: tuple[StepCost, ...]
    """Of the whole model, one per replica; what a step takes where there is one stage."""
    stages: tuple[tuple[StepCost, ...], ...]
    """Per replica, of each pipeline stage."""
    groups: tuple[tuple[str, ...], ...]
    """GPUs of each TP group: of every stage of the first replica, of the second, ..."""
    all_reduces: tuple[AllReduceModel, ...]
    """One per TP group."""
    sends: tuple[tuple[AffineCost, ...], ...]
    """Per replica, from each pipeline stage to the next, per byte that each rank sends."""
    tensor_parallel_size: int
    pipeline_parallel_size: int
    limits: Limits

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return len(self.costs)

    @cached_property
    def engines(self) -> tuple[StepCost | Pipeline, ...]:
        """What serves, one per replica."""
        if self.pipeline_parallel_size == 1:
            return self.costs
        return tuple(
            Pipeline(PipelineCost(stages), stages, sends)
            for stages, sends in zip(self.stages, self.sends, strict=True)
        )

    @property
    def step_costs(self) -> tuple[StepCost | PipelineCost, ...]:
        """What the steps of each step log cost: of each replica, or of each lane of its pipeline."""
        if self.pipeline_parallel_size == 1:
            return self.costs
        return tuple(cost for stages in self.stages for cost in (PipelineCost(stages),) * len(stages))

    @property
    def layout(self) -> str:
        """Replicas and their ranks, as ``4 x TP 2`` or ``2 x TP 2 x PP 2``."""
        stages = f" x PP {self.pipeline_parallel_size}" if self.pipeline_parallel_size > 1 else ""
        return f"{self.replicas} x TP {self.tensor_parallel_size}{stages}"

    @property
    def logs(self) -> int:
        """Step logs: one for each replica, or for each lane of its pipeline."""
        return self.replicas * self.pipeline_parallel_size

    def ranks(self, replica: int) -> tuple[tuple[str, ...], ...]:
        """GPUs of each stage of a replica."""
        first = replica * self.pipeline_parallel_size
        return self.groups[first : first + self.pipeline_parallel_size]

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one copy of the model."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def gpus_used(self) -> int:
        """GPUs that serve."""
        return self.replicas * self.gpus_per_replica


@dataclass(frozen=True)
class Size:
    """How large each replica of a pool is, and what bounds its batch."""

    deployment: Deployment
    tensor_parallel_size: int
    memory: MemoryBudget
    limits: Limits

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel_size * self.deployment.pipeline_parallel_size


@dataclass(frozen=True)
class Builder:
    """Makes the pool of a deployment on a system."""

    topology: Topology
    model: Model
    engine: EngineProfile
    device: Device
    family: KernelFamily
    kv_dtype: KvDtype
    max_model_len: int

    def size(self, deployment: Deployment) -> Size:
        """Ranks, memory and limits of a replica; raises InputError where it does not fit."""
        engine, device = self.engine, self.device
        defaults = engine.batch_limits(device.memory_capacity.value, device.name)
        max_num_seqs, max_num_batched_tokens = _batch_limits(
            deployment.max_num_seqs,
            deployment.max_num_batched_tokens,
            defaults.max_num_seqs,
            defaults.max_num_batched_tokens,
        )
        estimate = MemoryEstimate(
            model=self.model,
            weights=deployment.weights,
            kv_dtype=self.kv_dtype,
            device=device,
            engine=engine,
            max_num_batched_tokens=max_num_batched_tokens,
            block_size=deployment.block_size or engine.defaults.block_size.value,
            gpu_memory_utilization=(
                deployment.gpu_memory_utilization or engine.defaults.gpu_memory_utilization.value
            ),
            num_gpu_blocks_override=deployment.num_gpu_blocks_override,
        )
        tp = self._tensor_parallel_size(deployment, estimate)
        memory = estimate.budget(tp, deployment.pipeline_parallel_size, len(self.topology.gpus))
        limits = Limits(max_num_seqs, max_num_batched_tokens, memory.block_size, memory.num_blocks)
        return Size(deployment, tp, memory, limits)

    def pool(self, size: Size, placed: Sequence[tuple[str, ...]]) -> Pool:
        """Replicas of that size on these GPUs."""
        deployment, tp, pp = (
            size.deployment,
            size.tensor_parallel_size,
            size.deployment.pipeline_parallel_size,
        )
        force = None if deployment.all_reduce == "auto" else deployment.all_reduce
        groups = [ranks[first : first + tp] for ranks in placed for first in range(0, tp * pp, tp)]
        all_reduces = [all_reduce_model(self.topology, group, force) for group in groups]

        @cache
        def cost(all_reduce: AllReduceModel, stage: Stage) -> StepCost:
            return StepCost(
                self.model,
                deployment.weights,
                self.kv_dtype,
                tp,
                self.device,
                self.family,
                self.engine,
                _seconds_of(all_reduce),
                self.topology.system_of(placed[0][0]).host_slowdown.value,
                stage,
            )

        return Pool(
            deployment=deployment,
            device=self.device,
            memory=size.memory,
            costs=tuple(cost(all_reduce, WHOLE) for all_reduce in all_reduces[::pp]),
            stages=tuple(
                tuple(cost(all_reduces[replica * pp + stage.index], stage) for stage in stages(pp))
                for replica in range(len(placed))
            ),
            groups=tuple(groups),
            all_reduces=tuple(all_reduces),
            sends=tuple(
                _sends(self.topology, groups[first : first + pp]) for first in range(0, len(groups), pp)
            ),
            tensor_parallel_size=tp,
            pipeline_parallel_size=pp,
            limits=size.limits,
        )

    def _tensor_parallel_size(self, deployment: Deployment, estimate: MemoryEstimate) -> int:
        """As asked for; auto is the fewest ranks that also hold a request of ``max_model_len``."""
        asked, pp = deployment.tensor_parallel_size, deployment.pipeline_parallel_size
        gpus, system = len(self.topology.gpus), self.topology.system.name
        estimate.model.check_pipeline_parallel(pp)
        if pp > gpus:
            raise InputError(
                f"{pp} pipeline stages on {system}, which has {gpus} GPUs",
                field="pipeline_parallel_size",
                remedy=f"use --pipeline-parallel-size {gpus} or less",
            )
        if asked == "auto":
            return estimate.smallest_tp(pp, gpus, self.max_model_len)
        if asked * pp > gpus:
            raise InputError(
                f"{asked * pp} ranks on {system}, which has {gpus} GPUs",
                field="tensor_parallel_size",
                remedy=f"use --tensor-parallel-size {gpus // pp} or less",
            )
        return asked


def kv_ways(
    topology: Topology, model: Model, prefill: Pool, decode: Pool
) -> Callable[[int, int], AffineCost]:
    """What it costs to move KV cache from one batch to another, by the number of their step logs.

    Per byte of the cache of all layers and heads, once.
    """

    @cache
    def cost(source: int, target: int) -> AffineCost:
        return send_cost(topology, kv_shares(model, prefill.ranks(source), decode.ranks(target)))

    def way(source_log: int, target_log: int) -> AffineCost:
        source = source_log // prefill.pipeline_parallel_size
        target = (target_log - prefill.logs) // decode.pipeline_parallel_size
        return cost(source, target)

    return way


def kv_shares(
    model: Model, source: Sequence[Sequence[str]], target: Sequence[Sequence[str]]
) -> list[Transfer]:
    """Who sends whom which share of the KV cache of a request; both are the ranks of each stage.

    Each stage sends to each other what that holds of its layers.
    """
    return [
        (sender, receiver, len(range(max(first, start), min(last, end))) / model.layers * part)
        for (first, last), have in zip(_layers(len(source), model.layers), source, strict=True)
        for (start, end), hold in zip(_layers(len(target), model.layers), target, strict=True)
        if max(first, start) < min(last, end)
        for sender, receiver, part in kv_transfers(have, hold, model.kv_heads)
    ]


def _layers(count: int, total: int) -> list[tuple[int, int]]:
    """First and last layer (excluded) of each of ``count`` stages."""
    ends = list(accumulate((stage.layers(total) for stage in stages(count)), initial=0))
    return list(pairwise(ends))


def _sends(topology: Topology, groups: Sequence[tuple[str, ...]]) -> tuple[AffineCost, ...]:
    """What it costs to send from each stage of a replica to the next, per byte of each rank."""
    return tuple(send_cost(topology, stage_transfers(one, after)) for one, after in pairwise(groups))


def _batch_limits(
    seqs: int | None, tokens: int | None, default_seqs: int, default_tokens: int
) -> tuple[int, int]:
    """Sequences and tokens of a step; vLLM demands that the tokens cover the sequences."""
    if tokens is None:
        tokens = max(default_tokens, seqs or 0)
    if seqs is None:
        seqs = min(default_seqs, tokens)
    if tokens < seqs:
        raise InputError(
            f"a step of {tokens} tokens cannot hold {seqs} sequences",
            field="max_num_batched_tokens",
            remedy=f"use --max-num-batched-tokens {seqs} or more, or fewer --max-num-seqs",
        )
    return seqs, tokens


def _seconds_of(all_reduce: AllReduceModel) -> Callable[[float], tuple[float, float]]:
    def seconds(nbytes: float) -> tuple[float, float]:
        _, latency_s, bandwidth_s = all_reduce.cost(nbytes)
        return latency_s, bandwidth_s

    return seconds
