"""Memory of a GPU, item by item, and the refusal of what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.catalog import Catalog
from simulator.cost.memory import MemoryBudget, MemoryEstimate
from simulator.errors import InputError
from simulator.hardware import Dtype
from tests.cost_examples import device, engine, model

LIMITS: dict[str, Any] = {"max_num_batched_tokens": 8192, "block_size": 16, "gpu_memory_utilization": 0.9}


def estimate(weights: Dtype = "fp8", memory_gb: float = 100.0, **changes: Any) -> MemoryEstimate:
    limits = {**LIMITS, **changes}
    return MemoryEstimate(model(), weights, "bf16", device(memory_gb=memory_gb), engine(), **limits)


def budget(tp: int = 2, pp: int = 1, **changes: Any) -> MemoryBudget:
    return estimate(**changes).budget(tp, pp, gpus=64)


def test_what_is_left_of_the_claimed_memory_becomes_blocks() -> None:
    found = budget()
    # activations: 8192 tokens x 2 bytes x (4*8192 + 3*28672/2)
    assert found.activation_bytes == 8192 * 2 * (4 * 8192 + 3 * 28672 // 2)
    assert found.weights_bytes == model().weight_bytes("fp8", 2)
    left = 90e9 - found.weights_bytes - found.activation_bytes - 2e9  # runtime and buffers, 1 GB each
    assert found.num_blocks == int(left // (16 * 160 * 1024))  # 4 of 8 KV heads on each rank
    assert found.kv_tokens == 16 * found.num_blocks
    assert found.kv_bytes == found.kv_tokens * 160 * 1024


def test_one_rank_needs_no_communication_buffers() -> None:
    assert budget(tp=1, memory_gb=200.0).communication_bytes == 0.0


def test_graphs_take_from_the_cache_only_what_the_margin_does_not_hold() -> None:
    # the margin of 0.9 is 10 GB, the graphs need 1 GB; at 1.0 there is no margin
    whole, claimed = budget(gpu_memory_utilization=1.0), budget()
    gained_blocks = (10e9 - 1e9) / (16 * 160 * 1024)
    assert whole.num_blocks - claimed.num_blocks == pytest.approx(gained_blocks, abs=1)


def test_an_override_of_blocks_wins() -> None:
    assert budget(num_gpu_blocks_override=7).num_blocks == 7


def test_concurrency_counts_whole_blocks() -> None:
    # a request of 33 tokens takes 3 blocks of 16
    assert budget(num_gpu_blocks_override=7).max_concurrency(33) == pytest.approx(7 / 3)


def test_a_model_that_does_not_fit_is_refused_with_the_smallest_tensor_parallelism() -> None:
    with pytest.raises(
        InputError, match=r"needs 72\.7 GB for fp8 weights .*; use --tensor-parallel-size 2 or more"
    ):
        budget(tp=1, memory_gb=80.0)


def test_the_remedy_works() -> None:
    assert budget(tp=2, memory_gb=80.0).num_blocks > 0


def test_a_model_that_fits_nowhere_is_told_to_shrink() -> None:
    with pytest.raises(InputError, match="use smaller --weights"):
        budget(tp=1, memory_gb=3.0)


def test_the_smallest_tensor_parallelism_is_the_first_that_fits() -> None:
    def smallest(memory_gb: float, gpus: int = 8) -> int:
        return estimate("bf16", memory_gb).smallest_tp(1, gpus)

    # 141 GB of weights
    assert smallest(200.0) == 1
    assert smallest(100.0) == 2
    assert smallest(50.0) == 4
    with pytest.raises(InputError, match="it takes 4 GPUs, of 2"):
        smallest(50.0, gpus=2)


def test_the_smallest_tensor_parallelism_holds_the_longest_request_where_any_does() -> None:
    # 200 GB at 0.9 less 141 GB of weights and 7 GB of the engine's: 31 GB, or 95,000 tokens of 320 KiB
    assert estimate("bf16", 200.0).smallest_tp(1, 8, max_model_len=90_000) == 1
    assert estimate("bf16", 200.0).smallest_tp(1, 8, max_model_len=131_072) == 2
    assert estimate("bf16", 200.0).smallest_tp(1, 8, max_model_len=10**9) == 1


def test_stages_halve_weights_and_cache_like_ranks_do() -> None:
    two_stages, two_ranks = budget(tp=1, pp=2), budget(tp=2)
    assert two_stages.kv_bytes_per_token == two_ranks.kv_bytes_per_token == 160 * 1024
    # the first stage: half of the layers with two norms each, and the embedding
    assert two_stages.weights_bytes == 40 * 855638016 + 2 * (128256 * 8192 + 80 * 8192)
    assert two_stages.communication_bytes == 1e9


def test_the_fullest_stage_decides_the_blocks() -> None:
    # 80 layers in 3 stages are 27, 27 and 26; the first also embeds
    found = budget(tp=1, pp=3)
    assert found.kv_bytes_per_token == 27 * 2 * 8 * 128 * 2
    assert found.weights_bytes == 27 * 855638016 + 2 * (128256 * 8192 + 54 * 8192)
    left = 90e9 - found.weights_bytes - found.activation_bytes - 2e9
    assert found.num_blocks == int(left // (16 * found.kv_bytes_per_token))


def test_a_pipeline_that_does_not_fit_is_told_how_many_gpus_it_takes() -> None:
    with pytest.raises(InputError, match=r"on each of 2 x toy, .*; it takes 4 GPUs, of 2"):
        estimate("bf16", 50.0).budget(1, 2, gpus=2)


def test_default_limits_depend_on_the_memory() -> None:
    assert engine().batch_limits(80e9, "toy").max_num_batched_tokens == 8192
    assert engine().batch_limits(48e9, "toy").max_num_batched_tokens == 2048


def test_vllm_treats_a_large_a100_as_a_small_gpu() -> None:
    vllm = Catalog().engine("vllm")
    assert vllm.batch_limits(80 * 2**30, "a100-sxm-80gb").max_num_batched_tokens == 2048
    assert vllm.batch_limits(80 * 2**30, "h100-sxm-80gb").max_num_batched_tokens == 8192
