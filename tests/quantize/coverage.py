"""Measure the share of float weights that become codes in graphs from oe.transformers.export.

usage: coverage.py MATRIX_EDITS WORK_DIR [NAME...]     (docs/quantize.md has the table)
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
import transformers

import onnx_external.transformers

TEXT = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
GROUPED = {**TEXT, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 32}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
DEEPSEEK = {
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 64,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
}
WHISPER = {
    "vocab_size": 512,
    "d_model": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "num_mel_bins": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "begin_suppress_tokens": None,
    "suppress_tokens": None,
}
GPT2 = {"vocab_size": 512, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 256}
PHI3 = {"original_max_position_embeddings": 256, "pad_token_id": 0}
MODELS = {
    "Llama": ("LlamaForCausalLM", GROUPED),
    "Llama tied": ("LlamaForCausalLM", {**GROUPED, "tie_word_embeddings": True}),
    "Mistral": ("MistralForCausalLM", GROUPED),
    "Phi-3": ("Phi3ForCausalLM", {**GROUPED, **PHI3}),
    "Qwen3": ("Qwen3ForCausalLM", HEADS),
    "Gemma 2": ("Gemma2ForCausalLM", {**HEADS, "sliding_window": 64}),
    "Gemma 3": ("Gemma3ForCausalLM", {**HEADS, "sliding_window": 64}),
    "Mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 4}),
    "Qwen3-MoE": ("Qwen3MoeForCausalLM", {**HEADS, **EXPERTS, "num_experts": 4}),
    "DeepSeek-V3": ("DeepseekV3ForCausalLM", {**TEXT, **EXPERTS, **DEEPSEEK}),
    "gpt-oss": (
        "GptOssForCausalLM",
        {**HEADS, "intermediate_size": 128, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "GPT-2": ("GPT2LMHeadModel", GPT2),
    "BERT": ("BertForMaskedLM", TEXT),
    "T5": (
        "T5ForConditionalGeneration",
        {
            "vocab_size": 512,
            "d_model": 128,
            "d_ff": 256,
            "num_layers": 2,
            "num_heads": 4,
            "d_kv": 32,
        },
    ),
    "ViT": ("ViTForImageClassification", {**TEXT, "image_size": 32, "patch_size": 8}),
    "Whisper": ("WhisperForConditionalGeneration", WHISPER),
}
SCHEME = ("int4/32", "int8", "0", "64", "16", "matmulnbits")  # as matrix_edits.cc expects them


def export(name: str, folder: Path) -> Path:
    """Export a model of the architecture with random weights."""
    model_class, config = MODELS[name]
    made = getattr(transformers, model_class)
    settings = made.config_class(**config)
    if name == "T5":
        settings.decoder_start_token_id = 0
    torch.manual_seed(0)
    made(settings).eval().save_pretrained(folder / "model")
    onnx_external.transformers.export(folder / "model", folder / "out")
    return folder / "out"


def coverage(program: str, model: Path, folder: Path) -> str:
    """Return the share, and the weights with at least two dimensions that stay in float."""
    run = subprocess.run(
        [program, model, folder / "edited.onnx", *SCHEME],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        return run.stdout + run.stderr
    weights = json.loads(run.stdout)["weights"]
    covered = sum(weight["elements"] for weight in weights if not weight["why"])
    kept = [
        f"{weight['name']} {weight['dims']} ({weight['why']})"
        for weight in weights
        if weight["why"] and len(weight["dims"]) > 1
    ]
    share = covered / sum(weight["elements"] for weight in weights)
    return "; ".join([f"{100 * share:.2f} %", *kept])


def main() -> None:
    program, work = sys.argv[1], Path(sys.argv[2])
    for name in sys.argv[3:] or MODELS:
        folder = work / name
        for model in sorted(export(name, folder).glob("*.onnx")):
            print(f"{name} {model.name}: {coverage(program, model, folder)}", flush=True)


if __name__ == "__main__":
    main()
