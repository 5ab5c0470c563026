"""Makes a small model with the code of a large one, in order to observe that code.

The control flow of a model is in its classes, and all layers of a class share it. A model of the
same classes with few layers and random weights therefore shows the same control flow, and the
model's own weights are not read.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .._repeating.shallow import COUNTS
from ..torch._untouched import build
from ._switches import configs_in

_DEPTHS = re.compile(r"depths?$")
_WIDTHS = re.compile(
    r"(size|sizes|dim|dims|width|channels|_inner|_embd|rank)$|^d_(model|kv|ff|head)"
)
_NO_WIDTHS = re.compile(
    r"vocab|image|patch|window|chunk|block|kernel|bucket|buffer|pool|num_channels"
)
_FEW_LAYERS = (2, 3, 4, 6, 8, 12, 1 << 30)
_NARROWER = (1, 2, 4, 8, 16, 32, 64)
_STATE = ("training", "name_or_path")
"""Attributes that differ between a loaded model and a newly made one."""
_MOST = 1 << 25
"""The maximum number of parameters of a small model, which take 128 MiB."""


@dataclass
class Twin:
    """A small model that runs in place of another model."""

    model: Any
    text: str
    """A description of the model for notes."""
    has_weights: bool = True


def twins(model: Any) -> Iterator[Twin]:
    """Yield small models with a model's code, and values to run it on, the best first.

    The last model is the given model itself, whose weights read as zeros if they have no values.

    Args:
        model: a transformers model, whose weights need no values.
    """
    whole = _without_memory(model, model.config)  # one that has run may have other flags
    wanted = _parts(model if whole is None else whole)
    for layers in _FEW_LAYERS:
        config = _with_layers(model.config, layers)
        shown = _without_memory(model, config)
        if shown is not None and wanted <= _parts(shown):
            yield from _narrowed(model, config)
            break
    text = "the model itself, with zeros for its weights"
    yield Twin(model, text, has_weights=False)


def _narrowed(model: Any, config: Any) -> Iterator[Twin]:
    for factor in _NARROWER:
        narrow = _with_widths(config, factor)
        shown = _without_memory(model, narrow)
        if shown is None or sum(each.numel() for each in shown.parameters()) > _MOST:
            continue
        made = _with_weights(model, narrow)
        if made is not None:
            wide = "" if factor == 1 else f", 1/{factor} as wide"
            count = sum(each.numel() for each in made.parameters())
            yield Twin(made, f"a smaller model of its class{wide}, with {count:,} random weights")
            return


def _parts(model: Any) -> set[Any]:
    """Return the kinds of modules in a model, with their classes, strings and flags."""
    found = set()
    for name, module in model.named_modules():
        words = {
            (key, value)
            for key, value in vars(module).items()
            if isinstance(value, (bool, str, type(None))) and key[0] != "_" and key not in _STATE
        }
        found.add((re.sub(r"\d+", "*", name), type(module), frozenset(words)))
    return found


def _with_layers(config: Any, layers: int) -> Any:
    """Return a config with at most this many layers of each kind."""
    made = copy.deepcopy(config)
    for part in configs_in(made):
        settings = vars(part)  # written to directly: the config need not be consistent in between
        counts = {
            name: value
            for name, value in settings.items()
            if COUNTS.search(name) and type(value) is int and value > layers
        }
        for name, value in list(settings.items()):
            if name in counts:
                settings[name] = layers
            elif isinstance(value, (list, tuple)) and len(value) in counts.values():
                settings[name] = value[:layers]
            elif isinstance(value, list) and _DEPTHS.search(name):
                settings[name] = [min(each, layers) for each in value]
    return made


def _with_widths(config: Any, factor: int) -> Any:
    """Return a config whose matrices are narrower by a factor."""
    made = copy.deepcopy(config)
    for part in configs_in(made):
        for name, value in list(vars(part).items()):
            if _WIDTHS.search(name) and not _NO_WIDTHS.search(name):
                vars(part)[name] = _divided(value, factor)
    return made


def _divided(value: Any, factor: int) -> Any:
    if isinstance(value, list):
        return [_divided(each, factor) for each in value]
    return max(1, value // factor) if type(value) is int and value > 1 else value


def _without_memory(model: Any, config: Any) -> Any:
    """Return a model with this config whose parameters take no memory; None if impossible."""
    return _made(lambda: build(lambda: type(model)(config)))


def _made(make: Any) -> Any:
    try:
        return make()
    except Exception:  # of whatever kind: the class has no model of such a config
        return None


def _with_weights(model: Any, config: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = _made(lambda: type(model)(config))
        if made is None:
            return None
        for each in made.eval().requires_grad_(False).parameters():
            _stir(each)
        made.to(model.dtype)  # code may decide by it
    if model.can_generate():
        made.generation_config = copy.deepcopy(model.generation_config)
    return made


def _stir(parameter: torch.Tensor) -> None:
    """Set a parameter to different values that affect the result, whatever its initial values."""
    noise = torch.randn_like(parameter)
    if parameter.dim() > 1:
        parameter.copy_(noise * parameter[0].numel() ** -0.5)
    else:
        parameter.add_(noise * 0.1)
