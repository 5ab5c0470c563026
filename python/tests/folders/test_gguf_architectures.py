"""Tests that transformers models keep their logits after conversion to GGUF and back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from gguf_files import Array, write_gguf
from gguf_models import stored
from safetensors.numpy import save_file

import onnx_external as oe
from onnx_external._folders.gguf.config import config_of
from onnx_external._folders.gguf.metadata import Metadata

IDS = torch.tensor([[1, 5, 3, 31, 7, 7, 2, 19, 40, 8, 11, 23]])
COMMON: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "pad_token_id": None,
}
EXPERTS = {
    "num_experts": 3,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "decoder_sparse_step": 1,
}
FACTORS = {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 2.0}

# The config class of each architecture, and settings other than the defaults.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma": ("Gemma", {"head_dim": 12, "tie_word_embeddings": True}),
    "qwen2moe": ("Qwen2Moe", {**EXPERTS, "shared_expert_intermediate_size": 16}),
    "qwen3moe": ("Qwen3Moe", {**EXPERTS, "head_dim": 12, "norm_topk_prob": True}),
    "arcee": ("Arcee", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e3}}),
    "granite": ("Granite", {**FACTORS, "attention_multiplier": 0.2}),
    "minicpm": ("Granite", {**FACTORS, "attention_multiplier": 8**-0.5}),
    "nemotron": ("Nemotron", {"partial_rotary_factor": 0.5, "norm_eps": 1e-4}),
    "olmo": ("Olmo", {"clip_qkv": 0.8}),
    "smollm3": ("SmolLM3", {"tie_word_embeddings": True}),
    "xverse": ("Llama", {"rms_norm_eps": 1e-5}),
}

# Metadata keys of single architectures, and the settings from which they are made.
OWN = {
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "norm_eps",
    "attention.clamp_kqv": "clip_qkv",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}


def keys(architecture: str, config: Any) -> dict[str, Any]:
    """Return the keys that llama.cpp's converter writes for a model."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    found = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "rope.freq_base": float(rope["rope_theta"]),
    }
    if architecture in ("gemma", "qwen3moe"):
        found |= {"attention.key_length": head, "attention.value_length": head}
    else:
        found["rope.dimension_count"] = int(head * rope.get("partial_rotary_factor", 1))
    for key, name in OWN.items():
        if getattr(config, name, None) is not None:
            found[key] = getattr(config, name)
    if architecture == "granite":
        found["attention.scale"] = config.attention_multiplier
    if architecture == "olmo":
        found["attention.layer_norm_epsilon"] = 1e-5
    return {"general.architecture": architecture} | {
        f"{architecture}.{key}": value for key, value in found.items()
    }


def source(architecture: str) -> Any:
    """Make a model whose norms are not one and whose biases are not zero."""
    kind, settings = MODELS[architecture]
    config = getattr(transformers, f"{kind}Config")(**COMMON | settings)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn_like(each) * 0.2)
    return model


def read(path: Path) -> dict[str, Array]:
    with oe.open_checkpoint(path) as checkpoint:
        return {name: tensor.numpy().copy() for name, tensor in checkpoint.items()}


def written(architecture: str, model: Any, folder: Path) -> Path:
    """Write a model to a GGUF file."""
    model.save_pretrained(folder / "source")
    weights = read(folder / "source")
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    tensors = stored(architecture, weights)
    return write_gguf(folder / "m.gguf", keys(architecture, model.config), tensors)


def loaded(file: Path, folder: Path) -> Any:
    """Load the model from a GGUF file."""
    weights = read(file)
    shapes = {name: value.shape for name, value in weights.items()}
    config = config_of(Metadata(file, oe.gguf_metadata(file)), shapes)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    load: Callable[..., Any] = transformers.AutoModelForCausalLM.from_pretrained
    model, said = load(folder, output_loading_info=True)
    assert not said["missing_keys"] and not said["unexpected_keys"] and not said["mismatched_keys"]
    return model.eval()


@pytest.mark.parametrize("architecture", MODELS)
def test_a_model_is_the_same_behind_a_file(architecture: str, tmp_path: Path) -> None:
    model = source(architecture)
    again = loaded(written(architecture, model, tmp_path), tmp_path / "loaded")
    with torch.no_grad():
        wanted, found = (each(input_ids=IDS).logits for each in (model, again))
    assert torch.linalg.norm(found - wanted) < 2e-6 * torch.linalg.norm(wanted)
