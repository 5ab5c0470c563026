"""Translates operators that torch.onnx translates wrongly, or not at all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._saving.programs import nodes_of
from ._exact_translations import (
    attention_translations,
    exact_translations,
    floor_division,
    operators,
)
from ._image_translations import image_translations
from ._missing_translations import missing_translations
from ._value_translations import value_translations


def translations(
    program: torch.export.ExportedProgram, opset: int | None
) -> dict[Any, Callable[..., Any]]:
    """Return replacements for torch.onnx's translations that a program needs, or may need.

    Args:
        program: the program to convert.
        opset: the opset version for which torch.onnx translates; None: its own choice.
    """
    found: dict[Any, Callable[..., Any]] = {
        torch.ops.aten.select_copy.int: _selected,
        torch.ops.aten.searchsorted.Tensor: _places_among,  # isin() becomes one
        torch.ops.aten.searchsorted.Scalar: _places_among,
        **exact_translations(),
        **attention_translations(opset),
        **image_translations(),
        **missing_translations(),
        **value_translations(),
    }
    for node in nodes_of(program):
        if node.target is operator.floordiv and any(map(_may_be_negative, node.args)):
            found[operator.floordiv] = floor_division
        elif node.target is torch.ops.aten.cdist.default:
            found[torch.ops.aten._cdist_forward.default] = _distances
        elif node.target in _AVERAGES and _varies(node):
            found[node.target] = _averages
        elif node.target is torch.ops.higher_order.cond:
            found[node.target] = _condition
        elif node.target in (torch.ops.aten.copy.default, torch.ops.aten.copy_.default):
            found[torch.ops.aten.copy.default] = _copied
    return found


_AVERAGES = (
    torch.ops.aten.adaptive_avg_pool1d.default,
    torch.ops.aten.adaptive_avg_pool2d.default,
)


def _varies(node: torch.fx.Node) -> bool:
    """Return whether averages are taken over dynamic sizes, with more than one result each."""
    value, counts = node.args[0].meta["val"], node.args[1]
    sizes = value.shape[-len(counts) :]
    return any(isinstance(each, torch.SymInt) for each in sizes) and counts != [1] * len(sizes)


def _may_be_negative(given: Any) -> bool:
    """Return whether a size may be negative, as in `-(-n // 2)`."""
    value = given.meta.get("val") if isinstance(given, torch.fx.Node) else given
    if isinstance(value, torch.SymInt):
        return bool(value.node.shape_env.bound_sympy(value.node.expr).lower < 0)
    return isinstance(value, int) and value < 0


def _distances(one: Any, other: Any, p: float, _: int | None = None) -> Any:
    """Translate torch.cdist, which torch.onnx does not support."""
    op = operators()
    far = op.Abs(op.Sub(op.Unsqueeze(one, [-2]), op.Unsqueeze(other, [-3])))
    if p == float("inf"):
        return op.ReduceMax(far, [-1], keepdims=0)
    if p == 0:
        return op.ReduceSum(
            op.CastLike(op.Not(op.Equal(far, op.CastLike(0.0, far))), far), [-1], keepdims=0
        )
    if p == 1:
        return op.ReduceSum(far, [-1], keepdims=0)
    if p == 2:
        return op.ReduceL2(far, [-1], keepdims=0)
    power = op.CastLike(p, far)
    total = op.ReduceSum(op.Pow(far, power), [-1], keepdims=0)
    return op.Pow(total, op.Reciprocal(power))


def _selected(value: Any, dim: int, index: Any) -> Any:
    """Translate `x[i]` in branches, where its decomposition is traced."""
    op = operators()
    return op.Gather(value, index, axis=dim)


def _copied(value: Any, source: Any, _: bool = False) -> Any:
    """Translate Tensor.copy_(), because torch.onnx ignores that the source is broadcast."""
    op = operators()
    return op.Expand(op.CastLike(source, value), op.Shape(value))


def _condition(test: Any, then: Any, otherwise: Any, operands: Sequence[Any]) -> Any:
    """Translate torch.cond, also for values that are known during the translation.

    In a branch for `n == 2`, torch knows that n is 2, and the results of conditions on n. These
    results are plain Python values, but torch.onnx expects values of a graph.
    """
    from torch.onnx._internal.exporter._torchlib.ops.hop import higher_order_cond

    return higher_order_cond(_in_graph(test), then, otherwise, [*map(_in_graph, operands)])


def _in_graph(value: Any) -> Any:
    """Return a Python value as a value of the graph; values of the graph stay unchanged."""
    import onnx_ir

    if not isinstance(value, (bool, int, float)):
        return value
    kind = "BOOL" if isinstance(value, bool) else "INT64" if isinstance(value, int) else "FLOAT"
    op = operators()
    return op.Constant(value=onnx_ir.tensor(value, dtype=onnx_ir.DataType[kind]))


def _places_among(
    among: Any,
    values: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Translate torch.searchsorted, which torch.onnx lacks, by counting smaller values."""
    op = operators()
    is_one = len(among.shape) == 1
    if isinstance(values, (int, float)):
        values = op.CastLike(values, among)
    if sorter is not None:
        among = op.GatherElements(among, sorter, axis=-1)
    if not is_one:
        among = op.Unsqueeze(among, [-2])
    each = op.Unsqueeze(values, [-1])
    before = op.LessOrEqual if right or side == "right" else op.Less
    kind = 6 if out_int32 else 7  # int32 and int64 of ONNX
    return op.ReduceSum(op.Cast(before(among, each), to=kind), [-1], keepdims=0)


def _averages(values: Any, output_size: Sequence[Any]) -> Any:
    """Translate adaptive average pooling for any sizes; torch.onnx fixes the example's sizes.

    Along each dimension, the pooling is a product with a matrix whose rows average one part each.
    """
    op = operators()
    rows = op.CastLike(_parts(op, values, -len(output_size), output_size[0]), values)
    if len(output_size) == 1:
        return op.MatMul(values, op.Transpose(rows, perm=[1, 0]))
    columns = op.CastLike(_parts(op, values, -1, output_size[1]), values)
    return op.MatMul(op.MatMul(rows, values), op.Transpose(columns, perm=[1, 0]))


def _parts(op: Any, values: Any, dim: int, count: Any) -> Any:
    """Return the weights of positions in averages, with one row for each part of a dimension."""
    shape = op.Shape(values)
    size = op.Gather(shape, op.Constant(value_int=dim), axis=0)
    zero, one = op.Constant(value_int=0), op.Constant(value_int=1)
    many = op.Constant(value_int=count) if isinstance(count, int) else op.Squeeze(count)
    places = op.Unsqueeze(op.Range(zero, size, one), [0])
    numbers = op.Unsqueeze(op.Range(zero, many, one), [1])
    first = op.Div(op.Mul(numbers, size), many)
    last = op.Div(op.Add(op.Mul(op.Add(numbers, one), size), op.Sub(many, one)), many)
    within = op.And(op.GreaterOrEqual(places, first), op.Less(places, last))
    return op.Div(op.Cast(within, to=1), op.Cast(op.Sub(last, first), to=1))
