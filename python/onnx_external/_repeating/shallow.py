"""Temporarily removes layers from a model, so that it can be traced faster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from .kinds import Stack
from .seen_floats import settings_of

COUNTS = re.compile(r"^(num_|n_)?(\w+_)?layers?$|^n_layer$|^depth$|_blocks$|^num_stages$")
"""The usual names of settings that state the number of layers."""
_PARTS = ("_parameters", "_buffers", "_modules")


@contextmanager
def shallow(model: nn.Module, stacks: Sequence[Stack]) -> Iterator[None]:
    """Reduce each stack of a model to its kept layers inside the context.

    The layers are the model's own. Also changed are the settings for the number of layers, in the
    modules around the stacks and in their configs, and lists with an entry for each layer.

    Args:
        model: the model, which is restored when the context ends.
        stacks: lists of layers of the model.
    """
    with ExitStack() as undo:
        around = _around(model, stacks)
        for stack in stacks:
            _cut(model.get_submodule(stack.name), stack, undo)
        for settings in settings_of(around):
            _count(settings, stacks, undo)
        yield


def _around(model: nn.Module, stacks: Sequence[Stack]) -> list[nn.Module]:
    """Return the modules that are not inside a layer of a stack."""
    inside: set[int] = set()
    for stack in stacks:
        inside.update(map(id, model.get_submodule(stack.name).modules()))
    return [each for each in model.modules() if id(each) not in inside]


def _cut(layers: nn.Module, stack: Stack, undo: ExitStack) -> None:
    undo.callback(layers._modules.update, dict(layers._modules))
    undo.callback(layers._modules.clear)  # before that
    kept = [layers._modules[str(index)] for index in stack.kept]
    layers._modules.clear()
    layers._modules.update({str(place): each for place, each in enumerate(kept)})
    for place, layer in enumerate(kept):
        assert layer is not None
        for name, module in layer.named_modules():
            for inner, attribute in stack.indices:
                if inner == name and attribute in vars(module):
                    _set(vars(module), attribute, place, undo)


def _set(settings: dict[str, Any], name: str, value: Any, undo: ExitStack) -> None:
    undo.callback(settings.__setitem__, name, settings[name])
    settings[name] = value


def _count(settings: dict[str, Any], stacks: Sequence[Stack], undo: ExitStack) -> None:
    """Change the settings for numbers of layers, and the lists with an entry for each layer."""
    for name, value in list(settings.items()):
        if name in _PARTS:
            continue
        for stack in stacks:
            depth = len(stack.kinds)
            if type(value) is int and value == depth and COUNTS.search(name):
                _set(settings, name, len(stack.kept), undo)
                break
            if isinstance(value, (list, tuple)) and len(value) == depth and _is_plain(value):
                _set(settings, name, type(value)(value[place] for place in stack.kept), undo)
                break


def _is_plain(values: Sequence[Any]) -> bool:
    return all(isinstance(each, (bool, int, float, str, type(None))) for each in values)
