"""Creates config.json for a GGUF model: one function for each supported architecture."""

from __future__ import annotations

from collections.abc import Callable

from ..._base.errors import ExportError
from .decoders import (
    FULL,
    SLIDING,
    Config,
    biases,
    decoder,
    experts,
    layer_types,
    rms,
    rotated_part,
    rows_of,
    unused_window,
    window,
)
from .metadata import Metadata, Shapes

_TOKENS = ("bos", "eos", "padding")
_GEMMA2_27B, _GEMMA3_27B = 46, 62
"""Layer counts by which llama.cpp recognizes the models whose attention scale is the width per
head instead of the head size."""


def config_of(file: Metadata, shapes: Shapes) -> Config:
    """Return the content of config.json for a GGUF model.

    Args:
        file: the keys of the GGUF file.
        shapes: the shapes of the model's tensors.

    Raises:
        ExportError: the architecture is not known, or transformers has no equivalent.
        FormatError: the keys do not describe a model.
    """
    make = _MAKERS.get(file.architecture)
    if make is None:
        raise ExportError(
            f"{file.path}: the architecture {file.architecture!r:.60} cannot be exported; "
            f"supported architectures: {', '.join(sorted(_MAKERS))}"
        )
    made = make(file, shapes)
    return made | _tokens(file, made["vocab_size"]) | {"dtype": "float32"}


def _tokens(file: Metadata, count: int) -> Config:
    """Return the ids of the tokens that begin, end and pad a text; None where there is none."""
    found = {}
    for name in _TOKENS:
        value = file.get(f"tokenizer.ggml.{name}_token_id")
        known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
        found[f"{name.removesuffix('ding')}_token_id"] = value if known else None
    return found


def _llama(file: Metadata, shapes: Shapes) -> Config:
    """Return the config of a model with Llama's architecture: Llama, Mistral, Mixtral or Qwen 2."""
    if file.own("expert_count"):
        made = decoder(file, shapes, "mixtral", "MixtralForCausalLM") | rms(file)
        return made | experts(file, "num_local_experts") | window(file)
    found, limit = biases(shapes), window(file)
    out = "model.layers.0.self_attn.o_proj.bias" in shapes
    if found["attention_bias"] and not out and not found["mlp_bias"]:
        return _qwen2(file, shapes)  # which is Llama with such biases
    if limit["sliding_window"] and not any(found.values()):
        return decoder(file, shapes, "mistral", "MistralForCausalLM") | rms(file) | limit
    return decoder(file, shapes, "llama", "LlamaForCausalLM") | rms(file) | found


def _granite(file: Metadata, shapes: Shapes) -> Config:
    """Return the config of Granite, which is Llama with additional factors."""
    made = decoder(file, shapes, "granite", "GraniteForCausalLM") | rms(file)
    if not file.flag("rope.scaling.finetuned", True):  # so llama.cpp reads it for this family
        raise ExportError(f"{file.path}: a Granite model without positions cannot be exported")
    return made | biases(shapes) | _factors(file, made["head_dim"])


def _minicpm(file: Metadata, shapes: Shapes) -> Config:
    """Return the config of MiniCPM as a Granite model, which has the same factors."""
    for name in ("embedding_scale", "residual_scale", "logit_scale"):
        file.number(name)
    return _granite(file, shapes)


def _factors(file: Metadata, head: int) -> Config:
    return {
        "embedding_multiplier": file.number("embedding_scale", 1.0),
        "residual_multiplier": file.number("residual_scale", 1.0),
        "logits_scaling": file.number("logit_scale", 1.0),
        "attention_multiplier": file.number("attention.scale", 0.0) or head**-0.5,
    }


def _arcee(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "arcee", "ArceeForCausalLM") | rms(file)
    return made | biases(shapes) | {"hidden_act": "relu2"}


def _smollm3(file: Metadata, shapes: Shapes) -> Config:
    """Return the config of SmolLM 3, in which every fourth layer has no rotary embeddings."""
    made = decoder(file, shapes, "smollm3", "SmolLM3ForCausalLM") | rms(file)
    return made | biases(shapes) | {"no_rope_layer_interval": 4} | unused_window(file)


def _olmo(file: Metadata, shapes: Shapes) -> Config:
    """Return the config of OLMo, whose norms have no weights."""
    made = decoder(file, shapes, "olmo", "OlmoForCausalLM")
    if file.number("attention.layer_norm_epsilon", 1e-5) != 1e-5:
        raise ExportError(
            f"{file.path}: OLMo's norms always use an epsilon of 1e-05 in transformers"
        )
    bias = {"attention_bias": biases(shapes)["attention_bias"]}
    return made | bias | {"clip_qkv": file.number("attention.clamp_kqv", 0.0) or None}


def _nemotron(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "nemotron", "NemotronForCausalLM") | biases(shapes)
    return {
        **made,
        "rope_parameters": made["rope_parameters"] | rotated_part(file, made["head_dim"]),
        "norm_eps": file.number("attention.layer_norm_epsilon"),
        "hidden_act": "relu2",
    }


def _qwen2(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "qwen2", "Qwen2ForCausalLM")
    return made | rms(file) | unused_window(file)


def _qwen3(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "qwen3", "Qwen3ForCausalLM")
    bias = {"attention_bias": biases(shapes)["attention_bias"]}
    return made | rms(file) | unused_window(file) | bias


def _qwen_experts(file: Metadata, normed: bool) -> Config:
    """Return the settings of Qwen's experts.

    Usually no key says whether the experts' weights are normalized; `normed` is the default.
    """
    return {
        **experts(file, "num_experts"),
        "moe_intermediate_size": file.size("expert_feed_forward_length"),
        "norm_topk_prob": file.flag("expert_weights_norm", normed),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _qwen2moe(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "qwen2_moe", "Qwen2MoeForCausalLM") | rms(file)
    shared = "model.layers.0.mlp.shared_expert.gate_proj.weight"
    inner = shapes[shared][0] if shared in shapes else None
    return {
        **made,
        **unused_window(file),
        **_qwen_experts(file, normed=False),
        "shared_expert_intermediate_size": file.size("expert_shared_feed_forward_length", inner),
    }


def _qwen3moe(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "qwen3_moe", "Qwen3MoeForCausalLM") | rms(file)
    made["attention_bias"] = biases(shapes)["attention_bias"]
    return made | unused_window(file) | _qwen_experts(file, normed=True)


def _gemma(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "gemma", "GemmaForCausalLM")
    return made | rms(file) | {"hidden_act": "gelu_pytorch_tanh"}


def _softcaps(file: Metadata, attention: float | None, final: float | None) -> Config:
    """Return the soft caps of the logits; the given values apply if the file has none."""
    found = {}
    for name, usual in (("attn", attention), ("final", final)):
        value = file.number(f"{name}_logit_softcapping", usual or 0.0)
        found[f"{name}_logit_softcapping"] = value or None
    return found


def _scalar(made: Config, largest: int) -> Config:
    """Return the setting by whose square root attention scores are divided."""
    is_largest = made["num_hidden_layers"] == largest
    by_width = made["hidden_size"] // made["num_attention_heads"]
    return {"query_pre_attn_scalar": by_width if is_largest else made["head_dim"]}


def _gemma2(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "gemma2", "Gemma2ForCausalLM") | rms(file)
    return {
        **made,
        **_softcaps(file, 50.0, 30.0),
        **_scalar(made, _GEMMA2_27B),
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.size("attention.sliding_window", 4096),
        "layer_types": layer_types(file, made["num_hidden_layers"], 2),
    }


def _gemma3(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "gemma3_text", "Gemma3ForCausalLM") | rms(file)
    local = {"rope_type": "default", "rope_theta": file.number("rope.freq_base_swa", 10000.0)}
    return {
        **made,
        **_softcaps(file, None, None),
        **_scalar(made, _GEMMA3_27B),
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.size("attention.sliding_window", 1024),
        "layer_types": layer_types(file, made["num_hidden_layers"], 6),
        # The scaling is that of the layers that see all tokens.
        "rope_parameters": {FULL: made["rope_parameters"], SLIDING: local},
    }


def _phi3(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "phi3", "Phi3ForCausalLM") | rms(file)
    head, positions = made.pop("head_dim"), made["max_position_embeddings"]
    rope = made["rope_parameters"] | rotated_part(file, head)
    return {
        **made,
        **window(file),
        "rope_parameters": rope,
        "original_max_position_embeddings": file.size(
            "rope.scaling.original_context_length", positions
        ),
    }


def _gpt2(file: Metadata, shapes: Shapes) -> Config:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": rows_of(file, shapes),
        "n_embd": file.size("embedding_length"),
        "n_layer": file.size("block_count"),
        "n_head": file.size("attention.head_count"),
        "n_inner": file.size("feed_forward_length"),
        "n_positions": file.size("context_length"),
        "layer_norm_epsilon": file.number("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
        "tie_word_embeddings": "lm_head.weight" not in shapes,
    }


def _starcoder2(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "starcoder2", "Starcoder2ForCausalLM")
    made.pop("head_dim")
    return {
        **made,
        **window(file),
        "norm_epsilon": file.number("attention.layer_norm_epsilon"),
        "hidden_act": "gelu_pytorch_tanh",
        "use_bias": biases(shapes)["attention_bias"],
    }


def _gpt_oss(file: Metadata, shapes: Shapes) -> Config:
    made = decoder(file, shapes, "gpt_oss", "GptOssForCausalLM") | rms(file)
    rope = made["rope_parameters"]
    if rope["rope_type"] == "yarn":
        rope["truncate"] = False  # which no key says; llama.cpp rounds the range
    return {
        **made,
        **experts(file, "num_local_experts"),
        "intermediate_size": file.size("expert_feed_forward_length", made["intermediate_size"]),
        "attention_bias": True,
        "sliding_window": file.size("attention.sliding_window", 128),
        "layer_types": layer_types(file, made["num_hidden_layers"], 2),
    }


_MAKERS: dict[str, Callable[[Metadata, Shapes], Config]] = {
    "llama": _llama,
    "xverse": _llama,
    "granite": _granite,
    "minicpm": _minicpm,
    "arcee": _arcee,
    "smollm3": _smollm3,
    "olmo": _olmo,
    "nemotron": _nemotron,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen2moe": _qwen2moe,
    "qwen3moe": _qwen3moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "starcoder2": _starcoder2,
    "gpt-oss": _gpt_oss,
}
