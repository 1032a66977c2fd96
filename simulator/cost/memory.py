"""Where the memory of a GPU goes, and how many blocks of KV cache are left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.cost.engine import EngineProfile
from simulator.cost.layers import ACTIVATION_BYTES
from simulator.cost.model import Model
from simulator.errors import InputError
from simulator.hardware import Device, Dtype, KvDtype

GB = 1e9

LARGEST_TP = 64
"""Where the search for a tensor parallelism that fits ends, whatever the system has."""


@dataclass(frozen=True)
class MemoryBudget:
    """Memory of one rank, in bytes.

    The engine claims ``gpu_memory_utilization`` of the capacity; CUDA graphs are captured afterwards, in
    what it left, and take from the KV cache only where that is too small.
    """

    capacity_bytes: float
    gpu_memory_utilization: float
    weights_bytes: float
    activation_bytes: float
    cuda_graph_bytes: float
    communication_bytes: float
    runtime_bytes: float
    kv_bytes_per_token: int
    block_size: int
    num_blocks: int

    @property
    def kv_bytes(self) -> float:
        """Bytes of the KV cache."""
        return float(self.num_blocks * self.block_size * self.kv_bytes_per_token)

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return self.num_blocks * self.block_size

    def max_concurrency(self, max_model_len: int) -> float:
        """Requests of ``max_model_len`` tokens that fit at once."""
        return self.num_blocks / -(-max_model_len // self.block_size)


def activation_bytes(model: Model, tp: int, max_num_batched_tokens: int) -> float:
    """Activations alive at the peak of a full batch.

    In the MLP: hidden state and residual, their normed copies, gate and up, and their product.
    """
    return float(
        max_num_batched_tokens
        * ACTIVATION_BYTES
        * max(4 * layer.hidden + 3 * layer.intermediate // tp for layer, _ in model.layer_groups)
    )


@dataclass(frozen=True)
class _Estimate:
    """The question that a memory budget answers, but for the number of ranks."""

    model: Model
    weights: Dtype
    kv_dtype: KvDtype
    device: Device
    engine: EngineProfile
    max_num_batched_tokens: int
    block_size: int
    gpu_memory_utilization: float

    def budget(self, tp: int) -> MemoryBudget:
        """The budget of one of ``tp`` ranks; ``num_blocks`` is below one where the model does not fit."""
        model, terms, capacity = self.model, self.engine.memory, self.device.memory_capacity.value
        weights = model.weight_bytes(self.weights, tp)
        activations = activation_bytes(model, tp, self.max_num_batched_tokens)
        communication = terms.communication_buffers.value if tp > 1 else 0.0
        claimed = min(self.gpu_memory_utilization * capacity, capacity - terms.cuda_graphs.value)
        left = claimed - weights - activations - communication - terms.runtime.value
        per_token = model.kv_bytes_per_token(self.kv_dtype, tp)
        return MemoryBudget(
            capacity_bytes=capacity,
            gpu_memory_utilization=self.gpu_memory_utilization,
            weights_bytes=weights,
            activation_bytes=activations,
            cuda_graph_bytes=terms.cuda_graphs.value,
            communication_bytes=communication,
            runtime_bytes=terms.runtime.value,
            kv_bytes_per_token=per_token,
            block_size=self.block_size,
            num_blocks=int(left // (per_token * self.block_size)),
        )

    def smallest_tp(self, largest: int) -> int | None:
        """Fewest ranks, a power of two up to ``largest``, with room for a block."""
        sizes = [tp for tp in self.model.tensor_parallel_sizes(largest) if tp & (tp - 1) == 0]
        return next((tp for tp in sizes if self.budget(tp).num_blocks >= 1), None)

    def refusal(self, tp: int, gpus: int) -> InputError:
        """Why ``tp`` ranks do not hold the model, and how many do."""
        budget = self.budget(tp)
        others = budget.activation_bytes + budget.communication_bytes + budget.runtime_bytes
        claimed = budget.gpu_memory_utilization * budget.capacity_bytes
        return InputError(
            f"{self.model.name} needs {budget.weights_bytes / GB:.1f} GB for {self.weights} weights and"
            f" {others / GB:.1f} GB for activations and the engine on each of {tp} x {self.device.name},"
            f" but {budget.gpu_memory_utilization:g} of its memory is {claimed / GB:.1f} GB",
            field="tensor_parallel_size",
            remedy=self._remedy(gpus),
        )

    def _remedy(self, gpus: int) -> str:
        smallest = self.smallest_tp(LARGEST_TP)
        if smallest is None:
            return "use smaller --weights"
        if smallest > gpus:
            return f"it takes {smallest} GPUs, of {gpus}: use smaller --weights or a larger system"
        return f"use --tensor-parallel-size {smallest} or more"


def memory_budget(
    model: Model,
    weights: Dtype,
    kv_dtype: KvDtype,
    tp: int,
    device: Device,
    engine: EngineProfile,
    *,
    gpus: int,
    max_num_batched_tokens: int,
    block_size: int,
    gpu_memory_utilization: float,
    num_gpu_blocks_override: int | None = None,
) -> MemoryBudget:
    """Memory of one of ``tp`` ranks; ``num_gpu_blocks_override`` wins over the estimate of blocks.

    Raises InputError, with the smallest tensor parallelism that fits into ``gpus``, where no block is left.
    """
    model.check_tensor_parallel(tp, gpus)
    estimate = _Estimate(
        model, weights, kv_dtype, device, engine, max_num_batched_tokens, block_size, gpu_memory_utilization
    )
    budget = estimate.budget(tp)
    if budget.num_blocks < 1:
        raise estimate.refusal(tp, gpus)
    return budget if num_gpu_blocks_override is None else replace(budget, num_blocks=num_gpu_blocks_override)


def smallest_tp(
    model: Model,
    weights: Dtype,
    kv_dtype: KvDtype,
    device: Device,
    engine: EngineProfile,
    *,
    gpus: int,
    max_num_batched_tokens: int,
    block_size: int,
    gpu_memory_utilization: float,
) -> int:
    """Fewest ranks, a power of two up to ``gpus``, that hold the model and a block of KV cache.

    Raises InputError where all ``gpus`` together do not.
    """
    estimate = _Estimate(
        model, weights, kv_dtype, device, engine, max_num_batched_tokens, block_size, gpu_memory_utilization
    )
    smallest = estimate.smallest_tp(gpus)
    if smallest is None:
        largest = max(tp for tp in model.tensor_parallel_sizes(gpus) if tp & (tp - 1) == 0)
        raise estimate.refusal(largest, gpus)
    return smallest
