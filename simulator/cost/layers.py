"""Kinds of layer: what each holds, and the work that one token gives to one tensor-parallel rank."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.hardware import Dtype, KvDtype

WEIGHT_BYTES: dict[Dtype, float] = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
"""Bytes of a weight; NVFP4 is 4 bits and one FP8 scale for 16 weights."""

KV_BYTES: dict[KvDtype, int] = {"bf16": 2, "fp8": 1}
ACTIVATION_BYTES = 2


@dataclass(frozen=True)
class Gemm:
    """A matrix product ``[rows, k] x [k, n]`` on one rank."""

    name: str
    n: int
    k: int
    dtype: Dtype

    @property
    def flop_per_row(self) -> float:
        """Multiply and add, for one row."""
        return 2.0 * self.n * self.k

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights, read once whatever the rows."""
        return WEIGHT_BYTES[self.dtype] * self.n * self.k

    @property
    def activation_bytes_per_row(self) -> float:
        """Bytes of a row in and a row out."""
        return WEIGHT_BYTES[self.dtype] * self.k + ACTIVATION_BYTES * self.n

    @property
    def quantise_bytes_per_row(self) -> float:
        """Bytes moved to bring a row of activations to the precision of the weights."""
        return 0.0 if self.dtype == "bf16" else self.k * (ACTIVATION_BYTES + WEIGHT_BYTES[self.dtype])


@dataclass(frozen=True)
class Operators:
    """Matrix products and elementwise kernels in a row.

    ``launches``: elementwise kernels. ``bytes_per_row``: what they move for one row.
    """

    gemms: tuple[Gemm, ...]
    launches: int
    bytes_per_row: int


@dataclass(frozen=True)
class DenseLayer:
    """Grouped-query attention and a gated MLP (Llama, Mistral, Qwen)."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    qkv_bias: bool = False

    all_reduces = 2
    """After attention and after the MLP."""

    @property
    def qkv_width(self) -> int:
        """Outputs of the QKV projection of the whole layer."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def linear_parameters(self) -> int:
        """Weights of the matrix products."""
        attention = self.hidden * self.qkv_width + self.heads * self.head_dim * self.hidden
        return attention + 3 * self.hidden * self.intermediate

    @property
    def vector_parameters(self) -> int:
        """Norms and biases."""
        return 2 * self.hidden + (self.qkv_width if self.qkv_bias else 0)

    def heads_per_rank(self, tp: int) -> int:
        """Query heads of one rank."""
        return self.heads // tp

    def kv_heads_per_rank(self, tp: int) -> int:
        """KV heads of one rank; replicated where there are more ranks than heads."""
        return max(1, self.kv_heads // tp)

    def kv_elements_per_token(self, tp: int) -> int:
        """Keys and values that one rank caches for a token."""
        return 2 * self.kv_heads_per_rank(tp) * self.head_dim

    def gemms(self, weights: Dtype, tp: int) -> tuple[Gemm, ...]:
        """The matrix products of one rank."""
        heads = self.heads_per_rank(tp)
        inner = self.intermediate // tp
        qkv = (heads + 2 * self.kv_heads_per_rank(tp)) * self.head_dim
        return (
            Gemm("qkv", qkv, self.hidden, weights),
            Gemm("o", self.hidden, heads * self.head_dim, weights),
            Gemm("gate_up", 2 * inner, self.hidden, weights),
            Gemm("down", self.hidden, inner, weights),
        )

    def operators(self, weights: Dtype, kv_dtype: KvDtype, tp: int) -> tuple[Operators, ...]:
        """What runs on one rank up to attention, after it, and in the MLP.

        Launches besides GEMMs: two norms, rotary embedding with the cache write, SwiGLU. Under quantised
        weights norms and SwiGLU also quantise what they hand on, and that launch is in the measured fixed
        time of the GEMM. Bytes: a norm reads and writes the hidden state and the residual, on every rank;
        rotary embedding reads and writes queries and keys; SwiGLU reads gate and up and writes their product.
        """
        qkv, o, gate_up, down = self.gemms(weights, tp)
        launches = 1 if weights == "bf16" else 0
        norm = ACTIVATION_BYTES * 4 * self.hidden
        rotated = (self.heads_per_rank(tp) + self.kv_heads_per_rank(tp)) * self.head_dim
        cached = KV_BYTES[kv_dtype] * self.kv_elements_per_token(tp)
        swiglu = ACTIVATION_BYTES * (3 * self.intermediate // tp)
        return (
            Operators((qkv,), 1 + launches, norm + ACTIVATION_BYTES * 2 * rotated + cached),
            Operators((o,), 0, 0),
            Operators((gate_up, down), 2 * launches, norm + swiglu),
        )
