"""Where the memory of a GPU goes, and how many blocks of KV cache are left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.cost.engine import EngineProfile
from simulator.cost.layers import ACTIVATION_BYTES
from simulator.cost.model import Model
from simulator.cost.stage import Stage, stages
from simulator.errors import InputError
from simulator.hardware import Device, Dtype, KvDtype

GB = 1e9

LARGEST_TP = 64
"""Where the search for a tensor parallelism that fits ends, whatever the system has."""


@dataclass(frozen=True)
class MemoryBudget:
    """Memory of one rank, in bytes; in a pipeline, of the fullest stage.

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
class MemoryEstimate:
    """What a rank of a replica holds, whatever the number of ranks and stages.

    Every stage of a pipeline holds the same number of blocks: as many as the fullest one has room for, or
    ``num_gpu_blocks_override``.
    """

    model: Model
    weights: Dtype
    kv_dtype: KvDtype
    device: Device
    engine: EngineProfile
    max_num_batched_tokens: int
    block_size: int
    gpu_memory_utilization: float
    num_gpu_blocks_override: int | None = None

    def budget(self, tp: int, pp: int, gpus: int) -> MemoryBudget:
        """Memory of a rank of the fullest of ``pp`` stages of ``tp`` ranks.

        Raises InputError, with the smallest tensor parallelism that fits, where no block is left.
        """
        self.model.check_tensor_parallel(tp, gpus)
        self.model.check_pipeline_parallel(pp)
        budget = self._fullest(tp, pp)
        if budget.num_blocks < 1:
            raise self._refusal(tp, pp, gpus)
        override = self.num_gpu_blocks_override
        return budget if override is None else replace(budget, num_blocks=override)

    def smallest_tp(self, pp: int, gpus: int, max_model_len: int = 1) -> int:
        """Fewest ranks, a power of two, whose ``pp`` stages fit into ``gpus`` and hold a request that long.

        Where none holds the request, the fewest that hold a block. Raises InputError where none does.
        """
        sizes = self.model.tensor_parallel_powers(gpus // pp)
        fitting = [tp for tp in sizes if self._fullest(tp, pp).num_blocks >= 1]
        if not fitting:
            raise self._refusal(sizes[-1], pp, gpus)
        long = (tp for tp in fitting if self.budget(tp, pp, gpus).kv_tokens >= max_model_len)
        return next(long, fitting[0])

    def _fullest(self, tp: int, pp: int) -> MemoryBudget:
        """The stage with the fewest blocks, below one where the model does not fit."""
        return min((self._of_stage(tp, stage) for stage in stages(pp)), key=lambda budget: budget.num_blocks)

    def _of_stage(self, tp: int, stage: Stage) -> MemoryBudget:
        model, terms, capacity = self.model, self.engine.memory, self.device.memory_capacity.value
        weights = model.weight_bytes(self.weights, tp, stage)
        activations = activation_bytes(model, tp, self.max_num_batched_tokens)
        communication = terms.communication_buffers.value if tp * stage.count > 1 else 0.0
        claimed = min(self.gpu_memory_utilization * capacity, capacity - terms.cuda_graphs.value)
        left = claimed - weights - activations - communication - terms.runtime.value
        per_token = model.kv_bytes_per_token(self.kv_dtype, tp, stage)
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

    def _refusal(self, tp: int, pp: int, gpus: int) -> InputError:
        """Why ``tp`` ranks do not hold a stage, and how many do."""
        budget = self._fullest(tp, pp)
        others = budget.activation_bytes + budget.communication_bytes + budget.runtime_bytes
        claimed = budget.gpu_memory_utilization * budget.capacity_bytes
        return InputError(
            f"{self.model.name} needs {budget.weights_bytes / GB:.1f} GB for {self.weights} weights and"
            f" {others / GB:.1f} GB for activations and the engine on each of {tp * pp} x {self.device.name},"
            f" but {budget.gpu_memory_utilization:g} of its memory is {claimed / GB:.1f} GB",
            field="tensor_parallel_size",
            remedy=self._remedy(pp, gpus),
        )

    def _remedy(self, pp: int, gpus: int) -> str:
        powers = self.model.tensor_parallel_powers(LARGEST_TP)
        smallest = next((tp for tp in powers if self._fullest(tp, pp).num_blocks >= 1), None)
        if smallest is None:
            return "use smaller --weights"
        if smallest * pp > gpus:
            return f"it takes {smallest * pp} GPUs, of {gpus}: use smaller --weights or a larger system"
        return f"use --tensor-parallel-size {smallest} or more"
