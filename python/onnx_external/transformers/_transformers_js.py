"""Creates files that transformers.js needs next to the graphs. Tested with transformers.js 4.3.2.

transformers.js looks for the graphs in `onnx/`, for the data of `onnx/model.onnx` in
`onnx/model.onnx_data`, and for `tokenizer.json`. In a browser, it uses graphs with 8-bit codes and
without data files, unless config.json says otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .._base.errors import ExportError
from .._folders.clients import CLIENTS
from .._folders.config import read_leniently
from .._saving.reports import SaveReport
from ._guarding import LOCAL, alone
from ._kept_codes import without_settings

_CONFIG, _PROCESSOR = "config.json", "preprocessor_config.json"
_SETTINGS, _COUNTS = "transformers.js_config", "use_external_data_format"
_TOKENIZER = "tokenizer.json"
_PARTS = ("image_processor", "feature_extractor")
"""Parts of processor_config.json, which transformers 5 writes but transformers.js does not read."""
_HYBRIDS = ("falcon_h1", "granitemoehybrid", "nemotron_h")
_LAYERS = {"linear_attention": "mamba", "full_attention": "attention"}
"""The names of layer types that transformers.js reads, by their names in transformers 5."""
_STATES = {
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm3"), ("past_conv",)),
    **dict.fromkeys(_HYBRIDS, ("past_conv", "past_ssm")),
    "qwen3_next": ("past_conv", "past_recurrent"),
}
"""The states that transformers.js passes to each layer, by the type of the model."""
_THREE_POSITIONS = ("qwen3_5_text", "qwen3_5_moe_text")
"""Types of text models that transformers.js treats like image models."""
_STATE = re.compile(r"(past_(?!key_values\b)\w+)\.\d+(\.\w+)?")
LARGEST = 3 << 30
"""The maximum size of weights in bytes. Chromium's 4 GiB sufficed for 3.0 GiB, but not for 3.75."""
_TEXTS = ("tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model")
"""Files of which a folder with a tokenizer has at least one."""


def files(source: Path, made: Path) -> list[Path]:
    """Write config.json and, if they are missing, the files of the processor and the tokenizer.

    Args:
        source: the model's folder.
        made: the folder into which the files are written.
    """
    config = without_settings(read_leniently(source))
    found = [_written(made / _CONFIG, {**config, **_known_layers(config)})]
    flat = _flat_processor(source)
    if flat is not None:
        found.append(_written(made / _PROCESSOR, flat))
    has_text = any((source / name).is_file() for name in _TEXTS)
    if has_text and not (source / _TOKENIZER).is_file():
        found.append(_made_tokenizer(source, made))
    return found


def refuse_decoder(kind: str, inputs: Iterable[str] = ()) -> None:
    """Raise an error for a decoder to which transformers.js passes other inputs.

    Args:
        kind: the type of the model, as its config names it.
        inputs: the names of the inputs of its graphs, once they are known.

    Raises:
        ExportError: transformers.js passes other inputs; the message names one of them.
    """
    if kind in _THREE_POSITIONS:
        raise ExportError(
            f"transformers.js treats a model of the type {kind} as one of images: it reads "
            "vision_config, and passes three rows of position_ids, which the model of text does "
            "not have; leave transformers.js out of clients="
        )
    for name in inputs:
        found = _STATE.fullmatch(name)
        if found and (found[2] or found[1] not in _STATES.get(kind, ())):
            raise ExportError(
                f"transformers.js does not pass the state {name}, which the decoder's layers need, "
                f"to a model of the type {kind}, and so cannot generate text with it; leave "
                "transformers.js out of clients="
            )


def settle(made: Path, dtype: str, data: Mapping[str, int], target: Path) -> None:
    """Record in config.json which variant is the default, and how many data files graphs have.

    Args:
        made: the folder into which files() has written config.json.
        dtype: the name of the default variant.
        data: the number of data files of each graph, by file name.
        target: the output folder, which may already contain other graphs.
    """
    old = read_leniently(target).get(_SETTINGS)
    counts = old.get(_COUNTS) if isinstance(old, dict) else None
    place = target / CLIENTS["transformers.js"].place
    kept = {
        name: count
        for name, count in (counts if isinstance(counts, dict) else {}).items()
        if (place / name).is_file()
    }
    settings = {"dtype": dtype, _COUNTS: {**kept, **data}}
    config = read_leniently(made) | {_SETTINGS: settings}
    _written(made / _CONFIG, config)


def data_files(planned: SaveReport) -> dict[str, int]:
    """Return the number of data files of each graph, by the graph's file name."""
    return {
        Path(each.model).name: len({tensor.file for tensor in each.tensors if tensor.file})
        for each in planned.models
    }


def notes_on_size(planned: SaveReport) -> list[str]:
    """Return notes on graphs whose weights are too large for a browser page."""
    large = {Path(each.model).name: each.bytes for each in planned.models if each.bytes > LARGEST}
    sizes = ", ".join(f"{name} ({size / 1e9:.1f} GB)" for name, size in large.items())
    if not large:
        return []
    return [
        f"a browser page has 4 GiB of memory and can load about 3 GiB of weights, which {sizes} "
        "exceeds; variants='q4' reduces the size, and Node does not have this limit"
    ]


def _known_layers(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layer types of a hybrid model by the names that transformers.js reads."""
    kinds = config.get("layer_types")
    if config.get("model_type") not in _HYBRIDS or not isinstance(kinds, list):
        return {}
    return {"layer_types": [_LAYERS.get(str(each), each) for each in kinds]}


def _written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _flat_processor(source: Path) -> Any:
    """Return the image or sound settings in processor_config.json; None if they are not needed."""
    if (source / _PROCESSOR).is_file():
        return None
    nested = read_leniently(source, "processor_config.json")
    parts = [nested[name] for name in _PARTS if isinstance(nested.get(name), dict)]
    kind = {"processor_class": nested["processor_class"]} if "processor_class" in nested else {}
    return {**parts[0], **kind} if parts else None


def _made_tokenizer(source: Path, made: Path) -> Path:
    """Create tokenizer.json from the other files of a tokenizer."""
    import transformers

    folder = made / "tokenizer"
    try:
        with alone():
            found = transformers.AutoTokenizer.from_pretrained(source, **LOCAL)
            found.save_pretrained(folder)
    except Exception as error:  # of whatever kind: a class, a package or a file is missing
        raise ExportError(
            f"{source}: transformers.js needs {_TOKENIZER}, but transformers cannot create it from "
            f"the other files of the tokenizer: {error}"
        ) from error
    if not (folder / _TOKENIZER).is_file():
        raise ExportError(
            f"{source}: transformers.js needs {_TOKENIZER}, but transformers' "
            f"{type(found).__name__} does not write it; convert the tokenizer with the tokenizers "
            "package"
        )
    return (folder / _TOKENIZER).rename(made / _TOKENIZER)
