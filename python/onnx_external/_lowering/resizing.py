"""Rules that write out the Resize of images for opsets whose own Resize knows fewer coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir

from .._fusing.matching import attribute, constant, sizes
from .nodes import FLOATS, INT64, CannotLowerError, Maker, given, rank_of
from .rules import Results, rule

_FLOAT = FLOATS[0]
_ROUNDING = {
    "floor": ("Floor", 0.0),
    "ceil": ("Ceil", 0.0),
    "round_prefer_ceil": ("Floor", 0.5),
    "round_prefer_floor": ("Ceil", -0.5),
}
"""For each way of rounding: the operator, and the number that is added before it."""


@rule(11, "Resize")
def _resize(node: onnx_ir.Node, make: Maker) -> Results:
    """Use the older operator for coordinates that it knows; otherwise gather elements."""
    if len(node.inputs) == 2:  # it has the form of opset 10 already
        return None
    mode = attribute(node, "mode", "nearest")
    where = attribute(node, "coordinate_transformation_mode", "half_pixel")
    rounds = attribute(node, "nearest_mode", "round_prefer_floor")
    scales = constant(given(node, 2))
    grows = scales is not None and scales.size and bool((scales >= 1).all())
    if grows and (mode, where, rounds) == ("nearest", "asymmetric", "floor"):
        return [make("Resize", node.inputs[0], node.inputs[2], mode=mode)]
    if mode == "cubic" or where == "tf_crop_and_resize" or attribute(node, "antialias", 0):
        raise CannotLowerError(f"mode {mode} with {where} coordinates is newer")
    if attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise CannotLowerError("it keeps the aspect ratio")
    return [_Resizing(node, make, mode == "linear", where, rounds).result()]


@rule(10, "Resize")
def _upsample(node: onnx_ir.Node, make: Maker) -> Results:
    if len(node.inputs) != 2:
        return None
    return [make("Upsample", *node.inputs, mode=attribute(node, "mode", "nearest"))]


@rule(9, "Upsample")
def _upsample_by_numbers(node: onnx_ir.Node, make: Maker) -> Results:
    scales = constant(given(node, 1))
    if scales is not None:
        node.resize_inputs(1)
        made = onnx_ir.AttrFloat32s("scales", [float(each) for each in scales.reshape(-1)])
        node.attributes["scales"] = made
    return None


class _Resizing:
    """Makes the nodes that resize a value along each of its axes."""

    def __init__(
        self, node: onnx_ir.Node, make: Maker, is_linear: bool, where: str, rounds: str
    ) -> None:
        self.node, self.make = node, make
        self.is_linear, self.where, self.rounds = is_linear, where, rounds
        value = node.inputs[0]
        assert value is not None
        self.value, self.rank = value, rank_of(value)

    def result(self) -> onnx_ir.Value:
        """Return the resized value."""
        make = self.make
        own = make("Shape", self.value, dtype=INT64)
        result, before, after = self.value, sizes(self.value), sizes(self.node.outputs[0])
        held = constant(given(self.node, 2))
        for axis in range(self.rank):
            if held is not None and held.size and held.reshape(-1)[axis] == 1:
                continue
            if before and after and before[axis] == after[axis] is not None:
                continue
            result = self._along(result, own, axis)
        return make("Identity", result) if result is self.value else result

    def _along(self, value: onnx_ir.Value, own: onnx_ir.Value, axis: int) -> onnx_ir.Value:
        """Resize a value along one axis."""
        make = self.make
        place = make.held([axis])
        size = make("Gather", own, place, axis=0, shape=[1])
        count, scale = self._extent(size, place)
        length = self._cast(size)
        scalar = make("Squeeze", count, make.held([0]), shape=[])
        numbers = make("Range", make.held(0), scalar, make.held(1), shape=[None])
        source = self._source(self._cast(numbers), length, self._cast(count), scale)
        last = make("Sub", length, self._number(1))
        if not self.is_linear:
            kind, added = _ROUNDING[self.rounds]
            index = make(kind, make("Add", source, self._number(added)), shape=[None])
            return make("Gather", value, self._index(index, last), axis=axis, shape=self._form())
        inside = make("Min", make("Max", source, self._number(0)), last, shape=[None])
        low = make("Floor", inside, shape=[None])
        high = make("Min", make("Add", low, self._number(1)), last, shape=[None])
        weight = make("Sub", inside, low, shape=[None])
        if self.rank - axis > 1:
            after = make.held([*range(1, self.rank - axis)])
            weight = make("Unsqueeze", weight, after, shape=[None, *[1] * (self.rank - axis - 1)])
        one, other = (
            make("Gather", value, make("Cast", each, dtype=INT64, to=int(INT64)), axis=axis)
            for each in (low, high)
        )
        if value.dtype is not _FLOAT:
            raise CannotLowerError("it resizes a type other than float32")
        step = make("Mul", make("Sub", other, one), weight, shape=self._form())
        return make("Add", one, step, shape=self._form())

    def _extent(
        self, size: onnx_ir.Value, place: onnx_ir.Value
    ) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """Return the new size along an axis, and the factor between the sizes."""
        make, wanted = self.make, given(self.node, 3)
        if wanted is not None:
            count = make("Gather", wanted, place, axis=0, shape=[1])
            return count, make("Div", self._cast(count), self._cast(size), shape=[1])
        scale = make("Gather", given(self.node, 2), place, axis=0, shape=[1])
        count = make("Floor", make("Mul", self._cast(size), scale))
        return make("Cast", count, dtype=INT64, shape=[1], to=int(INT64)), scale

    def _source(
        self, places: onnx_ir.Value, length: Any, count: Any, scale: onnx_ir.Value
    ) -> onnx_ir.Value:
        """Return the coordinates in the old value for the places in the new one."""
        make, half = self.make, self._number(0.5)
        if self.where == "asymmetric":
            return make("Div", places, scale, shape=[None])
        if self.where == "align_corners":
            one = self._number(1)
            steps = make("Max", make("Sub", count, one), one)
            return make("Mul", places, make("Div", make("Sub", length, one), steps), shape=[None])
        found = make("Sub", make("Div", make("Add", places, half), scale), half, shape=[None])
        if self.where == "half_pixel":
            return found
        if self.where != "pytorch_half_pixel":
            raise CannotLowerError(f"{self.where} coordinates are newer")
        many = make("Min", make("Sub", count, self._number(1)), self._number(1))
        return make("Mul", found, many, shape=[None])  # one element is taken from the start

    def _index(self, values: onnx_ir.Value, last: onnx_ir.Value) -> onnx_ir.Value:
        """Return coordinates as indices inside the value."""
        inside = self.make("Min", self.make("Max", values, self._number(0)), last, shape=[None])
        return self.make("Cast", inside, dtype=INT64, shape=[None], to=int(INT64))

    def _cast(self, value: onnx_ir.Value) -> onnx_ir.Value:
        shape = sizes(value)
        return self.make("Cast", value, dtype=_FLOAT, shape=shape, to=int(_FLOAT))

    def _number(self, value: float) -> onnx_ir.Value:
        return self.make.held(np.array([value], np.float32), _FLOAT)

    def _form(self) -> list[None]:
        return [None] * self.rank
