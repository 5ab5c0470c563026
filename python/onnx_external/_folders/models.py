"""Finds the graphs in a folder, and detects whether a folder holds a transformers model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .. import _core
from .._base.argument_types import path_of
from .._base.errors import InvalidArgumentError, NotFoundError
from .._base.options import StrPath
from .gguf.folder import gguf_in

ENCODER, PROMPT, STEP = "encoder_model", "decoder_model", "decoder_with_past_model"
"""Optimum's names for the graphs of an encoder-decoder model: the encoder, the decoder for a
prompt, and the decoder that continues with a cache."""
MERGED = "decoder_model_merged"
"""The graph into which the two decoder graphs are merged for transformers.js."""
PREFILL, DECODE = "prefill", "decode"
"""Names of the two graphs that a decoder-only model may have: for the prompt, and for the steps."""
PROMPTS, STEPS = (PROMPT, PREFILL), (STEP, DECODE)


def pair_names(has_encoder: bool) -> tuple[str, str]:
    """Return the names of a decoder's two graphs, for the prompt and for the steps."""
    return (PROMPT, STEP) if has_encoder else (PREFILL, DECODE)


def merged_name(has_encoder: bool) -> str:
    """Return the name of the graph into which a decoder's two graphs are merged."""
    return MERGED if has_encoder else "model"


def is_transformers(path: Any) -> bool:
    """Return whether a path is a transformers model folder or a GGUF model."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    return Path(path, "config.json").is_file() or gguf_in(path) is not None


def models_in(folder: Path) -> dict[str, Path]:
    """Return the graphs in a folder by name, in the order in which they run."""
    order = [ENCODER, *PROMPTS, *STEPS, MERGED]
    found = {path.stem: path for path in sorted(place_of_graphs(folder).glob("*.onnx"))}
    return dict(
        sorted(found.items(), key=lambda each: order.index(each[0]) if each[0] in order else -1)
    )


def has_models(folder: Path) -> bool:
    """Return whether a folder contains graphs."""
    return any(place_of_graphs(folder).glob("*.onnx"))


def place_of_graphs(folder: Path) -> Path:
    """Return the folder that contains the graphs: the given one, or its subfolder `onnx/`."""
    inner = folder / "onnx"
    return inner if inner.is_dir() and not any(folder.glob("*.onnx")) else folder


def model_in(path: StrPath, call: str) -> str:
    """Return the path of a model: the given file, or the only model in a folder.

    Args:
        path: the model, or the folder.
        call: the call that the error suggests: "oe.diagnose({}, ...)".

    Raises:
        InvalidArgumentError: the folder has several models.
        NotFoundError: the folder has no model.
    """
    path = path_of("model", path)
    if not os.path.isdir(path):
        return os.fspath(path)
    found = [os.path.join(path, each.name) for each in models_in(Path(path)).values()]
    if not found:
        raise no_model(Path(path))
    if len(found) > 1:
        raise InvalidArgumentError(
            f"{os.fspath(path)}: contains several models: "
            f"{', '.join(map(os.path.basename, found))}; "
            f"give one of them: {call.format(repr(found[0]))}"
        )
    return found[0]


def no_model(folder: Path) -> NotFoundError:
    """Return the error for a folder without models; it says what else the folder is, if known."""
    config = "" if is_transformers(folder) else ", and no config.json"
    known = "".join(f"; {text}" for _, text in _core.folder_facts(folder)[:1])
    return NotFoundError(f"{folder}: has no model (.onnx){config}{known}")
