"""The composition root: from a scenario to a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice

from simulator.catalog import Catalog
from simulator.cost.engine import EngineProfile
from simulator.cost.model import Model
from simulator.errors import InputError
from simulator.hardware import KvDtype
from simulator.pools import Builder, Fitting, Pool, Refit, Size, kv_ways, refits
from simulator.record import Record
from simulator.scenario import Scenario
from simulator.serving.cluster import SHARED, serve
from simulator.serving.disaggregation import DecodePool, KvMoves
from simulator.serving.routers import ROUTERS
from simulator.serving.sharing import Hardware, capacities
from simulator.streams import Streams
from simulator.topology.graph import Topology, build_topology
from simulator.topology.join import Join
from simulator.topology.placement import place
from simulator.topology.system import System
from simulator.workload import TrafficSummary, traffic

Progress = Callable[[int], None]
"""Called now and then with the number of requests that have ended."""


@dataclass(frozen=True)
class Plan:
    """A scenario with everything it names looked up, sized and checked; nothing has run."""

    scenario: Scenario
    topology: Topology
    model: Model
    engine: EngineProfile
    kv_dtype: KvDtype
    pools: tuple[Pool, ...]
    """One that takes requests and serves them; or one that prefills, and one that decodes."""
    refits: tuple[Refit, ...]
    """What the events of the scenario change, in order of time."""
    max_model_len: int

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return sum(pool.replicas for pool in self.pools)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """GPUs of each TP group of each pool."""
        return tuple(chain.from_iterable(pool.groups for pool in self.pools))

    @property
    def fittings_of_logs(self) -> tuple[tuple[Fitting, ...], ...]:
        """For each step log what its steps ran on, in turn; a replica has a log for each stage."""
        found = [[fitting] for pool in self.pools for fitting in pool.fittings]
        for refit in self.refits:
            for replica, fitting in refit.fittings.items():
                found[replica].append(fitting)
        return tuple(tuple(several) for several in found for _ in several[0].stages)

    @property
    def layout(self) -> str:
        """Replicas and their ranks, as ``4 x TP 2``, or ``2 x TP 2 x PP 2 prefill + 4 x TP 1 decode``."""
        roles = self.scenario.deployment.pools
        return " + ".join(
            f"{pool.layout} {role}".rstrip() for role, pool in zip(roles, self.pools, strict=True)
        )

    @property
    def gpus_used(self) -> int:
        """GPUs that serve; the others of the system idle."""
        return sum(pool.gpus_used for pool in self.pools)


@dataclass(frozen=True)
class Result:
    """What happened, and the plan that made it."""

    plan: Plan
    record: Record
    traffic: TrafficSummary
    warnings: tuple[str, ...]


def load_topology(
    name: str, catalog: Catalog, join: Join | None = None, beside: Sequence[System] = ()
) -> Topology:
    """The graph of a system of the catalogue or of a file, or of several joined.

    ``beside`` are nodes of another system; ``join`` counts them, too.
    """
    system = catalog.system(name)
    if join is not None and join.nodes - len(beside) > 1:
        system = system.times(join.model_copy(update={"nodes": join.nodes - len(beside)}))
    parts = (system, *beside)
    whole = system.beside(beside, join) if beside and join is not None else system
    return build_topology(
        whole,
        {device: catalog.device(device) for part in parts for device in part.device_names},
        {link: catalog.link(link) for part in parts for link in part.link_names},
        parts if beside else (),
    )


def prepare(scenario: Scenario, catalog: Catalog) -> Plan:
    """Look up, size and check everything but the traffic; raises InputError."""
    deployment = scenario.deployment
    home = load_topology(scenario.topologies[0], catalog, scenario.join())
    model = catalog.model(scenario.model)
    engine = catalog.engine(deployment.engine)
    kv_dtype: KvDtype = "bf16" if deployment.kv_cache_dtype == "auto" else deployment.kv_cache_dtype
    max_model_len = deployment.max_model_len or model.max_position
    builders, sizes = [], []
    for role, part in deployment.pools.items():
        with _of_pool(role):
            topology = home
            if role == "decode" and deployment.decode_system is not None:
                topology = _alone(deployment.decode_system, catalog)
            device = topology.device(topology.gpus[0])
            family = catalog.family(device.family)
            builders.append(Builder(topology, model, engine, device, family, kv_dtype, max_model_len))
            sizes.append(builders[-1].size(part))
    if deployment.decode_system is None:
        topology, placed = home, _side_by_side(scenario, home, sizes)
    else:
        topology, placed = _on_two_systems(scenario, catalog, home, builders[1].topology, sizes)
    _check_join(scenario, topology)
    builders = [replace(builder, topology=topology) for builder in builders]
    pools = tuple(
        builder.pool(size, ranks) for builder, size, ranks in zip(builders, sizes, placed, strict=True)
    )
    return Plan(
        scenario=scenario,
        topology=topology,
        model=model,
        engine=engine,
        kv_dtype=kv_dtype,
        pools=pools,
        refits=tuple(refits(scenario.events, topology, model, builders, sizes, pools)),
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
        plan.pools[0].engines,
        plan.pools[0].limits,
        ROUTERS[scenario.deployment.router](),
        streams,
        requests,
        detail=scenario.detail,
        max_model_len=plan.max_model_len,
        max_concurrency=workload.max_concurrency,
        hardware=_hardware(plan) if scenario.detail in SHARED else None,
        decode_pool=_decode_pool(plan),
        changes=[refit.change() for refit in plan.refits],
        on_progress=progress,
    )
    return Result(plan, record, requests.summary(), tuple(requests.warnings))


def simulate(scenario: Scenario, catalog: Catalog, *, progress: Progress | None = None) -> Result:
    """Prepare a scenario and run it."""
    return run(prepare(scenario, catalog), catalog, progress=progress)


def _hardware(plan: Plan) -> Hardware:
    """What the replicas of the plan share."""
    fittings = chain.from_iterable(pool.fittings for pool in plan.pools)
    groups = chain.from_iterable(fitting.fit.groups for fitting in fittings)
    return Hardware(tuple(groups), capacities(plan.topology))


def _decode_pool(plan: Plan) -> DecodePool | None:
    """The pool that only decodes, if there is one, and how KV cache gets there."""
    if len(plan.pools) == 1:
        return None
    deployment, model = plan.scenario.deployment, plan.model
    decode = plan.pools[1]
    moves = KvMoves(
        transfer=deployment.kv_transfer,
        layers=model.layers,
        block_bytes=float(model.kv_bytes_per_token(plan.kv_dtype) * decode.limits.block_size),
        way=kv_ways(plan.topology, model, *plan.pools),
        capacities=capacities(plan.topology),
    )
    return DecodePool(decode.engines, decode.limits, ROUTERS[deployment.router](), moves)


Placed = list[Sequence[tuple[str, ...]]]
"""Per pool, the GPUs of each replica."""


def _side_by_side(scenario: Scenario, topology: Topology, sizes: Sequence[Size]) -> Placed:
    """All pools on one system."""
    counts = _replicas(scenario, topology, sizes)
    each = [size.gpus for size, count in zip(sizes, counts, strict=True) for _ in range(count)]
    placed = iter(place(topology, scenario.deployment.placement, each))
    return [list(islice(placed, count)) for count in counts]


def _on_two_systems(
    scenario: Scenario, catalog: Catalog, home: Topology, other: Topology, sizes: Sequence[Size]
) -> tuple[Topology, Placed]:
    """The pool that decodes on as many nodes of another system as it takes, joined to the first."""
    counts = [*_replicas(scenario, home, sizes[:1]), int(sizes[1].deployment.replicas)]
    nodes = -(-counts[1] // (len(other.gpus) // sizes[1].gpus))
    topology = load_topology(scenario.topologies[0], catalog, scenario.join(nodes), (other.system,) * nodes)
    gpus = topology.gpus[: len(home.gpus)], topology.gpus[len(home.gpus) :]
    placement = scenario.deployment.placement
    listed = (placement, placement)
    if not isinstance(placement, str):
        listed = (placement[: counts[0]], placement[counts[0] :])
    return topology, [
        place(topology, asked, [size.gpus] * count, there)
        for asked, size, count, there in zip(listed, sizes, counts, gpus, strict=True)
    ]


def _alone(system: str, catalog: Catalog) -> Topology:
    """A node of the system that the decode pool is on."""
    try:
        return load_topology(system, catalog)
    except InputError as error:
        if error.field != "topology":
            raise
        raise InputError(error.reason, field="system", remedy=error.remedy) from None


def _check_join(scenario: Scenario, topology: Topology) -> None:
    """One node has nothing to join."""
    joins = {"fabric": scenario.fabric is not None, "oversubscription": scenario.oversubscription > 1.0}
    field = next((name for name, asked in joins.items() if asked), None)
    if field is not None and topology.system.joined is None:
        raise InputError("joins several nodes, and there is one", field=field, remedy="use --nodes 2 or more")


def _replicas(scenario: Scenario, topology: Topology, sizes: Sequence[Size]) -> list[int]:
    """Replicas of each pool, as asked for; auto fills the system."""
    gpus, placement = len(topology.gpus), scenario.deployment.placement
    counts = []
    for size in sizes:
        asked = size.deployment.replicas
        if asked == "auto":
            asked = gpus // size.gpus if isinstance(placement, str) else len(placement)
        counts.append(asked)
    needed = sum(size.gpus * count for size, count in zip(sizes, counts, strict=True))
    if needed <= gpus:
        return counts
    asked_for = " and ".join(
        f"{count} replicas of {size.gpus} GPUs" for size, count in zip(sizes, counts, strict=True)
    )
    *_, role = list(scenario.deployment.pools)[: len(sizes)]
    raise InputError(
        f"{asked_for} need {needed} of the {gpus} GPUs of {topology.system.name}",
        field=f"deployment.{role}.replicas" if role else "replicas",
        remedy="use fewer of them or a larger system"
        if len(sizes) > 1
        else f"use --{role}{'-' * bool(role)}replicas {gpus // sizes[0].gpus} or less",
    )


@contextmanager
def _of_pool(role: str) -> Iterator[None]:
    """Say which pool an InputError is about."""
    try:
        yield
    except InputError as error:
        if not role:
            raise
        raise InputError(
            f"{role} pool: {error.reason}",
            file=error.file,
            line=error.line,
            field=f"deployment.{role}.{error.field}",
            remedy=error.remedy and _flags_of(role, error.remedy),
        ) from None


def _flags_of(role: str, remedy: str) -> str:
    """The remedy with the flags of one pool."""
    for flag, short in (("--tensor-parallel-size", "tp"), ("--pipeline-parallel-size", "pp")):
        remedy = remedy.replace(flag, f"--{role}-{short}")
    return remedy.replace("--max-num-", f"--{role}-max-num-")
