"""Detects similar layers in lists of modules.

Two layers are of the same kind if they have the same classes, settings, shapes and tables. The
kinds only group the layers. The module `proof` proves from the operators of layers that the layers
are equivalent.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import nn

_ORDINARY = 3
"""The number of layers of each kind in a shallow model: the first layer, which may compute values
that all layers share, and two layers that show what to repeat."""

HasData: TypeAlias = Callable[[torch.Tensor], bool]
Place: TypeAlias = tuple[str, str]
"""A module, named relative to its layer, and one of its attributes."""


@dataclass(frozen=True)
class Stack:
    """A list of layers, most of which are similar to other layers in it."""

    name: str
    """The name of the list in the model, such as "model.layers"."""
    kinds: tuple[int, ...]
    """The kind of each layer; similar layers have the same number."""
    indices: frozenset[Place]
    """The attributes in which each layer stores its own index."""

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The indices of the layers that the shallow model keeps."""
        found = {len(self.kinds) - 1}
        for kind in set(self.kinds):
            found.update(self._places(kind)[:_ORDINARY])
        return tuple(sorted(found))

    @property
    def gone(self) -> list[int]:
        """The indices of the layers that the shallow model leaves out."""
        return [layer for layer in range(len(self.kinds)) if layer not in self.kept]

    @cached_property
    def kept_kinds(self) -> tuple[int, ...]:
        """The kinds of the layers in `kept`."""
        return tuple(self.kinds[layer] for layer in self.kept)

    def stand_in(self, layer: int) -> int:
        """Return the position in `kept` of the layer that represents a given layer."""
        return self._stand_ins[layer]

    @cached_property
    def _stand_ins(self) -> tuple[int, ...]:
        last = {kind: self._places(kind)[:_ORDINARY][-1] for kind in set(self.kinds)}
        kept = {layer: place for place, layer in enumerate(self.kept)}
        return tuple(kept.get(layer, kept[last[kind]]) for layer, kind in enumerate(self.kinds))

    def _places(self, kind: int) -> list[int]:
        return [place for place, each in enumerate(self.kinds) if each == kind]


def find_stacks(model: nn.Module, has_data: HasData) -> list[Stack]:
    """Return the outermost lists of layers that a shallow model can shorten.

    Args:
        model: the model.
        has_data: a function that returns whether a tensor has values on which the graph may depend.
    """
    names = Counter(id(each) for _, each in model.named_modules(remove_duplicate=False))
    found: list[Stack] = []

    def visit(name: str, module: nn.Module) -> None:
        if names[id(module)] > 1:  # a trace knows one of its names
            return
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            stack = _stack(name, list(module), has_data)
            if stack is not None:
                found.append(stack)
                return
        for child, each in module.named_children():
            visit(f"{name}.{child}" if name else child, each)

    visit("", model)
    return found


def _stack(name: str, layers: list[nn.Module], has_data: HasData) -> Stack | None:
    if len({id(each) for each in layers}) < len(layers) or not name or None in layers:
        return None
    indices = _own_indices(layers)
    numbers: dict[Hashable, int] = {}
    kinds = [
        numbers.setdefault(_fingerprint(each, indices, has_data), len(numbers)) for each in layers
    ]
    stack = Stack(name, tuple(kinds), indices)
    return stack if len(stack.kept) < len(layers) else None


def _own_indices(layers: list[nn.Module]) -> frozenset[Place]:
    """Return the attributes that equal the layer's index in every layer that has them."""
    found: dict[Place, list[bool]] = {}
    for index, layer in enumerate(layers):
        for name, module in layer.named_modules():
            for attribute, value in vars(module).items():
                if type(value) is int:
                    found.setdefault((name, attribute), []).append(value == index)
    return frozenset(place for place, same in found.items() if len(same) > 1 and all(same))


def _fingerprint(layer: nn.Module, indices: frozenset[Place], has_data: HasData) -> Hashable:
    return tuple(
        (name, type(module), _settings(name, module, indices), _tensors(module, has_data))
        for name, module in layer.named_modules()
    )


def _settings(name: str, module: nn.Module, indices: frozenset[Place]) -> Hashable:
    """Return the plain attributes of a module, except those that are used only in training."""
    return frozenset(
        (attribute, _plain(value))
        for attribute, value in vars(module).items()
        if (name, attribute) not in indices
        and "drop" not in attribute
        and not attribute.startswith("_parameters")
    )


def _plain(value: Any) -> Hashable:
    """Return a plain value in a form that can be compared; for other objects, the class."""
    if isinstance(value, (bool, int, float, str, type(None), torch.dtype)):
        return (type(value).__name__, repr(value))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_plain, value))
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape))
    if isinstance(value, dict):
        named = ((key if isinstance(key, str) else "", _plain(each)) for key, each in value.items())
        return (type(value).__name__, *named)  # hooks have numbers of their own
    return (type(value).__name__, getattr(value, "__qualname__", ""))


def _tensors(module: nn.Module, has_data: HasData) -> Hashable:
    parameters = tuple(
        (name, None if each is None else (each.dtype, tuple(each.shape)))
        for name, each in module._parameters.items()
    )
    return parameters, tuple(_tables(module, has_data))


def _tables(module: nn.Module, has_data: HasData) -> Iterator[Hashable]:
    """Yield buffers and other tensors with values, which an optimizer may convert to constants."""
    plain = {name: each for name, each in vars(module).items() if isinstance(each, torch.Tensor)}
    for name, each in {**module._buffers, **plain}.items():
        if each is not None:
            yield name, each.dtype, tuple(each.shape), has_data(each) and digest(each)


def digest(tensor: torch.Tensor) -> str:
    """Return a digest of a tensor's values; for a sparse or quantized tensor, a unique string."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return str(id(tensor))
    data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    return hashlib.blake2b(data.tobytes(), digest_size=16).hexdigest()
