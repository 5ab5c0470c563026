"""Inputs that a model can be traced with."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch

from .._errors import InvalidArgumentError

_ROWS = 2
_LENGTH = 8
_MOST = 1 << 27
"""Elements of an example."""
_SAMPLES = 16_000
"""Of a sound: a second of it."""


def _first(config: Any, *names: str) -> Any:
    """The first of the settings that the config, or one of its parts, has."""
    parts = (config, *(getattr(config, part, None) for part in _PARTS))
    values = (getattr(part, name, None) for name in names for part in parts)
    return next((value for value in values if value is not None), None)


_PARTS = ("text_config", "vision_config", "audio_config", "encoder")


def words_of(config: Any, rows: int, length: int) -> torch.Tensor:
    """Return ids that are not special tokens where there are enough others."""
    count = int(_first(config, "vocab_size") or 32)
    ids = torch.arange(rows * length).reshape(rows, length) * 7 + 11
    return ids % max(count - 8, 1) + min(4, count - 1)


def _mask(length: int) -> torch.Tensor:
    """The second row is padded on the left; a mask of ones would be left out of the graph."""
    mask = torch.ones(_ROWS, length, dtype=torch.int64)
    mask[1, 0] = 0
    return mask


def _ramp(first: float, shape: tuple[int, ...]) -> torch.Tensor:
    """Values from the first to 1, all of them different."""
    if not all(isinstance(size, int) and size > 0 for size in shape) or _MOST < math.prod(shape):
        raise InvalidArgumentError(
            f"by its config, an example has the shape {list(shape)}; correct the config's numbers, "
            "or give inputs={name: tensor}"
        )
    return torch.linspace(first, 1, math.prod(shape)).reshape(shape)


def _image(config: Any) -> torch.Tensor:
    size = _first(config, "image_size") or 224
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    channels = _first(config, "num_channels") or 3
    return _ramp(-1, (_ROWS, channels, height, width))


def _noise(config: Any, image: torch.Tensor) -> torch.Tensor:
    """A number for each patch, by whose order patches are masked."""
    size = _first(config, "patch_size") or 16
    high, wide = (size, size) if isinstance(size, int) else tuple(size)
    patches = (image.shape[-2] // high) * (image.shape[-1] // wide)
    return _ramp(0, (_ROWS, patches))


def _spectrum(config: Any) -> torch.Tensor:
    frames = 2 * int(_first(config, "max_source_positions") or 1500)
    bins = int(_first(config, "num_mel_bins") or 80)
    return _ramp(-1, (_ROWS, bins, frames))


def _sound(config: Any) -> torch.Tensor:
    bins, frames = _first(config, "num_mel_bins"), _first(config, "max_length")
    shape = (_ROWS, frames, bins) if bins and frames else (_ROWS, _SAMPLES)
    return _ramp(-1, shape)


def sample_inputs(model: Any, generates: bool) -> dict[str, torch.Tensor]:
    """Return inputs for generate(), or for forward()."""
    config, taken = model.config, inspect.signature(model.forward).parameters
    given: dict[str, torch.Tensor] = {}
    if "input_ids" in taken and model.main_input_name == "input_ids":
        given["input_ids"] = words_of(config, _ROWS, _LENGTH)
        if "attention_mask" in taken:
            given["attention_mask"] = _mask(_LENGTH)
    if "pixel_values" in taken and not ("input_ids" in given and generates):
        given["pixel_values"] = _image(config)
        if "noise" in taken:  # else the model would draw it, and no two runs would be alike
            given["noise"] = _noise(config, given["pixel_values"])
    if model.main_input_name == "input_features":
        given["input_features"] = _spectrum(config)
    if model.main_input_name == "input_values":
        given["input_values"] = _sound(config)
    if not generates and "decoder_input_ids" in taken:
        given["decoder_input_ids"] = words_of(config, _ROWS, _LENGTH - 3)
    if not given:
        raise InvalidArgumentError(
            f"{type(model).__name__} takes {model.main_input_name}, for which there is no example "
            "here; give inputs={name: tensor}"
        )
    return given


def plain_words(model: Any) -> Any:
    """Let generate() go on with a word that is no special token.

    Without weights all words are alike, and the first is often the one that ends or pads a text,
    which generate() of some classes cuts off before it looks at what is left.
    """
    settings = model.generation_config
    special: set[int] = set()
    for name, value in vars(settings).items():
        if name.endswith(("token_id", "token_ids", "tokens")):
            special.update(_numbers(value))
    count = int(_first(model.config, "vocab_size") or 32)
    word = next((word for word in range(count) if word not in special), 0)

    def choose(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        chosen = torch.full_like(scores, -torch.inf)
        chosen[:, word] = 0
        return chosen

    return choose


def _numbers(value: Any) -> set[int]:
    """The numbers of a setting, which may be one, a list of them, or none."""
    if isinstance(value, int):
        return {value}
    if isinstance(value, (list, tuple, set)):
        return {number for one in value for number in _numbers(one)}
    return set()
