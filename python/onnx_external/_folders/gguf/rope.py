"""Translates the rotary embedding in a GGUF file's keys to transformers' `rope_parameters`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._base.errors import ExportError, FormatError
from .metadata import Metadata, shortest

_BANDS = ((1.0, 4.0), (1.0, 2.0), (1.0, 8.0), (1.0, 32.0), (2.0, 8.0), (1.0, 16.0))
"""Candidates for Llama 3's low_freq_factor and high_freq_factor."""
_ROUNDING = 2e-6
"""The tolerance for comparing divisors: libraries compute powers with slightly different rounding,
and other settings give larger differences."""


def rope_parameters(file: Metadata, size: int, positions: int) -> dict[str, Any]:
    """Return transformers' `rope_parameters` for a GGUF file.

    Args:
        file: the keys of the GGUF file.
        size: the size of the part of a head that is rotated.
        positions: the number of positions that the model supports.

    Raises:
        FormatError: the keys contradict each other.
        ExportError: transformers has no such rotary embedding.
    """
    found = {"rope_theta": file.number("rope.freq_base", 10000.0)}
    scaled = _scaled(file, positions)
    long, short = (file.factors(f"rope_factors_{each}.weight") for each in ("long", "short"))
    divisors = file.factors("rope_freqs.weight")
    if long is not None or short is not None:
        _refuse_second(file, scaled, "rope_factors")
        return found | _long(file, size, positions, long, short)
    if divisors is not None and any(each != 1 for each in divisors):
        _refuse_second(file, scaled, "rope_freqs.weight")
        _check_count(file, "rope_freqs.weight", divisors, size)
        return found | _divided(found["rope_theta"], size, divisors, positions)
    return found | scaled


def _scaled(file: Metadata, positions: int) -> dict[str, Any]:
    """Return the settings of `rope.scaling`, without factors for individual frequencies."""
    kind = file.own("rope.scaling.type")
    factor = file.number("rope.scaling.factor", 0.0) or file.number("rope.scale_linear", 0.0) or 1.0
    if kind in (None, "linear"):  # a factor without a type is one of this type
        return (
            {"rope_type": "default"} if factor == 1 else {"rope_type": "linear", "factor": factor}
        )
    if kind in ("none", "longrope"):
        return {"rope_type": "default"}
    if kind != "yarn":
        raise ExportError(f"{file.path}: rope.scaling.type is {kind!r:.40}, which is not supported")
    found = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": file.size(
            "rope.scaling.original_context_length", positions
        ),
        "beta_fast": file.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": file.number("rope.scaling.yarn_beta_slow", 1.0),
    }
    for name, usual in (
        ("yarn_ext_factor", 1.0),
        ("yarn_log_multiplier", 0.0),
        ("attn_factor", 1.0),
    ):
        if file.number(f"rope.scaling.{name}", usual) != usual:
            raise ExportError(
                f"{file.path}: rope.scaling.{name} is set, which transformers' YaRN does not "
                "support"
            )
    attention = file.number("rope.scaling.yarn_attn_factor", 0.0)
    return found | ({"attention_factor": attention} if attention else {})


def _refuse_second(file: Metadata, scaled: dict[str, Any], name: str) -> None:
    if scaled["rope_type"] != "default":
        raise ExportError(
            f"{file.path}: has {name} and a rope.scaling of the type {scaled['rope_type']}; "
            "transformers has no rotary embedding with both"
        )


def _check_count(file: Metadata, name: str, factors: list[float], size: int) -> None:
    if len(factors) != size // 2:
        raise FormatError(
            f"{file.path}: {name}: {len(factors)} factors for {size // 2} frequencies"
        )


def _long(
    file: Metadata,
    size: int,
    positions: int,
    long: list[float] | None,
    short: list[float] | None,
) -> dict[str, Any]:
    if long is None or short is None:
        raise FormatError(f"{file.path}: has only one kind of rope_factors, long or short")
    _check_count(file, "rope_factors_long.weight", long, size)
    _check_count(file, "rope_factors_short.weight", short, size)
    original = file.size("rope.scaling.original_context_length", positions)
    found = {
        "rope_type": "longrope",
        "long_factor": long,
        "short_factor": short,
        "original_max_position_embeddings": original,
    }
    times = positions / original
    usual = math.sqrt(1 + math.log(times) / math.log(original)) if times > 1 else 1.0
    attention = file.number("rope.scaling.attn_factor", 1.0)
    if attention != shortest(usual):  # else transformers computes it with more digits
        found["attention_factor"] = attention
    return found


def _divided(theta: float, size: int, divisors: list[float], positions: int) -> dict[str, Any]:
    """Return settings under which the plain frequencies are divided by the given divisors.

    If settings of Llama 3 give the same divisors, they are returned: the model was trained with
    these numbers. In all other cases, the divisors themselves become factors of `longrope`.
    """
    factor, wanted = max(divisors), np.array(divisors, dtype=np.float32)
    for low, high in _BANDS:
        for original in (1 << power for power in range(4, 22)):
            made = _of_llama3(theta, size, factor, low, high, original)
            if np.allclose(made, wanted, rtol=_ROUNDING, atol=0):
                return {
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": original,
                }
    return {
        "rope_type": "longrope",
        "long_factor": divisors,
        "short_factor": divisors,
        "attention_factor": 1.0,
        "original_max_position_embeddings": positions,
    }


def _of_llama3(
    theta: float, size: int, factor: float, low: float, high: float, original: int
) -> Any:
    """Return Llama 3's divisors in float32, as GGUF files store them."""
    even = np.arange(0, size, 2, dtype=np.float32)
    waves = np.float32(2 * math.pi) / (
        np.float32(1) / np.float32(theta) ** (even / np.float32(size))
    )
    smooth = (np.float32(original) / waves - np.float32(low)) / np.float32(high - low)
    middle = np.float32(1) / ((np.float32(1) - smooth) / np.float32(factor) + smooth)
    found = np.where(waves < original / high, np.float32(1), middle)
    return np.where(waves > original / low, np.float32(factor), found).astype(np.float32)
