"""Removes settings of generate(), which do not affect graphs, so that a trace ignores them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import transformers

from .._base.progress import only_errors
from .._folders.config import GENERATION, parse

_CHECKED = (
    "assistant_ensemble_weight",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "early_stopping",
    "max_new_tokens",
    "watermarking_config",
)
"""Settings that prevent a model from being created if they are in its config."""

_OTHER_WAYS = (
    "assistant_early_exit",
    "cache_implementation",
    "constraints",
    "custom_generate",
    "dola_layers",
    "force_words_ids",
    "guidance_scale",
    "num_beam_groups",
    "penalty_alpha",
    "prompt_lookup_num_tokens",
    "speculation_type",
    "stop_strings",
    "use_mtp",
    "watermarking_config",
)
"""Settings with which generate() runs the model in another way, or needs further arguments."""


def without_checked_settings(config: Any) -> list[str]:
    """Remove settings from a config that its model would reject, and return a note on them."""
    found = [name for name in _CHECKED if name in vars(config) and not hasattr(type(config), name)]
    for name in found:
        delattr(config, name)
    return [f"config.json: {_left_out(found)}"] if found else []


def token_ids(config: Any) -> Any:
    """Return the settings of generate() in the config itself, so that no file is read."""
    found: dict[str, Any] = {}
    for each in (config.get_text_config(decoder=True), config):
        for name, value in vars(each).items():
            if name.endswith("token_id") and value is not None and _are_ids(value):
                found[name] = value
    return transformers.GenerationConfig(**found)


def plain_generation(model: Any, folder: Path) -> list[str]:
    """Reduce a model's settings of generate() to token ids, and return notes on the others.

    Beam search, sampling, assistant models and limits would change what runs during a trace, or
    prevent the trace.
    """
    file, given, notes = _settings(model, folder)
    kept: dict[str, Any] = {}
    refused: list[str] = []
    usual = vars(transformers.GenerationConfig())
    for name, value in given.items():
        if name.endswith("token_id"):
            if _are_ids(value):
                kept[name] = value
            elif value is not None:
                refused.append(name)
        elif name not in usual and not name.startswith("_") and name not in _OTHER_WAYS:
            kept[name] = value  # of the model's own generate(), such as Whisper's languages
    refused += _refused(given)
    if refused:
        notes.append(f"{file}: {_left_out(sorted(set(refused)))}")
    model.generation_config = type(model.generation_config)(**kept)
    return notes


def _left_out(names: list[str]) -> str:
    return (
        f"{', '.join(names)} ignored: the graphs do not depend on settings of generate(), and with "
        "these settings it would fail or run the model in another way"
    )


def _settings(model: Any, folder: Path) -> tuple[str, dict[str, Any], list[str]]:
    """Return the file with the settings, the settings, and notes on errors in the file.

    Older models have the settings in config.json.
    """
    own = model.generation_config.to_dict()
    name = GENERATION if (folder / GENERATION).is_file() else "config.json"
    if not (folder / name).is_file():
        return name, own, []
    try:
        found = parse(folder / name)
        if not isinstance(found, dict):
            raise ValueError("no object")
    except (OSError, ValueError, RecursionError) as error:
        return name, own, [f"{name}: ignored, because it is not JSON ({error}); no graph needs it"]
    if name != GENERATION:
        usual = vars(transformers.GenerationConfig())
        found = own | {key: value for key, value in found.items() if key in usual}
    return name, found, []


def _are_ids(value: Any) -> bool:
    """Return whether a value is a token id, or a list of token ids."""
    each = value if isinstance(value, list) and value else [value]
    return all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in each)


def _refused(given: dict[str, Any]) -> list[str]:
    """Return the settings that transformers rejects, or that change how generate() works."""
    usual = {None, False, 1}
    found = [name for name in _OTHER_WAYS if _value(given.get(name)) not in usual]
    several = ("num_beams", "num_return_sequences")
    found += [name for name in several if given.get(name) not in (None, 1)]
    if given.get("do_sample") and not _positive(given.get("temperature", 1.0)):
        found.append("temperature")
    shortest, longest = given.get("min_length") or 0, given.get("max_length")
    if longest is not None and not (_positive(longest) and _positive(longest - shortest + 1)):
        found += ["max_length", "min_length"]
    return found + [name for name in given if name not in found and _is_wrong(name, given[name])]


def _value(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else "set"


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and value > 0


def _is_wrong(name: str, value: Any) -> bool:
    """Return whether transformers rejects a setting whatever the other settings are."""
    if name.startswith("_") or name not in vars(transformers.GenerationConfig()):
        return False
    try:
        with warnings.catch_warnings(), only_errors("transformers"):
            warnings.simplefilter("ignore")
            transformers.GenerationConfig(**{name: value})
    except Exception:  # of whatever kind: the value is not one that it takes
        return True
    return _has_wrong_type(name, value)


_NUMBERS = (
    "length", "tokens", "temperature", "top_", "min_p", "typical_p", "cutoff", "penalty", "num_",
    "ngram_size", "max_time",
)  # fmt: skip


def _has_wrong_type(name: str, value: Any) -> bool:
    """Return whether a setting is a string, list or object where a number is expected."""
    if name in ("suppress_tokens", "begin_suppress_tokens", "exponential_decay_length_penalty"):
        return not isinstance(value, (list, type(None)))
    if name.endswith("schedule") or not any(part in name for part in _NUMBERS):
        return False
    return not isinstance(value, (int, float, type(None)))
