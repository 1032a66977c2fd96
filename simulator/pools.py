"""Pools of replicas that are alike: how large they are, where they are placed, what their steps cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate, chain, pairwise

from simulator.cost.engine import EngineProfile
from simulator.cost.memory import MemoryBudget, MemoryEstimate
from simulator.cost.model import Model
from simulator.cost.pipeline import PipelineCost
from simulator.cost.stage import WHOLE, Stage, stages
from simulator.cost.step import StepCost
from simulator.errors import InputError
from simulator.events import Condition, Event, conditions
from simulator.hardware import Device, KernelFamily, KvDtype, slowed
from simulator.network.collectives import AffineCost, AllReduceModel, Phase, all_reduce_model
from simulator.network.fluid import Resource
from simulator.network.rounds import Transfer
from simulator.network.sends import kv_transfers, send_cost, stage_transfers
from simulator.scenario import Deployment
from simulator.serving.changes import Change, Fit
from simulator.serving.disaggregation import Way
from simulator.serving.pipeline import Pipeline
from simulator.serving.replica import Limits, StepSeconds
from simulator.serving.sharing import Group
from simulator.topology.graph import CutError, Topology


@dataclass(frozen=True)
class Fitting:
    """What one replica runs on and costs, in one condition of its system; an entry per pipeline stage."""

    groups: tuple[tuple[str, ...], ...]
    """GPUs."""
    all_reduces: tuple[AllReduceModel, ...]
    stages: tuple[StepCost, ...]
    sends: tuple[AffineCost, ...]
    """From each stage to the next, per byte that each rank sends."""

    @cached_property
    def step_cost(self) -> StepCost | PipelineCost:
        """Of the steps in its step logs."""
        return self.stages[0] if len(self.stages) == 1 else PipelineCost(self.stages)

    @cached_property
    def fit(self) -> Fit:
        """It as the replica knows it."""
        cost = self.step_cost
        engine = Pipeline(cost, self.stages, self.sends) if isinstance(cost, PipelineCost) else cost
        return Fit(engine, tuple(map(Group, self.groups, self.stages, self.all_reduces)))

    def same_as(self, other: Fitting) -> bool:
        """Whether it costs the same on the same links."""
        return self == other and self._phases() == other._phases()

    def _phases(self) -> list[tuple[Phase, ...]]:
        costs = chain(self.sends, *(all_reduce.costs for all_reduce in self.all_reduces))
        return [cost.phases for cost in costs]


@dataclass(frozen=True)
class Pool:
    """Replicas that are alike, and what they run on."""

    deployment: Deployment
    device: Device
    memory: MemoryBudget
    costs: tuple[StepCost, ...]
    """Of the whole model, one per replica; what a step takes where there is one stage."""
    fittings: tuple[Fitting, ...]
    """What each replica runs on at the start."""
    tensor_parallel_size: int
    pipeline_parallel_size: int
    limits: Limits

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return len(self.costs)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """GPUs of each TP group: of every stage of the first replica, of the second, ..."""
        return tuple(chain.from_iterable(fitting.groups for fitting in self.fittings))

    @property
    def engines(self) -> tuple[StepSeconds | Pipeline, ...]:
        """What serves, one per replica."""
        return tuple(fitting.fit.engine for fitting in self.fittings)

    @property
    def layout(self) -> str:
        """Replicas and their ranks, as ``4 x TP 2`` or ``2 x TP 2 x PP 2``."""
        stages = f" x PP {self.pipeline_parallel_size}" if self.pipeline_parallel_size > 1 else ""
        return f"{self.replicas} x TP {self.tensor_parallel_size}{stages}"

    @property
    def logs(self) -> int:
        """Step logs: one for each replica, or for each lane of its pipeline."""
        return self.replicas * self.pipeline_parallel_size

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
    _costs: dict[tuple[object, ...], StepCost] = field(default_factory=dict, repr=False, compare=False)

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
        fittings = tuple(self.fitting(size, ranks, Condition()) for ranks in placed)
        return Pool(
            deployment=size.deployment,
            device=self.device,
            memory=size.memory,
            costs=tuple(
                self._cost(size, fitting.groups[0], fitting.all_reduces[0], WHOLE, 1.0)
                for fitting in fittings
            ),
            fittings=fittings,
            tensor_parallel_size=size.tensor_parallel_size,
            pipeline_parallel_size=size.deployment.pipeline_parallel_size,
            limits=size.limits,
        )

    def fitting(self, size: Size, ranks: tuple[str, ...], condition: Condition) -> Fitting:
        """A replica of that size on these GPUs, at the speed that the condition leaves them."""
        tp, asked = size.tensor_parallel_size, size.deployment.all_reduce
        force = None if asked == "auto" else asked
        groups = tuple(ranks[first : first + tp] for first in range(0, len(ranks), tp))
        all_reduces = tuple(all_reduce_model(self.topology, group, force) for group in groups)
        costs = tuple(
            self._cost(size, group, all_reduce, stage, condition.slowest(group))
            for all_reduce, stage, group in zip(all_reduces, stages(len(groups)), groups, strict=True)
        )
        return Fitting(groups, all_reduces, costs, _sends(self.topology, groups))

    def _cost(
        self, size: Size, group: tuple[str, ...], all_reduce: AllReduceModel, stage: Stage, speed: float
    ) -> StepCost:
        """Made once for all replicas that cost the same, as it remembers what it has worked out."""
        host_slowdown = self.topology.system_of(group[0]).host_slowdown.value
        key = (size, all_reduce, stage, speed, host_slowdown)
        known = self._costs.get(key)
        if known is None:
            known = self._costs[key] = StepCost(
                self.model,
                size.deployment.weights,
                self.kv_dtype,
                size.tensor_parallel_size,
                slowed(self.device, speed),
                self.family,
                self.engine,
                _seconds_of(all_reduce),
                host_slowdown,
                stage,
            )
        return known

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


@dataclass(frozen=True)
class Refit:
    """What events of one time change."""

    at_s: float
    fittings: Mapping[int, Fitting]
    """By replica."""
    capacities: Mapping[Resource, float]
    """Bytes per second of links."""
    down: frozenset[int]
    """Replicas that fail, by themselves or as no path joins their GPUs any more."""
    up: frozenset[int]
    topology: Topology
    """What is left."""
    way: Way | None
    """Of KV cache from one pool to the other, if there are two."""

    def change(self) -> Change:
        """It as the replicas know it."""
        fits = {replica: fitting.fit for replica, fitting in self.fittings.items()}
        return Change(self.at_s, fits, self.capacities, self.down, self.up, self.way)


def refits(
    events: Sequence[Event],
    topology: Topology,
    model: Model,
    builders: Sequence[Builder],
    sizes: Sequence[Size],
    pools: Sequence[Pool],
) -> Iterator[Refit]:
    """Replicas fitted anew to what the events leave of the topology."""
    made_by = [
        (builder, size)
        for builder, size, pool in zip(builders, sizes, pools, strict=True)
        for _ in pool.fittings
    ]
    current = [fitting for pool in pools for fitting in pool.fittings]
    before, were_down = Condition(), set[int]()
    for at_s, condition in conditions(events, topology, len(current)):
        left = condition.of(topology)
        changed, down = {}, set(condition.down)
        for replica, ((builder, size), known) in enumerate(zip(made_by, current, strict=True)):
            ranks = tuple(chain.from_iterable(known.groups))
            try:
                fitted = replace(builder, topology=left).fitting(size, ranks, condition)
            except CutError:
                down.add(replica)
                continue
            if not fitted.same_as(known):
                current[replica] = changed[replica] = fitted
        if down and len(pools) > 1:
            raise InputError(
                "a replica of a prefill or a decode pool fails, which is not modelled yet",
                field="events",
                remedy="use one pool, or leave the event out",
            )
        capacities = _capacities(topology, before, condition)
        yield Refit(
            at_s,
            changed,
            capacities,
            frozenset(down - were_down),
            frozenset(were_down - down),
            left,
            _checked_way(at_s, left, model, pools) if len(pools) > 1 else None,
        )
        before, were_down = condition, down


def _checked_way(at_s: float, topology: Topology, model: Model, pools: Sequence[Pool]) -> Way:
    """The ways of KV cache; raises InputError where there is none between two replicas."""
    prefill, decode = pools
    way = kv_ways(topology, model, prefill, decode)
    try:
        for source in range(0, prefill.logs, prefill.pipeline_parallel_size):
            for target in range(0, decode.logs, decode.pipeline_parallel_size):
                way(source, prefill.logs + target)
    except CutError as error:
        raise InputError(
            f"from {at_s:g} s on KV cache finds no way: {error.reason}",
            field="events",
            remedy="leave a path between the pools",
        ) from None
    return way


def _capacities(topology: Topology, before: Condition, after: Condition) -> dict[Resource, float]:
    """Both directions of links that have another bandwidth than before."""
    return {
        edge: topology.bandwidth_bytes_per_s(edge) * after.bandwidth[link]
        for link in after.bandwidth
        if after.bandwidth[link] != before.bandwidth.get(link, 1.0)
        for edge in (link, link[::-1])
    }


def kv_ways(topology: Topology, model: Model, prefill: Pool, decode: Pool) -> Way:
    """What it costs to move KV cache from one batch to another, by the number of their step logs.

    Per byte of the cache of all layers and heads, once.
    """

    @cache
    def cost(source: int, target: int) -> AffineCost:
        return send_cost(
            topology,
            kv_shares(model, prefill.fittings[source].groups, decode.fittings[target].groups),
        )

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
