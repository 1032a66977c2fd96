"""What the pieces of a step ask of a device, by hand."""

from __future__ import annotations

from math import sqrt

import pytest

from simulator.cost.passage import Collective, Passage, Work
from simulator.cost.step import StepCost
from simulator.hardware import Dtype, KvDtype
from tests.cost_examples import device, engine, family, model, no_network


def passage(
    *step: int, weights: Dtype = "bf16", kv_dtype: KvDtype = "bf16", tp: int = 1, attention_s: float = 0.0
) -> Passage:
    """Of decodes, cached tokens, chunk tokens, chunks and completions."""
    whole = StepCost(model(), weights, kv_dtype, tp, device(), family(), engine(), no_network)
    return whole.passage(*step, attention_s)


def works(pieces: tuple[object, ...]) -> list[Work]:
    return [piece for piece in pieces if isinstance(piece, Work)]


def test_a_layer_is_qkv_attention_output_projection_and_mlp() -> None:
    whole = passage(8, 1000, 0, 0, 0, tp=4)
    assert whole.layers == 80
    assert [type(piece) for piece in whole.layer] == [Work, Work, Work, Collective, Work, Collective]
    assert {piece for piece in whole.layer if isinstance(piece, Collective)} == {Collective(8 * 8192 * 2)}


def test_the_embedding_is_joined_before_the_first_layer() -> None:
    host, joined = passage(8, 1000, 0, 0, 0, tp=4).before
    assert host == Work(pytest.approx(1e-3 + 8 * 4e-6))  # on the host, the device idles
    assert joined == Collective(8 * 8192 * 2)


def test_one_rank_has_no_collectives() -> None:
    whole = passage(8, 1000, 0, 0, 0)
    pieces = (*whole.before, *whole.layer, *whole.after)
    assert all(isinstance(piece, Work) for piece in pieces)


def test_a_gemm_holds_arithmetic_and_memory_each_as_long_as_it_would_alone() -> None:
    projection = works(passage(256, 256, 0, 0, 0).layer)[2]
    compute_s = 2 * 256 * 8192 * 8192 / 0.8e15
    memory_s = 2 * (8192 * 8192 + 256 * 8192 + 256 * 8192) / 3.2e12
    assert projection.compute_s == pytest.approx(compute_s)
    assert projection.hbm_s == pytest.approx(memory_s)
    fixed_s = (2 + sqrt(8)) * 1e-6
    assert projection.seconds == pytest.approx(fixed_s + sqrt(compute_s**2 + memory_s**2))


def test_quantising_activations_is_work_of_the_memory() -> None:
    projection = works(passage(256, 256, 0, 0, 0, weights="fp8").layer)[2]
    memory_s = (8192 * 8192 + 256 * 8192 + 256 * 8192 * 2 + 256 * 8192 * 3) / 3.2e12
    assert projection.hbm_s == pytest.approx(memory_s)


def test_decode_attention_reads_the_cache() -> None:
    attention = works(passage(8, 1000, 0, 0, 0).layer)[1]
    read_s = 1000 * 4096 / 3.2e12
    assert attention == Work(pytest.approx(10e-6 - 3e-6 + read_s), 0.0, pytest.approx(read_s))


def test_a_kernel_that_cannot_use_the_bandwidth_leaves_the_rest_to_others() -> None:
    attention = works(passage(8, 1000, 0, 0, 0, kv_dtype="fp8").layer)[1]
    # 2048 bytes a token and layer at 3 TB/s, where the memory gives 0.8 * 4
    assert attention.seconds == pytest.approx(7e-6 + 1000 * 2048 / 3e12)
    assert attention.hbm_s == pytest.approx(1000 * 2048 / 3.2e12)


def test_prefill_attention_computes_but_for_queries_keys_values_and_outputs() -> None:
    attention = works(passage(0, 0, 512, 1, 0, attention_s=8e-3).layer)[1]
    io_s = 512 * (64 * 128 * 4 + 8 * 128 * 2 * (2 + 2)) / 3.2e12
    assert attention.seconds == pytest.approx(16e-6 - 3e-6 + 1e-4)
    assert attention.hbm_s == pytest.approx(io_s)
    assert attention.compute_s == pytest.approx(1e-4 - io_s)


def test_a_step_that_samples_nothing_ends_with_the_last_norm() -> None:
    (norm,) = passage(0, 0, 512, 1, 0, attention_s=8e-3).after
    assert norm == Work(
        pytest.approx(2e-6 + 512 * 8 * 8192 / 3.2e12), 0.0, pytest.approx(512 * 8 * 8192 / 3.2e12)
    )
    assert len(passage(0, 0, 512, 1, 1, attention_s=8e-3).after) == 2


def test_layers_of_steps_with_as_many_tokens_share_their_pieces() -> None:
    whole = StepCost(model(), "fp8", "bf16", 4, device(), family(), engine(), no_network)
    one, other = (whole.passage(8, kv_tokens, 0, 0, 0, 0.0) for kv_tokens in (1000, 2000))
    assert [a is b for a, b in zip(one.layer, other.layer, strict=True)] == [True, False, *[True] * 4]
