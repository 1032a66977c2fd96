"""Seconds of one engine step on one tensor-parallel rank of a pipeline stage.

``base_s + kv_s_per_token * context + sum of attention_s over the prompt chunks``: affine in the context,
so that many decode steps can be summed in closed form. Kernel forms and their errors: docs/model.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.cost.engine import EngineProfile
from simulator.cost.kernels import TILE, Kernels, check_dtypes
from simulator.cost.layers import ACTIVATION_BYTES, DenseLayer, Operators
from simulator.cost.model import Model
from simulator.cost.passage import Collective, Passage, Piece, Work
from simulator.cost.roofline import Roofline
from simulator.cost.stage import WHOLE, Stage
from simulator.hardware import Device, Dtype, KernelFamily, KvDtype
from simulator.record import STEP_CAUSES, STEP_COLUMNS, Floats, column

AllReduce = Callable[[float], tuple[float, float]]
"""Seconds of latency and of bandwidth of an all-reduce of so many bytes."""

SAMPLING_BYTES_PER_LOGIT = 10
"""Logits are read in bf16, written in fp32 and read again to pick a token."""


@dataclass(frozen=True, slots=True)
class _BodyPieces:
    """What a passage holds for a number of tokens, whatever the context and the sequences."""

    qkv: Work
    rest: tuple[Piece, ...]
    joined: tuple[Collective, ...]
    last_norm: Work


class StepCost:
    """Seconds of the steps of one replica, from shapes, kernel constants and engine overheads.

    ``kv_s_per_token``: seconds to read one cached token, over all layers of one rank. ``all_reduces``: so
    many in a step, of ``all_reduce_bytes_per_token``. ``host_slowdown``: host time of this system's CPU over
    that of the profile's. ``stage``: the layers that count, and whether host time and embedding (first) or
    the last norm, the LM head and the sampler (last) do.
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
        stage: Stage = WHOLE,
    ) -> None:
        model.check_tensor_parallel(tp)
        model.check_pipeline_parallel(stage.count)
        check_dtypes(weights, kv_dtype, device, family)
        self.roofline = Roofline.of(model, weights, kv_dtype, tp, device, stage)
        kernels = Kernels(device, family, kv_dtype, tp)
        groups = model.groups_of(stage)
        self._stage = stage
        self._layers = sum(count for _, count in groups)
        self._set_linear(model, weights, kernels)
        self._set_attention(groups, kernels, engine.graph_correction.value)
        host = host_slowdown if stage.first else 0.0
        self._host_s = host * engine.host_step.value
        self._host_s_per_sequence = host * engine.host_per_sequence.value
        self._all_reduce = all_reduce
        self.all_reduces = 0 if tp == 1 else 1 + sum(count * layer.all_reduces for layer, count in groups)
        self.all_reduce_bytes_per_token = ACTIVATION_BYTES * model.hidden
        self._send_bytes_per_token = 2 * ACTIVATION_BYTES * model.hidden / tp
        self._body: dict[int, float] = {}
        self._head: dict[int, float] = {0: 0.0}
        self._body_pieces: dict[int, _BodyPieces] = {}
        self._head_pieces: dict[int, tuple[Work, ...]] = {0: ()}

    def _set_linear(self, model: Model, weights: Dtype, kernels: Kernels) -> None:
        """GEMMs and elementwise kernels: layers and last norm by tokens, LM head and sampler by rows."""
        several = [
            [(operators, count) for operators in layer.operators(weights, kernels.kv_dtype, kernels.tp)]
            for layer, count in model.groups_of(self._stage)
        ]
        self._qkv, self._o, self._mlp = (kernels.linear(alike) for alike in zip(*several, strict=True))
        times = 1 if self._stage.last else 0
        norm = Operators((), 1, 4 * ACTIVATION_BYTES * model.hidden)
        self._last_norm = kernels.linear([(norm, times)])
        self._body_parts = (self._qkv, self._o, self._mlp, self._last_norm)
        head = Operators((model.lm_head(kernels.tp),), 1, SAMPLING_BYTES_PER_LOGIT * model.vocab)
        self._lm_head = kernels.linear([(head, times)])

    def _set_attention(
        self, groups: tuple[tuple[DenseLayer, int], ...], kernels: Kernels, correction_s: float
    ) -> None:
        """Attention of all layers; fixed times are less inside a graph by ``correction_s``."""
        family, kv_dtype = kernels.family, kernels.kv_dtype
        decode_s = family.attention_decode[kv_dtype].fixed.value
        prefill_s = family.attention_prefill[kv_dtype].fixed.value
        self._decode_attention_s = self._layers * max(0.0, decode_s - correction_s)
        self._prefill_attention_s = self._layers * max(0.0, prefill_s - correction_s)
        cached = [(kernels.cached_token(layer), count) for layer, count in groups]
        self.kv_s_per_token = sum(count * token.seconds for token, count in cached)
        self._kv_compute_s_per_token = sum(count * token.compute_s for token, count in cached)
        self._kv_hbm_s_per_token = sum(count * token.hbm_s for token, count in cached)
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
            head_s = self._head[sampled] = self._lm_head.seconds(sampled)
        seconds = body_s + head_s + self._host_s + self._host_s_per_sequence * (decodes + chunks)
        if decodes:
            seconds += self._decode_attention_s
        if chunks:
            seconds += self._prefill_attention_s
        return seconds

    def passage(
        self,
        decodes: int,
        kv_tokens: float,
        chunk_tokens: int,
        chunks: int,
        completions: int,
        attention_s: float,
    ) -> Passage:
        """The pieces of a step; decoding reads ``kv_tokens`` in all, ``attention_s`` is of all chunks.

        Of several kinds of layer each piece is the mean. The pieces, collectives at the seconds of the
        all-reduce, sum to ``base_s + kv_s_per_token * kv_tokens + attention_s``.
        """
        tokens = decodes + chunk_tokens
        sampled = decodes + completions
        body = self._body_pieces.get(tokens)
        if body is None:
            body = self._body_pieces[tokens] = self._split_body(tokens)
        head = self._head_pieces.get(sampled)
        if head is None:
            head = self._head_pieces[sampled] = (self._lm_head.work(sampled),)
        attention = self._attention_work(decodes, kv_tokens, chunk_tokens, chunks, attention_s)
        before: tuple[Piece, ...] = body.joined
        if self._stage.first:
            before = (Work(self._host_s + self._host_s_per_sequence * (decodes + chunks)), *before)
        after = (body.last_norm, *head) if self._stage.last else ()
        return Passage(before, (body.qkv, attention, *body.rest), self._layers, after)

    def _split_body(self, tokens: int) -> _BodyPieces:
        o, mlp = (part.work(tokens, self._layers) for part in (self._o, self._mlp))
        joined = (Collective(self.all_reduce_bytes_per_token * tokens),) if self.all_reduces else ()
        return _BodyPieces(
            qkv=self._qkv.work(tokens, self._layers),
            rest=(o, *joined, mlp, *joined),
            joined=joined,
            last_norm=self._last_norm.work(tokens),
        )

    def _attention_work(
        self, decodes: int, kv_tokens: float, chunk_tokens: int, chunks: int, attention_s: float
    ) -> Work:
        """Attention of one layer: over the cache and, but for moving queries to outputs, over prompts."""
        seconds = self.kv_s_per_token * kv_tokens + attention_s
        if decodes:
            seconds += self._decode_attention_s
        if chunks:
            seconds += self._prefill_attention_s
        io_s = min(self._io_s_per_token * chunk_tokens, attention_s)
        compute_s = self._kv_compute_s_per_token * kv_tokens + (attention_s - io_s)
        hbm_s = self._kv_hbm_s_per_token * kv_tokens + io_s
        layers = self._layers
        return Work(seconds / layers, min(compute_s, seconds) / layers, min(hbm_s, seconds) / layers)

    def attention_s(self, new_tokens: int, prefix_tokens: int) -> float:
        """Attention of one prompt chunk over itself and its prefix, beyond the fixed time, all layers."""
        blocks = -(-new_tokens // TILE)
        prefix_blocks = -(-prefix_tokens // TILE)
        block_s = self._block_s
        one_s = block_s[blocks] if blocks < len(block_s) else block_s[-1]
        pairs = blocks * prefix_blocks + blocks * (blocks + 1) // 2
        return pairs * one_s + self._io_s_per_token * new_tokens

    def send_bytes(self, tokens: int) -> float:
        """Bytes that one rank hands to the next stage: its share of the hidden states and the residual.

        The ranks of the next stage gather the whole; that is in ``base_s``, as its first all-reduce.
        """
        return self._send_bytes_per_token * tokens

    def breakdown(self, steps: Floats) -> Floats:
        """Seconds by cause (columns STEP_CAUSES) of each row of a step table (columns STEP_COLUMNS).

        A row sums to ``steps * base_s + kv_s_per_token * kv_tokens + attention_s`` to rounding; attention_s
        is what the attention of this stage's layers took.
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
        seconds = sum(part.seconds(tokens) for part in self._body_parts)
        if self.all_reduces:
            latency_s, bandwidth_s = self._all_reduce(self.all_reduce_bytes_per_token * tokens)
            seconds += self.all_reduces * (latency_s + bandwidth_s)
        return seconds

    def _body_causes(self, tokens: Floats) -> Floats:
        causes = _no_causes(len(tokens))
        for part in self._body_parts:
            part.add_causes(causes, tokens)
        if self.all_reduces:
            pairs = [self._all_reduce(self.all_reduce_bytes_per_token * float(n)) for n in tokens]
            both: Floats = self.all_reduces * np.array(pairs, dtype=np.float64).reshape(-1, 2)
            causes["allreduce_latency"] += both[:, 0]
            causes["allreduce_bandwidth"] += both[:, 1]
        return np.column_stack([causes[name] for name in STEP_CAUSES])

    def _head_causes(self, sampled: Floats) -> Floats:
        causes = _no_causes(len(sampled))
        self._lm_head.add_causes(causes, sampled)
        return np.column_stack([causes[name] * (sampled > 0) for name in STEP_CAUSES])


def _no_causes(rows: int) -> dict[str, Floats]:
    return {name: np.zeros(rows) for name in STEP_CAUSES}


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
