"""A scenario: topology, model, workload and deployment, plus seed and what to measure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_serializer, field_validator, model_validator

from simulator.errors import nearest
from simulator.events import Event
from simulator.hardware import Algorithm, Dtype, KvDtype
from simulator.serving.disaggregation import KvTransfer
from simulator.serving.routers import ROUTERS
from simulator.spec import Count, Seconds, Spec
from simulator.topology.join import Join, JoinKind
from simulator.topology.placement import Listed, Policy
from simulator.workload import Workload

DEFAULT_PRESET = "azure-conv"
DEFAULT_NUM_PROMPTS = 2000

Fraction = Annotated[float, Field(gt=0, le=1)]


class PoolDeployment(Spec):
    """What sets the replicas of one pool apart; a value of None is that of the whole deployment."""

    replicas: Count = 1
    tensor_parallel_size: Literal["auto"] | Count | None = None
    pipeline_parallel_size: Count | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    num_gpu_blocks_override: Count | None = None


class DecodeDeployment(PoolDeployment):
    """The pool that decodes; ``system`` is what it is on, if it is another one than the prefill pool's."""

    system: str | None = None


class Deployment(Spec):
    """How the model is served; a value of None is the default of the engine profile."""

    engine: str = "vllm"
    weights: Dtype = "fp8"
    kv_cache_dtype: Literal["auto"] | KvDtype = "auto"
    tensor_parallel_size: Literal["auto"] | Count = "auto"
    pipeline_parallel_size: Count = 1
    replicas: Literal["auto"] | Count = "auto"
    router: str = "round-robin"
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    max_model_len: Count | None = None
    block_size: Count | None = None
    gpu_memory_utilization: Fraction | None = None
    num_gpu_blocks_override: Count | None = None
    all_reduce: Literal["auto"] | Algorithm = "auto"
    placement: Policy | Listed = "packed"
    prefill: PoolDeployment | None = None
    """Replicas that process prompts, where others decode."""
    decode: DecodeDeployment | None = None
    """Replicas that decode what ``prefill`` processed; None: every replica does both."""
    kv_transfer: KvTransfer = "at-end"
    """When KV cache is moved from one to the other."""

    @property
    def decode_system(self) -> str | None:
        """What the decode pool is on; None is what the others are on."""
        return None if self.decode is None else self.decode.system

    @property
    def pools(self) -> dict[str, Deployment]:
        """The deployment of each pool by its role, those of prefill first; one of both has none."""
        if self.prefill is None or self.decode is None:
            return {"": self}
        return {
            role: self.model_copy(update=pool.model_dump(exclude_none=True, exclude={"system"}))
            for role, pool in (("prefill", self.prefill), ("decode", self.decode))
        }

    @model_validator(mode="after")
    def _pools_are_two(self) -> Deployment:
        if (self.prefill is None) != (self.decode is None):
            given, missing = ("prefill", "decode") if self.decode is None else ("decode", "prefill")
            raise ValueError(f"a {given} pool needs a {missing} pool; use --{missing}-replicas, too")
        if self.prefill is not None and self.replicas != "auto":
            raise ValueError("replicas are those of the pools where there are two; leave --replicas out")
        if self.prefill is None and self.kv_transfer != "at-end":
            raise ValueError("KV cache moves between two pools; use --prefill-replicas and --decode-replicas")
        return self

    @field_validator("placement", mode="before")
    @classmethod
    def _listed_gpus(cls, value: Any) -> Any:
        """On the command line replicas are parted by semicolons and their GPUs by commas."""
        if not isinstance(value, str) or not ({*value} & {*",;"} or value.isdecimal()):
            return value
        replicas = [[gpu.strip() for gpu in replica.split(",")] for replica in value.strip(" ;").split(";")]
        return [[int(gpu) if gpu.isdecimal() else gpu for gpu in replica] for replica in replicas]

    @field_validator("router")
    @classmethod
    def _router_is_known(cls, name: str) -> str:
        if name not in ROUTERS:
            raise ValueError(f"no router called {name!r}; {nearest(name, list(ROUTERS))}")
        return name


class Goodput(Spec):
    """Limits that a request must keep to count as good; None is no limit."""

    ttft: Seconds | None = None
    tpot: Seconds | None = None
    e2el: Seconds | None = None

    @field_validator("ttft", "tpot", "e2el")
    @classmethod
    def _above_zero(cls, limit_s: float | None) -> float | None:
        if limit_s is not None and limit_s <= 0:
            raise ValueError("a limit is above zero")
        return limit_s

    @field_serializer("ttft", "tpot", "e2el")
    def _with_unit(self, limit_s: float | None) -> str | None:
        return None if limit_s is None else f"{limit_s!r} s"


def _truth_values(data: Any, path: str) -> Iterator[str]:
    """Dotted paths of true and false in plain data."""
    if isinstance(data, bool):
        yield path
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _truth_values(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _truth_values(value, f"{path}.{index}")


class Scenario(Spec):
    """Everything that a run depends on; ``topology`` may name several systems to compare."""

    topology: str | Annotated[tuple[str, ...], Field(min_length=1)]
    nodes: Count = 1
    """How many of the system, joined by ``fabric``."""
    fabric: JoinKind | None = None
    """None is rail where there are several nodes."""
    oversubscription: Annotated[float, Field(ge=1)] = 1.0
    """Bandwidth of a leaf's NICs over that of its uplinks."""
    model: str = "llama-3.1-70b"
    deployment: Deployment = Deployment()
    workload: Workload
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    goodput: Goodput | None = None
    detail: Literal["auto", "macro", "step", "layer"] = "auto"
    scale_load: Literal["total", "gpus"] = "total"
    events: tuple[Event, ...] = ()
    """What slows down or fails, and when, in any order."""

    @model_validator(mode="before")
    @classmethod
    def _a_truth_value_is_no_number(cls, data: Any) -> Any:
        """Python counts True as 1; a scenario that says ``true`` does not mean one, and has no use for it."""
        found = next(_truth_values(data, ""), None)
        if found is not None:
            raise ValueError(f"{found} is a truth value, which nothing in a scenario is")
        return data

    @model_validator(mode="before")
    @classmethod
    def _built_in_traffic(cls, data: Any) -> Any:
        """Without a trace the workload is a preset, of a length that runs in seconds."""
        workload = data.get("workload", {}) if isinstance(data, dict) else None
        if not isinstance(workload, dict) or workload.get("trace") is not None:
            return data
        built_in = {"preset": DEFAULT_PRESET, "num_prompts": DEFAULT_NUM_PROMPTS}
        given = {key: value for key, value in workload.items() if value is not None}
        return {**data, "workload": built_in | given}

    @property
    def topologies(self) -> tuple[str, ...]:
        """The systems, one or several."""
        return (self.topology,) if isinstance(self.topology, str) else self.topology

    def join(self, others: int = 0) -> Join | None:
        """How the nodes, and ``others`` beside them, are joined; None for one."""
        nodes = self.nodes + others
        if nodes == 1:
            return None
        return Join(nodes=nodes, fabric=self.fabric or "rail", oversubscription=self.oversubscription)

    def on(self, topology: str) -> Scenario:
        """The same scenario on one system."""
        return self.model_copy(update={"topology": topology})

    def plain(self) -> dict[str, Any]:
        """The scenario as YAML holds it: every choice written out, what is not set left out."""
        return self.model_dump(mode="json", exclude_none=True)
