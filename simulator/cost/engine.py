"""What an inference engine adds to the kernels: host time, memory of its own, default limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from simulator.hardware import WithSources
from simulator.spec import Bytes, Count, Seconds, Sourced, Spec


class EngineMemory(Spec):
    """Bytes on every GPU that hold neither weights nor activations nor KV cache."""

    runtime: Sourced[Bytes]
    """CUDA context, libraries, allocator slack, sampler."""
    communication_buffers: Sourced[Bytes]
    """Held only under tensor parallelism."""
    cuda_graphs: Sourced[Bytes]


class BatchLimits(Spec):
    """Default limits of a batch on GPUs of at least ``min_memory``, but for some."""

    min_memory: Bytes
    but_not: tuple[str, ...] = ()
    """Devices on which they do not hold, by how their names begin."""
    max_num_batched_tokens: Count
    max_num_seqs: Count


class EngineDefaults(Spec):
    """What the engine uses where the user says nothing."""

    gpu_memory_utilization: Sourced[Annotated[float, Field(gt=0, le=1)]]
    block_size: Sourced[Count]
    batch_limits: Sourced[tuple[BatchLimits, ...]]

    @model_validator(mode="after")
    def _some_limits_always_hold(self) -> EngineDefaults:
        if all(limits.min_memory > 0 or limits.but_not for limits in self.batch_limits.value):
            raise ValueError("batch_limits: none holds for a small GPU; give one entry min_memory: 0 GiB")
        return self


class EngineProfile(WithSources):
    """An engine at a version: overheads, memory terms and defaults."""

    host_step: Sourced[Seconds]
    """Host time of a step that the device waits for."""
    host_per_sequence: Sourced[Seconds]
    """Host time that each request of the batch adds to a step."""
    graph_correction: Sourced[Seconds]
    """How much less an attention kernel costs inside a CUDA graph than measured alone."""
    memory: EngineMemory
    defaults: EngineDefaults

    def batch_limits(self, memory_bytes: float, device: str) -> BatchLimits:
        """Default limits on a device with ``memory_bytes``."""
        fitting = [
            limits
            for limits in self.defaults.batch_limits.value
            if limits.min_memory <= memory_bytes and not device.startswith(limits.but_not)
        ]
        return max(fitting, key=lambda limits: limits.min_memory)
