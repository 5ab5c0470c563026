"""Small decoders with random weights, and the tokens that runtimes generate with their exports.

`tests/generation/campaign.py` runs all of them, and `test_generation.py` runs a few.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

from onnx_external._generation.decoder import Decoder  # noqa: E402

TOTAL = 40
"""Words of a text with its prompt."""
LENGTHS = (7, 5, 3)
"""Of prompts."""
WINDOW = 6
WORDS = 320
PAD, BOS, EOS = 3, 1, 2

_COMMON = {"vocab_size": WORDS, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
_SIZES = {
    **_COMMON,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_SLIDING = {**_GROUPED, "sliding_window": WINDOW}
_MIXED = {**_SLIDING, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"]}

# The class and config of each architecture. `WINDOW` is much shorter than the sequences.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", _GROUPED),
    "qwen2": ("Qwen2ForCausalLM", _GROUPED),
    "qwen3": ("Qwen3ForCausalLM", {**_GROUPED, "head_dim": 32}),
    "mistral": ("MistralForCausalLM", _SLIDING),
    "gemma2": ("Gemma2ForCausalLM", _MIXED),
    "gemma3": ("Gemma3ForCausalLM", _MIXED),
    "phi3": ("Phi3ForCausalLM", _GROUPED),
    "gpt2": (
        "GPT2LMHeadModel",
        {**_COMMON, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", _SIZES),
    "opt": ("OPTForCausalLM", {**_SIZES, "ffn_dim": 96, "word_embed_proj_dim": 64}),
    "falcon": ("FalconForCausalLM", {**_SIZES, "new_decoder_architecture": False}),
    "bloom": ("BloomForCausalLM", {**_COMMON, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "stablelm": ("StableLmForCausalLM", _GROUPED),
    "olmo": ("OlmoForCausalLM", _GROUPED),
    "granite": ("GraniteForCausalLM", _GROUPED),
    "smollm3": ("SmolLM3ForCausalLM", _GROUPED),
    "gemma": ("GemmaForCausalLM", {**_GROUPED, "head_dim": 16}),
    "phi": ("PhiForCausalLM", _SIZES),
    "starcoder2": ("Starcoder2ForCausalLM", _SLIDING),
    "olmo2": ("Olmo2ForCausalLM", _GROUPED),
    "cohere": ("CohereForCausalLM", _GROUPED),
    "cohere2": ("Cohere2ForCausalLM", {**_SLIDING, "layer_types": _MIXED["layer_types"]}),
    "glm": ("GlmForCausalLM", {**_GROUPED, "head_dim": 16}),
    "nemotron": ("NemotronForCausalLM", _GROUPED),
    "gptj": (
        "GPTJForCausalLM",
        {**_COMMON, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "rotary_dim": 8},
    ),
    "gpt_bigcode": (
        "GPTBigCodeForCausalLM",
        {**_COMMON, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
    ),
    "mixtral": ("MixtralForCausalLM", {**_GROUPED, "num_local_experts": 4}),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        {**_GROUPED, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 32},
    ),
    "gpt_oss": ("GptOssForCausalLM", {**_MIXED, "num_local_experts": 4, "rope_scaling": None}),
    "odd": ("LlamaForCausalLM", {**_SIZES, "hidden_size": 48}),
}


def save(name: str, folder: Path) -> Any:
    """Save a model of an architecture with its tokenizer, and return it."""
    class_name, settings = ARCHITECTURES[name]
    made_by = getattr(transformers, class_name)
    model = made_by(made_by.config_class(**settings)).eval()
    torch.manual_seed(7)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape) * 0.3 + (1.0 if value.dim() == 1 else 0.0))
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model


def tokenizer() -> Any:
    """Return a tokenizer with one token per byte, and a few for pairs of bytes."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS,
        special_tokens=["<unk>", "<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(
        ["the quick brown fox jumps over the lazy dog and the cat sat"] * 3, trainer
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
    )


def rows_of(count: int, same: bool) -> list[list[int]]:
    """Return prompts that have the same length or different lengths."""
    torch.manual_seed(count)
    lengths = LENGTHS[:1] * count if same else LENGTHS[:count]
    return [torch.randint(4, 300, (length,)).tolist() for length in lengths]


def wanted(model: Any, rows: list[list[int]]) -> list[list[int]]:
    """Return the tokens that generate() appends to each row, which is padded on the left."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), PAD)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, longest - len(row) :] = torch.tensor(row)
        mask[number, longest - len(row) :] = 1
    settings = {"max_length": TOTAL, "min_length": TOTAL, "do_sample": False}
    tokens = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    with torch.no_grad():
        found = model.generate(input_ids=ids, attention_mask=mask, **settings, **tokens)
    return found[:, longest:].tolist()


def by_genai(folder: Path, rows: list[list[int]]) -> list[list[int]]:
    """Return the tokens that onnxruntime-genai appends. It masks padding on the right."""
    import onnxruntime_genai as genai

    model = genai.Model(str(folder))
    parameters = genai.GeneratorParams(model)
    parameters.set_search_options(
        max_length=TOTAL, min_length=TOTAL, do_sample=False, batch_size=len(rows)
    )
    longest = max(map(len, rows))
    ids = np.array([row + [PAD] * (longest - len(row)) for row in rows], np.int32)
    generator = genai.Generator(model, parameters)
    generator.append_tokens(ids)
    while not generator.is_done():
        generator.generate_next_token()
    return [generator.get_sequence(number)[longest:].tolist() for number in range(len(rows))]


def by_ours(folder: Path, rows: list[list[int]]) -> list[list[int]]:
    """Return the tokens that oe.generate would append if there were no end-of-sequence token."""
    decoder = Decoder(folder)
    decoder.ends = set()
    return decoder.generate(rows, TOTAL - max(map(len, rows)))


def same_until_the_end(found: list[list[int]], other: list[list[int]]) -> bool:
    """Return whether rows agree up to an end-of-sequence token that only the other one avoids."""
    for one, two in zip(found, other, strict=True):
        end = one.index(EOS) if EOS in one else len(one)
        if one[:end] != two[:end]:
            return False
    return True


def has_window(model: Any) -> bool:
    """Return whether a layer attends only to a window of the sequence."""
    return getattr(model.config, "sliding_window", None) is not None
