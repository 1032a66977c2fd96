"""Parts of the hardware that may be a little faster, and a catalogue in which some of them are.

A part changes the figures of the catalogue and nothing else, so that a plan is made of them as of any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from simulator.catalog import Catalog
from simulator.cost.engine import EngineProfile
from simulator.hardware import Device, KernelFamily, Link
from simulator.spec import Sourced, Spec
from simulator.topology.graph import Topology

S = TypeVar("S", bound=Spec)


@dataclass(frozen=True)
class Part:
    """A part that may be faster by a factor: rates and sizes times it, times divided by it."""

    name: str
    """As in JSON."""
    title: str
    """As a person reads it."""

    def device(self, device: Device, factor: float) -> Device:
        """The device with the faster part."""
        return device

    def family(self, family: KernelFamily, factor: float) -> KernelFamily:
        """The kernel constants with the faster part."""
        return family

    def engine(self, engine: EngineProfile, factor: float) -> EngineProfile:
        """The engine with the faster part."""
        return engine

    def link(self, link: Link, factor: float) -> Link:
        """The class of link with the faster part."""
        return link

    def blocks(self, blocks: int, factor: float) -> int:
        """KV cache blocks of a replica with the larger part."""
        return blocks


@dataclass(frozen=True)
class HbmBandwidth(Part):
    """The memory of the GPU."""

    name: str = "hbm-bandwidth"
    title: str = "HBM bandwidth"

    def device(self, device: Device, factor: float) -> Device:
        """More bytes per second."""
        return scaled(device, factor, "memory_bandwidth")


@dataclass(frozen=True)
class Compute(Part):
    """Arithmetic: peak rates, exponentials, and kernels of decode attention that arithmetic binds."""

    name: str = "compute"
    title: str = "compute"

    def device(self, device: Device, factor: float) -> Device:
        """More operations per second."""
        return scaled(device, factor, "peak", "exp_rate")

    def family(self, family: KernelFamily, factor: float) -> KernelFamily:
        """``max_bandwidth`` is how fast a kernel that arithmetic binds gets through its bytes."""
        return family.model_copy(
            update={
                "attention_decode": {
                    dtype: scaled(constants, factor, "max_bandwidth")
                    for dtype, constants in family.attention_decode.items()
                }
            }
        )


@dataclass(frozen=True)
class LinkBandwidth(Part):
    """The bandwidth of one class of link, in both directions."""

    link_name: str

    def link(self, link: Link, factor: float) -> Link:
        """More bytes per second."""
        return scaled(link, factor, "bandwidth") if link.name == self.link_name else link


@dataclass(frozen=True)
class LinkLatency(Part):
    """The latency of one class of link, with the fixed times of a library on it."""

    link_name: str

    def link(self, link: Link, factor: float) -> Link:
        """Less latency, and less fixed time of its collectives."""
        if link.name != self.link_name:
            return link
        collectives = {
            algorithm: scaled(constants, 1.0 / factor, "fixed", "per_peer")
            for algorithm, constants in link.collectives.items()
        }
        faster = scaled(link, 1.0 / factor, "latency", "switch_hop")
        return faster.model_copy(update={"collectives": collectives})


@dataclass(frozen=True)
class Host(Part):
    """The host's share of a step: scheduler, input preparation, sampling, output."""

    name: str = "host"
    title: str = "host overhead"

    def engine(self, engine: EngineProfile, factor: float) -> EngineProfile:
        """Less time of a step and of each of its requests."""
        return scaled(engine, 1.0 / factor, "host_step", "host_per_sequence")


@dataclass(frozen=True)
class Launch(Part):
    """The fixed times of the kernels, whatever their size."""

    name: str = "launch"
    title: str = "kernel launch"

    def family(self, family: KernelFamily, factor: float) -> KernelFamily:
        """Less fixed time of every kernel."""

        def faster(table: Mapping[Any, S], *fields: str) -> dict[Any, S]:
            return {dtype: scaled(constants, 1.0 / factor, *fields) for dtype, constants in table.items()}

        return family.model_copy(
            update={
                "gemm": faster(family.gemm, "fixed", "per_sqrt_k"),
                "attention_decode": faster(family.attention_decode, "fixed"),
                "attention_prefill": faster(family.attention_prefill, "fixed"),
                "elementwise": scaled(family.elementwise, 1.0 / factor, "fixed"),
            }
        )

    def engine(self, engine: EngineProfile, factor: float) -> EngineProfile:
        """What a CUDA graph saves of a fixed time shrinks with it."""
        return scaled(engine, 1.0 / factor, "graph_correction")


@dataclass(frozen=True)
class KvCapacity(Part):
    """The blocks of the KV cache."""

    name: str = "kv-capacity"
    title: str = "KV capacity"

    def blocks(self, blocks: int, factor: float) -> int:
        """More blocks, to the nearest whole one."""
        return round(blocks * factor)


def parts(topology: Topology) -> tuple[Part, ...]:
    """Every part of a system that may be faster; its classes of link in the order of the graph.

    Uplinks of leaf switches are made of ports, and faster with them.
    """
    links = dict.fromkeys(topology.link(edge).name for edge in topology.graph.edges)
    known = {name for system in topology.systems for name in system.link_names}
    named = [name for name in links if name in known]
    per_link = [part for name in named for part in _link_parts(name)]
    return (HbmBandwidth(), Compute(), *per_link, Host(), Launch(), KvCapacity())


def _link_parts(name: str) -> tuple[Part, Part]:
    return (
        LinkBandwidth(f"{name}-bandwidth", f"{name} bandwidth", name),
        LinkLatency(f"{name}-latency", f"{name} latency", name),
    )


@dataclass(frozen=True)
class FasterCatalog(Catalog):
    """A catalogue whose hardware is faster in some parts by one factor."""

    parts: tuple[Part, ...] = ()
    factor: float = 1.0

    def device(self, name: str) -> Device:
        """A GPU, faster."""
        device = super().device(name)
        for part in self.parts:
            device = part.device(device, self.factor)
        return device

    def family(self, name: str) -> KernelFamily:
        """Kernel constants, faster."""
        family = super().family(name)
        for part in self.parts:
            family = part.family(family, self.factor)
        return family

    def engine(self, name: str) -> EngineProfile:
        """An engine profile, faster."""
        engine = super().engine(name)
        for part in self.parts:
            engine = part.engine(engine, self.factor)
        return engine

    def link(self, name: str) -> Link:
        """A class of link, faster."""
        link = super().link(name)
        for part in self.parts:
            link = part.link(link, self.factor)
        return link


def scaled(spec: S, factor: float, *fields: str) -> S:
    """A copy with some sourced figures multiplied; a table of figures is multiplied as a whole."""
    return spec.model_copy(update={name: _times(getattr(spec, name), factor) for name in fields})


def _times(figure: Any, factor: float) -> Any:
    if isinstance(figure, Sourced):
        return figure.model_copy(update={"value": figure.value * factor})
    if isinstance(figure, dict):
        return {key: _times(value, factor) for key, value in figure.items()}
    return figure
