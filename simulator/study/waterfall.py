"""From one system to another, one class of properties at a time.

Each step takes one class more from the second system, so the changes sum to the whole difference. A class
that comes later finds the earlier ones in place: its part depends on the order, and the way in the reverse
order shows by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.catalog import Catalog
from simulator.errors import InputError, nearest
from simulator.hardware import Device, KernelFamily
from simulator.scenario import Scenario
from simulator.simulation import Plan, Result, prepare, run
from simulator.spec import Spec
from simulator.study.deployment import pinned
from simulator.topology.system import System

CLASSES = {
    "memory-bandwidth": "memory bandwidth",
    "capacity": "memory capacity",
    "compute": "compute",
    "scale-up": "links between GPUs",
    "overheads": "host and kernel launch",
    "kernels": "kernels of the architecture",
}
"""Classes of properties, in the order in which they are replaced, with their titles."""

_DEVICE = {
    "memory-bandwidth": ("memory_bandwidth",),
    "capacity": ("memory_capacity", "memory_nameplate"),
    "compute": ("peak", "exp_rate", "sm_count"),
}
"""Fields of a device by class."""

_FIXED = ("fixed", "per_sqrt_k")
"""Fields of kernel constants that are overheads; the others are efficiencies."""


@dataclass(frozen=True)
class Side:
    """What one of the two systems brings."""

    system: System
    device: Device
    family: KernelFamily


@dataclass(frozen=True)
class HybridCatalog(Catalog):
    """A catalogue of one system: the first one, with the classes of ``taken`` from the second."""

    first: Side = field(kw_only=True)
    second: Side = field(kw_only=True)
    taken: frozenset[str] = field(kw_only=True)

    def system(self, name: str) -> System:
        """The graph of one, the host of one."""
        graph, host = self._side("scale-up").system, self._side("overheads").system
        return graph.model_copy(update={"host_slowdown": host.host_slowdown})

    def device(self, name: str) -> Device:
        """A GPU whose figures come from both."""
        figures = {
            field_name: getattr(self._side(part).device, field_name)
            for part, fields in _DEVICE.items()
            for field_name in fields
        }
        return self.first.device.model_copy(update=figures)

    def family(self, name: str) -> KernelFamily:
        """Efficiencies of one, fixed times of one."""
        kernels, fixed = self._side("kernels").family, self._side("overheads").family
        tables = ("gemm", "attention_decode", "attention_prefill")
        update: dict[str, Any] = {
            table: {
                dtype: _with_fixed_times(constants, getattr(fixed, table).get(dtype, constants))
                for dtype, constants in getattr(kernels, table).items()
            }
            for table in tables
        }
        update["elementwise"] = _with_fixed_times(kernels.elementwise, fixed.elementwise)
        return kernels.model_copy(update=update)

    def _side(self, part: str) -> Side:
        return self.second if part in self.taken else self.first


def _with_fixed_times(constants: Spec, fixed: Spec) -> Spec:
    known = [name for name in _FIXED if name in type(constants).model_fields]
    return constants.model_copy(update={name: getattr(fixed, name) for name in known})


@dataclass(frozen=True)
class Way:
    """From one system to another under one deployment."""

    scenario: Scenario
    """Of the first system, with the deployment of both."""
    second: str
    sides: tuple[Side, Side]
    choices: tuple[str, ...]
    """What each system would choose by itself, where that differs."""
    order: tuple[str, ...]

    @property
    def stops(self) -> tuple[frozenset[str], ...]:
        """The classes taken at each stop: none, one more each time, and as many in the reverse order."""
        counts = range(len(self.order) + 1)
        forth = [frozenset(self.order[:count]) for count in counts]
        back = [frozenset(self.order[count:]) for count in counts]
        return tuple(dict.fromkeys([*forth, *back]))

    def run(self, taken: frozenset[str], catalog: Catalog) -> Result:
        """Serve the traffic with some classes from the second system; with all, on that system itself."""
        if taken == frozenset(CLASSES):
            return run(prepare(self.scenario.on(self.second), catalog), catalog)
        first, second = self.sides
        hybrid = HybridCatalog(catalog.root, first=first, second=second, taken=taken)
        return run(prepare(self.scenario, hybrid), catalog)


def way(scenario: Scenario, catalog: Catalog, order: Sequence[str] = ()) -> Way:
    """The way between the two systems of a scenario; raises InputError where one cannot serve it.

    Both serve with the larger TP and the smaller of every other size of what they would choose.
    """
    first, second = scenario.topologies
    sides = _side(first, catalog), _side(second, catalog)
    plans = [prepare(scenario.on(topology), catalog) for topology in (first, second)]
    if len(plans[0].pools) > 1:
        raise InputError(
            "a waterfall is between deployments of one pool",
            field="deployment.prefill.replicas",
            remedy="leave --prefill-replicas and --decode-replicas out",
        )
    pools = [plan.pools[0] for plan in plans]
    tp = max(pool.tensor_parallel_size for pool in pools)
    each = tp * scenario.deployment.pipeline_parallel_size
    for plan, other in zip(plans, plans[::-1], strict=True):
        gpus, name, needs = len(plan.topology.gpus), plan.topology.system.name, other.topology.system.name
        if each > gpus:
            raise InputError(
                f"a replica takes {each} GPUs on {needs}, and {name} has {gpus}",
                field="model",
                remedy="use a smaller --model or smaller --weights",
            )
    deployed = pinned(
        scenario.on(first),
        plans[0],
        tensor_parallel_size=tp,
        replicas=min(min(plan.replicas, len(plan.topology.gpus) // each) for plan in plans),
        max_num_seqs=min(pool.limits.max_num_seqs for pool in pools),
        max_num_batched_tokens=min(pool.limits.max_num_batched_tokens for pool in pools),
    )
    both = [prepare(deployed.on(topology), catalog) for topology in (first, second)]
    choices = tuple(
        f"{plan.topology.system.name} would serve with {', '.join(others)}"
        for plan, as_both in zip(plans, both, strict=True)
        if (others := [choice for choice in _choices(plan) if choice not in _choices(as_both)])
    )
    return Way(deployed, second, sides, choices, whole_order(order))


def _choices(plan: Plan) -> tuple[str, ...]:
    limits = plan.pools[0].limits
    return (
        plan.layout,
        f"up to {limits.max_num_seqs:,} requests a step",
        f"up to {limits.max_num_batched_tokens:,} tokens a step",
    )


def whole_order(names: Sequence[str]) -> tuple[str, ...]:
    """The named classes, then the others in their own order; raises InputError for what is no class."""
    for name in names:
        if name not in CLASSES:
            raise InputError(
                f"no class called {name!r}", field="--order", remedy=nearest(name, list(CLASSES))
            )
        if names.count(name) > 1:
            raise InputError(f"names {name} twice", field="--order", remedy="name it once")
    return (*names, *(name for name in CLASSES if name not in names))


def _side(topology: str, catalog: Catalog) -> Side:
    system = catalog.system(topology)
    names = dict.fromkeys(system.device_names)
    if len(names) > 1:
        raise InputError(
            f"{topology} has several devices: {', '.join(names)}",
            field="topology",
            remedy="compare systems of one device each",
        )
    device = catalog.device(next(iter(names)))
    return Side(system, device, catalog.family(device.family))
