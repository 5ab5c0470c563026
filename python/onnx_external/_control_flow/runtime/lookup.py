"""Looks up items by a tensor's value, or by text that contains it: `parts[f"part_{index}"]`.

A graph has no strings. However, the possible items are known, because their names differ only in
the number. Therefore a call of the item becomes a condition for each possible item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.branches import branched
from onnx_external._control_flow.runtime.indexing import at_row, wrapped
from onnx_external._control_flow.runtime.lifting import probe
from onnx_external._control_flow.runtime.merging import as_tensor
from onnx_external._control_flow.runtime.places import Places
from onnx_external._control_flow.runtime.sizes import is_free
from onnx_external._control_flow.runtime.state import State
from onnx_external._control_flow.values import element_type, is_fake, is_number, promoted


def looked_up(state: State, items: Any, parts: tuple[Any, ...], key: str) -> Any:
    """Return `items[f"..."]` for a string that contains the value of a tensor.

    Args:
        state: the state of the runtime.
        items: a dict, or a module that behaves like a dict.
        parts: the parts of the string.
        key: the key of the lookup.
    """
    indices = [each for each in parts if is_fake(each)]
    if not indices:
        return items["".join(map(format, parts))]
    if len(indices) > 1 or indices[0].dtype.is_floating_point or not hasattr(items, "keys"):
        raise RewriteError(
            "an item is looked up by a string that contains tensor values; a graph can only "
            "choose among the items of a dict by one integer",
            key,
        )
    pattern = "".join(r"(-?\d+)" if is_fake(each) else re.escape(format(each)) for each in parts)
    found = {}
    for name in list(items.keys()):
        fits = re.fullmatch(pattern, name) if isinstance(name, str) else None
        if fits is not None and str(int(fits[1])) == fits[1]:
            found[int(fits[1])] = items[name]
    if not found:
        raise RewriteError("no item has a name of the form that is looked up", key)
    return _Chosen(state, indices[0], found, key)


def chosen(state: State, items: Any, index: Any, key: str) -> Any:
    """Return `items[index]` for an index that is a tensor.

    Args:
        state: the state of the runtime.
        items: a list, or a similar object, of tensors, numbers or callables.
        index: the index of an item.
        key: the key of the subscript.
    """
    if not is_fake(index) or isinstance(items, torch.Tensor):
        return items[index]
    if hasattr(items, "keys"):
        named = {int(each): items[each] for each in items.keys() if isinstance(each, int)}
        index = index.to(torch.int64)
    else:
        named = {at: items[at] for at in range(len(items))}
        index = wrapped(index, len(named))
    values = list(named.values())
    if values and all(map(is_number, values)):
        kind = promoted(*map(element_type, values))
        made = torch.stack([as_tensor(each, kind) for each in values])
        return at_row(made, _place(index, list(named)))
    if values and all(isinstance(each, torch.Tensor) for each in values):
        if len({(str(each.shape), each.dtype) for each in values}) == 1:
            return at_row(torch.stack(values), _place(index, list(named)))
    elif values and all(map(callable, values)):
        return _Chosen(state, index, named, key)
    raise RewriteError(
        "a tensor chooses an item of a list or a dict; a graph can choose, by an integer or a "
        "bool, only among tensors of one shape and type, numbers, or callables",
        key,
    )


def _place(index: torch.Tensor, numbers: list[int]) -> torch.Tensor:
    """Return the position of an index among the numbers.

    For a missing number, Python raises an error. The graph instead reads a row after the last row,
    at which ONNX Runtime stops with an error.
    """
    count = len(numbers)
    place = torch.full((1,), count, device=index.device)
    for at, number in enumerate(numbers):
        place = torch.where(index.reshape(1) == number, at, place)
    return torch.arange(count, device=place.device).index_select(0, place).reshape(())


class _Chosen:
    """One of several items, chosen by a tensor; it can only be called."""

    def __init__(self, state: State, index: torch.Tensor, items: dict[int, Any], key: str) -> None:
        self._state, self._index, self._items, self._key = state, index, items, key

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the chosen item."""
        place = _place(self._index, list(self._items))
        found = self._called(place, list(enumerate(self._items.values())), args, kwargs)
        self._keep_sizes(found, args, kwargs)
        return found

    def _called(
        self, place: torch.Tensor, items: list[tuple[int, Any]], args: Any, kwargs: Any
    ) -> Any:
        (at, item), *rest = items
        if not rest and at:
            return item(*args, **kwargs)
        branches = (
            lambda: item(*args, **kwargs),
            # A single item is in both branches, as an unused result is not looked up either.
            lambda: self._called(place, rest, args, kwargs) if rest else item(*args, **kwargs),
        )
        return branched(self._state, place == at, branches, self._key, ())

    def _keep_sizes(self, found: Any, args: Any, kwargs: Any) -> None:
        """Tell torch which dynamic sizes of its arguments each item returns unchanged."""
        known = _sizes((args, kwargs))
        first = next(iter(self._items.values()))

        def alone() -> Any:
            return first(*args, **kwargs)

        expected = probe(self._state, alone, Places([alone])).value
        for one, other in zip(_tensors(found), _tensors(expected), strict=True):
            for size, wanted in zip(one.shape, other.shape, strict=True):
                if is_free(wanted) and wanted.node.expr in known:
                    torch._check(size == wanted)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error if an attribute is read, because its value depends on the chosen item."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise RewriteError(
            f".{name} is read from an item that a tensor's value chooses; a graph can only call it",
            self._key,
        )


def _tensors(value: Any) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]


def _sizes(value: Any) -> set[Any]:
    sizes: Iterable[Any] = (size for each in _tensors(value) for size in each.shape)
    return {each.node.expr for each in sizes if is_free(each)}
