"""Determines signs of floats; ONNX has no operator that distinguishes -0 from 0."""

from __future__ import annotations

import math
from typing import Any

from ._exact_translations import operators


def is_negative(values: Any) -> Any:
    """Return where values are negative or -0; the reciprocal distinguishes -0 from 0."""
    op = operators()
    if values.dtype.name == "BOOL":
        return op.And(values, op.Not(values))
    zero = op.CastLike(0, values)
    below = op.Less(values, zero)
    if not values.dtype.is_floating_point():
        return below
    return op.Or(below, op.And(op.Equal(values, zero), op.Less(op.Reciprocal(values), zero)))


def angle_of(y: Any, x: Any) -> Any:
    """Return atan2(y, x), also for -0 and NaN.

    torch.onnx treats -0 and NaN as 0, and returns -pi for (0, -1).
    """
    op = operators()
    high, wide = op.Abs(y), op.Abs(x)
    zero, quarter, half = (op.CastLike(each, y) for each in (0.0, math.pi / 4, math.pi))
    diagonal = op.Where(op.Equal(high, zero), zero, quarter)  # no quotient of 0 or of infinities
    first = op.Where(op.Equal(high, wide), diagonal, op.Atan(op.Div(high, wide)))
    upper = op.Where(is_negative(x), op.Sub(half, first), first)
    return op.Where(is_negative(y), op.Neg(upper), upper)
