"""Seconds of kernels on a device: the forms and constants of ``KernelFamily`` put to the work of a layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from simulator.cost.layers import ACTIVATION_BYTES, KV_BYTES, DenseLayer, Gemm, Operators
from simulator.cost.passage import Work
from simulator.errors import InputError
from simulator.hardware import Device, Dtype, KernelFamily, KvDtype
from simulator.record import Floats

TILE = 128
"""Query and key tokens of a block of prefill attention."""


@dataclass(frozen=True)
class GemmSeconds:
    """``count`` GEMMs of one shape: ``fixed + rss(compute, memory) + quantisation``, linear in the rows."""

    count: int
    fixed_s: float
    compute_s_per_row: float
    weights_s: float
    activations_s_per_row: float
    quantise_s_per_row: float

    def busy_s(self, rows: int) -> tuple[float, float]:
        """Seconds of arithmetic and of memory, each as if it were alone."""
        memory_s = self.weights_s + self.activations_s_per_row * rows
        return self.count * self.compute_s_per_row * rows, self.count * memory_s

    def rss_s(self, rows: int) -> float:
        """Seconds of arithmetic and memory, which overlap as the root of the sum of squares."""
        compute_s, memory_s = self.busy_s(rows)
        return sqrt(compute_s * compute_s + memory_s * memory_s)

    def split_s(self, rows: Floats) -> tuple[Floats, Floats]:
        """``rss_s`` as a share of arithmetic and a share of memory: ``c**2/rss`` and ``m**2/rss``."""
        compute_s = self.compute_s_per_row * rows
        memory_s = self.weights_s + self.activations_s_per_row * rows
        rss_s = np.sqrt(compute_s * compute_s + memory_s * memory_s)
        return self.count * compute_s * compute_s / rss_s, self.count * memory_s * memory_s / rss_s


@dataclass(frozen=True)
class LinearSeconds:
    """GEMMs and elementwise kernels in a row: a fixed time, the GEMMs, and activations moved for each row."""

    gemms: tuple[GemmSeconds, ...]
    fixed_s: float
    activations_s_per_row: float

    def seconds(self, rows: int) -> float:
        """All of it."""
        seconds = self.fixed_s + self.activations_s_per_row * rows
        for gemm in self.gemms:
            seconds += gemm.rss_s(rows)
        return seconds

    def work(self, rows: int, layers: int = 1) -> Work:
        """One of ``layers`` equal parts of it; quantisation and elementwise kernels are HBM's."""
        compute_s, hbm_s = 0.0, self.activations_s_per_row * rows
        for gemm in self.gemms:
            arithmetic_s, memory_s = gemm.busy_s(rows)
            compute_s += arithmetic_s
            hbm_s += memory_s
        seconds = self.seconds(rows)
        return Work(seconds / layers, min(compute_s, seconds) / layers, min(hbm_s, seconds) / layers)

    def add_causes(self, causes: dict[str, Floats], rows: Floats) -> None:
        """Add the seconds of each cause to ``causes``."""
        causes["launch"] += self.fixed_s
        causes["activations"] += self.activations_s_per_row * rows
        for gemm in self.gemms:
            compute_s, memory_s = gemm.split_s(rows)
            causes["compute"] += compute_s
            causes["weights"] += memory_s


@dataclass(frozen=True)
class Kernels:
    """Seconds of the kernels of one of ``tp`` ranks."""

    device: Device
    family: KernelFamily
    kv_dtype: KvDtype
    tp: int

    def gemm(self, gemm: Gemm, count: int) -> GemmSeconds:
        """``count`` GEMMs of one shape."""
        constants = self.family.gemm[gemm.dtype]
        flop_per_s = constants.compute_efficiency.value * self.device.peak[gemm.dtype].value
        bytes_per_s = constants.memory_efficiency.value * self.device.memory_bandwidth.value
        return GemmSeconds(
            count=count,
            fixed_s=constants.fixed.value + constants.per_sqrt_k.value * sqrt(gemm.k / 1024),
            compute_s_per_row=gemm.flop_per_row / flop_per_s,
            weights_s=gemm.weight_bytes / bytes_per_s,
            activations_s_per_row=gemm.activation_bytes_per_row / bytes_per_s,
            quantise_s_per_row=self.elementwise_s(gemm.quantise_bytes_per_row),
        )

    def linear(self, operators: Iterable[tuple[Operators, int]]) -> LinearSeconds:
        """Operators, each so many times over."""
        several = list(operators)
        gemms = tuple(self.gemm(gemm, count) for one, count in several for gemm in one.gemms)
        launches = sum(count * one.launches for one, count in several)
        nbytes = sum(count * one.bytes_per_row for one, count in several)
        return LinearSeconds(
            gemms=gemms,
            fixed_s=launches * self.family.elementwise.fixed.value
            + sum(gemm.count * gemm.fixed_s for gemm in gemms),
            activations_s_per_row=self.elementwise_s(nbytes)
            + sum(gemm.count * gemm.quantise_s_per_row for gemm in gemms),
        )

    def elementwise_s(self, nbytes: float) -> float:
        """Moving ``nbytes`` through an elementwise kernel, beyond its fixed time."""
        return nbytes / (self.family.elementwise.memory_efficiency.value * self.device.memory_bandwidth.value)

    def cached_token(self, layer: DenseLayer) -> Work:
        """Attending to one cached token in one layer: its bytes, or its arithmetic if that is more."""
        constants = self.family.attention_decode[self.kv_dtype]
        bytes_per_s = constants.memory_efficiency.value * self.device.memory_bandwidth.value
        nbytes = KV_BYTES[self.kv_dtype] * layer.kv_elements_per_token(self.tp)
        compute_s = 4 * layer.head_dim * layer.heads_per_rank(self.tp) / self._attention_flop_per_s
        hbm_s = nbytes / bytes_per_s
        capped = constants.max_bandwidth
        memory_s = hbm_s if capped is None else max(hbm_s, nbytes / capped.value)
        return Work(compute_s, compute_s, 0.0) if compute_s > memory_s else Work(memory_s, 0.0, hbm_s)

    def attention_block_s(self, layer: DenseLayer, query_blocks: int) -> float:
        """One query block against one key block, all heads of one layer.

        A chunk of few query blocks leaves multiprocessors idle: seconds grow as the root of their share.
        """
        heads = layer.heads_per_rank(self.tp)
        pair_s = 4 * layer.head_dim / self._attention_flop_per_s + 1 / self.device.exp_rate.value
        return (
            heads * TILE * TILE * pair_s / sqrt(min(1.0, heads * query_blocks / self.device.sm_count.value))
        )

    def full_blocks(self, layer: DenseLayer) -> int:
        """Query blocks that occupy every multiprocessor."""
        return -(-self.device.sm_count.value // layer.heads_per_rank(self.tp))

    def attention_io_s(self, layer: DenseLayer) -> float:
        """Moving queries, keys, values and outputs of one prompt token in one layer."""
        queries = 2 * ACTIVATION_BYTES * layer.heads_per_rank(self.tp) * layer.head_dim
        keys = (ACTIVATION_BYTES + KV_BYTES[self.kv_dtype]) * layer.kv_elements_per_token(self.tp)
        efficiency = self.family.attention_prefill[self.kv_dtype].memory_efficiency.value
        return (queries + keys) / (efficiency * self.device.memory_bandwidth.value)

    @property
    def _attention_flop_per_s(self) -> float:
        efficiency = self.family.attention_prefill[self.kv_dtype].compute_efficiency.value
        return efficiency * self.device.peak[self.kv_dtype].value


def check_dtypes(weights: Dtype, kv_dtype: KvDtype, device: Device, family: KernelFamily) -> None:
    """Raises InputError unless the device multiplies ``weights`` and attends to ``kv_dtype``."""
    known = [dtype for dtype in device.peak if dtype in family.gemm]
    if weights not in known:
        raise InputError(
            f"{device.name} has no {weights} matrix products",
            field="weights",
            remedy="use --weights " + " or ".join(known),
        )
    if kv_dtype not in family.attention_decode or kv_dtype not in family.attention_prefill:
        raise InputError(
            f"no attention constants of {family.name} for a KV cache in {kv_dtype}",
            field="kv_cache_dtype",
            remedy="use --kv-cache-dtype " + " or ".join(family.attention_decode),
        )
