"""Tests of LoRA adapters in GGUF files, merged into models of any format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import Array, write_gguf
from gguf_models import HEADS, KV_HEADS, make, permuted, stored
from quantized_folders import safetensors

import onnx_external as oe

RANK = 2
ALPHA = 3.0
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.type": "adapter",
    "adapter.type": "lora",
    "adapter.lora.alpha": ALPHA,
}
# The weights that the adapter changes: name in the file, name in transformers, heads of the rows.
CHANGED = [
    ("blk.0.attn_q", "model.layers.0.self_attn.q_proj.weight", HEADS),
    ("blk.1.attn_k", "model.layers.1.self_attn.k_proj.weight", KV_HEADS),
    ("blk.0.ffn_down", "model.layers.0.mlp.down_proj.weight", 0),
    ("output", "lm_head.weight", 0),
]


def adapter(weights: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Make an adapter; return its tensors and the merged weights."""
    random = np.random.default_rng(5)
    tensors, merged = {}, dict(weights)
    for name, key, heads in CHANGED:
        rows, columns = weights[key].shape
        a = random.standard_normal((RANK, columns)).astype(np.float32)
        b = random.standard_normal((rows, RANK)).astype(np.float32)
        tensors[f"{name}.weight.lora_a"] = a
        tensors[f"{name}.weight.lora_b"] = permuted(b, heads) if heads else b
        merged[key] = weights[key] + np.float32(ALPHA / RANK) * (b @ a)
    rows, columns = weights["model.embed_tokens.weight"].shape
    a = random.standard_normal((rows, RANK)).astype(np.float32)
    b = random.standard_normal((columns, RANK)).astype(np.float32)
    tensors |= {"token_embd.weight.lora_a": a, "token_embd.weight.lora_b": b}
    merged["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"] + np.float32(
        ALPHA / RANK
    ) * (a @ b.T)
    return tensors, merged


def assert_merged(paths: list[Path], wanted: dict[str, Array]) -> None:
    with oe.open_checkpoint(paths) as checkpoint:
        assert sorted(checkpoint) == sorted(wanted)
        for name, value in wanted.items():
            assert np.allclose(checkpoint[name].numpy(), value, rtol=1e-6, atol=1e-6), name
        assert any("merged into 5 weights" in note for note in checkpoint.notes)


def test_an_adapter_is_merged_into_a_gguf_model(tmp_path: Path) -> None:
    made = make("llama")
    tensors, merged = adapter(made.weights)
    base = write_gguf(tmp_path / "m.gguf", made.metadata, stored("llama", made.weights))
    lora = write_gguf(tmp_path / "lora.gguf", METADATA, tensors)
    assert_merged([base, lora], merged)


def test_an_adapter_is_merged_into_a_folder_of_transformers(tmp_path: Path) -> None:
    made = make("llama")
    tensors, merged = adapter(made.weights)
    lora = write_gguf(tmp_path / "lora.gguf", METADATA, tensors)
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(safetensors(made.weights))
    with pytest.raises(oe.FormatError, match="number of heads"):
        oe.open_checkpoint([base, lora])
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}
    (base / "config.json").write_text(json.dumps(heads))
    assert_merged([base, lora], merged)


def test_transposed_weights_of_gpt2_get_transposed_products(tmp_path: Path) -> None:
    made = make("gpt2")
    random = np.random.default_rng(5)
    key = "transformer.h.1.mlp.c_fc.weight"
    columns, rows = made.weights[key].shape
    a = random.standard_normal((RANK, columns)).astype(np.float32)
    b = random.standard_normal((rows, RANK)).astype(np.float32)
    base = write_gguf(tmp_path / "m.gguf", made.metadata, stored("gpt2", made.weights))
    tensors = {"blk.1.ffn_up.weight.lora_a": a, "blk.1.ffn_up.weight.lora_b": b}
    metadata = METADATA | {"general.architecture": "gpt2"}
    lora = write_gguf(tmp_path / "lora.gguf", metadata, tensors)
    with oe.open_checkpoint([base, lora]) as checkpoint:
        wanted = made.weights[key] + np.float32(ALPHA / RANK) * (b @ a).T
        assert np.allclose(checkpoint[key].numpy(), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("metadata", "tensors", "words"),
    [
        ({"adapter.type": "dora"}, {}, "not a LoRA"),
        ({"adapter.lora.alpha": 0.0}, {}, "not a LoRA"),
        ({"general.architecture": "zebra"}, {}, "an adapter for the architecture 'zebra'"),
        ({"general.architecture": "qwen2"}, {}, "'qwen2', but its base has the"),
        ({"adapter.alora.invocation_tokens": [1, 2]}, {}, "an activated LoRA"),
        ({}, {"blk.0.ffn_gate_exps.weight.lora_a": np.zeros((2, 2, 16), np.float32)}, "plain LoRA"),
        ({}, {"blk.0.attn_norm.weight": np.zeros(16, np.float32)}, "plain LoRA"),
        ({}, {"blk.0.attn_v.weight.lora_a": np.zeros((2, 16), np.float32)}, "one of its two"),
    ],
)
def test_other_adapters_are_refused(
    tmp_path: Path, metadata: dict[str, Any], tensors: dict[str, Array], words: str
) -> None:
    made = make("llama")
    base = write_gguf(tmp_path / "m.gguf", made.metadata, stored("llama", made.weights))
    tensors = tensors or adapter(made.weights)[0]
    lora = write_gguf(tmp_path / "lora.gguf", METADATA | metadata, tensors)
    with pytest.raises((oe.FormatError, oe.MismatchError), match=words):
        oe.open_checkpoint([base, lora])
