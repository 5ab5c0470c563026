"""Creates the entries of config.json that several GGUF architectures share."""

from __future__ import annotations

from typing import Any

from ..._base.errors import ExportError, FormatError
from .metadata import Metadata, Shapes
from .rope import rope_parameters

Config = dict[str, Any]
SLIDING, FULL = "sliding_attention", "full_attention"
_EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight")
_ROTATING_PARTS = ("nemotron", "phi3")
"""Model types in which rotary embeddings may apply to only part of each head."""


def rows_of(file: Metadata, shapes: Shapes) -> int:
    """Return the size of the vocabulary from the embeddings; the key may state another size."""
    for name in _EMBEDDINGS:
        if len(shapes.get(name, ())) == 2:
            return shapes[name][0]
    raise FormatError(f"{file.path}: token_embd.weight: not found; the file has no language model")


def decoder(file: Metadata, shapes: Shapes, kind: str, made_by: str) -> Config:
    """Return the settings that all decoders with rotary embeddings share.

    Args:
        file: the keys of the GGUF file.
        shapes: the shapes of the model's tensors.
        kind: transformers' `model_type`.
        made_by: the class of the model.
    """
    width, heads = file.size("embedding_length"), file.size("attention.head_count")
    head = _head(file, width, heads)
    positions = file.size("context_length")
    rotated = file.size("rope.dimension_count", head)
    if rotated != head and kind not in _ROTATING_PARTS:
        raise ExportError(
            f"{file.path}: {file.architecture}.rope.dimension_count is {rotated}, but heads have "
            f"the size {head}; transformers' {made_by} always rotates the whole head"
        )
    if rotated % 2:
        raise FormatError(f"{file.path}: {file.architecture}.rope.dimension_count is odd")
    return {
        "architectures": [made_by],
        "model_type": kind,
        "vocab_size": rows_of(file, shapes),
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
    """Return the size of an attention head."""
    key = file.size_if_any("attention.key_length")
    if key is None and width % heads:
        raise FormatError(
            f"{file.path}: {heads} heads do not divide a width of {width}, and there is no "
            f"{file.architecture}.attention.key_length"
        )
    key = key or width // heads
    if file.size("attention.value_length", key) != key:
        raise ExportError(
            f"{file.path}: the keys and the values of a head have different sizes, which "
            "transformers' model of this architecture does not support"
        )
    return key


def rms(file: Metadata) -> Config:
    """Return the epsilon of the RMS norms."""
    return {"rms_norm_eps": file.number("attention.layer_norm_rms_epsilon")}


def experts(file: Metadata, count: str) -> Config:
    """Return the number of experts, under the given name, and the number used for each token."""
    return {
        count: file.size("expert_count"),
        "num_experts_per_tok": file.size("expert_used_count"),
    }


def biases(shapes: Shapes) -> Config:
    """Return whether the attention and the MLP of a layer have biases."""
    layer = "model.layers.0."
    attention = (f"self_attn.{each}_proj.bias" for each in "qkvo")
    inner = (f"mlp.{each}_proj.bias" for each in ("gate", "up", "down"))
    return {
        "attention_bias": any(layer + each in shapes for each in attention),
        "mlp_bias": any(layer + each in shapes for each in inner),
    }


def window(file: Metadata) -> Config:
    """Return the size of the sliding attention window; None if there is none."""
    return {"sliding_window": file.size_if_any("attention.sliding_window")}


def unused_window(file: Metadata) -> Config:
    """Return settings without a window, for Qwen.

    Qwen's files state a window that its models do not use.
    """
    file.own("attention.sliding_window")
    return {"use_sliding_window": False, "sliding_window": None}


def rotated_part(file: Metadata, head: int) -> Config:
    """Return the fraction of a head that is rotated."""
    return {"partial_rotary_factor": file.size("rope.dimension_count", head) / head}


def layer_types(file: Metadata, layers: int, period: int) -> list[str]:
    """Return the type of each layer: the last layer of each period attends to all tokens.

    Args:
        file: the metadata, which may state the period or, for each layer, whether it has a window.
        layers: the number of layers.
        period: the period if the metadata states none.
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
