"""Rules for operators whose attributes and inputs have changed between opsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir

from .._fusing.matching import attribute, constant, integers, sizes
from .nodes import BOOL, FLOATS, INT64, CannotLowerError, Maker, given, rank_of, set_attribute
from .rules import Results, rule

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")


def _constants(node: onnx_ir.Node, place: int, what: str) -> list[int] | None:
    """Return the integers in a constant input; None if the node does not have the input."""
    value = given(node, place)
    if value is None:
        return None
    found = integers(value)
    if found is None:
        raise CannotLowerError(f"its {what} are computed, and older opsets need constants")
    return found


def _to_attribute(node: onnx_ir.Node, name: str) -> None:
    """Replace the second input of a node, which is its last and a constant, with an attribute."""
    found = _constants(node, 1, name)
    if len(node.inputs) > 1:
        node.resize_inputs(1)
    if found is not None:
        set_attribute(node, name, found)


@rule(18, *(f"Reduce{each}" for each in _REDUCTIONS))
@rule(13, "ReduceSum")
def _reduce(node: onnx_ir.Node, make: Maker) -> Results:
    if attribute(node, "noop_with_empty_axes", 0) and not _constants(node, 1, "axes"):
        if given(node, 1) is None or integers(given(node, 1)) == []:
            return [make("Identity", node.inputs[0])]
    _to_attribute(node, "axes")
    if attribute(node, "axes", None) == []:  # no axes are all axes
        set_attribute(node, "axes", None)
    set_attribute(node, "noop_with_empty_axes", None)
    return None


@rule(13, "Squeeze", "Unsqueeze")
def _squeeze(node: onnx_ir.Node, make: Maker) -> Results:
    _to_attribute(node, "axes")
    return None


@rule(18, "Split")
def _split_evenly(node: onnx_ir.Node, make: Maker) -> Results:
    count = attribute(node, "num_outputs", None)
    if count is None:
        return None
    dims = sizes(node.inputs[0])
    size = None if dims is None else dims[attribute(node, "axis", 0)]
    if not isinstance(size, int):
        raise CannotLowerError("it divides a dimension that varies")
    part = -(-size // count)
    node.resize_inputs(2)
    node.replace_input_with(1, make.held([*[part] * (count - 1), size - part * (count - 1)]))
    set_attribute(node, "num_outputs", None)
    return None


@rule(13, "Split")
def _split(node: onnx_ir.Node, make: Maker) -> Results:
    _to_attribute(node, "split")
    return None


@rule(18, "Pad")
def _pad_axes(node: onnx_ir.Node, make: Maker) -> Results:
    if given(node, 3) is None:
        return None
    axes, pads = _constants(node, 3, "axes"), _constants(node, 1, "pads")
    rank = rank_of(node.inputs[0])
    assert axes is not None and pads is not None
    every = [0] * (2 * rank)
    for place, axis in enumerate(axes):
        every[axis % rank] = pads[place]
        every[rank + axis % rank] = pads[len(axes) + place]
    node.resize_inputs(3)
    node.replace_input_with(1, make.held(every))
    return None


@rule(11, "Pad")
def _pad(node: onnx_ir.Node, make: Maker) -> Results:
    pads = _constants(node, 1, "pads")
    if pads is None:
        return None
    filling = given(node, 2)
    held = constant(filling)
    if filling is not None and held is None:
        raise CannotLowerError("its value is computed, and older opsets need a constant")
    node.resize_inputs(1)
    set_attribute(node, "pads", pads)
    if held is not None:
        set_attribute(node, "value", float(held.reshape(())))
    return None


@rule(12, "Clip")
def _clip(node: onnx_ir.Node, make: Maker) -> Results:
    """Express Clip of integers by Where, because Clip, Max and Min lack integer types."""
    value = node.inputs[0]
    if value is None or value.dtype in (*FLOATS, None):
        return None
    for limit, compare in ((given(node, 1), "Less"), (given(node, 2), "Greater")):
        if limit is not None:
            beyond = make(compare, value, limit, dtype=BOOL)
            value = make("Where", beyond, limit, value, dtype=limit.dtype)
    return [value]


@rule(11, "Clip")
def _clip_by_numbers(node: onnx_ir.Node, make: Maker) -> Results:
    limits = [given(node, 1), given(node, 2)]
    numbers = [constant(each) for each in limits]
    if any(each is not None and held is None for each, held in zip(limits, numbers, strict=True)):
        value = node.inputs[0]
        for limit, kind in zip(limits, ("Max", "Min"), strict=True):
            value = value if limit is None else make(kind, value, limit)
        assert value is not None
        return [value]
    node.resize_inputs(1)
    for name, none, held in zip(("min", "max"), (-np.inf, np.inf), numbers, strict=True):
        set_attribute(node, name, none if held is None else float(held.reshape(())))
    return None


@rule(12, "Max", "Min")
def _extreme(node: onnx_ir.Node, make: Maker) -> Results:
    """Express Max or Min of integers by comparisons and Where."""
    if node.inputs[0] is None or node.inputs[0].dtype in (*FLOATS, None):
        return None
    result = node.inputs[0]
    compare = "Greater" if node.op_type == "Max" else "Less"
    for other in node.inputs[1:]:
        result = make(
            "Where", make(compare, result, other, dtype=BOOL), result, other, dtype=result.dtype
        )
    return [result]


@rule(10, "Slice")
def _slice(node: onnx_ir.Node, make: Maker) -> Results:
    if len(node.inputs) < 3:
        return None
    starts, ends = _constants(node, 1, "starts"), _constants(node, 2, "ends")
    axes, steps = _constants(node, 3, "axes"), _constants(node, 4, "steps")
    if steps is not None and set(steps) != {1}:
        raise CannotLowerError("its steps are newer")
    node.resize_inputs(1)
    for name, values in (("starts", starts), ("ends", ends), ("axes", axes)):
        set_attribute(node, name, values)
    return None


@rule(15, "Shape")
def _shape(node: onnx_ir.Node, make: Maker) -> Results:
    start, end = attribute(node, "start", 0), attribute(node, "end", None)
    if start == 0 and end is None:
        set_attribute(node, "start", None)
        return None
    every = make("Shape", node.inputs[0], dtype=INT64)
    last = np.iinfo(np.int64).max if end is None else end
    return [make("Slice", every, make.held([start]), make.held([last]), make.held([0]))]


@rule(14, "Reshape")
def _reshape(node: onnx_ir.Node, make: Maker) -> Results:
    """Remove the attribute allowzero, which only affects empty tensors."""
    if attribute(node, "allowzero", 0) and 0 in (integers(given(node, 1)) or ()):
        raise CannotLowerError("its result is empty (allowzero)")
    set_attribute(node, "allowzero", None)
    return None


@rule(9, "Constant")
def _constant_by_cast(node: onnx_ir.Node, make: Maker) -> Results:
    """Express a constant of another type by a float64 constant and a Cast."""
    tensor = attribute(node, "value", None)
    if tensor is None or tensor.dtype in FLOATS:
        return None
    array = tensor.numpy().astype(np.float64)
    if not (array.astype(tensor.dtype.numpy()) == tensor.numpy()).all():
        raise CannotLowerError("a constant is too large for float64")
    wide = make("Constant", dtype=FLOATS[1], shape=array.shape, value=onnx_ir.tensor(array))
    return [make("Cast", wide, dtype=tensor.dtype, to=int(tensor.dtype))]


@rule(13, "Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: onnx_ir.Node, make: Maker) -> Results:
    """Transpose the axis to the end, because older opsets normalize all axes from it on."""
    rank = rank_of(node.inputs[0])
    axis = attribute(node, "axis", -1) % max(rank, 1)
    if axis == rank - 1 or not rank:
        set_attribute(node, "axis", axis)
        return None
    order = [*range(rank)]
    order[axis], order[-1] = order[-1], order[axis]
    turned = make("Transpose", node.inputs[0], perm=order, shape=[None] * rank)
    result = make(node.op_type, turned, axis=rank - 1, shape=[None] * rank)
    return [make("Transpose", result, perm=order)]


@rule(12, "Dropout")
def _dropout(node: onnx_ir.Node, make: Maker) -> Results:
    training = given(node, 2)
    held = constant(training)
    if training is not None and (held is None or held.any()):
        raise CannotLowerError("it draws random numbers")
    if len(node.outputs) > 1:
        return None
    return [make("Identity", node.inputs[0])]


@rule(11, "TopK")
def _largest(node: onnx_ir.Node, make: Maker) -> Results:
    if not attribute(node, "largest", 1):
        raise CannotLowerError("it looks for the smallest elements")
    set_attribute(node, "largest", None)
    set_attribute(node, "sorted", None)
    return None


@rule(10, "TopK")
def _count(node: onnx_ir.Node, make: Maker) -> Results:
    found = _constants(node, 1, "count")
    if found is not None:
        node.resize_inputs(1)
        set_attribute(node, "k", found[0])
    return None


@rule(18, "Resize")
def _resize_axes(node: onnx_ir.Node, make: Maker) -> Results:
    """Express a Resize along some axes by scales for all axes."""
    axes = attribute(node, "axes", None)
    if axes is None:
        return None
    rank = rank_of(node.inputs[0])
    if given(node, 3) is not None:
        raise CannotLowerError("it states the sizes of some axes")
    held = constant(given(node, 2))
    if held is None:
        raise CannotLowerError("its scales are computed")
    scales = [1.0] * rank
    for axis, scale in zip(axes, held.reshape(-1), strict=True):
        scales[axis % rank] = float(scale)
    node.replace_input_with(2, make.held(scales, FLOATS[0]))
    set_attribute(node, "axes", None)
    return None


def _has_scales_alone(node: onnx_ir.Node) -> bool:
    """Return whether a Resize is already in the form of opset 10."""
    return len(node.inputs) == 2


@rule(13, "Resize")
def _resize_region(node: onnx_ir.Node, make: Maker) -> Results:
    """Add an empty region and empty scales, which are required inputs in older opsets."""
    if _has_scales_alone(node):
        return None
    for place in (1, 2):
        if given(node, place) is None:
            if len(node.inputs) <= place:
                node.resize_inputs(place + 1)
            node.replace_input_with(place, make.held([], onnx_ir.DataType.FLOAT))
    return None


@rule(16, "RoiAlign")
def _roi_align(node: onnx_ir.Node, make: Maker) -> Results:
    """Remove the coordinate mode if it is the only mode that older opsets have."""
    if attribute(node, "coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        raise CannotLowerError("its coordinates (half_pixel) are newer")
    set_attribute(node, "coordinate_transformation_mode", None)
    return None


@rule(20, "GridSample")
def _grid_sample(node: onnx_ir.Node, make: Maker) -> Results:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode = attribute(node, "mode", "linear")
    set_attribute(node, "mode", names.get(mode, mode))
    return None


@rule(12, "Pow")
def _power(node: onnx_ir.Node, make: Maker) -> Results:
    """Cast the exponent to the type of the base, as older opsets require."""
    base, exponent = node.inputs
    if base is None or exponent is None or base.dtype is None or base.dtype == exponent.dtype:
        return None
    return [make("Pow", base, make("Cast", exponent, dtype=base.dtype, to=int(base.dtype)))]


@rule(11, "Gemm")
def _gemm(node: onnx_ir.Node, make: Maker) -> Results:
    """Add a zero as the third input, which older opsets require."""
    if given(node, 2) is None:
        node.resize_inputs(3)
        node.replace_input_with(2, make.held([0], node.inputs[0].dtype))
    return None


_AXIS = ("ArgMax", "ArgMin", "Concat", "Flatten", "Gather", "Split", "TopK")


@rule(11, *_AXIS, *(f"Reduce{each}" for each in (*_REDUCTIONS, "Sum")))
@rule(11, "Squeeze", "Unsqueeze", "LogSoftmax", "Softmax", "Slice")
def _axes_from_the_start(node: onnx_ir.Node, make: Maker) -> Results:
    """Replace negative axes, which older opsets lack, with axes counted from the start."""
    axis = attribute(node, "axis", -1 if node.op_type == "TopK" else 0)
    axes: Sequence[int] = attribute(node, "axes", ())
    if axis >= 0 and min(axes, default=0) >= 0:
        return None
    value = node.outputs[0] if node.op_type == "Unsqueeze" else node.inputs[0]
    rank = rank_of(value)
    if axes:
        set_attribute(node, "axes", [each % rank for each in axes])
    elif node.op_type not in ("Squeeze", "Unsqueeze", "Slice") and axis < 0:
        set_attribute(node, "axis", axis % rank)
    return None
