"""Seconds of a step, by hand and against the forms that they come from."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from simulator.cost.kernels import Kernels
from simulator.cost.layers import DenseLayer, Gemm
from simulator.cost.step import StepCost
from simulator.errors import InputError
from simulator.hardware import Dtype, KvDtype, slowed
from simulator.record import STEP_CAUSES, STEP_COLUMNS
from tests.cost_examples import device, engine, family, model, no_network

LAYER = DenseLayer(8192, 64, 8, 128, 28672)


def cost(weights: Dtype = "fp8", kv_dtype: KvDtype = "bf16", tp: int = 1, bandwidth: float = 1.0) -> StepCost:
    hardware = device(bandwidth=bandwidth)
    return StepCost(model(), weights, kv_dtype, tp, hardware, family(), engine(), no_network)


def test_a_gemm_takes_fixed_time_and_the_root_of_the_squares() -> None:
    one = Kernels(device(), family(), "bf16", 1).gemm(Gemm("o", 4096, 1024, "bf16"), 1)
    # fixed 2 us + 1 us * sqrt(1024/1024); 2*256*4096*1024 FLOP at 0.8 PFLOP/s;
    # 2*(4096*1024 + 256*1024 + 256*4096) bytes at 3.2 TB/s
    assert one.fixed_s == pytest.approx(3e-6)
    compute_s = 2 * 256 * 4096 * 1024 / 0.8e15
    memory_s = 2 * (4096 * 1024 + 256 * 1024 + 256 * 4096) / 3.2e12
    assert one.rss_s(256) == pytest.approx(sqrt(compute_s**2 + memory_s**2))
    assert one.quantise_s_per_row == 0.0


def test_activations_are_quantised_under_quantised_weights() -> None:
    one = Kernels(device(), family(), "bf16", 1).gemm(Gemm("o", 4096, 1024, "fp8"), 1)
    assert one.quantise_s_per_row == pytest.approx(1024 * (2 + 1) / 3.2e12)  # read bf16, write fp8


@pytest.mark.parametrize("weights", ["bf16", "fp8", "nvfp4"])
def test_ranks_share_the_arithmetic_and_the_weights_of_a_layer(weights: Dtype) -> None:
    whole = LAYER.gemms(weights, 1)
    for tp in (2, 4, 8):
        for one, part in zip(whole, LAYER.gemms(weights, tp), strict=True):
            assert part.flop_per_row * tp == one.flop_per_row
            assert part.weight_bytes * tp == one.weight_bytes


def test_more_ranks_than_kv_heads_repeat_the_kv_heads() -> None:
    qkv = LAYER.gemms("bf16", 16)[0]
    assert qkv.n == (4 + 2 * 1) * 128


def test_the_weights_of_the_gemms_are_the_weights_of_the_model() -> None:
    linear = 80 * sum(gemm.weight_bytes for gemm in LAYER.gemms("fp8", 1))
    embedding_and_vectors = 2 * (2 * 128256 * 8192 + 161 * 8192)
    assert linear + embedding_and_vectors == model().weight_bytes("fp8")


def test_a_cached_token_is_read_at_the_efficiency_of_decode_attention() -> None:
    assert cost().kv_s_per_token == pytest.approx(327680 / (0.8 * 4e12))
    assert cost(tp=4).kv_s_per_token == pytest.approx(327680 / 4 / (0.8 * 4e12))


def test_a_kernel_that_cannot_use_the_bandwidth_is_capped() -> None:
    assert cost(kv_dtype="fp8").kv_s_per_token == pytest.approx(163840 / 3e12)  # 0.8 * 4 TB/s is above 3


def test_a_decode_step_is_its_terms() -> None:
    whole = cost("bf16")
    seconds = whole.base_s(1, 0, 0, 0)
    # 80 layers of four GEMMs, (2 + sqrt(K/1024)) us each: K = 8192, 8192, 8192, 28672; attention 10 - 3 us;
    # four elementwise kernels of 2 us; then the last norm, the LM head (K 8192) and the sampler
    gemms_us = 4 * 2 + 3 * sqrt(8) + sqrt(28)
    fixed_s = (80 * (gemms_us + 7 + 8) + 2 + 2 + sqrt(8) + 2) * 1e-6
    # weights but the embedding, at 3.2 TB/s; arithmetic and activations of one token add little
    weights_s = 2 * (80 * 855638016 + 128256 * 8192) / 3.2e12
    assert seconds == pytest.approx(1e-3 + 4e-6 + fixed_s + weights_s, rel=1e-3)


def test_a_step_without_a_finished_prompt_has_no_lm_head() -> None:
    whole = cost()
    with_head = whole.base_s(0, 512, 1, 1)
    without = whole.base_s(0, 512, 1, 0)
    assert with_head - without == pytest.approx(2 * 128256 * 8192 / 3.2e12, rel=0.05)


def test_prefill_attention_counts_causal_blocks_and_idle_multiprocessors() -> None:
    one_block_s = 80 * 64 * 128 * 128 * (4 * 128 / 0.8e15 + 1 / 4e12)
    io_s = 80 * (64 * 128 * 4 + 8 * 128 * 2 * (2 + 2)) / 3.2e12
    # 64 heads x 1 block on 128 multiprocessors: half of them idle
    assert cost().attention_s(100, 0) == pytest.approx(one_block_s * sqrt(2) + 100 * io_s)
    # 4 query blocks over 3 prefix blocks and the causal half of 4x4: 12 + 10
    assert cost().attention_s(512, 300) == pytest.approx(22 * one_block_s + 512 * io_s)


def test_two_all_reduces_a_layer_and_one_for_the_embedding() -> None:
    sizes = []

    def all_reduce(nbytes: float) -> tuple[float, float]:
        sizes.append(nbytes)
        return 5e-6, nbytes / 1e12

    shared = StepCost(model(), "fp8", "bf16", 4, device(), family(), engine(), all_reduce)
    seconds = shared.base_s(8, 0, 0, 0) - cost(tp=4).base_s(8, 0, 0, 0)
    assert sizes == [8 * 8192 * 2]
    assert seconds == pytest.approx(161 * (5e-6 + 8 * 8192 * 2 / 1e12))


def test_one_rank_does_not_all_reduce() -> None:
    def never(nbytes: float) -> tuple[float, float]:
        raise AssertionError

    StepCost(model(), "fp8", "bf16", 1, device(), family(), engine(), never).base_s(1, 0, 0, 0)


def test_doubling_the_bandwidth_halves_the_part_of_decode_that_is_memory() -> None:
    steps = np.zeros((1, len(STEP_COLUMNS)))
    steps[0, STEP_COLUMNS.index("steps")] = 1
    steps[0, STEP_COLUMNS.index("decodes")] = 1
    steps[0, STEP_COLUMNS.index("kv_tokens")] = 1000

    def memory_s(bandwidth: float) -> float:
        seconds = cost("bf16", bandwidth=bandwidth).breakdown(steps)[0]
        return float(
            sum(seconds[STEP_CAUSES.index(cause)] for cause in ("weights", "kv", "activations", "compute"))
        )

    # one row: arithmetic is below a hundredth of the memory time
    assert memory_s(1.0) / memory_s(2.0) == pytest.approx(2.0, rel=1e-3)


def test_a_slowed_device_takes_longer_by_its_factor_but_for_fixed_times() -> None:
    def on(factor: float) -> StepCost:
        return StepCost(model(), "bf16", "bf16", 1, slowed(device(), factor), family(), engine(), no_network)

    steps = np.zeros((1, len(STEP_COLUMNS)))
    for name, value in {"steps": 1, "decodes": 8, "kv_tokens": 1000}.items():
        steps[0, STEP_COLUMNS.index(name)] = value
    whole, half = (on(factor).breakdown(steps)[0] for factor in (1.0, 0.5))
    fixed = [cause in ("host", "launch") for cause in STEP_CAUSES]
    assert half == pytest.approx(np.where(fixed, whole, 2.0 * whole), rel=1e-12)
    assert on(0.5).attention_s(512, 0) == pytest.approx(2 * on(1.0).attention_s(512, 0))
    assert on(1.0).base_s(8, 0, 0, 0) == cost("bf16").base_s(8, 0, 0, 0)


def test_weights_that_the_device_cannot_multiply_are_refused() -> None:
    old = device().model_copy(update={"peak": {"bf16": device().peak["bf16"]}})
    with pytest.raises(InputError, match="toy has no nvfp4 matrix products; use --weights bf16"):
        StepCost(model(), "nvfp4", "bf16", 1, old, family(), engine(), no_network)


def test_the_roofline_of_one_decode_step_is_its_bytes() -> None:
    roofline = cost("bf16").roofline
    # every weight but the embedding, 1000 tokens read and one written
    weights = 2 * (80 * 855638016 + 128256 * 8192)
    assert roofline.hbm_bytes(1, 1000, 0) == weights + 1001 * 327680
    assert roofline.floor_step_s(1, 1000, 0, 0) == roofline.hbm_bytes(1, 1000, 0) / 4e12


def test_the_roofline_of_a_long_prompt_is_its_arithmetic() -> None:
    roofline = cost("bf16").roofline
    pairs = 8192 * 8193 / 2
    flop = 2 * 80 * 855638016 * 8192 + 4 * 64 * 128 * 80 * pairs
    assert roofline.compute_s(0, 0, 8192, pairs) == pytest.approx(flop / 1e15)
    assert roofline.floor_step_s(0, 0, 8192, pairs) == pytest.approx(flop / 1e15)
