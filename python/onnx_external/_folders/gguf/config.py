"""config.json of a GGUF file's model: a row for each architecture that has names of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._base.errors import ExportError, FormatError
from .metadata import Metadata, Shapes
from .rope import rope_parameters

Config = dict[str, Any]
SLIDING, FULL = "sliding_attention", "full_attention"
_TOKENS = ("bos", "eos", "padding")
_EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight")
_GEMMA2_27B, _GEMMA3_27B = 46, 62
"""Their layers, by which alone llama.cpp tells that attention is scaled by the width of a head."""


def config_of(file: Metadata, shapes: Shapes) -> Config:
    """Return what config.json says of a model.

    Args:
        file: its keys.
        shapes: its tensors.

    Raises:
        ExportError: the architecture is not known, or has no form in transformers.
        FormatError: the keys do not describe a model.
    """
    make = _MAKERS.get(file.architecture)
    if make is None:
        raise ExportError(
            f"{file.path}: a model of the architecture {file.architecture!r:.60}, which is not "
            f"exported; known are {', '.join(sorted(_MAKERS))}"
        )
    made = make(file, shapes)
    return made | _tokens(file, made["vocab_size"]) | {"dtype": "float32"}


def _tokens(file: Metadata, count: int) -> Config:
    """Return the ids that begin, end and pad a text, where the file has them."""
    found = {}
    for name in _TOKENS:
        value = file.get(f"tokenizer.ggml.{name}_token_id")
        known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
        found[f"{name.removesuffix('ding')}_token_id"] = value if known else None
    return found


def _rows(file: Metadata, shapes: Shapes) -> int:
    """Return the size of the vocabulary, which keys may give otherwise than the tensors."""
    for name in _EMBEDDINGS:
        if len(shapes.get(name, ())) == 2:
            return shapes[name][0]
    raise FormatError(f"{file.path}: token_embd.weight: not found; the file has no language model")


def _decoder(file: Metadata, shapes: Shapes, kind: str, made_by: str) -> Config:
    """Return what all decoders with a rotary embedding have."""
    width, heads = file.size("embedding_length"), file.size("attention.head_count")
    head = _head(file, width, heads)
    positions = file.size("context_length")
    rotated = file.size("rope.dimension_count", head)
    if rotated != head and kind != "phi3":
        raise ExportError(
            f"{file.path}: {file.architecture}.rope.dimension_count is {rotated}, and a head has "
            f"{head} numbers; transformers' {made_by} rotates all of them"
        )
    if rotated % 2:
        raise FormatError(f"{file.path}: {file.architecture}.rope.dimension_count is odd")
    return {
        "architectures": [made_by],
        "model_type": kind,
        "vocab_size": _rows(file, shapes),
        "hidden_size": width,
        "intermediate_size": file.size("feed_forward_length"),
        "num_hidden_layers": file.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.size("attention.head_count_kv", heads),
        "head_dim": head,
        "max_position_embeddings": positions,
        "rope_parameters": rope_parameters(file, rotated, positions),
        "tie_word_embeddings": "lm_head.weight" not in shapes,
    }


def _head(file: Metadata, width: int, heads: int) -> int:
    """Return the size of a head."""
    key = file.size_if_any("attention.key_length")
    if key is None and width % heads:
        raise FormatError(
            f"{file.path}: {heads} heads of {width} numbers, and no {file.architecture}."
            "attention.key_length"
        )
    key = key or width // heads
    if file.size("attention.value_length", key) != key:
        raise ExportError(
            f"{file.path}: the keys and the values of a head have different sizes, for which "
            "transformers' model of this architecture has no setting"
        )
    return key


def _rms(file: Metadata) -> Config:
    return {"rms_norm_eps": file.number("attention.layer_norm_rms_epsilon")}


def _experts(file: Metadata, count: str) -> Config:
    return {
        count: file.size("expert_count"),
        "num_experts_per_tok": file.size("expert_used_count"),
    }


def _llama(file: Metadata, shapes: Shapes) -> Config:
    """Return the config of Llama, of Mistral, which is one, or of Mixtral."""
    rms = _rms(file)
    if file.own("expert_count"):
        made = _decoder(file, shapes, "mixtral", "MixtralForCausalLM")
        return made | rms | _experts(file, "num_local_experts") | _window(file)
    first = "model.layers.0."
    biased = any(f"{first}self_attn.{each}_proj.bias" in shapes for each in "qkv")
    out = f"{first}self_attn.o_proj.bias" in shapes
    inner = any(f"{first}mlp.{each}_proj.bias" in shapes for each in ("gate", "up", "down"))
    if biased and not out and not inner:  # Qwen 2 is Llama with such biases
        return _decoder(file, shapes, "qwen2", "Qwen2ForCausalLM") | rms | _qwen_window(file)
    window = _window(file)
    if window["sliding_window"] and not (biased or out or inner):
        return _decoder(file, shapes, "mistral", "MistralForCausalLM") | rms | window
    made = _decoder(file, shapes, "llama", "LlamaForCausalLM")
    return made | rms | {"attention_bias": biased or out, "mlp_bias": inner}


def _window(file: Metadata) -> Config:
    """Return the window of attention; 0 is none."""
    return {"sliding_window": file.size_if_any("attention.sliding_window")}


def _qwen_window(file: Metadata) -> Config:
    """Return Qwen's window, which its files name, and which its models do not use."""
    file.own("attention.sliding_window")
    return {"use_sliding_window": False, "sliding_window": None}


def _qwen2(file: Metadata, shapes: Shapes) -> Config:
    made = _decoder(file, shapes, "qwen2", "Qwen2ForCausalLM")
    return made | _rms(file) | _qwen_window(file)


def _qwen3(file: Metadata, shapes: Shapes) -> Config:
    made = _decoder(file, shapes, "qwen3", "Qwen3ForCausalLM")
    biased = "model.layers.0.self_attn.q_proj.bias" in shapes
    return made | _rms(file) | _qwen_window(file) | {"attention_bias": biased}


def _qwen_experts(file: Metadata, normed: bool) -> Config:
    """Return the settings of experts; whether their weights are normed is usually in no key."""
    return {
        **_experts(file, "num_experts"),
        "moe_intermediate_size": file.size("expert_feed_forward_length"),
        "norm_topk_prob": file.flag("expert_weights_norm", normed),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _qwen2moe(file: Metadata, shapes: Shapes) -> Config:
    made = _decoder(file, shapes, "qwen2_moe", "Qwen2MoeForCausalLM") | _rms(file)
    shared = "model.layers.0.mlp.shared_expert.gate_proj.weight"
    inner = shapes[shared][0] if shared in shapes else None
    return {
        **made,
        **_qwen_window(file),
        **_qwen_experts(file, normed=False),
        "shared_expert_intermediate_size": file.size("expert_shared_feed_forward_length", inner),
    }


def _qwen3moe(file: Metadata, shapes: Shapes) -> Config:
    made = _decoder(file, shapes, "qwen3_moe", "Qwen3MoeForCausalLM") | _rms(file)
    return made | _qwen_window(file) | _qwen_experts(file, normed=True)


def _gemma(file: Metadata, shapes: Shapes) -> Config:
    made = _decoder(file, shapes, "gemma", "GemmaForCausalLM")
    return made | _rms(file) | {"hidden_act": "gelu_pytorch_tanh"}


def _softcaps(file: Metadata, attention: float | None, final: float | None) -> Config:
    """Return the softcaps; llama.cpp has defaults for Gemma 2."""
    found = {}
    for name, usual in (("attn", attention), ("final", final)):
        value = file.number(f"{name}_logit_softcapping", usual or 0.0)
        found[f"{name}_logit_softcapping"] = value or None
    return found


def _scalar(made: Config, largest: int) -> Config:
    """Return the number whose root attention is divided by."""
    is_largest = made["num_hidden_layers"] == largest
    by_width = made["hidden_size"] // made["num_attention_heads"]
    return {"query_pre_attn_scalar": by_width if is_largest else made["head_dim"]}


def _pattern(file: Metadata, layers: int, period: int) -> list[str]:
    """Return the kind of each layer: one in a period sees all tokens.

    Args:
        file: may have the period, or a flag for each layer that slides.
        layers: how many there are.
        period: if the file has none.
    """
    found = file.own("attention.sliding_window_pattern")
    if isinstance(found, list):
        if len(found) != layers:
            raise FormatError(
                f"{file.path}: {file.architecture}.attention.sliding_window_pattern: "
                f"{len(found)} values for {layers} layers"
            )
        return [SLIDING if each else FULL for each in found]
    period = file.size("attention.sliding_window_pattern", period)
    return [FULL if (number + 1) % period == 0 else SLIDING for number in range(layers)]


def _gemma2(file: Metadata, shapes: Shapes) -> Config:
    made = _decoder(file, shapes, "gemma2", "Gemma2ForCausalLM") | _rms(file)
    return {
        **made,
        **_softcaps(file, 50.0, 30.0),
        **_scalar(made, _GEMMA2_27B),
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.size("attention.sliding_window", 4096),
        "layer_types": _pattern(file, made["num_hidden_layers"], 2),
    }


def _gemma3(file: Metadata, shapes: Shapes) -> Config:
    made = _decoder(file, shapes, "gemma3_text", "Gemma3ForCausalLM") | _rms(file)
    local = {"rope_type": "default", "rope_theta": file.number("rope.freq_base_swa", 10000.0)}
    return {
        **made,
        **_softcaps(file, None, None),
        **_scalar(made, _GEMMA3_27B),
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.size("attention.sliding_window", 1024),
        "layer_types": _pattern(file, made["num_hidden_layers"], 6),
        # The scaling is that of the layers that see all tokens.
        "rope_parameters": {FULL: made["rope_parameters"], SLIDING: local},
    }


def _phi3(file: Metadata, shapes: Shapes) -> Config:
    made = _decoder(file, shapes, "phi3", "Phi3ForCausalLM") | _rms(file)
    head, positions = made.pop("head_dim"), made["max_position_embeddings"]
    rotated = file.size("rope.dimension_count", head)
    rope = made["rope_parameters"] | {"partial_rotary_factor": rotated / head}
    return {
        **made,
        **_window(file),
        "rope_parameters": rope,
        "original_max_position_embeddings": file.size(
            "rope.scaling.original_context_length", positions
        ),
    }


def _gpt2(file: Metadata, shapes: Shapes) -> Config:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": _rows(file, shapes),
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
    made = _decoder(file, shapes, "starcoder2", "Starcoder2ForCausalLM")
    made.pop("head_dim")
    return {
        **made,
        **_window(file),
        "norm_epsilon": file.number("attention.layer_norm_epsilon"),
        "hidden_act": "gelu_pytorch_tanh",
        "use_bias": "model.layers.0.self_attn.q_proj.bias" in shapes,
    }


def _gpt_oss(file: Metadata, shapes: Shapes) -> Config:
    made = _decoder(file, shapes, "gpt_oss", "GptOssForCausalLM") | _rms(file)
    rope = made["rope_parameters"]
    if rope["rope_type"] == "yarn":
        rope["truncate"] = False  # which no key says; llama.cpp rounds the range
    return {
        **made,
        **_experts(file, "num_local_experts"),
        "intermediate_size": file.size("expert_feed_forward_length", made["intermediate_size"]),
        "attention_bias": True,
        "sliding_window": file.size("attention.sliding_window", 128),
        "layer_types": _pattern(file, made["num_hidden_layers"], 2),
    }


_MAKERS: dict[str, Callable[[Metadata, Shapes], Config]] = {
    "llama": _llama,
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
