"""Writes genai_config.json, which ONNX Runtime GenAI needs to run a decoder or Whisper.

Tested with onnxruntime-genai 0.18. GenAI expects one graph with `past_key_values.0.key` among its
inputs and `present.0.key` among its outputs, and caches of one size in all layers. A Whisper
consists of an encoder that also returns keys and values for the decoder's cache, and a decoder for
the steps. audio_processor_config.json describes how to compute the encoder's input from sound.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from .._comparing.chaining import RESULT
from .._folders.config import read_leniently
from .._folders.models import ENCODER, STEP

if TYPE_CHECKING:
    import onnx_ir

_FILE = "genai_config.json"
_AUDIO_FILE = "audio_processor_config.json"
_NO_TOKENIZER = (
    "the folder has no tokenizer.json, which is needed for text; write it with "
    "AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)"
)
_TYPE = "decoder"
"""GenAI's type for a model about which it only assumes the names of inputs and outputs."""
_INPUTS = ("input_ids", "attention_mask", "position_ids")
_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
_USUAL_LENGTH = 2048
"""The context length if the config has none, because positions are unlimited, as with ALiBi."""
_BUFFER = 2 << 30
"""The maximum size in bytes of the caches per batch entry, which GenAI allocates at once."""
_LEAST_LENGTH = 2048
_PAST = "past_key_values."
_SEARCH = ("do_sample", "temperature", "top_k", "top_p", "repetition_penalty", "min_length")
_TYPES = {"FLOAT", "FLOAT16", "BFLOAT16"}


def _shapes(values: Any, prefix: str) -> dict[str, tuple[Any, ...]]:
    """Map the name of each cache, without the prefix, to its shape."""
    return {
        (value.name or "").removeprefix(prefix): tuple(value.shape or ())
        for value in values
        if (value.name or "").startswith(prefix)
    }


def why_not(model: onnx_ir.Model) -> str:
    """Return the reason why GenAI cannot run a graph; "" if it can."""
    graph = model.graph
    past = _shapes(graph.inputs, _PAST)
    present = _shapes(graph.outputs, "present.")
    wanted = {f"{layer}.{side}" for layer in range(len(past) // 2) for side in ("key", "value")}
    if not past or past.keys() != wanted or present.keys() != wanted:
        return "its cache does not consist of a key and a value for each layer"
    others = [
        value.name
        for value in graph.inputs
        if value.name not in _INPUTS and not (value.name or "").startswith(_PAST)
    ]
    if others or "input_ids" not in {value.name for value in graph.inputs}:
        return f"it takes {', '.join(map(str, others)) or 'no input_ids'}"
    if "logits" not in {value.name for value in graph.outputs}:
        return "it returns no logits"
    sizes = {(shape[1], shape[3]) for shape in past.values() if len(shape) == 4}
    if len(sizes) != 1 or not all(isinstance(size, int) for size in next(iter(sizes))):
        return "the caches of its layers, or their keys and values, have different sizes"
    return ""


def write(
    graphs: Mapping[str, onnx_ir.Model], file: str, config: Any, source: Path, folder: Path
) -> tuple[list[Path], list[str]]:
    """Write genai_config.json if GenAI can run the model.

    Return the written files, and notes such as the reason why it cannot.

    Args:
        graphs: the graphs by name.
        file: the name of the graph if there is only one.
        config: the config of transformers' model.
        source: the model's folder.
        folder: the folder into which files are written.
    """
    if not any(_shapes(each.graph.inputs, _PAST) for each in graphs.values()):
        return [], []
    if config.is_encoder_decoder:
        if not _gives_caches(graphs):
            return [], []
        return _write_whisper(graphs, file, config, source, folder)
    reason = why_not(graphs["model"]) if list(graphs) == ["model"] else "it takes one graph"
    if reason:
        return [], [f"no {_FILE}: ONNX Runtime GenAI cannot run the model: {reason}"]
    notes = [] if (source / "tokenizer.json").is_file() else [_NO_TOKENIZER]
    made = document(graphs["model"], file, config, source)
    notes += _note_on_length(graphs["model"], made)
    return [_written(folder / _FILE, made)], notes


def _written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path


def is_whisper(config: Any, graphs: Collection[str]) -> bool:
    """Return whether GenAI could run the graphs of a model as a Whisper."""
    return getattr(config, "model_type", "") == "whisper" and {ENCODER, STEP} <= set(graphs)


def _gives_caches(graphs: Mapping[str, onnx_ir.Model]) -> bool:
    return ENCODER in graphs and bool(_shapes(graphs[ENCODER].graph.outputs, "present."))


def _write_whisper(
    graphs: Mapping[str, onnx_ir.Model], file: str, config: Any, source: Path, folder: Path
) -> tuple[list[Path], list[str]]:
    """Write the files that GenAI needs next to the graphs of a Whisper."""
    paths = [_written(folder / _FILE, whisper_document(graphs, file, config, source))]
    features = _features(source)
    notes = [] if (source / "tokenizer.json").is_file() else [_NO_TOKENIZER]
    if features is None:
        return paths, [*notes, f"no {_AUDIO_FILE}: the model's folder has no feature extractor"]
    return [*paths, _written(folder / _AUDIO_FILE, features)], notes


def _instead_of_model(file: str, name: str) -> str:
    """Return the file of another graph, given the model's: "onnx/NAME_q4.onnx"."""
    path = PurePosixPath(file)
    return str(path.with_name(path.name.replace("model", name, 1)))


def whisper_document(
    graphs: Mapping[str, onnx_ir.Model], file: str, config: Any, folder: Path
) -> dict[str, Any]:
    """Return the content of genai_config.json for a Whisper.

    Args:
        graphs: the graphs by name.
        file: the name of the graph if it were the only one.
        config: the config of transformers' model.
        folder: the folder with generation_config.json.
    """
    decoder = graphs[STEP].graph
    past = _shapes(decoder.inputs, _PAST)
    heads, size = next(iter(past.values()))[1::2]
    logits = next(value for value in decoder.outputs if value.name == "logits")
    common = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "head_size": int(size),
        "hidden_size": int(config.d_model),
        "num_attention_heads": int(heads),
        "num_hidden_layers": len(past) // 4,
        "num_key_value_heads": int(heads),
    }
    sound = next(value.name for value in graphs[ENCODER].graph.inputs)
    encoder = {
        "filename": _instead_of_model(file, ENCODER),
        "inputs": {"audio_features": sound},
        "outputs": {
            "encoder_hidden_states": RESULT,
            "cross_present_key_names": "present.%d.encoder.key",
            "cross_present_value_names": "present.%d.encoder.value",
        },
    }
    names = {
        "filename": _instead_of_model(file, STEP),
        "inputs": {
            "input_ids": "input_ids",
            "past_key_names": "past_key_values.%d.decoder.key",
            "past_value_names": "past_key_values.%d.decoder.value",
            "cross_past_key_names": "past_key_values.%d.encoder.key",
            "cross_past_value_names": "past_key_values.%d.encoder.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.decoder.key",
            "present_value_names": "present.%d.decoder.value",
        },
    }
    length = int(config.max_target_positions)
    model = {
        "type": "whisper",
        "vocab_size": int((logits.shape or (0,))[-1]),
        "context_length": length,
        **token_settings(folder, config),
        "encoder": {**common, **encoder},
        "decoder": {**common, **names},
    }
    search = {"max_length": length, "past_present_share_buffer": False, **_search(folder)}
    return {"model": model, "search": search}


def _features(source: Path) -> Any:
    """Return how GenAI computes a Whisper's input from sound; None if this is not known."""
    found = read_leniently(source, "preprocessor_config.json")
    if not found:
        part = read_leniently(source, "processor_config.json").get("feature_extractor")
        found = part if isinstance(part, dict) else {}
    given = [found.get(name) for name in ("n_fft", "hop_length", "feature_size", "chunk_length")]
    if not all(isinstance(each, int) for each in given):
        return None
    window, hop, bins, seconds = given
    spectrum = {"n_fft": window, "frame_length": window, "hop_length": hop}
    mels = {"chunk_size": seconds, "hop_length": hop, "n_fft": window, "n_mel": bins}
    steps = [
        {"name": "audio_decoder", "type": "AudioDecoder"},
        {"name": "STFT", "type": "STFTNorm", "attrs": spectrum},
        {"name": "log_mel_spectrogram", "type": "LogMelSpectrum", "attrs": mels},
    ]
    return {"feature_extraction": {"sequence": [{"operation": each} for each in steps]}}


def document(model: onnx_ir.Model, file: str, config: Any, folder: Path) -> dict[str, Any]:
    """Return the content of genai_config.json for a graph that GenAI can run.

    Args:
        model: the graph.
        file: the file name of the graph.
        config: the config of transformers' model.
        folder: the folder with generation_config.json.
    """
    names = {value.name for value in model.graph.inputs}
    past = _shapes(model.graph.inputs, _PAST)
    heads, size = next(iter(past.values()))[1::2]
    logits = next(value for value in model.graph.outputs if value.name == "logits")
    text = config.get_text_config(decoder=True)
    tokens = token_settings(folder, config)
    length = _length(text)
    words = (logits.shape or (0,))[-1]
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": file,
        "head_size": int(size),
        "hidden_size": int(getattr(text, "hidden_size", heads * size)),
        "num_attention_heads": int(getattr(text, "num_attention_heads", heads)),
        "num_hidden_layers": len(past) // 2,
        "num_key_value_heads": int(heads),
        "inputs": {
            **{name: name for name in _INPUTS if name in names},
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    found = {"type": _TYPE, "vocab_size": int(words), "context_length": length, **tokens}
    from .._attention.buffers import may_share_buffers  # which needs onnx_ir

    shares = may_share_buffers(model)
    most = min(length, max(_LEAST_LENGTH, _BUFFER // bytes_of_token(model))) if shares else length
    search = {"max_length": most, "past_present_share_buffer": shares, **_search(folder)}
    return {"model": {**found, "decoder": decoder}, "search": search}


def bytes_of_token(model: onnx_ir.Model) -> int:
    """Return the size in bytes of a graph's caches for one token."""
    caches = [each for each in model.graph.inputs if (each.name or "").startswith(_PAST)]
    sizes = [(each.dtype.itemsize if each.dtype else 4, tuple(each.shape or ())) for each in caches]
    return max(1, int(sum(size * int(shape[1]) * int(shape[3]) for size, shape in sizes)))


def _note_on_length(model: onnx_ir.Model, made: Mapping[str, Any]) -> list[str]:
    """Return a note if the cache buffer is too small for the model's maximum length."""
    most, length = made["search"]["max_length"], made["model"]["context_length"]
    if most == length:
        return []
    each = bytes_of_token(model)
    return [
        f"{_FILE}: search.max_length is {most}, for which the caches take "
        f"{most * each / 1e9:.1f} GB per batch entry; the model's maximum of {length} tokens would "
        f"take {length * each / 1e9:.1f} GB"
    ]


def _length(config: Any) -> int:
    values = (getattr(config, name, None) for name in _LENGTHS)
    return next((each for each in values if isinstance(each, int) and each > 0), _USUAL_LENGTH)


def token_settings(folder: Path, config: Any) -> dict[str, Any]:
    """Return the ids of the tokens that begin, end and pad a text, as transformers finds them."""
    found: dict[str, Any] = {}
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        for value in _settings(folder, config, name):
            if value is not None and name not in found:
                found[name] = value
    ends = found.get("eos_token_id")
    first = ends[0] if isinstance(ends, list) and ends else ends
    found.setdefault("pad_token_id", first if isinstance(first, int) else 0)
    found.setdefault("eos_token_id", found["pad_token_id"])
    found.setdefault("bos_token_id", first if isinstance(first, int) else 0)
    return found


def _settings(folder: Path, config: Any, name: str) -> Iterator[Any]:
    yield read_leniently(folder, "generation_config.json").get(name)
    yield getattr(config, name, None)
    yield getattr(config.get_text_config(decoder=True), name, None)


def _search(folder: Path) -> dict[str, Any]:
    """Return those settings of generate() that GenAI supports.

    By default, generation is greedy.
    """
    given = read_leniently(folder, "generation_config.json")
    found = {name: given[name] for name in _SEARCH if isinstance(given.get(name), (int, float))}
    found.setdefault("do_sample", False)
    if not found["do_sample"] or not found.get("temperature", 1.0) > 0:
        found["do_sample"] = False
        for name in ("temperature", "top_k", "top_p"):
            found.pop(name, None)
    return found
