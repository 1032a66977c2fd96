"""Hardware, engine and models for tests of cost: round figures whose consequences can be computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.cost.engine import EngineProfile
from simulator.cost.model import Model
from simulator.hardware import Device, KernelFamily

SOURCES = {"test": "chosen for the test"}


def figure(value: float, unit: str = "") -> dict[str, Any]:
    return {"value": f"{value!r} {unit}" if unit else value, "source": "test", "status": "assumed"}


def device(
    rate: float = 1.0, bandwidth: float = 1.0, compute: float = 1.0, memory_gb: float = 100.0
) -> Device:
    """4 TB/s, 1 PFLOP/s in bf16, 2 in fp8, 4 in nvfp4; ``rate`` multiplies everything that is per second."""
    peaks = {"bf16": 1e15, "fp8": 2e15, "nvfp4": 4e15}
    return Device.model_validate(
        {
            "name": "toy",
            "title": "Toy",
            "sources": SOURCES,
            "vendor": "none",
            "family": "toy",
            "year": 2025,
            "memory_capacity": figure(memory_gb, "GB"),
            "memory_nameplate": figure(memory_gb, "GB"),
            "memory_bandwidth": figure(4e12 * rate * bandwidth, "B/s"),
            "peak": {dtype: figure(peak * rate * compute, "FLOP/s") for dtype, peak in peaks.items()},
            "sm_count": figure(128),
            "exp_rate": figure(4e12 * rate * compute, "/s"),
        }
    )


def family(rate: float = 1.0, fixed: float = 1.0, efficiency: float = 0.8) -> KernelFamily:
    """Fixed times of a few microseconds, all divided by ``rate`` and multiplied by ``fixed``."""

    def seconds(us: float) -> dict[str, Any]:
        return figure(us * 1e-6 * fixed / rate, "s")

    def both(us: float) -> Mapping[str, Any]:
        return {
            "fixed": seconds(us),
            "memory_efficiency": figure(efficiency),
            "compute_efficiency": figure(efficiency),
        }

    attention = {"fixed": seconds(10.0), "memory_efficiency": figure(efficiency)}
    return KernelFamily.model_validate(
        {
            "name": "toy",
            "title": "Toy",
            "sources": SOURCES,
            "gemm": {dtype: {**both(2.0), "per_sqrt_k": seconds(1.0)} for dtype in ("bf16", "fp8", "nvfp4")},
            "attention_decode": {
                "bf16": attention,
                "fp8": {**attention, "max_bandwidth": figure(3e12 * rate, "B/s")},
            },
            "attention_prefill": {dtype: both(16.0) for dtype in ("bf16", "fp8")},
            "elementwise": {"fixed": seconds(2.0), "memory_efficiency": figure(efficiency)},
        }
    )


def engine(rate: float = 1.0, overhead: float = 1.0) -> EngineProfile:
    """1 ms of host time a step, 4 us a sequence; 1 GB each for runtime, buffers and graphs."""
    return EngineProfile.model_validate(
        {
            "name": "toy",
            "title": "Toy",
            "sources": SOURCES,
            "host_step": figure(1e-3 * overhead / rate, "s"),
            "host_per_sequence": figure(4e-6 * overhead / rate, "s"),
            "graph_correction": figure(3e-6 * overhead / rate, "s"),
            "memory": {term: figure(1, "GB") for term in ("runtime", "communication_buffers", "cuda_graphs")},
            "defaults": {
                "gpu_memory_utilization": figure(0.9),
                "block_size": figure(16),
                "batch_limits": {
                    "value": [
                        {"min_memory": "0 GiB", "max_num_batched_tokens": 2048, "max_num_seqs": 256},
                        {"min_memory": "70 GiB", "max_num_batched_tokens": 8192, "max_num_seqs": 1024},
                    ],
                    "source": "test",
                    "status": "assumed",
                },
            },
        }
    )


def model(**changes: Any) -> Model:
    """Llama 3.1 70B unless changed."""
    shapes = {
        "name": "llama-3.1-70b",
        "title": "Llama 3.1 70B",
        "layers": 80,
        "hidden": 8192,
        "heads": 64,
        "kv_heads": 8,
        "head_dim": 128,
        "intermediate": 28672,
        "vocab": 128256,
        "max_position": 131072,
        "source": "test",
    }
    return Model.model_validate({**shapes, **changes})


def no_network(nbytes: float) -> tuple[float, float]:
    """An all-reduce that costs nothing."""
    return 0.0, 0.0


LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
}
"""The config.json of Llama 3.1 8B, as far as it is read."""
