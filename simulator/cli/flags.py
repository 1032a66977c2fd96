"""The table of flags: each is a value of the scenario, by vLLM's name where vLLM has one.

The table drives the options, what they override in the YAML, and the errors; types and defaults are
those of the scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import click

from simulator.catalog import Catalog, Document, read_document
from simulator.errors import InputError, nearest
from simulator.scenario import DecodeDeployment, Goodput, PoolDeployment, Scenario
from simulator.serving.routers import ROUTERS

Command = TypeVar("Command", bound=Callable[..., object])


@dataclass(frozen=True)
class Flag:
    """An option of the command line and its twin in the scenario."""

    name: str
    where: tuple[str, ...]
    help: str
    excludes: tuple[str, ...] | None = None  # what it replaces in the YAML besides its own twin
    metavar: str | None = None  # where the type of the twin says too little

    @property
    def key(self) -> str:
        """The name of its argument in Python."""
        return self.name.removeprefix("--").replace("-", "_")


def _deployment(key: str, text: str) -> Flag:
    return Flag(f"--{key.replace('_', '-')}", ("deployment", key), text)


def _workload(key: str, text: str) -> Flag:
    return Flag(f"--{key.replace('_', '-')}", ("workload", key), text)


def _pool(role: str, spec: type[PoolDeployment], replicas: str) -> Iterator[Flag]:
    """The flags of one of two pools."""
    short = {"tensor_parallel_size": "tp", "pipeline_parallel_size": "pp"}
    texts = {"replicas": replicas, "system": "System that the decode pool is on, if it is another one."}
    for key in spec.model_fields:
        name = short.get(key, key).replace("_", "-")
        text = texts.get(key, f"As --{key.replace('_', '-')}, in the {role} pool.")
        yield Flag(f"--{role}-{name}", ("deployment", role, key), text)


_ENGINES = "  [default: the engine's]"

FLAGS = (
    Flag("--topology", ("topology",), "System to serve on: a name of the catalogue or a YAML file."),
    Flag("--nodes", ("nodes",), "How many of the system, joined by their NICs."),
    Flag("--fabric", ("fabric",), "What joins the nodes.  [default: rail]"),
    Flag("--oversubscription", ("oversubscription",), "Bandwidth of a leaf's NICs over that of its uplinks."),
    Flag("--model", ("model",), "Model: a name of the catalogue, a YAML file or a Hugging Face config.json."),
    Flag("--weights", ("deployment", "weights"), "Number format of the weights."),
    _deployment("kv_cache_dtype", "Number format of the KV cache; auto is bf16."),
    _deployment("engine", "Engine profile: overheads, memory terms and default limits."),
    _deployment(
        "tensor_parallel_size",
        "GPUs that share each layer; auto is the fewest that hold the model and one request of the longest.",
    ),
    _deployment("pipeline_parallel_size", "Stages of a replica, each with a share of the layers."),
    _deployment("replicas", "Replicas; auto fills the system."),
    *_pool("prefill", PoolDeployment, "Replicas that only process prompts; others decode."),
    *_pool("decode", DecodeDeployment, "Replicas that only decode, from KV cache that is moved to them."),
    _deployment(
        "kv_transfer",
        "When KV cache is moved to the replica that decodes: after the prompt, or each layer as soon as it is"
        " computed.",
    ),
    Flag(
        "--router", ("deployment", "router"), "How requests spread over replicas.", metavar="|".join(ROUTERS)
    ),
    _deployment("max_num_seqs", "Requests that run at a time in a replica." + _ENGINES),
    _deployment("max_num_batched_tokens", "Tokens of one engine step." + _ENGINES),
    _deployment("max_model_len", "Longest prompt and output together.  [default: the model's]"),
    _deployment("block_size", "Tokens of a KV cache block." + _ENGINES),
    _deployment("gpu_memory_utilization", "Share of a GPU's memory that the engine may use." + _ENGINES),
    _deployment("num_gpu_blocks_override", "KV cache blocks of a replica.  [default: what the memory holds]"),
    _deployment("all_reduce", "Algorithm of the all-reduce; auto is the fastest at each size."),
    Flag(
        "--placement",
        ("deployment", "placement"),
        "GPUs of the replicas: side by side, dealt out over nodes, sockets and bridges, or listed by name or"
        " place, as '0,1;2,3'.",
        metavar="packed|spread|GPU,..;GPU,..",
    ),
    Flag("--workload", ("workload", "preset"), "Traffic preset of the catalogue.", ("workload", "trace")),
    Flag("--trace", ("workload", "trace"), "CSV of requests to replay.", ("workload", "preset"), "FILE"),
    _workload("trace_format", "Form of the trace; auto looks at its header."),
    _workload("num_prompts", "Requests to serve; all of a trace where it is not given."),
    _workload(
        "request_rate", "Requests per second, or inf: all at once.  [default: the preset's or trace's]"
    ),
    _workload("arrival", "Process of the arrivals, instead of the preset's."),
    _workload("burstiness", "Shape of gamma-distributed gaps; below 1 is burstier than Poisson."),
    _workload("max_concurrency", "Requests that the client lets run at a time."),
    _workload("time_scale", "Factor on the times of arrival."),
    _workload("random_input_len", "Mean prompt tokens of the preset random."),
    _workload("random_output_len", "Mean output tokens of the preset random."),
    _workload("random_range_ratio", "Half-width of the lengths of the preset random, as a share."),
    Flag("--seed", ("seed",), "Seed of every random stream."),
    Flag(
        "--goodput",
        ("goodput",),
        "Limits of a good request in ms: ttft, tpot, e2el; for example ttft:2000 tpot:50.",
        metavar="METRIC:MS ...",
    ),
    Flag(
        "--detail",
        ("detail",),
        "Level of detail: leaps over engine steps (macro), every step, every layer; auto: leaps, and layers"
        " where and while others share a device or a link.",
    ),
    Flag("--scale-load", ("scale_load",), "Same total load on each system, or same load per GPU."),
)

_DEFAULTS = Scenario.model_validate({"topology": ""}).plain()


def scenario_flags(*without: str) -> Callable[[Command], Command]:
    """The options of every flag but those named."""

    def decorate(command: Command) -> Command:
        for flag in reversed([flag for flag in FLAGS if flag.name not in without]):
            command = _option(flag)(command)
        return command

    return decorate


def _option(flag: Flag) -> Callable[[Command], Command]:
    several = flag.where == ("goodput",)
    metavar = flag.metavar or _metavar(flag)
    return click.option(
        flag.name, flag.key, multiple=several, metavar=metavar, help=flag.help + _default(flag)
    )


def _default(flag: Flag) -> str:
    value: Any = _DEFAULTS
    for key in flag.where:
        value = value.get(key) if isinstance(value, dict) else None
    return "" if value in (None, "") else f"  [default: {value}]"


def _metavar(flag: Flag) -> str:
    annotation: Any = Scenario
    for key in flag.where:
        (table,) = (kind for kind in (annotation, *get_args(annotation)) if hasattr(kind, "model_fields"))
        annotation = table.model_fields[key].annotation
    return "|".join(dict.fromkeys(_words(annotation)))


def _words(annotation: Any) -> Iterator[str]:
    """How the values of a type are written."""
    origin = get_origin(annotation)
    if origin is Literal:
        yield from map(str, get_args(annotation))
    elif origin is Annotated:
        yield from _words(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _words(member)
    elif annotation in (int, float, str):
        yield {int: "N", float: "X", str: "NAME"}[annotation]


class SpreadGoodput(click.Command):
    """A command whose ``--goodput`` takes several values after one flag, as vLLM's does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the flag before each of its values."""
        spread: list[str] = []
        limits = False
        for argument in args:
            limit = limits and ":" in argument and not argument.startswith("-")
            if limit and spread[-1] != "--goodput":
                spread.append("--goodput")
            spread.append(argument)
            limits = limit or argument == "--goodput" or argument.startswith("--goodput=")
        return super().parse_args(ctx, spread)


def _limits(values: tuple[str, ...]) -> dict[str, str]:
    limits = {}
    for value in values:
        metric, _, milliseconds = value.partition(":")
        if metric not in Goodput.model_fields:
            raise InputError(
                f"no metric called {metric!r}",
                field="--goodput",
                remedy=nearest(metric, list(Goodput.model_fields)),
            )
        try:
            float(milliseconds)
        except ValueError:
            raise InputError(
                f"{value!r} holds no number of milliseconds",
                field="--goodput",
                remedy="write for example 'ttft:2000 tpot:50'",
            ) from None
        limits[metric] = f"{milliseconds} ms"
    return limits


def scenario_document(file: str | None, values: dict[str, Any], topologies: tuple[str, ...] = ()) -> Document:
    """The scenario file, if any, with what the flags override; ``topologies`` are arguments."""
    document = Document() if file is None else read_document(Path(file))
    if topologies:
        document.set(("topology",), list(topologies), "topology")
    given = [(flag, values[flag.key]) for flag in FLAGS if values.get(flag.key) not in (None, ())]
    for flag, _ in given:
        if flag.excludes is not None:
            document.unset(flag.excludes)
    for flag, value in given:
        document.set(flag.where, _limits(value) if isinstance(value, tuple) else value, flag.name)
    return document


def systems_document(systems: tuple[str, ...], values: dict[str, Any], instead: str) -> Document:
    """The document of a command whose arguments are systems, or one scenario file that lists them."""
    if len(systems) != 1:
        return scenario_document(None, values, systems)
    if systems[0] in Catalog().names("topologies"):
        raise InputError(
            f"{systems[0]} is one system", remedy=f"{instead}, or use 'llmsim run --topology {systems[0]}'"
        )
    return scenario_document(systems[0], values)


def read_scenario(document: Document) -> Scenario:
    """The scenario of a document."""
    if "topology" not in document.data:
        raise document.error("none is named", ("topology",), "name a system, for example hgx-h200-8")
    return document.read(Scenario)


def one_system(document: Document, scenario: Scenario) -> Scenario:
    """The scenario, which names one system."""
    if len(scenario.topologies) > 1:
        remedy = (
            "use llmsim compare"
            + (f" {document.file}" if document.file else "")
            + ", or name one with --topology"
        )
        raise document.error(f"names {len(scenario.topologies)} systems", ("topology",), remedy)
    return scenario


@contextmanager
def located(document: Document) -> Iterator[None]:
    """Give an InputError that names a field of the scenario the place where that was written."""
    try:
        yield
    except InputError as error:
        twins = [flag for flag in FLAGS if error.field in (".".join(flag.where), flag.where[-1])]
        flag = min(twins, key=lambda flag: len(flag.where), default=None)
        keys = (error.field or "").split(".")
        where = tuple(int(key) if key.isdecimal() else key for key in keys) if flag is None else flag.where
        if error.file is not None or (flag is None and where not in document.marks):
            raise
        if flag is not None and document.file is None and where not in document.marks:
            raise InputError(error.reason, field=flag.name, remedy=error.remedy) from None
        raise document.error(error.reason, where, error.remedy) from None
