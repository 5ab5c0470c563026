"""Operators that torch.onnx translates wrongly, or not at all."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from .._validation.randomness import nodes_of

__all__ = ["translations"]


def translations(program: torch.export.ExportedProgram) -> dict[Any, Callable[..., Any]]:
    """Return what torch.onnx is to do instead, for the operators that a program has."""
    found: dict[Any, Callable[..., Any]] = {}
    for node in nodes_of(program):
        if node.target is operator.floordiv and any(map(_may_be_negative, node.args)):
            found[operator.floordiv] = _floor_division
        elif node.target is torch.ops.aten.cdist.default:
            found[torch.ops.aten._cdist_forward.default] = _distances
    return found


def _may_be_negative(given: Any) -> bool:
    """Whether a size may be, as in `-(-n // 2)`."""
    value = given.meta.get("val") if isinstance(given, torch.fx.Node) else given
    if isinstance(value, torch.SymInt):
        return bool(value.node.shape_env.bound_sympy(value.node.expr).lower < 0)
    return isinstance(value, int) and value < 0


def _floor_division(dividend: Any, divisor: Any) -> Any:
    """What Python's `//` does: torch.onnx makes a Div of it, which rounds towards zero.

    Mod has the sign of the divisor.
    """
    from onnxscript import opset18 as op

    return op.Div(op.Sub(dividend, op.Mod(dividend, divisor)), divisor)


def _distances(one: Any, other: Any, p: float, _: int | None = None) -> Any:
    """What torch.cdist does, for which torch.onnx has nothing."""
    import onnxscript

    op: Any = onnxscript.opset18
    far = op.Abs(op.Sub(op.Unsqueeze(one, [-2]), op.Unsqueeze(other, [-3])))
    if p == float("inf"):
        return op.ReduceMax(far, [-1], keepdims=0)
    if p == 0:
        return op.ReduceSum(op.CastLike(op.Greater(far, op.Mul(far, 0.0)), far), [-1], keepdims=0)
    if p == 1:
        return op.ReduceSum(far, [-1], keepdims=0)
    if p == 2:
        return op.ReduceL2(far, [-1], keepdims=0)
    power = op.CastLike(p, far)
    total = op.ReduceSum(op.Pow(far, power), [-1], keepdims=0)
    return op.Pow(total, op.Reciprocal(power))
