"""Translates operators whose usual graphs are inexact for large integers or wrong for masked rows.

torch.onnx divides integers as float32. ONNX Runtime (1.31) sums integers as float64, and also takes
remainders by C's rule as float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_HALF = 2**32
"""The divisor that splits an int64 into its upper and lower half."""


def exact_translations() -> dict[Any, Callable[..., Any]]:
    """Return this module's ONNX translations, by torch operator."""
    aten = torch.ops.aten
    return {
        aten.div.Tensor_mode: _division,
        aten.div.Scalar_mode: _division,
        aten.fmod.Tensor: _remainder,
        aten.fmod.Scalar: _remainder,
        aten.floor_divide.default: _floor_division,
        aten.pow.Tensor_Scalar: _power,
        aten.remainder.Tensor: _modulus,
        aten.remainder.Scalar: _modulus,
        aten.sum.default: _total,
        aten.sum.dim_IntList: _sum,
        aten.relu.default: _relu,
        aten.softmax.int: _in_type("Softmax"),
        aten.log_softmax.int: _in_type("LogSoftmax"),
    }


def _in_type(name: str) -> Callable[..., Any]:
    """Return a translation that computes in the requested type; torch.onnx casts the result."""

    def softmax(values: Any, dim: int, dtype: int | None = None) -> Any:
        op = operators()
        first = op.Constant(value_ints=[0])
        is_asked = dtype not in (-1, None, values.dtype)
        numbers = op.Cast(values, to=dtype) if is_asked else values
        if values.shape:
            return getattr(op, name)(numbers, axis=dim)
        return op.Squeeze(getattr(op, name)(op.Unsqueeze(numbers, first), axis=0), first)

    return softmax


def is_integer(*values: Any) -> bool:
    """Return whether ONNX Runtime computes with the values as 32-bit or 64-bit integers."""
    names = {getattr(getattr(value, "dtype", None), "name", None) for value in values}
    scalars = [value for value in values if getattr(value, "dtype", None) is None]
    kinds = names - {None}
    return len(kinds) == 1 and kinds <= {"INT32", "INT64"} and all(type(n) is int for n in scalars)


def is_float(dividend: Any, divisor: Any) -> bool:
    """Return whether ONNX Runtime would divide the values as floats."""
    kinds = [getattr(each, "dtype", None) for each in (dividend, divisor)]
    return any(kind is not None and kind.is_floating_point() for kind in kinds)


def _division(dividend: Any, divisor: Any, rounding_mode: str | None = None) -> Any:
    """Return a quotient; a rounded quotient of integers is computed without floats."""
    if rounding_mode == "floor" and is_float(dividend, divisor):
        return floor_quotient(dividend, divisor)
    if rounding_mode is None or not is_integer(dividend, divisor):
        from onnxscript.function_libs.torch_lib.ops.core import aten_div_mode

        return aten_div_mode(dividend, divisor, rounding_mode)
    op = operators()
    if rounding_mode == "floor":
        return floor_division(dividend, divisor)
    return op.Div(dividend, divisor)


def floor_division(dividend: Any, divisor: Any) -> Any:
    """Return the quotient of two integer tensors, rounded down.

    Div rounds towards zero, but the result of Mod has the divisor's sign.
    """
    op = operators()
    return op.Div(op.Sub(dividend, op.Mod(dividend, divisor)), divisor)


def _remainder(dividend: Any, divisor: Any) -> Any:
    """Return the remainder of a division, with the sign of the dividend."""
    op = operators()
    if not is_integer(dividend, divisor):
        return op.Mod(dividend, divisor, fmod=1)
    return op.Sub(dividend, op.Mul(op.Div(dividend, divisor), divisor))


def _floor_division(dividend: Any, divisor: Any) -> Any:
    if is_float(dividend, divisor):
        return floor_quotient(dividend, divisor)
    from onnxscript.function_libs.torch_lib.ops.core import aten_floor_divide

    return aten_floor_divide(dividend, divisor)


def floor_quotient(dividend: Any, divisor: Any) -> Any:
    """Return Python's floor division of floats: 1 // 0.1 is 9, although 1 / 0.1 rounds to 10."""
    op = operators()
    dividend, divisor = _as_tensors(dividend, divisor)
    rest = op.Mod(dividend, divisor, fmod=1)
    quotient = op.Div(op.Sub(dividend, rest), divisor)
    one, zero = op.CastLike(1.0, quotient), op.CastLike(0.0, quotient)
    exact = op.Where(_has_other_sign(rest, divisor), op.Sub(quotient, one), quotient)
    floor = op.Floor(exact)
    more = op.Greater(op.Sub(exact, floor), op.CastLike(0.5, quotient))
    result = op.Where(more, op.Add(floor, one), floor)
    return op.Where(op.Equal(divisor, zero), op.Div(dividend, divisor), result)


def _modulus(dividend: Any, divisor: Any) -> Any:
    """Return the remainder with the divisor's sign; for floats, without rounding a quotient."""
    if not is_float(dividend, divisor):
        from onnxscript.function_libs.torch_lib.ops.core import aten_remainder

        return aten_remainder(*_as_tensors(dividend, divisor))
    op = operators()
    dividend, divisor = _as_tensors(dividend, divisor)
    rest = op.Mod(dividend, divisor, fmod=1)
    return op.Where(_has_other_sign(rest, divisor), op.Add(rest, divisor), rest)


def _has_other_sign(rest: Any, divisor: Any) -> Any:
    """Return where a remainder is not zero and its sign differs from the divisor's."""
    op = operators()
    zero = op.CastLike(0.0, rest)
    signs = op.Xor(op.Less(rest, zero), op.Less(divisor, zero))
    return op.And(op.Not(op.Equal(rest, zero)), signs)


def _as_tensors(dividend: Any, divisor: Any) -> tuple[Any, Any]:
    """Return the operands, with a Python number as a constant of the other operand's type."""
    import onnx_ir

    kind = next(each.dtype for each in (dividend, divisor) if hasattr(each, "dtype"))
    made = [
        operators().Constant(value=onnx_ir.tensor(each, dtype=kind))
        if isinstance(each, (bool, int, float))
        else each
        for each in (dividend, divisor)
    ]
    return made[0], made[1]


_MOST_PRODUCTS = 64
"""The exponent from which powers do not fit into 64 bits."""


def _power(values: Any, exponent: float) -> Any:
    """Return powers of integers by multiplication, because ONNX Runtime uses float64."""
    is_small = isinstance(exponent, int) and 0 < exponent < _MOST_PRODUCTS
    if not is_small or not is_integer(values):
        from onnxscript.function_libs.torch_lib.ops.core import aten_pow_tensor_scalar

        return aten_pow_tensor_scalar(values, exponent)
    op = operators()
    result, square = None, values
    while True:
        if exponent % 2:
            result = square if result is None else op.Mul(result, square)
        exponent //= 2
        if not exponent:
            return op.Identity(result)
        square = op.Mul(square, square)


def _total(values: Any, dtype: int = -1) -> Any:
    """Return the sum of all elements of a tensor."""
    from onnxscript.function_libs.torch_lib.ops.core import aten_sum

    return _sum_of_halves(values, None, False, dtype) or aten_sum(values, dtype)


def _sum(values: Any, dim: Any = None, keepdim: bool = False, dtype: int = -1) -> Any:
    """Return the sums of elements along the given dimensions."""
    from onnxscript.function_libs.torch_lib.ops.core import aten_sum_dim_IntList

    made = _sum_of_halves(values, dim, keepdim, dtype)
    return made or aten_sum_dim_IntList(values, dim, keepdim, dtype)


def _sum_of_halves(values: Any, dim: Any, keepdim: bool, dtype: int | None) -> Any:
    """Sum int64 by halves: a float64 holds the sum of 2^21 halves exactly.

    Returns:
        The sum; None if it has another type, has only one element, or always fits a float64.
    """
    kinds = (-1, None, 7)  # the type of the elements, and INT64
    if values.dtype.name != "INT64" or dtype not in kinds or not values.shape or _is_small(values):
        return None
    op = operators()
    dims = [dim] if isinstance(dim, int) else dim
    axes = [op.Constant(value_ints=[*dims])] if dims else []
    low = op.Mod(values, _HALF)
    high = op.Div(op.Sub(values, low), _HALF)
    sums = [op.ReduceSum(half, *axes, keepdims=keepdim) for half in (high, low)]
    return op.Add(op.Mul(sums[0], _HALF), sums[1])


def _is_small(values: Any) -> bool:
    """Return whether a sum is certain to fit into the 53 bits of a float64, like a sum of bools."""
    node = values.producer() if hasattr(values, "producer") else None
    if node is None or node.op_type != "Cast" or node.inputs[0] is None:
        return False
    kind = node.inputs[0].dtype
    return kind is not None and kind.name not in ("INT64", "UINT64", "FLOAT", "DOUBLE")


def _relu(values: Any) -> Any:
    """Replace negative elements by zero; ONNX Runtime has no Relu for int64."""
    op = operators()
    if is_integer(values):
        return op.Max(values, op.CastLike(0, values))
    return op.Relu(values)


def attention_translations(opset: int | None) -> dict[Any, Callable[..., Any]]:
    """Return the translation of attention for an opset version.

    For a query that may not attend to any key, torch returns 0. The graph by torch.onnx returns
    NaN, or the mean of all values.
    """

    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        op = operators()
        missing = 4 - len(query.shape)
        is_flat = missing > 0 and len(query.shape) == len(key.shape) == len(value.shape)
        given = [_with_heads(each, missing) if is_flat else each for each in (query, key, value)]
        rest = (attn_mask, dropout_p, is_causal, scale, enable_gqa)
        result = _plain_attention(opset)(*given, *rest)
        if is_flat:
            result = op.Squeeze(result, op.Constant(value_ints=[*range(missing)]))
        if attn_mask is None:
            return result
        return op.Where(_attends(attn_mask), result, op.CastLike(0.0, result))

    return {torch.ops.aten.scaled_dot_product_attention.default: attention}


def _plain_attention(opset: int | None) -> Callable[..., Any]:
    if opset is not None and opset >= 23:
        from torch.onnx._internal.exporter._torchlib.ops.nn import (
            aten_scaled_dot_product_attention_23 as of_torch,
        )
    else:
        from onnxscript.function_libs.torch_lib.ops.nn import (
            aten_scaled_dot_product_attention as of_torch,
        )
    return of_torch  # type: ignore[no-any-return]


def _with_heads(values: Any, count: int) -> Any:
    """Add leading dimensions, because torch.onnx only accepts batches with heads."""
    import onnx_ir

    op = operators()
    made = op.Unsqueeze(values, op.Constant(value_ints=[*range(count)]))
    made.shape, made.dtype = onnx_ir.Shape([*[1] * count, *values.shape]), values.dtype
    return made


def _attends(mask: Any) -> Any:
    """Return, for each query, whether the mask leaves any key to attend to."""
    op = operators()
    last = op.Constant(value_ints=[-1])
    if mask.dtype.name == "BOOL":
        return op.Cast(op.ReduceMax(op.Cast(mask, to=1), last), to=9)  # FLOAT and BOOL
    return op.Greater(op.ReduceMax(mask, last), op.CastLike(-math.inf, mask))


def operators() -> Any:
    """Return ONNX's operators in the version to which torch.onnx translates."""
    from onnxscript import opset18

    return opset18
