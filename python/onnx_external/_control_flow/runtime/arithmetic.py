"""Implements int, round and the functions of the module math for tensors and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.merging import as_tensor
from onnx_external._control_flow.values import is_fake, is_symbolic
from onnx_external._tracing.chosen import is_size

_Number: TypeAlias = "torch.Tensor"
"""A 0-d tensor in double precision, like Python's floats."""


def called(function: Callable[..., Any], args: tuple[Any, ...], rest: dict[str, Any]) -> Any:
    """Call a function; a function of math returns a tensor if it receives a tensor or a size."""
    known = _MATH.get(function) if _is_hashable(function) else None
    if known is None or rest or not any(map(is_symbolic, args)):
        return function(*args, **rest)
    if function in _WHOLE and not isinstance(args[0], torch.SymFloat) and not _is_float(args[0]):
        return args[0]
    found = known(*(_number(each) for each in args))
    if function in _WHOLE:
        return found.to(torch.int64)
    return found.to(torch.float32) if found.dtype == torch.float64 else found


def whole_number(value: Any) -> Any:
    """Return the value of int() for a tensor or a size."""
    if isinstance(value, (torch.SymInt, torch.SymBool)):
        return value
    return (_number(value) if isinstance(value, torch.SymFloat) else value.reshape(())).to(
        torch.int64
    )


def rounded(value: Any, digits: Any = None) -> Any:
    """Return the value of round() for a tensor or a size."""
    if not isinstance(value, torch.SymFloat) and not _is_float(value):
        if digits is None or digits >= 0:
            return value
        raise RewriteError(f"round(value, {digits}) is not supported for an int tensor or a size")
    if digits is None:
        return torch.round(_number(value)).to(torch.int64)
    scale = 10.0**digits
    return (torch.round(_number(value) * scale) / scale).to(torch.float32)


def quotient(function: Callable[[Any], Any], one: Any, other: Any) -> Any:
    """Return int, floor or ceil of `one / other`, exactly, if both are integers; otherwise None."""
    values = (one, other)
    if not any(map(is_symbolic, values)) or not all(map(_is_whole, values)):
        return None
    if any(map(is_fake, values)):
        one, other = (as_tensor(each, torch.int64).reshape(()) for each in values)
        if function is math.ceil:
            return -torch.div(-one, other, rounding_mode="floor")
        down = function is math.floor
        return torch.div(one, other, rounding_mode="floor" if down else "trunc")
    if function is math.ceil:
        return -(-one // other)
    if function is math.floor or all(map(_is_positive, values)):
        return one // other
    return quotient(function, as_tensor(one), as_tensor(other))


def _is_hashable(function: Any) -> bool:
    return type(function).__hash__ is not None


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _is_whole(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not (value.dtype.is_floating_point or value.is_complex())
    return is_size(value)


def _is_positive(value: Any) -> bool:
    if isinstance(value, torch.SymInt):
        return bool(value.node.shape_env.bound_sympy(value.node.expr).lower >= 0)
    return bool(value >= 0)


def _number(value: Any) -> _Number:
    if isinstance(value, torch.SymFloat):
        return torch.scalar_tensor(value, dtype=torch.float64)
    return as_tensor(value, torch.float64).reshape(())


def _log(value: _Number, base: _Number | None = None) -> _Number:
    return value.log() if base is None else value.log() / base.log()


def _log_of(base: float) -> Callable[[_Number], _Number]:
    """Return a logarithm that is exact for powers of its base, like Python's logarithms."""

    def log(value: _Number) -> _Number:
        found = value.log() / math.log(base)
        near = found.round()
        return torch.where(torch.pow(base, near) == value, near, found)

    return log


def _reduced(function: Any) -> Callable[..., _Number]:
    def reduce(*values: _Number) -> _Number:
        found: _Number = function(torch.stack(values))
        return found

    return reduce


_MATH: dict[Any, Callable[..., _Number]] = {
    math.sqrt: torch.sqrt,
    math.exp: torch.exp,
    math.log: _log,
    math.log2: _log_of(2.0),
    math.log10: _log_of(10.0),
    math.pow: torch.pow,
    math.fabs: torch.abs,
    math.sin: torch.sin,
    math.cos: torch.cos,
    math.tan: torch.tan,
    math.tanh: torch.tanh,
    math.floor: torch.floor,
    math.ceil: torch.ceil,
    math.trunc: torch.trunc,
    math.hypot: _reduced(lambda values: values.square().sum().sqrt()),
    math.isnan: torch.isnan,
    math.isinf: torch.isinf,
    math.isfinite: torch.isfinite,
}
_WHOLE = frozenset({math.floor, math.ceil, math.trunc})
"""Functions of the module math that return integers."""
