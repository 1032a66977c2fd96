"""The composition root: from a scenario to a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simulator.catalog import Catalog
from simulator.cost.engine import EngineProfile
from simulator.cost.memory import MemoryBudget, memory_budget, smallest_tp
from simulator.cost.model import Model
from simulator.cost.step import StepCost
from simulator.errors import InputError
from simulator.hardware import Device, KvDtype
from simulator.network.collectives import AllReduceModel, all_reduce_model
from simulator.record import Record
from simulator.scenario import Scenario
from simulator.serving.cluster import SHARED, serve
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.serving.sharing import Group, Hardware, capacities
from simulator.streams import Streams
from simulator.topology.graph import Topology, build_topology
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
    """One per replica."""
    groups: tuple[tuple[str, ...], ...]
    """GPUs of each replica."""
    all_reduces: tuple[AllReduceModel, ...]
    """One per replica."""
    tensor_parallel_size: int
    limits: Limits
    max_model_len: int

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return len(self.costs)

    @property
    def gpus_used(self) -> int:
        """GPUs that serve; the others of the system idle."""
        return self.replicas * self.tensor_parallel_size


@dataclass(frozen=True)
class Result:
    """What happened, and the plan that made it."""

    plan: Plan
    record: Record
    traffic: TrafficSummary
    warnings: tuple[str, ...]


def load_topology(name: str, catalog: Catalog) -> Topology:
    """The graph of a system of the catalogue or of a file."""
    system = catalog.system(name)
    return build_topology(
        system,
        {device: catalog.device(device) for device in system.device_names},
        {link: catalog.link(link) for link in system.link_names},
    )


def prepare(scenario: Scenario, catalog: Catalog) -> Plan:
    """Look up, size and check everything but the traffic; raises InputError."""
    deployment = scenario.deployment
    topology = load_topology(scenario.topologies[0], catalog)
    model = catalog.model(scenario.model)
    engine = catalog.engine(deployment.engine)
    device = topology.device(topology.gpus[0])
    family = catalog.family(device.family)
    kv_dtype: KvDtype = "bf16" if deployment.kv_cache_dtype == "auto" else deployment.kv_cache_dtype

    defaults = engine.batch_limits(device.memory_capacity.value)
    max_num_seqs, max_num_batched_tokens = _batch_limits(
        deployment.max_num_seqs,
        deployment.max_num_batched_tokens,
        defaults.max_num_seqs,
        defaults.max_num_batched_tokens,
    )
    max_model_len = deployment.max_model_len or model.max_position
    sizing = _Sizing(
        model=model,
        scenario=scenario,
        kv_dtype=kv_dtype,
        device=device,
        engine=engine,
        gpus=len(topology.gpus),
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=deployment.block_size or engine.defaults.block_size.value,
        gpu_memory_utilization=(
            deployment.gpu_memory_utilization or engine.defaults.gpu_memory_utilization.value
        ),
    )
    tp = sizing.tensor_parallel_size(max_model_len)
    memory = sizing.budget(tp)
    replicas = _replicas(scenario, len(topology.gpus), tp)
    force = None if deployment.all_reduce == "auto" else deployment.all_reduce
    groups = [topology.gpus[index * tp : (index + 1) * tp] for index in range(replicas)]
    all_reduces = tuple(all_reduce_model(topology, group, force) for group in groups)
    costs = _shared_costs(
        all_reduces,
        lambda all_reduce: StepCost(
            model,
            deployment.weights,
            kv_dtype,
            tp,
            device,
            family,
            engine,
            _seconds_of(all_reduce),
            topology.system.host_slowdown.value,
        ),
    )
    return Plan(
        scenario=scenario,
        topology=topology,
        model=model,
        device=device,
        engine=engine,
        kv_dtype=kv_dtype,
        memory=memory,
        costs=costs,
        groups=tuple(groups),
        all_reduces=all_reduces,
        tensor_parallel_size=tp,
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
        plan.costs,
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
    groups = zip(plan.groups, plan.costs, plan.all_reduces, strict=True)
    return Hardware(tuple(Group(*group) for group in groups), capacities(plan.topology))


@dataclass(frozen=True)
class _Sizing:
    """How many GPUs a replica takes, and what is left in them for KV cache."""

    model: Model
    scenario: Scenario
    kv_dtype: KvDtype
    device: Device
    engine: EngineProfile
    gpus: int
    max_num_batched_tokens: int
    block_size: int
    gpu_memory_utilization: float

    def budget(self, tp: int) -> MemoryBudget:
        """Memory of one rank of ``tp``."""
        return memory_budget(
            self.model,
            self.scenario.deployment.weights,
            self.kv_dtype,
            tp,
            self.device,
            self.engine,
            gpus=self.gpus,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            gpu_memory_utilization=self.gpu_memory_utilization,
            num_gpu_blocks_override=self.scenario.deployment.num_gpu_blocks_override,
        )

    def tensor_parallel_size(self, max_model_len: int) -> int:
        """As asked for; auto is the fewest ranks that also hold a request of ``max_model_len``."""
        asked, gpus = self.scenario.deployment.tensor_parallel_size, self.gpus
        if asked != "auto":
            if asked > gpus:
                raise InputError(
                    f"{asked} ranks on {self.scenario.topology}, which has {gpus} GPUs",
                    field="tensor_parallel_size",
                    remedy=f"use --tensor-parallel-size {gpus} or less",
                )
            return asked
        fewest = smallest_tp(
            self.model,
            self.scenario.deployment.weights,
            self.kv_dtype,
            self.device,
            self.engine,
            gpus=gpus,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            gpu_memory_utilization=self.gpu_memory_utilization,
        )
        larger = [tp for tp in self.model.tensor_parallel_sizes(gpus) if tp >= fewest and tp & (tp - 1) == 0]
        return next((tp for tp in larger if self.budget(tp).kv_tokens >= max_model_len), fewest)


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


def _replicas(scenario: Scenario, gpus: int, tp: int) -> int:
    asked = scenario.deployment.replicas
    most = gpus // tp
    if asked == "auto":
        return most
    if asked > most:
        raise InputError(
            f"{asked} replicas of {tp} GPUs need {asked * tp} of the {gpus} GPUs of {scenario.topology}",
            field="replicas",
            remedy=f"use --replicas {most} or less",
        )
    return asked


def _shared_costs(
    all_reduces: Iterable[AllReduceModel], make: Callable[[AllReduceModel], StepCost]
) -> tuple[StepCost, ...]:
    """A cost per replica; replicas whose collectives cost the same share one."""
    models = list(all_reduces)
    made = {model: make(model) for model in dict.fromkeys(models)}
    return tuple(made[model] for model in models)


def _seconds_of(all_reduce: AllReduceModel) -> Callable[[float], tuple[float, float]]:
    def seconds(nbytes: float) -> tuple[float, float]:
        _, latency_s, bandwidth_s = all_reduce.cost(nbytes)
        return latency_s, bandwidth_s

    return seconds
