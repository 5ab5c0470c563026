"""Translates operators whose usual graphs are wrong for infinite, NaN, huge, zero or -0 values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ._exact_translations import operators
from ._scans import running_log_of_sum
from ._signs import angle_of


def value_translations() -> dict[Any, Callable[..., Any]]:
    """Return this module's ONNX translations, by torch operator."""
    aten = torch.ops.aten
    return {
        aten.floor.default: _rounded("floor"),
        aten.ceil.default: _rounded("ceil"),
        aten.round.default: _rounded("round"),
        aten.trunc.default: _rounded("trunc"),
        aten.isnan.default: lambda values: _tested(values, "IsNaN"),
        aten.isinf.default: lambda values: _tested(values, "IsInf"),
        aten.isfinite.default: _is_finite,
        aten.clamp_max.default: _at_most,
        aten.clamp_max.Tensor: _at_most,
        aten.clamp_min.default: _at_least,
        aten.clamp_min.Tensor: _at_least,
        aten.addmm.default: _product_and_sum,
        aten.atan2.default: angle_of,
        aten.diagonal.default: _diagonal,
        aten.diagonal_copy.default: _diagonal,
        aten.log_sigmoid.default: _log_sigmoid,
        aten.logaddexp.default: _log_of_sum,
        aten.logaddexp2.default: _log2_of_sum,
        aten.logcumsumexp.default: running_log_of_sum,
    }


def _rounded(name: str) -> Callable[..., Any]:
    """Return a translation of a rounding operator that leaves integers unchanged."""

    def rounded(values: Any) -> Any:
        if not values.dtype.is_floating_point():
            return operators().Identity(values)
        from onnxscript.function_libs.torch_lib.ops import core

        return getattr(core, f"aten_{name}")(values)

    return rounded


def _tested(values: Any, name: str) -> Any:
    """Return a test for infinity or NaN that does not convert float64 to float32."""
    op = operators()
    kind = values.dtype
    if not kind.is_floating_point():
        return (op.Xor if kind.name == "BOOL" else op.Less)(values, values)
    return getattr(op, name)(values if kind.name in ("FLOAT", "DOUBLE") else op.Cast(values, to=1))


def _is_finite(values: Any) -> Any:
    op = operators()
    return op.Not(op.Or(_tested(values, "IsInf"), _tested(values, "IsNaN")))


def _at_least(values: Any, least: Any) -> Any:
    """Return a maximum; Clip would turn infinity into the largest float, and NaN into a number."""
    op = operators()
    return op.Max(values, op.CastLike(least, values))


def _at_most(values: Any, most: Any) -> Any:
    """Return a minimum without using Clip, for the same reason as in `_at_least`."""
    op = operators()
    return op.Min(values, op.CastLike(most, values))


def _product_and_sum(added: Any, one: Any, other: Any, beta: float = 1, alpha: float = 1) -> Any:
    """Return a product plus a tensor; Gemm lacks integers, and ignores `beta` without products."""
    op = operators()
    if one.dtype.is_floating_point() and one.shape[1] != 0:
        return op.Gemm(one, other, added, alpha=float(alpha), beta=float(beta))
    product = op.MatMul(one, other)
    scaled = op.Mul(product, op.CastLike(alpha, one))
    return op.Add(op.Mul(added, op.CastLike(beta, one)), scaled) if beta != 0 else scaled


def _diagonal(values: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return a diagonal; torch.onnx multiplies everything else by 0 and sums rows instead."""
    op = operators()
    rank = len(values.shape)
    dims = [dim1 % rank, dim2 % rank]
    others = [each for each in range(rank) if each not in dims]
    shape = op.Shape(values)
    rows, columns = (op.Gather(shape, op.Constant(value_int=each), axis=0) for each in dims)
    down, right = (op.Constant(value_int=max(0, each)) for each in (-offset, offset))
    zero, one = op.Constant(value_int=0), op.Constant(value_int=1)
    count = op.Max(zero, op.Min(op.Sub(rows, down), op.Sub(columns, right)))
    steps = op.Mul(op.Range(zero, count, one), op.Add(columns, one))
    places = op.Add(op.Add(op.Mul(down, columns), right), steps)
    line = op.Constant(value_ints=[-1])
    sizes = op.Reshape(op.Mul(rows, columns), line)
    if others:
        sizes = op.Concat(op.Gather(shape, op.Constant(value_ints=others), axis=0), sizes, axis=0)
    flat = op.Reshape(op.Transpose(values, perm=[*others, *dims]), sizes, allowzero=1)
    return op.Gather(flat, places, axis=-1)


def _log_sigmoid(values: Any) -> Any:
    """Return log(sigmoid(x)), even though sigmoid(x) rounds to 0 below -88."""
    op = operators()
    return op.Neg(op.Softplus(op.Neg(values)))


def _log_of_sum(one: Any, other: Any) -> Any:
    """Return log(exp(x) + exp(y)), even though exp() is infinite above 88."""
    op = operators()
    most = op.Max(one, other)
    less = op.Neg(op.Abs(op.Sub(one, other)))
    rest = op.Log(op.Add(op.Exp(less), op.CastLike(1.0, less)))
    return op.Where(
        op.Equal(one, other), op.Add(one, op.CastLike(math.log(2), one)), op.Add(most, rest)
    )


def _log2_of_sum(one: Any, other: Any) -> Any:
    """Return log2(2^x + 2^y)."""
    op = operators()
    base = op.CastLike(math.log(2), one)
    return op.Div(_log_of_sum(op.Mul(one, base), op.Mul(other, base)), base)
