"""A model: its layers, their shapes, and what it weighs."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from simulator.cost.layers import KV_BYTES, WEIGHT_BYTES, DenseLayer, Gemm
from simulator.cost.stage import WHOLE, Stage
from simulator.errors import InputError
from simulator.hardware import Dtype, KvDtype
from simulator.spec import Count, Spec


class Model(Spec):
    """A dense decoder with multi-head, grouped-query or multi-query attention."""

    name: str
    title: str
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    intermediate: Count
    vocab: Count
    max_position: Count
    tied_embeddings: bool = False
    qkv_bias: bool = False
    published_parameters: Count | None = None
    source: str

    @model_validator(mode="after")
    def _heads_form_groups(self) -> Model:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads: {self.heads} query heads cannot share {self.kv_heads} KV heads evenly")
        return self

    @property
    def layer_groups(self) -> tuple[tuple[DenseLayer, int], ...]:
        """Kinds of layer and how many there are of each."""
        return self.groups_of(WHOLE)

    def groups_of(self, stage: Stage) -> tuple[tuple[DenseLayer, int], ...]:
        """Kinds of layer in a pipeline stage and how many there are of each."""
        layer = DenseLayer(
            self.hidden, self.heads, self.kv_heads, self.head_dim, self.intermediate, self.qkv_bias
        )
        return ((layer, stage.layers(self.layers)),)

    @property
    def embedding_parameters(self) -> int:
        """Embedding and LM head; one matrix where they are tied."""
        return self._embeddings(WHOLE) * self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """Every weight, bias and norm."""
        layers = sum(
            count * (layer.linear_parameters + layer.vector_parameters) for layer, count in self.layer_groups
        )
        return layers + self.embedding_parameters + self.hidden

    def kv_bytes_per_token(self, kv_dtype: KvDtype, tp: int = 1, stage: Stage = WHOLE) -> int:
        """Bytes that one token takes in the KV cache of one rank."""
        elements = sum(count * layer.kv_elements_per_token(tp) for layer, count in self.groups_of(stage))
        return KV_BYTES[kv_dtype] * elements

    def weight_bytes(self, weights: Dtype, tp: int = 1, stage: Stage = WHOLE) -> float:
        """Bytes of one rank's weights: linear layers in ``weights``, all else in bf16.

        Embedding and LM head are split by vocabulary; norms and biases are counted whole on every rank.
        """
        groups = self.groups_of(stage)
        linear = sum(
            count * gemm.weight_bytes for layer, count in groups for gemm in layer.gemms(weights, tp)
        )
        vectors = sum(count * layer.vector_parameters for layer, count in groups)
        if stage.last:
            vectors += self.hidden
        return linear + WEIGHT_BYTES["bf16"] * (
            self._embeddings(stage) * self.vocab * self.hidden / tp + vectors
        )

    def _embeddings(self, stage: Stage) -> int:
        """Matrices of the vocabulary in a stage; tied ones are held twice if first and last stage differ."""
        if stage.first and stage.last:
            return 1 if self.tied_embeddings else 2
        return int(stage.first or stage.last)

    def lm_head(self, tp: int = 1) -> Gemm:
        """The output projection of one rank, in bf16; the vocabulary is padded to a multiple of ``tp``."""
        return Gemm("lm_head", -(-self.vocab // tp), self.hidden, "bf16")

    def splits_into(self, tp: int) -> bool:
        """Whether ``tp`` ranks can share every layer evenly."""
        return all(
            layer.heads % tp == 0
            and layer.intermediate % tp == 0
            and (layer.kv_heads % tp == 0 or tp % layer.kv_heads == 0)
            for layer, _ in self.layer_groups
        )

    def tensor_parallel_sizes(self, largest: int = 64) -> list[int]:
        """Numbers of ranks, up to ``largest``, that share the model evenly."""
        return [tp for tp in range(1, largest + 1) if self.splits_into(tp)]

    def tensor_parallel_powers(self, largest: int) -> list[int]:
        """Powers of two up to ``largest`` that share the model evenly: what a search tries."""
        return [tp for tp in self.tensor_parallel_sizes(largest) if tp & (tp - 1) == 0]

    def check_pipeline_parallel(self, pp: int) -> None:
        """Raises InputError unless every one of ``pp`` stages has a layer."""
        if pp > self.layers:
            raise InputError(
                f"{self.name} has {self.layers} layers, which {pp} pipeline stages cannot share",
                field="pipeline_parallel_size",
                remedy=f"use --pipeline-parallel-size {self.layers} or less",
            )

    def check_tensor_parallel(self, tp: int, largest: int = 64) -> None:
        """Raises InputError with the numbers up to ``largest`` that fit, unless ``tp`` ranks can share it."""
        if self.splits_into(tp):
            return
        sizes = ", ".join(map(str, self.tensor_parallel_sizes(largest)))
        raise InputError(
            f"{self.name} ({self.heads} heads, {self.kv_heads} KV heads, intermediate size"
            f" {self.intermediate}) cannot be split over {tp} ranks",
            field="tensor_parallel_size",
            remedy=f"use --tensor-parallel-size {sizes}",
        )


_REFUSED = {
    "num_experts": "mixture of experts",
    "num_local_experts": "mixture of experts",
    "n_routed_experts": "mixture of experts",
    "moe_intermediate_size": "mixture of experts",
    "num_experts_per_tok": "mixture of experts",
    "kv_lora_rank": "multi-head latent attention",
    "q_lora_rank": "multi-head latent attention",
    "index_topk": "sparse attention",
    "sparse_attention_config": "sparse attention",
    "compress_ratios": "sparse attention",
    "attention_chunk_size": "chunked local attention",
    "sliding_window_pattern": "sliding-window attention",
    "num_kv_shared_layers": "layers that share a KV cache",
    "full_attention_interval": "hybrid attention",
    "hybrid_layer_pattern": "hybrid attention",
    "hybrid_override_pattern": "hybrid attention",
    "layers_block_type": "hybrid attention",
    "linear_attn_config": "linear attention",
    "linear_num_key_heads": "linear attention",
    "ssm_state_size": "state-space layers",
    "mamba_num_heads": "state-space layers",
    "is_encoder_decoder": "encoder-decoder models",
}
"""Fields of a config whose presence changes the work in a way that is not modelled."""

_UNGATED = (
    "bloom",
    "falcon",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gptj",
    "mpt",
    "nemotron",
    "opt",
    "phi",
    "starcoder2",
)
"""Model types whose MLP has two matrices, not the three of a gated one."""


def model_from_hf_config(config: dict[str, Any], name: str, file: str) -> Model:
    """The model that a Hugging Face ``config.json`` describes.

    Of a vision-language model the text tower is read. Raises InputError naming the field that is missing,
    contradictory, or describes what is not modelled.
    """
    nested = config.get("text_config")
    fields = {**config, **nested} if isinstance(nested, dict) else config
    _refuse_odd_lists(fields, file)
    _refuse_unmodelled(fields, file)
    hidden, heads = (_count(fields, key, file) for key in ("hidden_size", "num_attention_heads"))
    kv_heads = _count(fields, "num_key_value_heads", file) if fields.get("num_key_value_heads") else heads
    if heads % kv_heads:
        reason = f"{heads} attention heads cannot share {kv_heads} KV heads evenly"
        raise InputError(reason, file=file, field="num_key_value_heads")
    return Model(
        name=name,
        title=f"{name} ({architectures[0]})" if (architectures := config.get("architectures")) else name,
        layers=_count(fields, "num_hidden_layers", file),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(fields, hidden, heads, file),
        intermediate=_count(fields, "intermediate_size", file),
        vocab=_count(fields, "vocab_size", file),
        max_position=_count(fields, "max_position_embeddings", file),
        tied_embeddings=bool(fields.get("tie_word_embeddings", False)),
        qkv_bias=bool(fields.get("attention_bias", fields.get("model_type") == "qwen2")),
        source=file,
    )


def _refuse_odd_lists(fields: dict[str, Any], file: str) -> None:
    for key in ("architectures", "layer_types"):
        names = fields.get(key) or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError("is not a list of names", file=file, field=key)


def _refuse_unmodelled(fields: dict[str, Any], file: str) -> None:
    for key, what in _REFUSED.items():
        if fields.get(key):
            raise _unmodelled(key, what, file)
    if fields.get("model_type") in _UNGATED:
        raise _unmodelled("model_type", f"the ungated MLP of {fields['model_type']}", file)
    kinds = set(fields.get("layer_types") or ()) - {"full_attention"}
    if kinds:
        raise _unmodelled("layer_types", ", ".join(sorted(map(str, kinds))), file)
    windowed = fields.get("sliding_window") and fields.get("use_sliding_window", True)
    if windowed and _count(fields, "sliding_window", file) < _count(fields, "max_position_embeddings", file):
        raise _unmodelled("sliding_window", "sliding-window attention", file)


def _unmodelled(field: str, what: str, file: str) -> InputError:
    return InputError(
        f"{what} is not modelled",
        file=file,
        field=field,
        remedy="use a dense model with full attention (Llama, Mistral, Qwen2, Qwen3)",
    )


def _count(fields: dict[str, Any], key: str, file: str) -> int:
    value = fields.get(key)
    if value is None:
        raise InputError("is missing", file=file, field=key, remedy="add it, or describe the model in YAML")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{value!r} is not a whole number above zero", file=file, field=key)
    return value


def _head_dim(fields: dict[str, Any], hidden: int, heads: int, file: str) -> int:
    if fields.get("head_dim") is not None:
        return _count(fields, "head_dim", file)
    if hidden % heads:
        reason = f"{hidden} is not a multiple of num_attention_heads {heads}"
        raise InputError(reason, file=file, field="hidden_size", remedy="add head_dim if it is another")
    return hidden // heads
