"""Seconds of one engine step on one tensor-parallel rank.

``base_s + kv_s_per_token * context + sum of attention_s over the prompt chunks``: affine in the context,
so that many decode steps can be summed in closed form. Kernel forms and their errors: docs/model.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simulator.cost.engine import EngineProfile
from simulator.cost.kernels import TILE, Kernels, check_dtypes
from simulator.cost.layers import ACTIVATION_BYTES, DenseLayer
from simulator.cost.model import Model
from simulator.cost.roofline import Roofline
from simulator.hardware import Device, Dtype, KernelFamily, KvDtype
from simulator.record import STEP_CAUSES, STEP_COLUMNS, Floats, column

AllReduce = Callable[[float], tuple[float, float]]
"""Seconds of latency and of bandwidth of an all-reduce of so many bytes."""

SAMPLING_BYTES_PER_LOGIT = 10
"""Logits are read in bf16, written in fp32 and read again to pick a token."""


class StepCost:
    """Seconds of the steps of one replica, from shapes, kernel constants and engine overheads.

    ``kv_s_per_token``: seconds to read one cached token, over all layers of one rank. ``host_slowdown``: host
    time of this system's CPU over that of the profile's.
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
        host_slowdown: float = 1.0,
    ) -> None:
        model.check_tensor_parallel(tp)
        check_dtypes(weights, kv_dtype, device, family)
        self.roofline = Roofline.of(model, weights, kv_dtype, tp, device)
        kernels = Kernels(device, family, kv_dtype, tp)
        groups = model.layer_groups
        self._set_linear(model, weights, kernels)
        self._set_attention(groups, kernels, engine.graph_correction.value)
        self._host_s = host_slowdown * engine.host_step.value
        self._host_s_per_sequence = host_slowdown * engine.host_per_sequence.value
        self._all_reduce = all_reduce
        self._all_reduces = 0 if tp == 1 else 1 + sum(count * layer.all_reduces for layer, count in groups)
        self._all_reduce_bytes_per_token = ACTIVATION_BYTES * model.hidden
        self._body: dict[int, float] = {}
        self._head: dict[int, float] = {0: 0.0}

    def _set_linear(self, model: Model, weights: Dtype, kernels: Kernels) -> None:
        """GEMMs and elementwise kernels: layers and last norm by tokens, LM head and sampler by rows."""
        groups, tp = model.layer_groups, kernels.tp
        self._gemms = tuple(
            kernels.gemm(gemm, count) for layer, count in groups for gemm in layer.gemms(weights, tp)
        )
        self._lm_head = kernels.gemm(model.lm_head(tp), 1)
        launch_s = kernels.family.elementwise.fixed.value
        launches = 1 + sum(count * layer.elementwise_kernels(weights) for layer, count in groups)
        nbytes = 4 * ACTIVATION_BYTES * model.hidden + sum(
            count * layer.elementwise_bytes_per_token(kernels.kv_dtype, tp) for layer, count in groups
        )
        self._body_fixed_s = launches * launch_s + sum(gemm.count * gemm.fixed_s for gemm in self._gemms)
        self._activations_s_per_token = kernels.elementwise_s(nbytes) + sum(
            gemm.count * gemm.quantise_s_per_row for gemm in self._gemms
        )
        self._head_fixed_s = self._lm_head.fixed_s + launch_s
        self._sampling_s_per_row = kernels.elementwise_s(SAMPLING_BYTES_PER_LOGIT * model.vocab)

    def _set_attention(
        self, groups: tuple[tuple[DenseLayer, int], ...], kernels: Kernels, correction_s: float
    ) -> None:
        """Attention of all layers; fixed times are less inside a graph by ``correction_s``."""
        family, kv_dtype = kernels.family, kernels.kv_dtype
        layers = sum(count for _, count in groups)
        decode_s = family.attention_decode[kv_dtype].fixed.value
        prefill_s = family.attention_prefill[kv_dtype].fixed.value
        self._decode_attention_s = layers * max(0.0, decode_s - correction_s)
        self._prefill_attention_s = layers * max(0.0, prefill_s - correction_s)
        self.kv_s_per_token = sum(count * kernels.cached_token_s(layer) for layer, count in groups)
        self._io_s_per_token = sum(count * kernels.attention_io_s(layer) for layer, count in groups)
        full = max(kernels.full_blocks(layer) for layer, _ in groups)
        self._block_s = [0.0] + [
            sum(count * kernels.attention_block_s(layer, blocks) for layer, count in groups)
            for blocks in range(1, full + 1)
        ]

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

    def attention_s(self, new_tokens: int, prefix_tokens: int) -> float:
        """Attention of one prompt chunk over itself and its prefix, beyond the fixed time, all layers."""
        blocks = -(-new_tokens // TILE)
        prefix_blocks = -(-prefix_tokens // TILE)
        block_s = self._block_s
        one_s = block_s[blocks] if blocks < len(block_s) else block_s[-1]
        pairs = blocks * prefix_blocks + blocks * (blocks + 1) // 2
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
