"""Replaces torch's functions while rewritten code is traced.

Numbers taken from tensors (`.item()`, `.tolist()`, `torch.equal`) remain tensors, so that a
condition on them is a condition on a tensor. The values of indices that are tensors are not
read.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnx_external._control_flow.runtime.collected import Collected, Rows
from onnx_external._control_flow.runtime.indexing import needs_care, read, write
from onnx_external._control_flow.runtime.merging import as_tensor
from onnx_external._control_flow.runtime.state import State
from onnx_external._control_flow.values import is_fake, is_symbolic

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PYTHON = (sysconfig.get_path("stdlib") + os.sep, os.path.dirname(os.__file__) + os.sep)
_THROUGH = frozenset({"__torch_function__", "handle_torch_function", "_fn", "wrapper"})
"""The torch functions that only forward a call to another function."""


class TorchFunctions(TorchFunctionMode):  # type: ignore[misc]
    """The mode in which torch's functions are replaced; it is active while a module is traced."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func`, or its replacement."""
        return called(self.state, func, args, dict(kwargs or {}))


def called(state: State, func: Any, args: Any, given: dict[str, Any]) -> Any:
    """Call a function of torch, or its replacement while rewritten code is traced."""
    if func is torch._C._set_grad_enabled:
        return None  # torch's pass for it loses the subgraphs of subgraphs
    if func in _INDEXING and needs_care(args):
        return _INDEXING[func](state, *args)
    if func is torch.div and given.get("rounding_mode") and not _has_tensor(args):
        return args[0] // args[1]  # of sizes
    other = _INSTEAD.get(func)
    symbolic = other is not None and any(map(is_symbolic, (*args, *given.values())))
    if other is not None and symbolic and _called_by_user():
        found = other(*args, **given)
        if found is not NotImplemented:
            return found
    found = func(*args, **given)
    if func in _NEXT and len(args) == 2:
        _note_next(state, args, found)
    return found


def _note_next(state: State, args: Any, found: Any) -> None:
    """Record that `found` is another number plus one: a slice between them has one item."""
    numbers = [each for each in args if isinstance(each, torch.Tensor)]
    if len(numbers) == 1 and any(type(each) is int and each == 1 for each in args):
        number = numbers[0]
        if number.dim() == 0 and not number.dtype.is_floating_point:
            state.followed[id(found)] = (number, found)


_NEXT = (torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__, torch.add)


def _has_tensor(args: Any) -> bool:
    return any(isinstance(each, torch.Tensor) for each in args)


def _tolist(tensor: torch.Tensor) -> Any:
    if tensor.dim() == 0:
        return tensor
    if isinstance(tensor.shape[0], torch.SymInt):
        return Rows(Collected(tensor)) if tensor.dim() == 1 else NotImplemented
    return [_tolist(each) for each in tensor.unbind(0)]


def _unbind(tensor: torch.Tensor, dim: int = 0) -> Any:
    if isinstance(tensor.shape[dim], torch.SymInt):
        return Rows(Collected(tensor.movedim(dim, 0)))
    return NotImplemented


def _equal(one: torch.Tensor, other: torch.Tensor) -> Any:
    if one.dim() != other.dim():
        return False
    for a, b in zip(one.shape, other.shape, strict=True):
        if isinstance(a, int) and isinstance(b, int) and a != b:
            return False
    return (one == other).all()


def _allclose(*args: Any, **kwargs: Any) -> Any:
    return torch.isclose(*args, **kwargs).all()


def _linspace(start: Any, end: Any, steps: Any, **rest: Any) -> Any:
    """Replace torch.linspace, which does not accept a count that depends on a tensor."""
    kind = rest.pop("dtype", None) or torch.get_default_dtype()
    if not is_symbolic(steps) or not kind.is_floating_point:
        return NotImplemented
    places = torch.arange(steps, **rest)
    last = (places.shape[0] - 1) if not is_fake(steps) else (steps - 1)
    step = (end - start) / torch.clamp(as_tensor(last, torch.float64), min=1)
    behind = end - step * (last - places)
    return torch.where(places * 2 <= last, start + step * places, behind).to(kind)


def _roll(tensor: torch.Tensor, shifts: Any, dims: Any = None) -> Any:
    """Replace torch.roll, which torch.onnx converts only for constant shifts."""
    steps = shifts if isinstance(shifts, (list, tuple)) else [shifts]
    along = dims if isinstance(dims, (list, tuple)) else [dims]
    if len(steps) != len(along) or None in along or not any(map(is_symbolic, steps)):
        return NotImplemented
    for step, dim in zip(steps, along, strict=True):
        size = as_tensor(tensor.shape[dim])
        places = torch.arange(tensor.shape[dim], device=tensor.device) - step
        tensor = tensor.index_select(dim, torch.remainder(places, size))
    return tensor


_INSTEAD: dict[Any, Callable[..., Any]] = {
    torch.Tensor.item: lambda tensor: tensor.reshape(()),
    torch.Tensor.tolist: _tolist,
    torch.unbind: _unbind,
    torch.Tensor.unbind: _unbind,
    torch.equal: _equal,
    torch.Tensor.equal: _equal,
    torch.allclose: _allclose,
    torch.linspace: _linspace,
    torch.roll: _roll,
    torch.Tensor.roll: _roll,
    torch.Tensor.allclose: _allclose,
}
_INDEXING: dict[Any, Callable[..., Any]] = {
    torch.Tensor.__getitem__: read,
    torch.Tensor.__setitem__: write,
}


def _called_by_user() -> bool:
    """Return whether the caller is the code of a model, and not torch itself."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if not path.startswith(_OURS) and name not in _THROUGH:
            return not _is_library(path)
        frame = frame.f_back
    return False


def _is_library(path: str) -> bool:
    if path.startswith((_TORCH, "<")):
        return True
    return path.startswith(_PYTHON) and "site-packages" not in path
