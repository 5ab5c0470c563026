"""Reads and writes tensor elements at indices that are 0-d tensors.

torch would ask for the values of these indices, which a trace does not have.
"""

from __future__ import annotations

from typing import Any

import torch

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.sizes import size_of
from onnx_external._control_flow.runtime.state import State
from onnx_external._control_flow.values import is_fake


def needs_care(args: Any) -> bool:
    """Return whether torch itself cannot handle these `args` of __getitem__ or __setitem__."""
    if not is_fake(args[0]):
        return False
    if len(args) > 2 and isinstance(args[2], (bool, int, float)):
        return True  # as a constant it would break run_decompositions
    return any(_is_number(each) or _is_cut(each) for each in _items(args[1]))


def read(state: State, tensor: torch.Tensor, where: Any) -> torch.Tensor:
    """Return `tensor[where]`, where some indices may be 0-d tensors."""
    items = _expanded(tensor, where)
    dim = 0
    for place, each in enumerate(items):
        if _is_number(each):
            # It keeps its dimension, of one item, so that the rest is left to torch.
            index = wrapped(each, tensor.shape[dim]).reshape(1)
            tensor, items[place] = tensor.index_select(dim, index), 0
        elif _is_cut(each) and state.follows(each.stop, each.start) and each.step in (None, 1):
            # Beyond the tensor, where Python has no row, ONNX Runtime stops.
            index = torch.where(each.start < 0, tensor.shape[dim], each.start)
            tensor, items[place] = tensor.index_select(dim, index.reshape(1)), slice(None)
        elif _is_cut(each):
            bounds = _bounds(state, each, tensor.shape[dim])
            size = tensor.shape[dim]
            tensor = tensor[(*(slice(None),) * dim, bounds)]
            state.bound(tensor.shape[dim], size)
            items[place] = slice(None)
        dim += _taken(each)
    return tensor[tuple(items)]


def write(state: State, tensor: torch.Tensor, where: Any, value: Any) -> None:
    """Run `tensor[where] = value`, where some indices may be 0-d tensors."""
    items = _expanded(tensor, where)
    if isinstance(value, (bool, int, float)):
        value = torch.full((), value, dtype=tensor.dtype, device=tensor.device)
    elif not isinstance(value, torch.Tensor):
        value = torch.scalar_tensor(value, dtype=tensor.dtype)
    dim = 0
    for place, each in enumerate(items):
        if _is_cut(each):
            items[place] = _bounds(state, each, tensor.shape[dim])
        dim += _taken(each)
    if not any(map(_is_number, items)):
        tensor[tuple(items)] = value
        return
    _write_at(tensor, items, value.to(tensor.dtype))


def _write_at(tensor: torch.Tensor, items: list[Any], value: torch.Tensor) -> None:
    """Write at indices some of which are tensors; write all other elements back unchanged."""
    if any(isinstance(each, (torch.Tensor, list)) and not _is_number(each) for each in items):
        raise RewriteError(
            "a tensor is written to with one index that is a number and another that is a tensor; "
            "use torch.where, or index_put with indices of one shape"
        )
    views = [slice(None) if _is_number(each) else each for each in items]
    seen = tensor[tuple(views)]
    places, dim = {}, 0
    for each in items:
        if _is_number(each):
            places[dim] = each
        dim += not _is_int(each)
    rest = [size for place, size in enumerate(seen.shape) if place not in places]
    value = value.expand(rest)
    mask: Any = None
    for place, each in places.items():
        value = value.unsqueeze(place)
        size = seen.shape[place]
        hit = torch.arange(size, device=seen.device) == wrapped(each, size)
        hit = hit.reshape([-1 if at == place else 1 for at in range(seen.dim())])
        mask = hit if mask is None else mask & hit
    seen.copy_(torch.where(mask, value, seen))


def at_row(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return one row, for an index that is not negative."""
    return tensor.index_select(0, index.reshape(1)).squeeze(0)


def wrapped(index: torch.Tensor | torch.SymInt, size: Any) -> torch.Tensor:
    """Return an index counted from the start of the dimension."""
    index = _tensor(index)
    return torch.where(index < 0, index + size, index)


def _items(where: Any) -> tuple[Any, ...]:
    return where if isinstance(where, tuple) else (where,)


def _is_number(each: Any) -> bool:
    # torch asks a size for its value, and fixes the size that it comes from.
    return isinstance(each, torch.SymInt) or _is_value(each)


def _is_value(each: Any) -> bool:
    """Return whether an index is an integer that depends on a tensor."""
    if not isinstance(each, torch.Tensor) or each.dim() or not is_fake(each):
        return False
    return not (each.dtype == torch.bool or each.dtype.is_floating_point)


def _is_int(each: Any) -> bool:
    return isinstance(each, int) and not isinstance(each, bool)


def _is_cut(each: Any) -> bool:
    """Return whether an index is a slice with a bound that depends on a tensor."""
    return isinstance(each, slice) and (_is_value(each.start) or _is_value(each.stop))


def _taken(each: Any) -> int:
    """Return the number of dimensions of the tensor that an index consumes."""
    if each is None or isinstance(each, bool):
        return 0
    if isinstance(each, torch.Tensor) and each.dtype in (torch.bool, torch.uint8):
        return int(each.dim())
    return 1


def _expanded(tensor: torch.Tensor, where: Any) -> list[Any]:
    """Return the indices, with an ellipsis replaced with the slices that it represents."""
    items = list(_items(where))
    for place, each in enumerate(items):
        if each is Ellipsis:
            others = sum(_taken(one) for one in items if one is not Ellipsis)
            items[place : place + 1] = [slice(None)] * (tensor.dim() - others)
            break
    return items


def _bounds(state: State, cut: slice, size: Any) -> slice:
    """Return a slice with sizes in place of tensors, clipped to the size of the dimension."""
    if not isinstance(cut.step, (int, type(None))) or (cut.step or 1) < 0:
        raise RewriteError("a slice with a bound that is a tensor has a step that is not positive")
    start = 0 if cut.start is None else _place(cut.start, size)
    stop = size if cut.stop is None else _place(cut.stop, size)
    if isinstance(stop, torch.Tensor) and cut.start is not None:
        stop = torch.maximum(stop, _tensor(start))
    first, last = _size(state, start, size), _size(state, stop, size)
    if isinstance(start, torch.Tensor) or isinstance(stop, torch.Tensor):
        torch._check(last >= first)
    return slice(first, last, cut.step)


def _tensor(value: Any) -> torch.Tensor:
    return (
        value if isinstance(value, torch.Tensor) else torch.scalar_tensor(value, dtype=torch.int64)
    )


def _place(bound: Any, size: Any) -> Any:
    if not isinstance(bound, torch.Tensor):
        return bound if not isinstance(bound, int) or bound >= 0 else size + bound
    found = wrapped(bound.to(torch.int64), size)
    return torch.minimum(found.clamp(min=0), _tensor(size))


def _size(state: State, bound: Any, size: Any) -> Any:
    if not isinstance(bound, torch.Tensor):
        return bound
    found = size_of(bound, most=size)
    state.bound(found, size)
    return found
