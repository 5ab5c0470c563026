"""Decides what happens to weights that a folder's checkpoint stores quantized."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os.path import samefile
from pathlib import Path
from typing import Any

from .._base.options import Quantize, QuantizeArgument, scheme_text
from .._folders.config import read_leniently
from ._loading import Loaded

FLOATS = "float"
"""The scheme that stores weights as floats, even if the checkpoint stores them quantized."""


def given_scheme(quantize: QuantizeArgument) -> QuantizeArgument:
    """Return the scheme that does not depend on the checkpoint; None for floats."""
    return None if scheme_text(quantize) == FLOATS else quantize


def scheme_of(quantize: QuantizeArgument, loaded: Loaded, *, plain: bool) -> QuantizeArgument:
    """Return the scheme for matrices; by default, codes of a quantized checkpoint are kept.

    Args:
        quantize: the caller's argument.
        loaded: the model.
        plain: True if graphs may only use standard ONNX operators, which do not support all codes.
    """
    if quantize is None and loaded.quantized and not plain:
        return Quantize("keep")
    return given_scheme(quantize)


def note_on_codes(quantize: QuantizeArgument, loaded: Loaded) -> list[str]:
    """Return a note on what happens to weights that the checkpoint stores quantized.

    Args:
        quantize: the result of scheme_of().
        loaded: the model.
    """
    count = len(loaded.quantized)
    if not count:
        return []
    what = f"the checkpoint stores {count} weight{'s' if count > 1 else ''} quantized"
    scheme = scheme_text(quantize)
    if scheme is None:
        return [f"{what}; they are floats now"]
    if scheme.split(",")[0].strip() != "keep":
        return [f"{what}; their floats were quantized again"]
    return [f"{what}; wherever a node supports their codes, they are kept (quantize='float': no)"]


_CONFIG = "config.json"
_SETTINGS = ("quantization_config", "compression_config", "quantization")
"""Settings in config.json in which a library describes how it quantized the weights."""
_PARTS = ("text_config", "language_config", "llm_config")
"""Nested configs in config.json that may have such settings."""


def without_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without quantization settings, because the graphs have the weights."""
    kept = {name: value for name, value in config.items() if name not in _SETTINGS}
    parts = {name: kept[name] for name in _PARTS if isinstance(kept.get(name), dict)}
    return kept | {name: without_settings(part) for name, part in parts.items()}


def plain_config(source: Path, target: Path, made: Path) -> list[Path]:
    """Write a config.json for the graphs' folder if the source's has quantization settings.

    With these settings, loading the config would require the quantization library or a GPU.

    Args:
        source: the model's folder.
        target: the target of the export; the source's own config.json is not changed.
        made: the folder into which the file is written.
    """
    folder = target if target.suffix != ".onnx" or target.is_dir() else target.parent
    if not (source / _CONFIG).is_file() or (folder.exists() and samefile(source, folder)):
        return []
    config = read_leniently(source)
    plain = without_settings(config)
    if plain == config:
        return []
    path = made / _CONFIG
    path.write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return [path]
