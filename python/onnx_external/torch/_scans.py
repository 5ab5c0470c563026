"""Translates operators that process a dimension step by step to ONNX Scan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._exact_translations import operators

if TYPE_CHECKING:
    import onnx_ir


def running_product(values: Any, dim: int, dtype: int = -1) -> Any:
    """Return cumulative products: each element multiplied by all elements before it."""
    import onnx_ir

    op = operators()
    if not values.shape:
        return op.Identity(values)
    kind = values.dtype if dtype in (-1, None) else onnx_ir.DataType(dtype)
    numbers = op.Cast(values, to=kind)

    def step(body: _Body, product: Any, value: Any) -> list[Any]:
        return [body.node("Mul", product, value)]

    (result,) = _scan(step, [_filled(1, kind, values, dim)], [numbers], [kind], dim)
    return result


def running_log_of_sum(values: Any, dim: int) -> Any:
    """Return, for each element, log(sum(exp(x))) over all elements up to it."""
    op = operators()
    if not values.shape:
        return op.Identity(values)
    kind = values.dtype

    def step(body: _Body, total: Any, value: Any) -> list[Any]:
        most = body.node("Max", total, value)
        apart = body.node("Abs", body.node("Sub", total, value))
        more = body.node("Softplus", body.node("Neg", apart))  # NaN for equal infinities
        more = body.node(
            "Where", body.node("Equal", total, value), body.node("Softplus", zero), more
        )
        return [body.node("Add", most, more)]

    zero = op.CastLike(0.0, values)
    start = _filled(-math.inf, kind, values, dim)
    (result,) = _scan(step, [start], [values], [kind], dim)
    return result


def running_extreme(is_taken: str, first: float) -> Callable[..., Any]:
    """Return a translation of cummax or cummin.

    Args:
        is_taken: the operator that compares an element with the best element before it.
        first: the worst value: no float is worse.
    """

    def running(values: Any, dim: int) -> Any:
        import onnx_ir

        op = operators()
        if not values.shape:
            return op.Identity(values), op.Constant(value_int=0)
        kind, place_kind = values.dtype, onnx_ir.DataType.INT64
        is_float = kind.is_floating_point()
        kind = kind if is_float else place_kind
        numbers = op.Cast(values, to=kind)
        size = op.Gather(op.Shape(values), op.Constant(value_int=dim), axis=0)
        places = op.Range(op.Constant(value_int=0), size, op.Constant(value_int=1))
        others = op.Constant(value_ints=_others(values, dim))
        places = op.Expand(op.Unsqueeze(places, others), op.Shape(values))

        def step(body: _Body, best: Any, at: Any, value: Any, place: Any) -> list[Any]:
            takes = body.node(is_taken, value, best)
            if is_float:
                takes = body.node("Or", takes, body.node("IsNaN", value))
            return [body.node("Where", takes, value, best), body.node("Where", takes, place, at)]

        limit = -(2**63) if first < 0 else 2**63 - 1
        starts = [
            _filled(first if is_float else limit, kind, values, dim),
            _filled(0, place_kind, values, dim),
        ]
        best, at = _scan(step, starts, [numbers, places], [kind, place_kind], dim)
        return op.Cast(best, to=values.dtype), at

    return running


def _others(values: Any, dim: int) -> list[int]:
    """Return all dimensions of a tensor except the given one."""
    rank = len(values.shape)
    return [each for each in range(rank) if each != dim % rank]


def _filled(number: float, kind: Any, like: Any, dim: int) -> Any:
    """Return a tensor filled with a number, with the sizes of `like` except for one dimension."""
    import onnx_ir

    op = operators()
    start = op.Constant(value=onnx_ir.tensor(number, dtype=kind))
    others = _others(like, dim)
    if not others:
        return start
    return op.Expand(start, op.Gather(op.Shape(like), op.Constant(value_ints=others), axis=0))


class _Body:
    """The graph of one step of a Scan."""

    def __init__(self, inputs: Sequence[Any], kinds: Sequence[Any]) -> None:
        import onnx_ir

        self.name = "step"
        self.nodes: list[onnx_ir.Node] = []
        self.inputs = [
            onnx_ir.Value(name=f"{self.name}_in_{at}", type=onnx_ir.TensorType(kind))
            for at, kind in enumerate((*kinds, *kinds))
        ]

    def node(self, op_type: str, *inputs: Any) -> Any:
        import onnx_ir

        made = onnx_ir.node(op_type, inputs)
        made.outputs[0].name = f"{self.name}_{len(self.nodes)}"
        self.nodes.append(made)
        return made.outputs[0]


def _scan(
    step: Callable[..., list[Any]],
    states: Sequence[Any],
    inputs: Sequence[Any],
    kinds: Sequence[Any],
    dim: int,
) -> Sequence[Any]:
    """Return the states after each step along a dimension.

    Args:
        step: a function that adds nodes to a body, and returns the new states.
        states: the values of the states before the first step.
        inputs: the tensors to scan, one for each state.
        kinds: the types of the states, and of the inputs.
        dim: the dimension.
    """
    import onnx_ir
    from torch.onnx._internal.exporter._torchlib.ops.hop import call_op

    body = _Body(inputs, kinds)
    after = step(body, *body.inputs)
    outputs = [*after, *(body.node("Identity", each) for each in after)]
    for value, kind in zip(outputs, (*kinds, *kinds), strict=True):
        value.type = onnx_ir.TensorType(kind)
    results: Sequence[Any] = call_op(
        "Scan",
        *states,
        *inputs,
        _num_outputs=len(outputs),
        body=onnx_ir.Graph(body.inputs, outputs, nodes=body.nodes, name=body.name),
        num_scan_inputs=len(inputs),
        scan_input_axes=[dim] * len(inputs),
        scan_output_axes=[dim] * len(states),
    )
    return results[len(states) :]
