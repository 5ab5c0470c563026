"""Reports weights that do not fit the config of their folder, in sizes or in quantization."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import _core
from .._base.errors import Item, MismatchError

_SHOWN = 3

Mismatch = tuple[str, Iterable[int], Iterable[int]]
"""The name of a tensor, its shape in the checkpoint, and its shape in the model."""


def of_other_sizes(folder: Path, model: Any, found: Iterable[Mismatch]) -> MismatchError:
    """Return the error for tensors whose shapes differ from those that the config implies."""
    all_found = sorted((name, list(have), list(want)) for name, have, want in found)
    numbers: Counter[str] = Counter()
    settings = list(_numbers(_config(folder, model)))
    for _, have, want in all_found:
        if len(have) == len(want):
            pairs = {(a, b) for a, b in zip(have, want, strict=True) if a != b}
            numbers.update(
                f"{name} is {b} in config.json and {a} in the weights"
                for a, b in sorted(pairs)
                for name, value in settings
                if value == b
            )
    told = [
        f"{name}: {have} in the weights, {want} by the config" for name, have, want in all_found
    ]
    cause = "; ".join(text for text, _ in numbers.most_common(2))
    error = MismatchError(
        f"{folder}/config.json: {len(all_found)} tensors of {type(model).__name__} would have "
        f"other sizes than in the weights: {', '.join(told[:_SHOWN])}"
        + (f"; perhaps {cause}" if cause else "")
        + "; config.json and the weights must belong to the same model"
    )
    error.kind = "other-size"
    error.lists["other-size"] = [
        Item(name, str(have), f"{want} by the config", []) for name, have, want in all_found
    ]
    return error


def _config(folder: Path, model: Any) -> Mapping[str, Any]:
    """Return the settings in config.json, with the model's defaults for all others."""
    stated: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {**model.config.to_dict(), **stated}


def _numbers(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, int]]:
    """Yield the settings that are integers, with the paths of those in nested configs."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{path}{name}.")
        elif isinstance(value, int) and not isinstance(value, bool) and "token" not in name:
            yield f"{path}{name}", value


def quantized_text(folder: Path, found: tuple[str, str] | None, unused: Iterable[str]) -> str:
    """Return a sentence that the weights are quantized, if keys show this; otherwise ""."""
    if found is None or found[1] not in set(unused):
        return ""
    method, key = found
    beside = [name for name in QUANTIZATION_FILES if (folder / name).is_file()]
    seen = f"the checkpoint has {key!r}" + "".join(f", the folder {name}" for name in beside)
    return (
        f"the weights are quantized by {method} ({seen}); export the checkpoint from which they "
        "were made"
    )


def quantized_fact(folder: Path) -> str:
    """Return the sentence on the quantization that a folder's config states; "" if none."""
    return next((text for kind, text in _core.folder_facts(folder) if kind == "quantized"), "")


QUANTIZATION_FILES = (
    "quantize_config.json",
    "quant_config.json",
    "hf_quant_config.json",
    "quanto_qmap.json",
)
"""Files in which libraries describe their quantization if they do not use config.json."""
