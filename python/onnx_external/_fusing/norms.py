"""Replaces norms traced as several nodes with RMSNormalization or LayerNormalization."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir

from .matching import (
    FLOAT,
    HALVES,
    attribute,
    integers,
    is_last_axis,
    last_size,
    made_by,
    make,
    pairs,
    replace,
    scalar,
    sizes,
)

RMS_OPSET = 23
"""The first ONNX opset that has RMSNormalization."""


class _Scaled(NamedTuple):
    """A normalized value that is multiplied by a scale."""

    given: onnx_ir.Value
    """The value to which the normalization is applied."""
    epsilon: float
    scale: onnx_ir.Value
    is_centered: bool
    """True if the mean is subtracted first, as in LayerNormalization."""


def fuse_norms(graph: onnx_ir.Graph, opset: int) -> int:
    """Replace each traced norm with one node, and return the number of norms.

    Args:
        graph: the graph, which is changed.
        opset: the newest ONNX opset that the graph may use.
    """
    count = 0
    for node in list(graph):
        found = _scaled(node)
        if found is None or (not found.is_centered and opset < RMS_OPSET):
            continue
        kind = "LayerNormalization" if found.is_centered else "RMSNormalization"
        attributes = {"axis": -1, "epsilon": found.epsilon, "stash_type": 1}
        result = node.outputs[0]
        made = make(kind, [found.given, found.scale], node, [result], attributes)
        replace(graph, node, made, [(result, made.outputs[0])])
        count += 1
    return count


def _scaled(node: onnx_ir.Node) -> _Scaled | None:
    """Return the scaled norm whose last node is this product; None if there is none."""
    if node.graph is None or node.op_type != "Mul" or node.domain:
        return None
    for normalized, scale in pairs(node):
        found = None if scale is None else _normalized(normalized)
        if found is None:
            continue
        given, epsilon = found
        width = last_size(given)
        assert scale is not None
        if width is None or sizes(scale) != [width] or scale.dtype is not given.dtype:
            continue
        before = _centered(given)
        return _Scaled(before or given, epsilon, scale, before is not None)
    return None


def _normalized(value: onnx_ir.Value | None) -> tuple[onnx_ir.Value, float] | None:
    """Return the value that is divided by its root mean square in float32, and epsilon.

    ONNX also computes the norm of a shorter type in float32, so casts from a shorter type and back
    to it are part of the operator.
    """
    back = made_by(value, "Cast")
    core = value if back is None else back.inputs[0]
    product = made_by(core, "Mul", "Div")
    if product is None or core is None or core.dtype is not FLOAT:
        return None
    for given, root in pairs(product) if product.op_type == "Mul" else [tuple(product.inputs)]:
        epsilon = _epsilon(given, root, product.op_type == "Div")
        if epsilon is None or given is None:
            continue
        if back is None:
            return given, epsilon
        wide = made_by(given, "Cast")
        narrow = None if wide is None else wide.inputs[0]
        fits = value is not None and narrow is not None and narrow.dtype in HALVES
        if fits and narrow is not None and value is not None and narrow.dtype is value.dtype:
            return narrow, epsilon
    return None


def _epsilon(
    given: onnx_ir.Value | None, root: onnx_ir.Value | None, divides: bool
) -> float | None:
    """Return the epsilon of `root`, if it is the root mean square of `given` or its reciprocal."""
    shifted = _under_root(root, divides)
    shift = made_by(shifted, "Add")
    if shift is None:
        return None
    for mean, epsilon in pairs(shift):
        number = scalar(epsilon)
        if number is not None and number > 0 and _is_mean_square(mean, given):
            return number
    return None


def _under_root(value: onnx_ir.Value | None, divides: bool) -> onnx_ir.Value | None:
    """Return x if the value is sqrt(x), or, unless `divides`, if it is 1 / sqrt(x); else None."""
    if divides:
        root = made_by(value, "Sqrt")
        return None if root is None else root.inputs[0]
    power = made_by(value, "Pow")
    if power is not None:
        return power.inputs[0] if scalar(power.inputs[1]) == -0.5 else None
    over = made_by(value, "Reciprocal", "Div")
    if over is None or (over.op_type == "Div" and scalar(over.inputs[0]) != 1):
        return None
    root = made_by(over.inputs[-1], "Sqrt")
    return None if root is None else root.inputs[0]


def _is_mean_square(value: onnx_ir.Value | None, given: onnx_ir.Value | None) -> bool:
    mean = made_by(value, "ReduceMean")
    if mean is None or not _is_over_last(mean):
        return False
    square = made_by(mean.inputs[0], "Pow", "Mul")
    if square is None or square.inputs[0] is not given:
        return False
    second = square.inputs[1]
    return second is given if square.op_type == "Mul" else scalar(second) == 2


def _is_over_last(mean: onnx_ir.Node) -> bool:
    """Return whether a mean is over the last axis, and keeps that axis."""
    value = mean.inputs[0]
    axes = integers(mean.inputs[1]) if len(mean.inputs) > 1 else None
    kept = attribute(mean, "keepdims", 1) == 1
    return (
        value is not None
        and kept
        and bool(axes)
        and axes is not None
        and len(axes) == 1
        and (is_last_axis(axes[0], value))
    )


def _centered(value: onnx_ir.Value) -> onnx_ir.Value | None:
    """Return the value whose mean was subtracted to get this value; None if there is none."""
    less = made_by(value, "Sub")
    if less is None:
        return None
    given, subtracted = less.inputs
    mean = made_by(subtracted, "ReduceMean")
    is_own = mean is not None and mean.inputs[0] is given and _is_over_last(mean)
    return given if is_own else None
