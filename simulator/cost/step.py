"""Seconds of one engine step on one tensor-parallel rank.

``base_s + kv_s_per_token * context + sum of attention_s over the prompt chunks``: affine in the context,
so that many decode steps can be summed in closed form. Kernel forms and their errors: docs/model.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from simulator.cost.engine import EngineProfile
from simulator.cost.layers import ACTIVATION_BYTES, KV_BYTES, DenseLayer, Gemm
from simulator.cost.model import Model
from simulator.cost.roofline import Roofline
from simulator.errors import InputError
from simulator.hardware import Device, Dtype, KernelFamily, KvDtype
from simulator.record import STEP_CAUSES, STEP_COLUMNS, Floats, column

AllReduce = Callable[[float], tuple[float, float]]
"""Seconds of latency and of bandwidth of an all-reduce of so many bytes."""

TILE = 128
"""Query and key tokens of a block of prefill attention."""

SAMPLING_BYTES_PER_LOGIT = 10
"""Logits are read in bf16, written in fp32 and read again to pick a token."""


@dataclass(frozen=True)
class GemmSeconds:
    """``count`` GEMMs of one shape: ``fixed + rss(compute, memory) + quantisation``, linear in the rows."""

    count: int
    fixed_s: float
    compute_s_per_row: float
    weights_s: float
    activations_s_per_row: float
    quantise_s_per_row: float

    def rss_s(self, rows: int) -> float:
        """Seconds of arithmetic and memory, which overlap as the root of the sum of squares."""
        compute_s = self.compute_s_per_row * rows
        memory_s = self.weights_s + self.activations_s_per_row * rows
        return self.count * sqrt(compute_s * compute_s + memory_s * memory_s)

    def split_s(self, rows: Floats) -> tuple[Floats, Floats]:
        """``rss_s`` as a share of arithmetic and a share of memory: ``c**2/rss`` and ``m**2/rss``."""
        compute_s = self.compute_s_per_row * rows
        memory_s = self.weights_s + self.activations_s_per_row * rows
        rss_s = np.sqrt(compute_s * compute_s + memory_s * memory_s)
        return self.count * compute_s * compute_s / rss_s, self.count * memory_s * memory_s / rss_s


def gemm_seconds(gemm: Gemm, count: int, device: Device, family: KernelFamily) -> GemmSeconds:
    """Seconds of a GEMM on a device."""
    constants = family.gemm[gemm.dtype]
    flop_per_s = constants.compute_efficiency.value * device.peak[gemm.dtype].value
    bytes_per_s = constants.memory_efficiency.value * device.memory_bandwidth.value
    quantise_bytes_per_s = family.elementwise.memory_efficiency.value * device.memory_bandwidth.value
    return GemmSeconds(
        count=count,
        fixed_s=constants.fixed.value + constants.per_sqrt_k.value * sqrt(gemm.k / 1024),
        compute_s_per_row=gemm.flop_per_row / flop_per_s,
        weights_s=gemm.weight_bytes / bytes_per_s,
        activations_s_per_row=gemm.activation_bytes_per_row / bytes_per_s,
        quantise_s_per_row=gemm.quantise_bytes_per_row / quantise_bytes_per_s,
    )


class StepCost:
    """Seconds of the steps of one replica, from shapes, kernel constants and engine overheads.

    ``kv_s_per_token``: seconds to read one cached token, over all layers of one rank.
    Every method is pure; results are kept by the number of tokens.
    """

    def __init__(
        self,
        model: Model,
        weights: Dtype,
        kv_dtype: KvDtype,
        tp: int,
        device: Device,
        family: KernelFamily,
        engine: EngineProfile,
        all_reduce: AllReduce,
    ) -> None:
        model.check_tensor_parallel(tp)
        _check_dtypes(weights, kv_dtype, device, family)
        bandwidth = family.elementwise.memory_efficiency.value * device.memory_bandwidth.value
        groups = model.layer_groups
        self.roofline = Roofline.of(model, weights, kv_dtype, tp, device)
        self.kv_s_per_token = sum(
            count * _kv_s(layer, kv_dtype, tp, device, family) for layer, count in groups
        )
        self._gemms = tuple(
            gemm_seconds(gemm, count, device, family)
            for layer, count in groups
            for gemm in layer.gemms(weights, tp)
        )
        self._lm_head = gemm_seconds(model.lm_head(tp), 1, device, family)
        self._sampling_s_per_row = SAMPLING_BYTES_PER_LOGIT * model.vocab / bandwidth
        kernel_s = family.elementwise.fixed.value
        norm_bytes = 4 * ACTIVATION_BYTES * model.hidden
        self._body_fixed_s = (
            sum(gemm.count * gemm.fixed_s for gemm in self._gemms)
            + (1 + sum(count * layer.elementwise_kernels(weights) for layer, count in groups)) * kernel_s
        )
        self._head_fixed_s = self._lm_head.fixed_s + kernel_s
        elementwise_bytes = norm_bytes + sum(
            count * layer.elementwise_bytes_per_token(kv_dtype, tp) for layer, count in groups
        )
        self._activations_s_per_token = elementwise_bytes / bandwidth + sum(
            gemm.count * gemm.quantise_s_per_row for gemm in self._gemms
        )
        correction_s = engine.graph_correction.value
        layers = sum(count for _, count in groups)
        decode_fixed_s = family.attention_decode[kv_dtype].fixed.value
        prefill_fixed_s = family.attention_prefill[kv_dtype].fixed.value
        self._decode_attention_s = layers * max(0.0, decode_fixed_s - correction_s)
        self._prefill_attention_s = layers * max(0.0, prefill_fixed_s - correction_s)
        self._host_s = engine.host_step.value
        self._host_s_per_sequence = engine.host_per_sequence.value
        self._all_reduce = all_reduce
        self._all_reduces = 0 if tp == 1 else 1 + sum(count * layer.all_reduces for layer, count in groups)
        self._all_reduce_bytes_per_token = ACTIVATION_BYTES * model.hidden
        self._block_s = _block_seconds(groups, kv_dtype, tp, device, family)
        self._io_s_per_token = sum(
            count * _io_s(layer, kv_dtype, tp, device, family) for layer, count in groups
        )
        self._body: dict[int, float] = {}
        self._head: dict[int, float] = {0: 0.0}
        self._decode: list[float | None] = []

    def base_s(self, decodes: int, chunk_tokens: int, chunks: int, completions: int) -> float:
        """Everything of a step but the reading of KV cache and the attention over prompt chunks.

        ``chunks`` prompts with ``chunk_tokens`` tokens in all, of which ``completions`` are completed.
        """
        tokens = decodes + chunk_tokens
        sampled = decodes + completions
        body_s = self._body.get(tokens)
        if body_s is None:
            body_s = self._body[tokens] = self._body_s(tokens)
        head_s = self._head.get(sampled)
        if head_s is None:
            head_s = self._head[sampled] = self._head_s(sampled)
        seconds = body_s + head_s + self._host_s + self._host_s_per_sequence * (decodes + chunks)
        if decodes:
            seconds += self._decode_attention_s
        if chunks:
            seconds += self._prefill_attention_s
        return seconds

    def decode_base_s(self, decodes: int) -> float:
        """``base_s`` of a step that only decodes."""
        known = self._decode
        if decodes >= len(known):
            known.extend([None] * (decodes + 1 - len(known)))
        seconds = known[decodes]
        if seconds is None:
            seconds = known[decodes] = self.base_s(decodes, 0, 0, 0)
        return seconds

    def attention_s(self, new_tokens: int, prefix_tokens: int) -> float:
        """Attention of one prompt chunk over itself and its prefix, beyond the fixed time, all layers."""
        blocks = (new_tokens + 127) >> 7
        prefix_blocks = (prefix_tokens + 127) >> 7
        block_s = self._block_s
        one_s = block_s[blocks] if blocks < len(block_s) else block_s[-1]
        pairs = blocks * prefix_blocks + (blocks * (blocks + 1) >> 1)
        return pairs * one_s + self._io_s_per_token * new_tokens

    def breakdown(self, steps: Floats) -> Floats:
        """Seconds by cause (columns STEP_CAUSES) of each row of a step table (columns STEP_COLUMNS).

        A row sums to ``steps * base_s + kv_s_per_token * kv_tokens + attention_s`` to rounding.
        """
        count, decodes, chunks = (
            column(steps, STEP_COLUMNS, name) for name in ("steps", "decodes", "chunks")
        )
        tokens = decodes + column(steps, STEP_COLUMNS, "chunk_tokens")
        sampled = decodes + column(steps, STEP_COLUMNS, "completions")
        seconds = _by_value(tokens, self._body_causes) + _by_value(sampled, self._head_causes)
        host = seconds[:, STEP_CAUSES.index("host")]
        host += self._host_s + self._host_s_per_sequence * (decodes + chunks)
        launch = seconds[:, STEP_CAUSES.index("launch")]
        launch += self._decode_attention_s * (decodes > 0) + self._prefill_attention_s * (chunks > 0)
        seconds *= count[:, None]
        seconds[:, STEP_CAUSES.index("kv")] = self.kv_s_per_token * column(steps, STEP_COLUMNS, "kv_tokens")
        seconds[:, STEP_CAUSES.index("attention")] = column(steps, STEP_COLUMNS, "attention_s")
        return seconds

    def _body_s(self, tokens: int) -> float:
        seconds = self._body_fixed_s + self._activations_s_per_token * tokens
        for gemm in self._gemms:
            seconds += gemm.rss_s(tokens)
        if self._all_reduces:
            latency_s, bandwidth_s = self._all_reduce(self._all_reduce_bytes_per_token * tokens)
            seconds += self._all_reduces * (latency_s + bandwidth_s)
        return seconds

    def _head_s(self, sampled: int) -> float:
        return self._head_fixed_s + self._lm_head.rss_s(sampled) + self._sampling_s_per_row * sampled

    def _body_causes(self, tokens: Floats) -> Floats:
        causes: dict[str, Floats] = {name: np.zeros(len(tokens)) for name in STEP_CAUSES}
        causes["launch"] += self._body_fixed_s
        causes["activations"] += self._activations_s_per_token * tokens
        for gemm in self._gemms:
            compute_s, memory_s = gemm.split_s(tokens)
            causes["compute"] += compute_s
            causes["weights"] += memory_s
        if self._all_reduces:
            pairs = [self._all_reduce(self._all_reduce_bytes_per_token * float(n)) for n in tokens]
            both: Floats = self._all_reduces * np.array(pairs, dtype=np.float64).reshape(-1, 2)
            causes["allreduce_latency"] += both[:, 0]
            causes["allreduce_bandwidth"] += both[:, 1]
        return np.column_stack([causes[name] for name in STEP_CAUSES])

    def _head_causes(self, sampled: Floats) -> Floats:
        causes: dict[str, Floats] = {name: np.zeros(len(sampled)) for name in STEP_CAUSES}
        some = sampled > 0
        compute_s, memory_s = self._lm_head.split_s(sampled)
        causes["launch"] += self._head_fixed_s * some
        causes["activations"] += self._sampling_s_per_row * sampled
        causes["compute"] += compute_s * some
        causes["weights"] += memory_s * some
        return np.column_stack([causes[name] for name in STEP_CAUSES])


def _by_value(values: Floats, table: Callable[[Floats], Floats]) -> Floats:
    """``table(values)``, computed once for each distinct whole number."""
    whole: NDArray[np.int64] = values.astype(np.int64)
    if not len(whole):
        return table(values)
    present = np.bincount(whole)
    distinct = np.flatnonzero(present)
    place = np.zeros(len(present), dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    return table(distinct.astype(np.float64))[place[whole]]


def _check_dtypes(weights: Dtype, kv_dtype: KvDtype, device: Device, family: KernelFamily) -> None:
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


def _kv_s(layer: DenseLayer, kv_dtype: KvDtype, tp: int, device: Device, family: KernelFamily) -> float:
    """Seconds of one layer to attend to one cached token: its bytes, or its arithmetic if that is more."""
    constants = family.attention_decode[kv_dtype]
    bytes_per_s = constants.memory_efficiency.value * device.memory_bandwidth.value
    if constants.max_bandwidth is not None:
        bytes_per_s = min(bytes_per_s, constants.max_bandwidth.value)
    flop_per_s = family.attention_prefill[kv_dtype].compute_efficiency.value * device.peak[kv_dtype].value
    nbytes = KV_BYTES[kv_dtype] * layer.kv_elements_per_token(tp)
    flop = 4 * layer.head_dim * layer.heads_per_rank(tp)
    return max(nbytes / bytes_per_s, flop / flop_per_s)


def _block_seconds(
    groups: tuple[tuple[DenseLayer, int], ...],
    kv_dtype: KvDtype,
    tp: int,
    device: Device,
    family: KernelFamily,
) -> list[float]:
    """Seconds of one query block against one key block, all heads and layers, by query blocks in the chunk.

    A chunk of few blocks leaves multiprocessors idle: the time grows as the root of their share.
    """
    flop_per_s = family.attention_prefill[kv_dtype].compute_efficiency.value * device.peak[kv_dtype].value
    multiprocessors = device.sm_count.value
    fewest_heads = min(layer.heads_per_rank(tp) for layer, _ in groups)
    full = -(-multiprocessors // fewest_heads)
    return [
        sum(
            count
            * layer.heads_per_rank(tp)
            * (TILE * TILE)
            * (4 * layer.head_dim / flop_per_s + 1 / device.exp_rate.value)
            / sqrt(min(1.0, layer.heads_per_rank(tp) * max(blocks, 1) / multiprocessors))
            for layer, count in groups
        )
        for blocks in range(full + 1)
    ]


def _io_s(layer: DenseLayer, kv_dtype: KvDtype, tp: int, device: Device, family: KernelFamily) -> float:
    """Seconds of one layer to move queries, keys, values and outputs of one prompt token."""
    queries = 2 * ACTIVATION_BYTES * layer.heads_per_rank(tp) * layer.head_dim
    keys = (ACTIVATION_BYTES + KV_BYTES[kv_dtype]) * layer.kv_elements_per_token(tp)
    return (queries + keys) / (
        family.attention_prefill[kv_dtype].memory_efficiency.value * device.memory_bandwidth.value
    )
