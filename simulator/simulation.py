"""The composition root: from a scenario to a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

from simulator.catalog import Catalog
from simulator.cost.engine import EngineProfile
from simulator.cost.memory import MemoryBudget, MemoryEstimate
from simulator.cost.model import Model
from simulator.cost.pipeline import PipelineCost
from simulator.cost.stage import WHOLE, Stage, stages
from simulator.cost.step import StepCost
from simulator.errors import InputError
from simulator.hardware import Device, KvDtype
from simulator.network.collectives import AffineCost, AllReduceModel, all_reduce_model
from simulator.network.sends import send_cost, stage_transfers
from simulator.record import Record
from simulator.scenario import Scenario
from simulator.serving.cluster import SHARED, serve
from simulator.serving.pipeline import Pipeline
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.serving.sharing import Group, Hardware, capacities
from simulator.streams import Streams
from simulator.topology.graph import Topology, build_topology
from simulator.topology.join import Join
from simulator.topology.placement import place
from simulator.workload import TrafficSummary, traffic

Progress = Callable[[int], None]
"""Called now and then with the number of requests that have ended."""


@dataclass(frozen=True)
class Plan:
    """A scenario with everything it names looked up, sized and checked; nothing has run."""

    scenario: Scenario
    topology: Topology
    model: Model
    device: Device
    engine: EngineProfile
    kv_dtype: KvDtype
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
    max_model_len: int

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
    def gpus_per_replica(self) -> int:
        """GPUs of one copy of the model."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def layout(self) -> str:
        """Replicas and their ranks, as ``4 x TP 2`` or ``2 x TP 2 x PP 2``."""
        stages = f" x PP {self.pipeline_parallel_size}" if self.pipeline_parallel_size > 1 else ""
        return f"{self.replicas} x TP {self.tensor_parallel_size}{stages}"

    @property
    def gpus_used(self) -> int:
        """GPUs that serve; the others of the system idle."""
        return self.replicas * self.gpus_per_replica


@dataclass(frozen=True)
class Result:
    """What happened, and the plan that made it."""

    plan: Plan
    record: Record
    traffic: TrafficSummary
    warnings: tuple[str, ...]


def load_topology(name: str, catalog: Catalog, join: Join | None = None) -> Topology:
    """The graph of a system of the catalogue or of a file, or of several joined."""
    system = catalog.system(name)
    if join is not None:
        system = system.times(join)
    return build_topology(
        system,
        {device: catalog.device(device) for device in system.device_names},
        {link: catalog.link(link) for link in system.link_names},
    )


def prepare(scenario: Scenario, catalog: Catalog) -> Plan:
    """Look up, size and check everything but the traffic; raises InputError."""
    deployment = scenario.deployment
    topology = load_topology(scenario.topologies[0], catalog, scenario.join)
    model = catalog.model(scenario.model)
    engine = catalog.engine(deployment.engine)
    device = topology.device(topology.gpus[0])
    family = catalog.family(device.family)
    kv_dtype: KvDtype = "bf16" if deployment.kv_cache_dtype == "auto" else deployment.kv_cache_dtype

    defaults = engine.batch_limits(device.memory_capacity.value, device.name)
    max_num_seqs, max_num_batched_tokens = _batch_limits(
        deployment.max_num_seqs,
        deployment.max_num_batched_tokens,
        defaults.max_num_seqs,
        defaults.max_num_batched_tokens,
    )
    max_model_len = deployment.max_model_len or model.max_position
    estimate = MemoryEstimate(
        model=model,
        weights=deployment.weights,
        kv_dtype=kv_dtype,
        device=device,
        engine=engine,
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=deployment.block_size or engine.defaults.block_size.value,
        gpu_memory_utilization=(
            deployment.gpu_memory_utilization or engine.defaults.gpu_memory_utilization.value
        ),
        num_gpu_blocks_override=deployment.num_gpu_blocks_override,
    )
    gpus = len(topology.gpus)
    pp = deployment.pipeline_parallel_size
    tp = _tensor_parallel_size(scenario, estimate, gpus, max_model_len)
    memory = estimate.budget(tp, pp, gpus)
    replicas = _replicas(scenario, gpus, tp * pp)
    force = None if deployment.all_reduce == "auto" else deployment.all_reduce
    placed = place(topology, deployment.placement, [tp * pp] * replicas)
    groups = [ranks[first : first + tp] for ranks in placed for first in range(0, tp * pp, tp)]
    all_reduces = [all_reduce_model(topology, group, force) for group in groups]

    @cache
    def cost(all_reduce: AllReduceModel, stage: Stage) -> StepCost:
        return StepCost(
            model,
            deployment.weights,
            kv_dtype,
            tp,
            device,
            family,
            engine,
            _seconds_of(all_reduce),
            topology.system.host_slowdown.value,
            stage,
        )

    return Plan(
        scenario=scenario,
        topology=topology,
        model=model,
        device=device,
        engine=engine,
        kv_dtype=kv_dtype,
        memory=memory,
        costs=tuple(cost(all_reduce, WHOLE) for all_reduce in all_reduces[::pp]),
        stages=tuple(
            tuple(cost(all_reduces[replica * pp + stage.index], stage) for stage in stages(pp))
            for replica in range(replicas)
        ),
        groups=tuple(groups),
        all_reduces=tuple(all_reduces),
        sends=tuple(_sends(topology, groups[first : first + pp]) for first in range(0, replicas * pp, pp)),
        tensor_parallel_size=tp,
        pipeline_parallel_size=pp,
        limits=Limits(max_num_seqs, max_num_batched_tokens, memory.block_size, memory.num_blocks),
        max_model_len=max_model_len,
    )


def run(
    plan: Plan, catalog: Catalog, *, rate_factor: float = 1.0, progress: Progress | None = None
) -> Result:
    """Serve the traffic of the plan to its end; ``rate_factor`` multiplies the offered load."""
    scenario = plan.scenario
    streams = Streams(scenario.seed)
    workload = scenario.workload
    preset = None if workload.preset is None else catalog.preset(workload.preset)
    requests = traffic(workload, preset, streams, rate_factor)
    record = serve(
        plan.engines,
        plan.limits,
        ROUTERS[scenario.deployment.router](),
        streams,
        requests,
        detail=scenario.detail,
        max_model_len=plan.max_model_len,
        max_concurrency=workload.max_concurrency,
        hardware=_hardware(plan) if scenario.detail in SHARED else None,
        on_progress=progress,
    )
    return Result(plan, record, requests.summary(), tuple(requests.warnings))


def simulate(scenario: Scenario, catalog: Catalog, *, progress: Progress | None = None) -> Result:
    """Prepare a scenario and run it."""
    return run(prepare(scenario, catalog), catalog, progress=progress)


def _hardware(plan: Plan) -> Hardware:
    """What the replicas of the plan share."""
    costs = [stage for stages in plan.stages for stage in stages]
    groups = zip(plan.groups, costs, plan.all_reduces, strict=True)
    return Hardware(tuple(Group(*group) for group in groups), capacities(plan.topology))


def _sends(topology: Topology, groups: Sequence[tuple[str, ...]]) -> tuple[AffineCost, ...]:
    """What it costs to send from each stage of a replica to the next, per byte of each rank."""
    return tuple(send_cost(topology, stage_transfers(one, after)) for one, after in pairwise(groups))


def _tensor_parallel_size(scenario: Scenario, estimate: MemoryEstimate, gpus: int, max_model_len: int) -> int:
    """As asked for; auto is the fewest ranks that also hold a request of ``max_model_len``."""
    asked, pp = scenario.deployment.tensor_parallel_size, scenario.deployment.pipeline_parallel_size
    estimate.model.check_pipeline_parallel(pp)
    if pp > gpus:
        raise InputError(
            f"{pp} pipeline stages on {scenario.topology}, which has {gpus} GPUs",
            field="pipeline_parallel_size",
            remedy=f"use --pipeline-parallel-size {gpus} or less",
        )
    if asked == "auto":
        return estimate.smallest_tp(pp, gpus, max_model_len)
    if asked * pp > gpus:
        raise InputError(
            f"{asked * pp} ranks on {scenario.topology}, which has {gpus} GPUs",
            field="tensor_parallel_size",
            remedy=f"use --tensor-parallel-size {gpus // pp} or less",
        )
    return asked


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


def _replicas(scenario: Scenario, gpus: int, each: int) -> int:
    asked = scenario.deployment.replicas
    most = gpus // each
    if asked == "auto":
        placement = scenario.deployment.placement
        return most if isinstance(placement, str) else len(placement)
    if asked > most:
        raise InputError(
            f"{asked} replicas of {each} GPUs need {asked * each} of the {gpus} GPUs of {scenario.topology}",
            field="replicas",
            remedy=f"use --replicas {most} or less",
        )
    return asked


def _seconds_of(all_reduce: AllReduceModel) -> Callable[[float], tuple[float, float]]:
    def seconds(nbytes: float) -> tuple[float, float]:
        _, latency_s, bandwidth_s = all_reduce.cost(nbytes)
        return latency_s, bandwidth_s

    return seconds
