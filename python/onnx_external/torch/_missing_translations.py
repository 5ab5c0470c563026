"""Translates operators that torch.onnx does not support, at all or for some arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ._exact_translations import operators
from ._scans import running_extreme, running_product
from ._signs import is_negative


def missing_translations() -> dict[Any, Callable[..., Any]]:
    """Return this module's ONNX translations, by torch operator."""
    aten = torch.ops.aten
    return {
        aten.amax.default: _greatest,
        aten.amin.default: _least,
        aten.masked_select.default: _masked_select,
        aten.hypot.default: _length,
        aten.repeat_interleave.Tensor: _repeated_places,
        aten.scatter.reduce: _scattered,
        aten.scatter.value_reduce: _scattered,
        aten.sort.default: lambda values, dim=-1, descending=False: _sorted(
            values, None, dim, descending
        ),
        aten.sort.stable: _sorted,
        aten.squeeze.dim: _squeezed,
        aten.squeeze.dims: _squeezed,
        torch.ops.prims.view_of.default: lambda values: operators().Identity(values),
        aten.take.default: _taken,
        aten.signbit.default: is_negative,
        aten.copysign.Tensor: _with_sign,
        aten.copysign.Scalar: _with_sign,
        aten.fmax.default: _fmax,
        aten.fmin.default: _fmin,
        aten.cumprod.default: running_product,
        aten.cummax.default: running_extreme("GreaterOrEqual", -math.inf),
        aten.cummin.default: running_extreme("LessOrEqual", math.inf),
        aten.kthvalue.default: _kth,
        aten.median.default: _median,
        aten.median.dim: _median_along,
        **_shifts("left"),
        **_shifts("right"),
    }


def _shifts(direction: str) -> dict[Any, Callable[..., Any]]:
    """Return translations that shift unsigned integers, which torch.onnx would make signed."""

    def shift(values: Any, count: Any) -> Any:
        import onnx_ir
        from onnxscript.function_libs.torch_lib.ops import core

        op = operators()
        kind = values.dtype
        if isinstance(count, int):
            count = op.Constant(value=onnx_ir.tensor(count, dtype=kind))
            count.dtype = kind
        if not kind.is_signed():
            return op.BitShift(values, op.Cast(count, to=kind), direction=direction.upper())
        return getattr(core, f"aten_bitwise_{direction}_shift")(values, count)

    aten = torch.ops.aten
    plain, short = (
        getattr(aten, name) for name in (f"bitwise_{direction}_shift", f"__{direction[0]}shift__")
    )
    return dict.fromkeys((plain.Tensor, plain.Tensor_Scalar, short.Tensor, short.Scalar), shift)


def _greatest(values: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """Return the largest elements, along all dimensions if none is given."""
    return _extreme(operators().ReduceMax, values, dim, keepdim)


def _least(values: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """Return the smallest elements, along all dimensions if none is given."""
    return _extreme(operators().ReduceMin, values, dim, keepdim)


def _extreme(reduce: Callable[..., Any], values: Any, dim: Any, keepdim: bool) -> Any:
    op = operators()
    dims = [dim] if isinstance(dim, int) else [*dim]
    if not values.shape:
        return op.Identity(values)
    axes = [op.Constant(value_ints=dims)] if dims else []
    return reduce(values, *axes, keepdims=keepdim)


def _sorted(
    values: Any, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    """Sort elements with TopK, which keeps equal elements in their original order."""
    op = operators()
    if not values.shape:
        return op.Identity(values), op.Constant(value_int=0)
    size = op.Gather(op.Shape(values), op.Constant(value_ints=[dim]), axis=0)
    is_bool = values.dtype.name == "BOOL"
    numbers = op.Cast(values, to=7) if is_bool else values  # INT64
    least, places = op.TopK(numbers, size, axis=dim, largest=int(descending), sorted=1)
    return (op.Cast(least, to=9) if is_bool else least), places  # BOOL


def _squeezed(values: Any, dim: Any) -> Any:
    """Remove those of the given dimensions that have the size 1, as torch does."""
    op = operators()
    rank = len(values.shape)
    dims = [dim] if isinstance(dim, int) else dim
    axes = [each % rank for each in dims if rank and values.shape[each] == 1]
    return op.Squeeze(values, op.Constant(value_ints=axes)) if axes else op.Identity(values)


def _repeated_places(repeats: Any, output_size: Any = None) -> Any:
    """Return the index of each element of `repeats`, as often as the element states.

    `output_size` is ignored, because it follows from `repeats`.
    """
    from onnxscript.function_libs.torch_lib.ops.core import aten_repeat_interleave_Tensor

    return aten_repeat_interleave_Tensor(repeats)


def _taken(values: Any, places: Any) -> Any:
    """Return the elements of a tensor at positions in the flattened tensor."""
    op = operators()
    return op.Gather(op.Reshape(values, op.Constant(value_ints=[-1])), places)


def _scattered(values: Any, dim: int, places: Any, source: Any, reduce: str) -> Any:
    """Return a tensor with values added, or multiplied, at the given positions."""
    op = operators()
    if isinstance(source, (bool, int, float)):
        source = op.Expand(op.CastLike(source, values), op.Shape(places))
    else:  # which may be larger
        starts = op.Constant(value_ints=[0] * len(places.shape))
        source = op.Slice(source, starts, op.Shape(places))
    reduction = {"add": "add", "multiply": "mul"}[reduce]
    return op.ScatterElements(values, places, source, axis=dim, reduction=reduction)


def _length(one: Any, other: Any) -> Any:
    """Return the norm of a vector, even if the square of the norm is infinite."""
    op = operators()
    wide, high = op.Abs(one), op.Abs(other)
    longer, shorter = op.Max(wide, high), op.Min(wide, high)
    unit = op.CastLike(1.0, one)
    ratio = op.Div(shorter, op.Where(op.Equal(longer, op.CastLike(0.0, one)), unit, longer))
    length = op.Mul(longer, op.Sqrt(op.Add(unit, op.Mul(ratio, ratio))))
    is_infinite = op.Or(op.IsInf(wide), op.IsInf(high))
    return op.Where(is_infinite, op.CastLike(math.inf, one), length)


def _masked_select(values: Any, mask: Any) -> Any:
    """Return the elements at which a mask is true, after broadcasting values and mask."""
    op = operators()
    values = op.Expand(values, op.Shape(mask))
    mask = op.Expand(mask, op.Shape(values))
    line = op.Constant(value_ints=[-1])
    return op.Compress(op.Reshape(values, line), op.Reshape(mask, line))


def _with_sign(values: Any, signs: Any) -> Any:
    """Return values with the signs of other values, where -0 counts as negative."""
    op = operators()
    size = op.Abs(values)
    if isinstance(signs, (int, float)):
        return op.Neg(size) if math.copysign(1, signs) < 0 else size
    return op.Where(is_negative(signs), op.Neg(size), size)


def _fmax(one: Any, other: Any) -> Any:
    return _without_nan(one, other, operators().Max)


def _fmin(one: Any, other: Any) -> Any:
    return _without_nan(one, other, operators().Min)


def _without_nan(one: Any, other: Any, choose: Callable[..., Any]) -> Any:
    """Return choose(one, other), but if one of the two is NaN, return the other."""
    op = operators()
    if one.dtype.name == "BOOL":
        return (op.Or if choose == op.Max else op.And)(one, other)
    if not one.dtype.is_floating_point():
        return choose(one, other)
    return op.Where(op.IsNaN(one), other, op.Where(op.IsNaN(other), one, choose(one, other)))


def _kth(values: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the k-th smallest elements along a dimension, and their positions."""
    op = operators()
    if not values.shape:
        return op.Identity(values), op.Constant(value_int=0)
    count = op.Constant(value_ints=[k])
    last = op.Constant(value_ints=[k - 1]) if keepdim else op.Constant(value_int=k - 1)
    found = op.TopK(values, count, axis=dim, largest=0, sorted=1)
    return tuple(op.Gather(each, last, axis=dim) for each in found)


def _median(values: Any) -> Any:
    """Return the median of all elements; of two middle elements, the lower one."""
    op = operators()
    flat = op.Reshape(values, op.Constant(value_ints=[-1]))
    return _middle(values, flat, 0, False)[0]


def _median_along(values: Any, dim: int, keepdim: bool = False) -> Any:
    """Return the medians along a dimension, as _median() does, and their positions."""
    op = operators()
    if not values.shape:
        return op.Identity(values), op.Constant(value_int=0)
    return _middle(values, values, dim, keepdim)


def _middle(kind: Any, values: Any, dim: int, keepdim: bool) -> Any:
    op = operators()
    size = op.Gather(op.Shape(values), op.Constant(value_int=dim), axis=0)
    half = op.Div(op.Sub(size, op.Constant(value_int=1)), op.Constant(value_int=2))
    last = op.Unsqueeze(half, [0]) if keepdim else half
    count = op.Unsqueeze(op.Add(half, op.Constant(value_int=1)), [0])
    found = op.TopK(values, count, axis=dim, largest=0, sorted=1)
    least, places = (op.Gather(each, last, axis=dim) for each in found)
    if not kind.dtype.is_floating_point():
        return least, places
    nan = op.Cast(op.IsNaN(values), to=6)  # INT32
    first = op.ArgMax(nan, axis=dim, keepdims=keepdim)
    found_any = op.Cast(op.ReduceMax(nan, op.Constant(value_ints=[dim]), keepdims=keepdim), to=9)
    missing = op.CastLike(op.Constant(value_float=math.nan), values)
    return op.Where(found_any, missing, least), op.Where(found_any, first, places)
