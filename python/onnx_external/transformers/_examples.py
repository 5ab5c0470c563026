"""Makes example inputs of a model from its config.

The examples fit the config and are well conditioned: sound, spectra and images are noise with a few
waves. In a plain ramp, neighbouring values would be so similar that a normalization would amplify
rounding errors.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._base.errors import InvalidArgumentError

_ROWS = 2
_LENGTH = 8
_CHOICES = 3
"""The number of texts per batch entry among which a model chooses."""
_MOST = 1 << 27
"""The maximum number of elements in an example."""
_SAMPLES = 16_000
"""The number of samples in a sound, which lasts one second."""
_FRAMES = 128
"""The number of frames in a spectrum if the config does not state it."""
_PARTS = ("text_config", "vision_config", "audio_config", "encoder", "encoder_config")


def first_setting(config: Any, *names: str) -> Any:
    """Return the first of the settings that the config, or a config nested in it, has."""
    parts = (config, *(getattr(config, part, None) for part in _PARTS))
    values = (_setting(part, name) for name in names for part in parts)
    return next((value for value in values if value is not None), None)


def _setting(part: Any, name: str) -> Any:
    return part.get(name) if isinstance(part, dict) else getattr(part, name, None)


def _checked(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an example; raise an error if an example cannot have this shape."""
    if not all(isinstance(size, int) and size > 0 for size in shape) or _MOST < math.prod(shape):
        raise InvalidArgumentError(
            f"by the config, an example has the shape {list(shape)}; correct the numbers in the "
            "config, or give inputs={name: tensor}"
        )
    return shape


def _ramp(first: float, shape: tuple[int, ...]) -> torch.Tensor:
    """Return different values that rise linearly from `first` to 1."""
    return torch.linspace(first, 1, math.prod(_checked(shape))).reshape(shape)


def _noise(shape: tuple[int, ...]) -> torch.Tensor:
    """Return standard normal values, the same in each call."""
    made = torch.Generator().manual_seed(0)
    return torch.randn(_checked(shape), generator=made)


def _waves(shape: tuple[int, ...]) -> torch.Tensor:
    """Return a synthetic sound: two sine waves along the last dimension, plus noise."""
    time = torch.arange(_checked(shape)[-1])
    return 0.5 * torch.sin(0.08 * time) + 0.3 * torch.sin(0.9 * time) + 0.2 * _noise(shape)


@dataclass
class Examples:
    """Makes a model's inputs in order, because the sizes of some inputs depend on others."""

    model: Any
    made: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def config(self) -> Any:
        """The config of the model."""
        return self.model.config

    @property
    def taken(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of forward()."""
        return inspect.signature(self.model.forward).parameters

    def add(self, name: str) -> bool:
        """Make an example of an input; return False if this is not possible."""
        maker = MAKERS.get(name)
        value = None if maker is None else maker(self)
        if value is not None:
            self.made[name] = value
        return value is not None

    def text(self) -> tuple[int, int]:
        """Return the batch size and the sequence length of the text."""
        rows, length = self.made["input_ids"].shape if "input_ids" in self.made else (_ROWS, 0)
        return int(rows), int(length) or _LENGTH

    def setting(self, *names: str) -> Any:
        """Return the first of the settings that the config has."""
        return first_setting(self.config, *names)


def vocabulary_of(config: Any) -> int:
    """Return the size of the text vocabulary; the text config takes precedence."""
    parts = (getattr(config, "text_config", None), config)
    return int(next(filter(None, (first_setting(each, "vocab_size") for each in parts)), 32))


def words_of(config: Any, rows: int, length: int) -> torch.Tensor:
    """Return token ids that are not special tokens, if the vocabulary has enough others."""
    count = vocabulary_of(config)
    ids = torch.arange(rows * length).reshape(rows, length) * 7 + 11
    return ids % max(count - 8, 1) + min(4, count - 1)


def _text(examples: Examples) -> torch.Tensor:
    """Return token ids; classification heads of encoder-decoders need an end-of-text token."""
    rows = _ROWS * (_CHOICES if chooses(examples.model) else 1)
    ids, end = words_of(examples.config, rows, _LENGTH), examples.setting("eos_token_id")
    if has_head_behind_decoder(examples.model) and isinstance(end, int):
        ids[:, -1] = end
    return ids


def _decoder_text(examples: Examples) -> torch.Tensor:
    """Return token ids: as many as the encoder's if a head compares both texts, otherwise fewer."""
    fewer = 0 if has_head_behind_decoder(examples.model) else 3
    return words_of(examples.config, _ROWS, examples.text()[1] - fewer)


def chooses(model: Any) -> bool:
    """Return whether a model's texts have a dimension of choices after the batch dimension."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES

    return type(model).__name__ in pytree.tree_leaves(
        list(MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES.values())
    )


def in_choices(made: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return examples whose batch dimension is split into batch and choices."""
    return {name: each.unflatten(0, (-1, _CHOICES)) for name, each in made.items()}


def has_head_behind_decoder(model: Any) -> bool:
    """Return whether a model has a classification head after its decoder.

    With such a head, forward() passes the encoder's text, shifted by one token, to the decoder.
    """
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES as bare

    is_bare = type(model).__name__ in pytree.tree_leaves(list(bare.values()))
    return bool(model.config.is_encoder_decoder) and not model.can_generate() and not is_bare


def _attention_mask(examples: Examples) -> torch.Tensor | None:
    """Return a mask with a zero, because a mask of ones would be left out of the graph.

    The second text is padded on the left, the second sound on the right.
    """
    for name in ("input_values", "input_features"):
        if name in examples.made and "input_ids" not in examples.made:
            return _sound_mask(examples, name)
    mask = torch.ones(examples.text(), dtype=torch.int64)
    mask[1, 0] = 0
    return mask


def _sound_mask(examples: Examples, name: str) -> torch.Tensor:
    sound = examples.made[name]
    bins_first = name == "input_features" and _width_of_frames(examples) is None
    length = sound.shape[-1] if bins_first and sound.shape[1] != _FRAMES else sound.shape[1]
    mask = torch.ones(_ROWS, length, dtype=torch.int64)
    mask[1, length - length // 4 :] = 0
    return mask


def _segments(examples: Examples) -> torch.Tensor:
    """Return token type ids.

    If the model has several types, the second half of each text gets the second type.
    """
    rows, length = examples.text()
    sizes = examples.setting("type_vocab_sizes")  # of tables: one id for each of them
    kinds = examples.setting("type_vocab_size", "num_token_types")
    second = torch.arange(length) >= length // 2
    if isinstance(sizes, (list, tuple)) and sizes:
        most = torch.tensor(sizes) > 1
        return (second[None, :, None] & most).long().expand(rows, length, len(sizes)).clone()
    if isinstance(kinds, int) and kinds < 2:
        return torch.zeros(rows, length, dtype=torch.int64)
    return second.long().expand(rows, length).clone()


def _boxes(examples: Examples) -> torch.Tensor:
    """Return left, top, right and bottom of each token on a page of 1,000 by 1,000."""
    rows, length = examples.text()
    page = min(int(examples.setting("max_2d_position_embeddings") or 1001) - 1, 1000)
    place = torch.arange(rows * length).reshape(rows, length)
    left, top = place * 37 % (page // 2 + 1), place * 23 % (page // 3 + 1)
    right, bottom = left + 1 + place % (page // 3 + 1), top + 1 + place * 3 % (page // 4 + 1)
    return torch.stack([left, top, right, bottom], -1).clamp(0, max(page, 0))


def _image(examples: Examples) -> torch.Tensor:
    size = examples.setting("image_size", "input_size") or 224
    height, width = (size, size) if isinstance(size, int) else _sides(size)
    channels = examples.setting("num_channels", "in_channels", "in_chans") or 3
    frames = examples.setting("num_frames") if examples.model.main_input_name != "input_ids" else 0
    if isinstance(frames, int) and frames > 0:
        return _noise((_ROWS, frames, channels, height, width))
    return _noise((_ROWS, channels, height, width))


def _video(examples: Examples) -> torch.Tensor:
    size = examples.setting("image_size", "crop_size") or 224
    height, width = (size, size) if isinstance(size, int) else _sides(size)
    frames = examples.setting("num_frames", "frames_per_clip") or 16
    return _noise((_ROWS, frames, examples.setting("in_chans", "num_channels") or 3, height, width))


def _sides(size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        return size["height"], size["width"]
    height, width = tuple(size)[-2:]
    return height, width


def _pixel_mask(examples: Examples) -> torch.Tensor | None:
    """Return a mask that marks the second image as padded at the bottom and on the right."""
    image = examples.made.get("pixel_values")
    if image is None or image.dim() != 4:
        return None
    mask = torch.ones(image.shape[0], *image.shape[-2:], dtype=torch.int64)
    mask[1, image.shape[-2] - image.shape[-2] // 4 :] = 0
    mask[1, :, image.shape[-1] - image.shape[-1] // 4 :] = 0
    return mask


def _order(examples: Examples) -> torch.Tensor | None:
    """Return a number for each patch; the order of these numbers determines the masked patches."""
    image, size = examples.made.get("pixel_values"), examples.setting("patch_size") or 16
    if image is None:
        return None
    high, wide = (size, size) if isinstance(size, int) else tuple(size)
    return _ramp(0, (_ROWS, (image.shape[-2] // high) * (image.shape[-1] // wide)))


def _spectrum(examples: Examples) -> torch.Tensor:
    """Return a spectrum of a sound, with frames and bins in the order that the model expects."""
    bins, width = examples.setting("num_mel_bins"), _width_of_frames(examples)
    if width is not None:
        return _noise((_ROWS, _FRAMES, width))
    frames = examples.setting("max_source_positions")
    if bins and not frames and not isinstance(_first_layer(examples.model), nn.Conv1d):
        return _noise((_ROWS, _FRAMES, int(bins)))
    return _noise((_ROWS, int(bins or 80), 2 * int(frames or 1500)))


def _width_of_frames(examples: Examples) -> int | None:
    """Return the size of a frame, from config or first layer; None if bins come before frames."""
    width = examples.setting("feature_projection_input_dim")
    if width:
        return int(width)
    width, channels = (examples.setting(n) for n in ("input_feat_per_channel", "input_channels"))
    if width:
        return int(width) * int(channels or 1)
    layer = _first_layer(examples.model)
    return int(layer.weight.shape[-1]) if isinstance(layer, (nn.Linear, nn.LayerNorm)) else None


def _first_layer(model: Any) -> Any:
    """Return the first module of the model, or of its encoder, that has weights of its own."""
    start = model.get_encoder() if model.config.is_encoder_decoder else model
    found = (each for each in start.modules() if getattr(each, "weight", None) is not None)
    return next(found, None)


def _sound(examples: Examples) -> torch.Tensor:
    bins, frames = examples.setting("num_mel_bins"), examples.setting("max_length")
    if bins and frames:
        return _noise((_ROWS, frames, bins))
    channels = examples.setting("audio_channels") or (1 if _is_codec(examples.config) else None)
    return _waves((_ROWS, int(channels), _SAMPLES) if channels else (_ROWS, _SAMPLES))


def _is_codec(config: Any) -> bool:
    """Return whether a model's feature extractor returns sound with a channel dimension."""
    from transformers.models.auto import feature_extraction_auto as auto

    name = auto.FEATURE_EXTRACTOR_MAPPING_NAMES.get(getattr(config, "model_type", ""), "")
    return bool(re.search(r"(?i)codec|dac|vibevoice|peaudio", str(name)))


def _series(examples: Examples) -> torch.Tensor:
    """Return past values of a time series: a few waves in each channel."""
    length, channels = (examples.setting(name) for name in ("context_length", "num_input_channels"))
    made = _waves((_ROWS, int(channels or 1), int(length or _FRAMES)))
    return made.transpose(1, 2).contiguous() if channels else made[:, 0]


def _global_mask(examples: Examples) -> torch.Tensor:
    mask = torch.zeros(examples.text(), dtype=torch.int64)
    mask[:, 0] = 1
    return mask


def _places(examples: Examples) -> torch.Tensor:
    rows, length = examples.text()
    return torch.arange(length).expand(rows, length).clone()


def _embeddings(examples: Examples) -> torch.Tensor | None:
    layer = examples.model.get_input_embeddings()
    width = getattr(layer, "embedding_dim", None) or examples.setting("hidden_size")
    return _noise((*examples.text(), int(width))).to(examples.model.dtype) if width else None


def _choice_of(setting: str) -> Maker:
    """Return a function that makes ids: 0 and 1 if the setting is above 1, otherwise only 0."""

    def make(examples: Examples) -> torch.Tensor:
        count = examples.setting(setting)
        ids = torch.arange(examples.text()[1]) % (2 if isinstance(count, int) and count > 1 else 1)
        return ids.expand(examples.text()).clone()

    return make


Maker = Callable[[Examples], torch.Tensor | None]
MAKERS: dict[str, Maker] = {
    "input_features": _spectrum,
    "input_values": _sound,
    "past_values": _series,
    "input_ids": _text,
    "inputs_embeds": _embeddings,
    "attention_mask": _attention_mask,
    "input_features_mask": lambda examples: _sound_mask(examples, "input_features").bool(),
    "token_type_ids": _segments,
    "bbox": _boxes,
    "global_attention_mask": _global_mask,
    "position_ids": _places,
    "task_type_ids": _choice_of("task_type_vocab_size"),
    "langs": _choice_of("n_langs"),
    "pixel_values": _image,
    "pixel_values_videos": _video,
    "pixel_mask": _pixel_mask,
    "noise": _order,
    "decoder_input_ids": _decoder_text,
}
"""The maker of each input, ordered such that sizes only depend on inputs made earlier."""
