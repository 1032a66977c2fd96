"""Shapes, parameters and bytes of models; what a Hugging Face config may and may not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from simulator.catalog import Catalog
from simulator.cost.model import Model, model_from_hf_config
from simulator.errors import InputError
from tests.cost_examples import LLAMA_8B, model


def read(**changes: Any) -> Model:
    config = {key: value for key, value in {**LLAMA_8B, **changes}.items() if value is not ...}
    return model_from_hf_config(config, "mine", "config.json")


@pytest.mark.parametrize("name", Catalog().names("models"))
def test_parameters_agree_with_the_published_total_within_one_percent(name: str) -> None:
    entry = Catalog().model(name)
    assert entry.published_parameters is not None
    assert entry.parameters == pytest.approx(entry.published_parameters, rel=0.01)


def test_a_catalogue_has_the_three_llamas() -> None:
    assert {"llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"} <= set(Catalog().names("models"))


def test_kv_of_a_token_of_the_70b_takes_320_kib_at_16_bit() -> None:
    # 2 (key, value) x 80 layers x 8 heads x 128 x 2 bytes = 327680
    assert model().kv_bytes_per_token("bf16") == 320 * 1024
    assert model().kv_bytes_per_token("fp8") == 160 * 1024


def test_kv_of_48_layers_of_4_heads_of_128_takes_96_kib() -> None:
    assert model(layers=48, kv_heads=4).kv_bytes_per_token("bf16") == 96 * 1024


def test_kv_heads_are_split_over_ranks_and_then_repeated() -> None:
    per_rank = [model().kv_bytes_per_token("bf16", tp) // 1024 for tp in (1, 2, 8, 16)]
    assert per_rank == [320, 160, 40, 40]


def test_weights_take_two_bytes_one_byte_and_nine_sixteenths() -> None:
    # linear weights of a layer: 8192*(64+16)*128 + 8192*8192 + 3*8192*28672 = 855638016, times 80 layers;
    # the rest (embedding, LM head, norms) stays in bf16: 2*128256*8192 + 161*8192
    linear = 855638016 * 80
    rest = 2 * (2 * 128256 * 8192 + 161 * 8192)
    assert model().weight_bytes("bf16") == 2 * linear + rest == 2 * model().parameters
    assert model().weight_bytes("fp8") == linear + rest
    assert model().weight_bytes("nvfp4") == linear * 9 / 16 + rest


def test_tied_embeddings_are_counted_once() -> None:
    assert model().parameters - model(tied_embeddings=True).parameters == 128256 * 8192


def test_heads_that_do_not_form_groups_are_refused() -> None:
    with pytest.raises(ValidationError, match="64 query heads cannot share 7 KV heads"):
        model(kv_heads=7)


def test_ranks_that_do_not_divide_the_heads_are_refused_with_those_that_do() -> None:
    with pytest.raises(InputError, match=r"over 3 ranks; use --tensor-parallel-size 1, 2, 4, 8, 16, 32, 64"):
        model().check_tensor_parallel(3)


def test_a_config_of_hugging_face_is_read() -> None:
    found = read()
    assert (found.layers, found.hidden, found.heads, found.kv_heads, found.head_dim) == (32, 4096, 32, 8, 128)
    assert found.parameters == 8030261248  # safetensors index of the hub


def test_the_text_tower_of_a_vision_model_is_read() -> None:
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "vision_config": {},
        "text_config": LLAMA_8B,
    }
    assert model_from_hf_config(config, "mine", "config.json").parameters == 8030261248


def test_a_config_without_kv_heads_has_multi_head_attention() -> None:
    assert read(num_key_value_heads=...).kv_heads == 32


def test_a_head_dimension_need_not_be_hidden_over_heads() -> None:
    # Qwen3 32B: hidden 5120, 64 heads of 128
    assert read(hidden_size=5120, num_attention_heads=64, head_dim=128).head_dim == 128


def test_qwen2_has_biases_on_queries_keys_and_values() -> None:
    qwen = read(model_type="qwen2", attention_bias=..., sliding_window=131072, use_sliding_window=False)
    # 32 layers x (32 + 2*8) heads x 128
    assert qwen.parameters - read().parameters == 32 * 48 * 128


def test_a_window_as_long_as_the_context_is_no_window() -> None:
    assert read(model_type="mistral", sliding_window=131072) is not None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_local_experts", 8),
        ("n_routed_experts", 256),
        ("num_experts", 128),
        ("kv_lora_rank", 512),
        ("sliding_window", 4096),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("layer_types", ["linear_attention", "full_attention"]),
        ("linear_num_key_heads", 16),
        ("ssm_state_size", 128),
        ("attention_chunk_size", 8192),
        ("model_type", "gpt_neox"),
        ("is_encoder_decoder", True),
    ],
)
def test_what_is_not_modelled_is_refused_by_the_name_of_its_field(field: str, value: Any) -> None:
    with pytest.raises(InputError) as refusal:
        read(**{field: value})
    assert refusal.value.field == field
    assert str(refusal.value).startswith(f"config.json:{field}: ")


@pytest.mark.parametrize(
    "field",
    [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    ],
)
@pytest.mark.parametrize("value", [..., None, 0, -1, "many", 1.5, True])
def test_a_missing_or_senseless_size_is_named(field: str, value: Any) -> None:
    with pytest.raises(InputError) as refusal:
        read(**{field: value})
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("hidden_size", {"hidden_size": 4100}),
        ("num_key_value_heads", {"num_key_value_heads": 5}),
        ("head_dim", {"head_dim": 0}),
    ],
)
def test_contradictions_are_named(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refusal:
        read(**changes)
    assert refusal.value.field == field


def test_a_config_by_path_becomes_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    assert Catalog().model(str(folder / "config.json")).name == "my-llama"
