"""Devices and links as data: what a vendor prints and what public measurements say.

All figures are SI, one direction, dense; ``Sourced`` fields carry their source.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from simulator.spec import Bytes, BytesPerS, FlopPerS, PerS, Seconds, Sourced, Spec, Usd, UsdPerHour, Watts

Dtype = Literal["bf16", "fp8", "nvfp4"]
KvDtype = Literal["bf16", "fp8"]
Algorithm = Literal["ring", "one-shot", "two-shot", "recursive-doubling", "in-switch", "hierarchical"]
LinkKind = Literal["nvlink", "xgmi", "c2c", "memory", "pcie", "socket", "network"]


class WithSources(Spec):
    """A file whose figures name their source by a key of ``sources``."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Also the name of a folder: letters, digits, dot, dash and underscore."""
    title: str
    sources: dict[str, str]
    notes: str | None = None

    @model_validator(mode="after")
    def _every_source_is_listed(self) -> WithSources:
        for path, figure in figures(self):
            if figure.source not in self.sources:
                raise ValueError(f"{path}: source {figure.source!r} is not listed under sources")
        return self


def figures(spec: object, path: str = "") -> list[tuple[str, Sourced[object]]]:
    """Every sourced figure below ``spec`` with its dotted path."""
    if isinstance(spec, Sourced):
        return [(path, spec)]
    if isinstance(spec, Spec):
        children = {name: getattr(spec, name) for name in type(spec).model_fields}
    elif isinstance(spec, dict):
        children = spec
    else:
        return []
    prefix = f"{path}." if path else ""
    return [found for name, child in children.items() for found in figures(child, f"{prefix}{name}")]


class UsdRange(Spec):
    """An approximate, dated price; never a quote."""

    low: Usd
    high: Usd
    date: str


class UsdPerHourRange(Spec):
    """An approximate, dated rental price per GPU; never a quote."""

    low: UsdPerHour
    high: UsdPerHour
    date: str


class Device(WithSources):
    """One GPU. ``family`` names the kernel constants of its architecture."""

    vendor: str
    family: str
    year: int
    memory_capacity: Sourced[Bytes]
    memory_nameplate: Sourced[Bytes]
    memory_bandwidth: Sourced[BytesPerS]
    peak: dict[Dtype, Sourced[FlopPerS]]
    sm_count: Sourced[int]
    exp_rate: Sourced[PerS]
    power: Sourced[Watts] | None = None
    rental: Sourced[UsdPerHourRange] | None = None


def slowed(device: Device, factor: float) -> Device:
    """The device with arithmetic and memory at ``factor`` of their rates, above zero and at most one.

    What takes fixed time (launches) does not slow down. A tensor-parallel group is as slow as its slowest
    rank: its ranks wait for each other in every all-reduce.
    """
    return device.model_copy(
        update={
            "memory_bandwidth": _scaled(device.memory_bandwidth, factor),
            "peak": {dtype: _scaled(peak, factor) for dtype, peak in device.peak.items()},
            "exp_rate": _scaled(device.exp_rate, factor),
        }
    )


def _scaled(figure: Sourced[float], factor: float) -> Sourced[float]:
    return figure.model_copy(update={"value": factor * figure.value})


class GemmConstants(Spec):
    """``t0 + tk*sqrt(K/1024) + sqrt(compute**2 + memory**2)``."""

    fixed: Sourced[Seconds]
    per_sqrt_k: Sourced[Seconds]
    compute_efficiency: Sourced[float]
    memory_efficiency: Sourced[float]


class DecodeAttentionConstants(Spec):
    """``t0 + KV bytes / (efficiency * bandwidth)``; ``max_bandwidth`` caps a compute-bound kernel."""

    fixed: Sourced[Seconds]
    memory_efficiency: Sourced[float]
    max_bandwidth: Sourced[BytesPerS] | None = None


class PrefillAttentionConstants(Spec):
    """``t0 + pairs*(4*head_dim/(efficiency*peak) + 1/exp_rate) + io/(efficiency*bandwidth)``."""

    fixed: Sourced[Seconds]
    compute_efficiency: Sourced[float]
    memory_efficiency: Sourced[float]


class ElementwiseConstants(Spec):
    """``t0 + bytes / (efficiency * bandwidth)``."""

    fixed: Sourced[Seconds]
    memory_efficiency: Sourced[float]


class KernelFamily(WithSources):
    """Kernel constants shared by the devices of one architecture."""

    gemm: dict[Dtype, GemmConstants]
    attention_decode: dict[KvDtype, DecodeAttentionConstants]
    attention_prefill: dict[KvDtype, PrefillAttentionConstants]
    elementwise: ElementwiseConstants


class CollectiveConstants(Spec):
    """All-reduce over one class of link: ``fixed + per_peer*(n-1) + load/(efficiency*bandwidth)``.

    ``load`` is the bytes on the most loaded link. ``max_message`` is where the library stops using it.
    """

    fixed: Sourced[Seconds]
    per_peer: Sourced[Seconds]
    efficiency: Sourced[float]
    max_message: Sourced[Bytes] | None = None


class Link(WithSources):
    """One class of link; ``bandwidth`` is one direction."""

    kind: LinkKind
    bandwidth: Sourced[BytesPerS]
    latency: Sourced[Seconds]
    efficiency: Sourced[float]
    switch_hop: Sourced[Seconds] | None = None
    """Of a network: latency of each further switch, where a port and the first one are in ``latency``."""
    collectives: dict[Algorithm, CollectiveConstants] = Field(default_factory=dict)
