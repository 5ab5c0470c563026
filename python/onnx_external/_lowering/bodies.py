"""Rules that express operators which an opset lacks by operators that it has."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir

from .._fusing.matching import attribute, constant, integers, sizes
from .nodes import BOOL, FLOATS, INT64, CannotLowerError, Maker, given, rank_of
from .rules import Results, rule

_FLOAT = onnx_ir.DataType.FLOAT


def expand_body(node: onnx_ir.Node, schema: Any, make: Maker) -> tuple[Results, int]:
    """Replace a node with the nodes of its operator's definition.

    Returns:
        The results and the opset of the new nodes; None and 0 if ONNX defines the operator
        otherwise.
    """
    proto = _body_of(node, schema)
    if proto is None:
        return None, 0
    made = onnx_ir.from_proto(proto)
    values: dict[Any, onnx_ir.Value | None] = {None: None}
    for place, value in enumerate(made.inputs):
        values[value] = given(node, place)
    for each in list(made):
        if any(held.type.name.startswith("GRAPH") for held in each.attributes.values()):
            return None, 0
        attributes = {}
        for name, held in each.attributes.items():
            real = node.attributes.get(held.ref_attr_name) if held.is_ref() else held
            if real is not None:
                attributes[name] = onnx_ir.Attr(name, real.type, real.value)
        inputs = [values[value] for value in each.inputs]
        results = []
        for value in each.outputs:
            results.append(onnx_ir.Value(name=make.name(each.op_type)))
            values[value] = results[-1]
        make.add(onnx_ir.Node("", each.op_type, inputs, attributes.values(), outputs=results))
    results = [values[value] for value in made.outputs][: len(node.outputs)]
    return [each for each in results if each is not None], made.opset_imports[""]


def _body_of(node: onnx_ir.Node, schema: Any) -> Any:
    """Return the oldest body of a function operator as a protobuf message; None without one."""
    proto = onnx.FunctionProto()
    if schema.has_function:
        data = schema.get_function_with_opset_version(min(schema.function_opset_versions))
    elif schema.has_context_dependent_function:
        types = [_type_of(value) for value in node.inputs]
        version = min(schema.context_dependent_function_opset_versions)
        data = schema.get_context_dependent_function_with_opset_version(
            version, onnx_ir.to_proto(node).SerializeToString(), types
        )
    else:
        return None
    proto.ParseFromString(data)
    return proto if proto.node else None


def _type_of(value: onnx_ir.Value | None) -> bytes:
    if value is None:
        return b""
    if value.dtype is None:
        raise CannotLowerError("the type of an input is unknown")
    shape = None if value.shape is None else sizes(value)
    made = onnx.helper.make_tensor_type_proto(int(value.dtype), shape)
    return bytes(made.SerializeToString())


@rule(17, "LayerNormalization")
def _layer_norm(node: onnx_ir.Node, make: Maker) -> Results:
    """Express LayerNormalization by older operators, in the form that runtimes recognize."""
    if len(node.outputs) > 1:
        return None
    own, scale = node.inputs[:2]
    assert own is not None and scale is not None
    rank = rank_of(own)
    axes = make.held([*range(attribute(node, "axis", -1) % rank - rank, 0)])
    narrow = own.dtype if own.dtype not in (_FLOAT, onnx_ir.DataType.DOUBLE) else None
    form = sizes(own)
    value = own
    if narrow is not None:
        value = make("Cast", own, dtype=_FLOAT, shape=form, to=int(_FLOAT))
    mean = make("ReduceMean", value, axes, keepdims=1, shape=[None] * rank)
    centered = make("Sub", value, mean, shape=form)
    square = make("Pow", centered, make.held(2.0, value.dtype), shape=form)
    variance = make("ReduceMean", square, axes, keepdims=1, shape=[None] * rank)
    epsilon = make.held(attribute(node, "epsilon", 1e-5), value.dtype)
    root = make("Sqrt", make("Add", variance, epsilon))
    result = make("Div", centered, root, shape=form)
    if narrow is not None:
        result = make("Cast", result, dtype=narrow, shape=form, to=int(narrow))
    result = make("Mul", result, scale, shape=form)
    bias = given(node, 2)
    return [result if bias is None else make("Add", result, bias, shape=form)]


@rule(15, "CastLike")
def _cast_like(node: onnx_ir.Node, make: Maker) -> Results:
    like = given(node, 1)
    dtype = None if like is None else like.dtype
    if dtype is None:
        raise CannotLowerError("its type is unknown")
    return [make("Cast", node.inputs[0], dtype=dtype, to=int(dtype))]


@rule(12, "GreaterOrEqual", "LessOrEqual")
def _or_equal(node: onnx_ir.Node, make: Maker) -> Results:
    """Express "or equal" by two comparisons, which is also right for NaN."""
    strictly = make(node.op_type.removesuffix("OrEqual"), *node.inputs, dtype=BOOL)
    return [make("Or", strictly, make("Equal", *node.inputs, dtype=BOOL))]


@rule(11, "Equal")
def _equal(node: onnx_ir.Node, make: Maker) -> Results:
    """Express Equal for floats: neither operand is less, and neither is NaN."""
    one, other = node.inputs
    if one is None or other is None or one.dtype not in FLOATS:
        return None
    apart = make(
        "Or", make("Less", one, other, dtype=BOOL), make("Greater", one, other, dtype=BOOL)
    )
    unordered = make("IsNaN", make("Add", one, other), dtype=BOOL)
    return [make("Not", make("Or", apart, unordered))]


@rule(14, "Trilu")
def _triangle(node: onnx_ir.Node, make: Maker) -> Results:
    """Express Trilu by comparing the indices of rows and columns."""
    value, count = node.inputs[0], given(node, 1)
    assert value is not None and value.dtype is not None
    zero, one = make.held(0), make.held(1)
    shape = make("Shape", value, dtype=INT64)
    places = []
    for axis in (-2, -1):
        size = make("Gather", shape, make.held(rank_of(value) + axis), axis=0)
        places.append(make("Range", zero, size, one, shape=[None]))
    rows = make("Unsqueeze", places[0], make.held([1]), shape=[None, 1])
    behind = make("Sub", places[1], rows, shape=[None, None])
    limit = zero if count is None else make("Reshape", count, make.held([1]), shape=[1])
    if attribute(node, "upper", 1):
        outside = make("Less", behind, limit, dtype=BOOL)
    else:
        outside = make("Greater", behind, limit, dtype=BOOL)
    return [make("Where", outside, make.held(0, value.dtype), value, dtype=value.dtype)]


@rule(11, "CumSum")
def _sums(node: onnx_ir.Node, make: Maker) -> Results:
    """Add the elements up to each place, which takes memory for a square of the size."""
    value, axes = node.inputs[0], integers(given(node, 1))
    if value is None or value.dtype is None or axes is None:
        raise CannotLowerError("its axis is computed")
    rank = rank_of(value)
    axis = axes[0] % rank
    zero, one = make.held(0), make.held(1)
    size = make("Gather", make("Shape", value, dtype=INT64), make.held(axis), axis=0, shape=[])
    places = make("Range", zero, size, one, shape=[None])
    rows = make("Unsqueeze", places, make.held([1]), shape=[None, 1])
    order = ("Less", "Greater")[bool(attribute(node, "reverse", 0))]
    taken = make(order, places, rows, dtype=BOOL, shape=[None, None])
    if not attribute(node, "exclusive", 0):
        taken = make("Or", taken, make("Equal", places, rows, dtype=BOOL), shape=[None, None])
    after = rank - axis - 1
    if after:
        behind = make.held([*range(2, 2 + after)])
        taken = make("Unsqueeze", taken, behind, shape=[None] * (2 + after))
    each = make("Unsqueeze", value, make.held([axis]), shape=[None] * (rank + 1))
    nothing = make.held(0, value.dtype)
    chosen = make("Where", taken, each, nothing, dtype=value.dtype, shape=[None] * (rank + 1))
    return [make("ReduceSum", chosen, make.held([axis + 1]), keepdims=0, shape=[None] * rank)]


@rule(11, "Range")
def _range(node: onnx_ir.Node, make: Maker) -> Results:
    """Express Range with step 1 by the indices of the elements in a vector of ones."""
    start, limit, delta = node.inputs
    step = constant(delta)
    if start is None or start.dtype is not INT64 or step is None or int(step.reshape(())) != 1:
        raise CannotLowerError("its step is not the integer 1")
    count = make("Reshape", make("Sub", limit, start), make.held([1]), shape=[1])
    ones = make("Expand", make.held([1]), count, shape=[None])
    places = make("NonZero", ones, dtype=INT64, shape=[1, None])
    numbers = make("Squeeze", places, make.held([0]), shape=[None])
    return [make("Add", numbers, start)]


@rule(9, "ConstantOfShape")
def _filled(node: onnx_ir.Node, make: Maker) -> Results:
    held = attribute(node, "value", None)
    tensor = onnx_ir.tensor([0.0]) if held is None else held
    made = make("Constant", dtype=tensor.dtype, shape=[1], value=tensor)
    return [make("Expand", made, node.inputs[0])]


@rule(8, "Expand")
def _expanded(node: onnx_ir.Node, make: Maker) -> Results:
    """Express Expand by Tile; a requested size of 1 keeps the dimension."""
    value, shape = node.inputs
    own, wanted = sizes(value), sizes(node.outputs[0])
    if own is None or wanted is None or not all(isinstance(dim, int) and dim for dim in own):
        raise CannotLowerError("the dimensions of its input vary")
    missing = len(wanted) - len(own)
    if missing:
        value = make("Unsqueeze", value, make.held([*range(missing)]), shape=[*[1] * missing, *own])
    given_dims = sizes(shape)
    if given_dims is None or given_dims != [len(wanted)]:
        raise CannotLowerError("the number of its dimensions is unknown")
    times = make("Div", shape, make.held([*[1] * missing, *own]))
    kept = make("Cast", make("Equal", times, make.held(0), dtype=BOOL), dtype=INT64, to=int(INT64))
    return [make("Tile", value, make("Add", times, kept))]
