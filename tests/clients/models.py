"""Models with random weights, their inputs, and transformers' results."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE

WORDS = 96
COUNT = 20
"""New tokens."""
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "[MASK]")
_TEXT = dict(vocab_size=WORDS, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_BERT = dict(
    vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
    max_position_embeddings=64, pad_token_id=0,
)  # fmt: skip
_DECODER = dict(
    _TEXT, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64,
)  # fmt: skip
_LINEAR = dict(
    _DECODER, head_dim=16, layer_types=["linear_attention", "full_attention"], linear_key_head_dim=8,
    linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
)  # fmt: skip
_PAIR = dict(
    _TEXT, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
)  # fmt: skip
_IMAGES = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32,
    patch_size=8,
)  # fmt: skip
_PROMPT = [[1, 50, 52, 54]]


@dataclass(frozen=True)
class Model:
    """A model, and the request that clients get for it."""

    kind: str
    """Its class in transformers."""
    auto: str
    """What follows `AutoModelFor` in the name of the class that loads it; "": AutoModel."""
    config: dict[str, Any]
    output: str = ""
    """What forward() is asked for; "": generate() is called."""
    given: tuple[str, ...] = ("input_ids", "attention_mask")
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """JSON files of its folder, or what is added to them."""

    @property
    def label(self) -> str:
        """Return the model's name in the table of docs/consumers.md."""
        return f"{self.kind} (sentences)" if "modules.json" in self.files else self.kind


def _vision(kind: str, **config: Any) -> dict[str, Any]:
    return {"preprocessor_config.json": {"image_processor_type": kind, **config}}


_WHISPER = {
    "generation_config.json": {
        "lang_to_id": {"<|en|>": 50, "<|de|>": 51},
        "task_to_id": {"transcribe": 52, "translate": 53},
        "is_multilingual": True,
        "no_timestamps_token_id": 54,
    },
    "preprocessor_config.json": {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": 8,
        "sampling_rate": 16000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "padding_value": 0.0,
    },
}
_SENTENCES = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True},
    "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": False},
}
MODELS = {
    "bert": Model("BertModel", "", _BERT, "last_hidden_state"),
    "bert_classes": Model(
        "BertForSequenceClassification", "SequenceClassification", {**_BERT, "num_labels": 3}, "logits",
        ("input_ids", "attention_mask", "token_type_ids"),
    ),
    "bert_tokens": Model("BertForTokenClassification", "TokenClassification", _BERT, "logits"),
    "bert_mask": Model("BertForMaskedLM", "MaskedLM", _BERT, "logits"),
    "bert_answers": Model("BertForQuestionAnswering", "QuestionAnswering", _BERT, "start_logits"),
    "roberta_classes": Model(
        "RobertaForSequenceClassification", "SequenceClassification", {**_BERT, "num_labels": 3}, "logits"
    ),
    "sentences": Model("BertModel", "", _BERT, "embeddings", files=_SENTENCES),
    "gpt2": Model(
        "GPT2LMHeadModel", "CausalLM",
        dict(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2),
    ),
    "llama": Model("LlamaForCausalLM", "CausalLM", _DECODER),
    "qwen2": Model("Qwen2ForCausalLM", "CausalLM", {**_DECODER, "tie_word_embeddings": True}),
    "qwen3": Model("Qwen3ForCausalLM", "CausalLM", {**_DECODER, "head_dim": 32}),
    "lfm2": Model("Lfm2ForCausalLM", "CausalLM", {**_DECODER, "layer_types": ["conv", "full_attention"]}),
    "granite_hybrid": Model(
        "GraniteMoeHybridForCausalLM", "CausalLM",
        {
            **_DECODER, "mamba_n_heads": 4, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 8,
            "mamba_d_head": 32, "layer_types": ["mamba", "attention"], "num_local_experts": 0,
            "shared_intermediate_size": 96,
        },
    ),
    "falcon_h1": Model(
        "FalconH1ForCausalLM", "CausalLM",
        {
            **_DECODER, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1,
            "mamba_d_state": 8, "mamba_chunk_size": 8,
        },
    ),
    "qwen3_next": Model(
        "Qwen3NextForCausalLM", "CausalLM", {**_LINEAR, "num_experts": 0, "mlp_only_layers": [0, 1]}
    ),
    "qwen3_5": Model("Qwen3_5ForCausalLM", "CausalLM", _LINEAR),
    "olmo_hybrid": Model(
        "OlmoHybridForCausalLM", "CausalLM", {**_LINEAR, "linear_num_key_heads": 4}
    ),
    "t5": Model(
        "T5ForConditionalGeneration", "Seq2SeqLM",
        dict(
            vocab_size=WORDS, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, pad_token_id=0,
            eos_token_id=2, decoder_start_token_id=0,
        ),
    ),
    "bart": Model(
        "BartForConditionalGeneration", "Seq2SeqLM",
        {**_PAIR, "max_position_embeddings": 64, "decoder_start_token_id": 2, "forced_eos_token_id": 2},
    ),
    "marian": Model(
        "MarianMTModel", "Seq2SeqLM",
        {**_PAIR, "max_position_embeddings": 64, "decoder_start_token_id": 0, "forced_eos_token_id": 2},
    ),
    "whisper": Model(
        "WhisperForConditionalGeneration", "SpeechSeq2Seq",
        {
            **_PAIR, "num_mel_bins": 8, "max_source_positions": 1500, "max_target_positions": 32,
            "decoder_start_token_id": 1, "suppress_tokens": [], "begin_suppress_tokens": [],
        },
        given=("input_features",), files=_WHISPER,
    ),
    "wav2vec2": Model(
        "Wav2Vec2ForCTC", "CTC",
        dict(
            vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            conv_dim=[16, 16], conv_stride=[5, 2], conv_kernel=[10, 3], num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4, pad_token_id=0,
        ),
        "logits", ("input_values",),
        {"preprocessor_config.json": {"feature_extractor_type": "Wav2Vec2FeatureExtractor"}},
    ),
    "vit": Model(
        "ViTForImageClassification", "ImageClassification", {**_IMAGES, "num_labels": 3}, "logits",
        ("pixel_values",), _vision("ViTImageProcessor", size={"height": 32, "width": 32}),
    ),
    "yolos": Model(
        "YolosForObjectDetection", "ObjectDetection",
        {**_IMAGES, "image_size": [32, 32], "num_detection_tokens": 4, "num_labels": 3}, "logits",
        ("pixel_values",), _vision("YolosImageProcessor"),
    ),
    "detr": Model(
        "DetrForObjectDetection", "ObjectDetection",
        dict(
            d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_queries=4, num_labels=3,
            use_pretrained_backbone=False, use_timm_backbone=False, backbone=None,
            backbone_config=dict(
                model_type="resnet", embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                out_features=["stage4"],
            ),
        ),
        "logits", ("pixel_values",), _vision("DetrImageProcessor"),
    ),
    "clip": Model(
        "CLIPModel", "",
        dict(
            text_config={**_BERT, "bos_token_id": 1, "eos_token_id": 2}, vision_config=_IMAGES,
            projection_dim=16,
        ),
        "logits_per_image", ("input_ids", "attention_mask", "pixel_values"),
        _vision("CLIPImageProcessor", size={"shortest_edge": 32}),
    ),
}  # fmt: skip


def tensor(name: str) -> torch.Tensor:
    """Return the values for an input of a model."""
    random = np.random.default_rng(3)
    if name == "input_ids":
        return torch.tensor([[17, 9, 33, 41, 28, 64, 66]])
    if name == "token_type_ids":
        return torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    if name == "pixel_mask":
        return torch.ones(1, 64, 64, dtype=torch.int64)
    if name == "attention_mask":
        return torch.ones(1, 7, dtype=torch.int64)
    shape = {"input_features": (1, 8, 3000), "pixel_values": (1, 3, 32, 32), "input_values": (1, 800)}[name]
    return torch.tensor(random.standard_normal(shape), dtype=torch.float32)


def make(name: str, folder: Path) -> dict[str, Any]:
    """Save a model in a folder, and return the job for the clients."""
    about = MODELS[name]
    kind = getattr(transformers, about.kind)
    torch.manual_seed(7)  # for parameters that are not initialized
    model = kind(kind.config_class(**about.config)).eval()
    given = {each: tensor(each) for each in about.given}
    job: dict[str, Any] = {
        "auto": about.auto,
        "output": about.output,
        "count": 0 if about.output else COUNT,
        "prompt": _PROMPT if name == "whisper" else None,
        "inputs": {each: as_json(value) for each, value in given.items()},
        "texts": ["A word", "B", "some more words"] if name == "sentences" else [],
    }
    for seed in range(7, 16):
        _fill(model, seed)
        job["wanted"] = _wanted(model, about, given, job)
        if len(set(map(str, job["wanted"]))) >= min(4, len(job["texts"]) or 4):
            break  # a text that repeats a word is a weak test
    model.save_pretrained(folder)
    if "input_ids" in about.given or about.auto in ("SpeechSeq2Seq", "CTC"):
        segments = ["token_type_ids"] * about.kind.startswith("Bert")
        save_tokenizer(folder, ["input_ids", *segments, "attention_mask"])
    for file, more in about.files.items():
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        before = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(more if isinstance(more, list) else before | more))
    return job


def _fill(model: Any, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if not value.requires_grad:
                continue  # a table of positions, which a folder may lack
            is_scale = value.dim() == 1 and not name.endswith("bias")
            value.copy_(torch.randn(value.shape) * 0.2 + (1.0 if is_scale else 0.0))


@torch.no_grad()
def _wanted(model: Any, about: Model, given: dict[str, torch.Tensor], job: dict[str, Any]) -> Any:
    if job["texts"]:
        return [_embedding(model, text) for text in job["texts"]]
    if about.output:
        return model(**given)[about.output].flatten().tolist()
    more = {"decoder_input_ids": torch.tensor(job["prompt"])} if job["prompt"] else {}
    found = transformers.GenerationMixin.generate(
        model, **given, **more, max_new_tokens=COUNT, do_sample=False
    )
    begun = len(job["prompt"][0]) if job["prompt"] else 1
    begun = given["input_ids"].shape[1] if about.auto == "CausalLM" else begun
    return new_tokens(found[0, begun:].tolist(), [])


def _embedding(model: Any, text: str) -> list[float]:
    words = vocabulary()
    ids = torch.tensor([[words.index(each.replace(" ", "\u0120")) for each in text]])
    mean = model(input_ids=ids)["last_hidden_state"][0].mean(0)
    return (mean / mean.norm()).tolist()


def new_tokens(row: list[int], prompt: list[int]) -> list[int]:
    """Return the tokens after the prompt, up to the end-of-sequence token."""
    row = row[len(prompt) :] if row[: len(prompt)] == prompt else row
    return row[: row.index(2)] if 2 in row else row


def as_json(value: torch.Tensor) -> dict[str, Any]:
    kind = str(value.dtype).removeprefix("torch.")
    return {"type": kind, "shape": list(value.shape), "data": value.flatten().tolist()}


def vocabulary() -> list[str]:
    """Return single characters, into which byte-level BPE without merges splits a text."""
    return [*SPECIAL, "\u0120", *(chr(number) for number in range(33, 33 + WORDS - len(SPECIAL) - 1))]


def text_of(row: list[int]) -> str:
    words = vocabulary()
    return "".join(words[each] for each in row if each >= len(SPECIAL)).replace("\u0120", " ")


def save_tokenizer(folder: Path, names: list[str]) -> None:
    """Save a character tokenizer that returns `names`, in the two files that all clients read."""
    made = tokenizers.Tokenizer(BPE({word: number for number, word in enumerate(vocabulary())}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([tokenizers.AddedToken(word, normalized=False) for word in SPECIAL])
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, "pad_token": "<pad>",
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "[MASK]",
        "model_input_names": names,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
