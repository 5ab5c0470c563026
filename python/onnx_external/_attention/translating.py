"""Translates the attention operator to an operator of ONNX Runtime or of ONNX opset 23."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np

from ..torch._exact_translations import operators
from .operator import cached_attention

Form: TypeAlias = Literal["fused", "lengths", "standard", "traced"]
"""The form of a decoder's attention; see `oe.transformers.export`."""
ATTENTION = "onnx_external.attention"
"""The metadata key in a model under which the form of its attention is stored."""
STANDARD_OPSET = 23
"""The first ONNX opset that has the operator Attention."""
DOMAIN = "com.microsoft"
NAME = "GroupQueryAttention"
_INT32, _INT64 = 6, 7
"""The integer codes of ONNX's element types."""


def translations(form: Form) -> dict[Any, Callable[..., Any]]:
    """Return the translations of this package's attention operators for torch.onnx.export."""
    made = _standard if form == "standard" else _grouped
    others: dict[str, Callable[..., Any]] = {"row_lengths": _lengths, "padding_bias": _bias}
    return {torch_operator(): made, **{torch_operator(n): each for n, each in others.items()}}


def torch_operator(name: str = "cached_attention") -> Any:
    """Return an operator as it appears in a traced program."""
    import torch

    assert cached_attention is not None
    return getattr(torch.ops.onnx_external, name).default


def _lengths(mask: Any, tokens: Any, like: str) -> Sequence[Any]:
    op = operators()
    along, one, mask = op.Constant(value_ints=[1]), op.Constant(value_int=1), _integers(mask)
    size = op.Shape(mask, start=1, end=2)
    lengths = op.ReduceSum(mask, along, keepdims=0)
    # Most masks are all ones, so the nodes that judge padding run only for the others.
    spoiled = _either(
        op.Equal(op.ReduceMin(lengths, keepdims=0), size),
        lambda: _number(0.0, like),
        lambda: _spoiled(mask, size, tokens, like),
    )
    return [_as_int32(op.Sub(lengths, one)), _as_int32(size), spoiled]


def _spoiled(mask: Any, size: Any, tokens: Any, like: str) -> Any:
    """Return NaN if a batch entry is not padded as `row_lengths` requires, otherwise 0."""
    op = operators()
    new_size = _measured_here(_as_shape(tokens))
    along, one = op.Constant(value_ints=[1]), op.Constant(value_int=1)
    cached = op.Sub(size, new_size)
    new = op.Slice(mask, cached, size, along)
    count = op.ReduceSum(new, along, keepdims=0)
    over = op.Sub(count, op.ArgMax(new, axis=1, keepdims=0, select_last_index=1))
    over = op.Mul(over, op.Gather(mask, op.Constant(value_int=0), axis=1))
    over = op.Sub(over, op.Mul(cached, op.Sub(new_size, count)))
    is_right = op.Equal(op.ReduceMin(over, keepdims=0), one)
    return op.Where(is_right, *(_number(each, like) for each in (0.0, math.nan)))


def _either(test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """Return one of two scalars; only the nodes that compute this one run."""
    from torch.onnx._internal.exporter._torchlib.ops.hop import call_op

    branches = {"then_branch": _branch("full", then), "else_branch": _branch("padded", otherwise)}
    return call_op("If", test, **branches)[0]


def _branch(name: str, make: Callable[[], Any]) -> Any:
    """Return a branch that contains the nodes which a function adds to the graph."""
    import onnx_ir
    from torch.onnx._internal.exporter import _core

    assert _core.current_tracer is not None
    nodes = _core.current_tracer.nodes
    start = len(nodes)
    result = make()
    own = nodes[start:]
    del nodes[start:]
    for number, node in enumerate(own):
        node.outputs[0].name = f"{name}_{number}"
    result.shape = onnx_ir.Shape([])
    return onnx_ir.Graph((), [result], nodes=own, name=name)


def _bias(mask: Any, tokens: Any) -> Sequence[Any]:
    op = operators()
    lowest = float(np.finfo(np.float32).min)
    by_row = op.Where(mask, _number(0.0, "float32"), _number(lowest, "float32"))
    spread = op.Unsqueeze(by_row, op.Constant(value_ints=[1, 2]))
    ones = [op.Constant(value_ints=each) for each in ([1, 1], [1])]
    bias = op.Expand(spread, op.Concat(ones[0], _as_shape(tokens), ones[1], axis=0))
    total = _total(mask)
    last = op.Sub(total, _number(1, "int32"))
    return [bias, op.Expand(last, op.Shape(mask, start=0, end=1)), total]


def _total(mask: Any) -> Any:
    return _as_int32(operators().Shape(mask, start=1, end=2))


def _as_int32(value: Any) -> Any:
    return operators().Cast(value, to=_INT32)


def _number(value: float, kind: str) -> Any:
    import onnx_ir

    dtype = onnx_ir.DataType[{"float32": "FLOAT"}.get(kind, kind.upper())]
    return operators().Constant(value=onnx_ir.tensor(value, dtype=dtype))


def _integers(mask: Any) -> Any:
    """Return the integer mask that transformers converted to booleans."""
    op = operators()
    maker = mask.producer()
    given = maker.inputs[0] if maker is not None and maker.op_type == "Cast" else None
    is_int = given is not None and given.dtype == _INT64
    return given if is_int else op.Cast(mask, to=_INT64)


def _as_shape(size: Any) -> Any:
    """Return a size as a one-dimensional tensor with one element."""
    op = operators()
    if isinstance(size, int):
        return op.Constant(value_ints=[size])
    maker = size.producer()
    if maker is not None and maker.op_type == "Squeeze" and len(maker.inputs) == 1:
        return maker.inputs[0]  # what had one element, and was made a scalar
    return op.Reshape(size, op.Constant(value_ints=[1]))


def _measured_here(size: Any) -> Any:
    """Return a size that another Shape node computes from a Shape node among the current nodes.

    In a branch, this Shape node then runs only if the branch does.
    """
    maker = size.producer()
    if maker is None or maker.op_type != "Shape":
        return size
    return operators().Shape(maker.inputs[0], **{k: v.value for k, v in maker.attributes.items()})


def _grouped(
    query: Any,
    key: Any,
    value: Any,
    past_key: Any,
    past_value: Any,
    bias: Any,
    last: Any,
    total: Any,
    sinks: Any,
    scale: float,
    softcap: float,
    window: int,
    spoiled: Any = None,
) -> Sequence[Any]:
    """Make a GroupQueryAttention node; its inputs contain the heads of each token side by side."""
    op = operators()
    heads, size = query.shape[1], query.shape[3]
    options: dict[str, Any] = {"num_heads": heads, "kv_num_heads": key.shape[1], "scale": scale}
    if softcap:
        options["softcap"] = softcap
    if window >= 0:
        options["local_window_size"] = window
    given = [_side_by_side(each) for each in (query, key, value)]
    if spoiled is not None:
        given[2] = op.Add(given[2], spoiled)
    more = [None, None, None, bias, sinks]
    while more and more[-1] is None:
        more.pop()
    result, *present = _node()(*given, past_key, past_value, last, total, *more, **options)
    result.dtype = query.dtype
    return [op.Reshape(result, op.Constant(value_ints=[0, 0, heads, size])), *present]


def _side_by_side(states: Any) -> Any:
    op = operators()
    width = states.shape[1] * states.shape[3]
    by_token = op.Transpose(states, perm=[0, 2, 1, 3])
    return op.Reshape(by_token, op.Constant(value_ints=[0, 0, width]))


def _standard(
    query: Any,
    key: Any,
    value: Any,
    past_key: Any,
    past_value: Any,
    bias: Any,
    last: Any,
    total: Any,
    sinks: Any,
    scale: float,
    softcap: float,
    window: int,
    spoiled: Any = None,
) -> Sequence[Any]:
    """Make an ONNX 23 Attention node, whose mask input is the bias."""
    from onnxscript import opset23

    options: dict[str, Any] = {"scale": scale, **({"softcap": softcap} if softcap else {})}
    given = (query, key, value, bias, past_key, past_value)
    result, longer_key, longer_value, *_ = opset23.Attention(*given, **options)
    result.dtype = query.dtype
    return [operators().Transpose(result, perm=[0, 2, 1, 3]), longer_key, longer_value]


@cache
def _node() -> Any:
    """Return a function that makes GroupQueryAttention nodes, for which onnx has no schema."""
    import onnx
    from onnxscript import values

    defs = onnx.defs
    parameter, attribute = defs.OpSchema.FormalParameter, defs.OpSchema.Attribute
    kind = defs.OpSchema.FormalParameterOption
    taken = [
        ("query", "T"), ("key", "T"), ("value", "T"), ("past_key", "T"), ("past_value", "T"),
        ("seqlens_k", "M"), ("total_sequence_length", "M"), ("cos_cache", "T"), ("sin_cache", "T"),
        ("position_ids", "P"), ("attention_bias", "T"), ("head_sink", "T"),
    ]  # fmt: skip
    floats = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)"]
    schema = defs.OpSchema(
        NAME,
        DOMAIN,
        1,
        inputs=[parameter(name, of, param_option=kind.Optional) for name, of in taken],
        outputs=[parameter(name, "T") for name in ("output", "present_key", "present_value")],
        type_constraints=[
            ("T", floats, ""),
            ("M", ["tensor(int32)"], ""),
            ("P", ["tensor(int64)"], ""),
        ],
        attributes=[
            attribute("num_heads", defs.OpSchema.AttrType.INT, "", required=True),
            attribute("kv_num_heads", defs.OpSchema.AttrType.INT, "", required=True),
            attribute("scale", defs.OpSchema.AttrType.FLOAT, "", required=False),
            attribute("softcap", defs.OpSchema.AttrType.FLOAT, "", required=False),
            attribute("local_window_size", defs.OpSchema.AttrType.INT, "", required=False),
        ],
    )
    return values.Op(values.Opset(DOMAIN, 1), NAME, schema)
