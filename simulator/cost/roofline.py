"""Lower bounds of a step: peak figures of the data sheet, no overhead, perfect overlap."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.cost.model import Model
from simulator.cost.stage import WHOLE, Stage
from simulator.hardware import Device, Dtype, KvDtype


@dataclass(frozen=True)
class Roofline:
    """Work and least seconds of a step on one tensor-parallel rank of a pipeline stage.

    ``context_tokens``: cached tokens read by decoding requests. ``pairs``: query-key pairs of the prompt
    chunks. The LM head is counted for decoding requests only, collectives not at all.
    """

    linear_flop_per_token: float
    head_flop_per_row: float
    attention_flop_per_pair: float
    weight_bytes: float
    head_bytes: float
    kv_bytes_per_token: float
    linear_flop_per_s: float
    head_flop_per_s: float
    attention_flop_per_s: float
    bytes_per_s: float

    @classmethod
    def of(
        cls,
        model: Model,
        weights: Dtype,
        kv_dtype: KvDtype,
        tp: int,
        device: Device,
        stage: Stage = WHOLE,
    ) -> Roofline:
        """The bounds of a model on a device."""
        groups = model.groups_of(stage)
        gemms = [(gemm, count) for layer, count in groups for gemm in layer.gemms(weights, tp)]
        head = model.lm_head(tp)
        return cls(
            linear_flop_per_token=sum(count * gemm.flop_per_row for gemm, count in gemms),
            head_flop_per_row=head.flop_per_row if stage.last else 0.0,
            attention_flop_per_pair=sum(
                4.0 * count * layer.heads_per_rank(tp) * layer.head_dim for layer, count in groups
            ),
            weight_bytes=sum(count * gemm.weight_bytes for gemm, count in gemms),
            head_bytes=head.weight_bytes if stage.last else 0.0,
            kv_bytes_per_token=model.kv_bytes_per_token(kv_dtype, tp, stage),
            linear_flop_per_s=device.peak[weights].value,
            head_flop_per_s=device.peak["bf16"].value,
            attention_flop_per_s=device.peak[kv_dtype].value,
            bytes_per_s=device.memory_bandwidth.value,
        )

    def compute_s(self, decodes: float, context_tokens: float, chunk_tokens: float, pairs: float) -> float:
        """Least seconds of the arithmetic of a step, or of many steps together."""
        return (
            self.linear_flop_per_token * (decodes + chunk_tokens) / self.linear_flop_per_s
            + self.head_flop_per_row * decodes / self.head_flop_per_s
            + self.attention_flop_per_pair * (context_tokens + pairs) / self.attention_flop_per_s
        )

    def hbm_bytes(self, decodes: int, context_tokens: float, chunk_tokens: int) -> float:
        """Bytes that a step moves at least: weights once, the cache read, the new tokens' cache written."""
        head = self.head_bytes if decodes else 0.0
        return self.weight_bytes + head + self.kv_bytes_per_token * (context_tokens + decodes + chunk_tokens)

    def floor_step_s(self, decodes: int, context_tokens: float, chunk_tokens: int, pairs: float) -> float:
        """Least seconds of a step: the larger of arithmetic and bytes, each at its peak."""
        compute_s = self.compute_s(decodes, context_tokens, chunk_tokens, pairs)
        return max(compute_s, self.hbm_bytes(decodes, context_tokens, chunk_tokens) / self.bytes_per_s)
