"""Treatment of weights that are quantized in a folder's checkpoint."""

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
"""The scheme that makes floats of weights, also of those in quantized checkpoints."""


def given_scheme(quantize: QuantizeArgument) -> QuantizeArgument:
    """Return the scheme if it does not depend on the checkpoint; None for floats."""
    return None if scheme_text(quantize) == FLOATS else quantize


def scheme_of(quantize: QuantizeArgument, loaded: Loaded, *, plain: bool) -> QuantizeArgument:
    """Return the scheme for matrices; codes of a quantized checkpoint are kept by default.

    Args:
        quantize: the caller's argument.
        loaded: the model.
        plain: the graph may only have standard ONNX operators, none of which supports all codes.
    """
    if quantize is None and loaded.quantized and not plain:
        return Quantize("keep")
    return given_scheme(quantize)


def note_on_codes(quantize: QuantizeArgument, loaded: Loaded) -> list[str]:
    """Return the note on the treatment of quantized weights.

    Args:
        quantize: the result of scheme_of().
        loaded: the model.
    """
    count = len(loaded.quantized)
    if not count:
        return []
    what = f"the checkpoint holds {count} weight{'s' if count > 1 else ''} quantized"
    scheme = scheme_text(quantize)
    if scheme is None:
        return [f"{what}; they are floats now"]
    if scheme.split(",")[0].strip() != "keep":
        return [f"{what}; their floats were quantized again"]
    return [f"{what}; where a node can multiply by its codes, they are kept (quantize='float': no)"]


_CONFIG = "config.json"
_SETTINGS = ("quantization_config", "compression_config", "quantization")
"""Settings of config.json in which a library describes its quantization of the weights."""
_PARTS = ("text_config", "language_config", "llm_config")
"""Configs inside config.json that may have such settings."""


def without_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without quantization settings: the codes are not beside the graphs."""
    kept = {name: value for name, value in config.items() if name not in _SETTINGS}
    parts = {name: kept[name] for name in _PARTS if isinstance(kept.get(name), dict)}
    return kept | {name: without_settings(part) for name, part in parts.items()}


def plain_config(source: Path, target: Path, made: Path) -> list[Path]:
    """Make the config.json for the graphs' folder if the source's has settings of quantization.

    Whoever loads the config would otherwise look for the library, or for a GPU.

    Args:
        source: the model's folder.
        target: where the graphs go; the source's own config.json is not changed.
        made: where the file is made.
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
