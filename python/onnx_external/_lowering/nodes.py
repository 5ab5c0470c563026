"""Provides the nodes, constants and errors with which rules lower a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir

from .._fusing.matching import attribute, sizes

INT64, BOOL = onnx_ir.DataType.INT64, onnx_ir.DataType.BOOL
FLOATS = (onnx_ir.DataType.FLOAT, onnx_ir.DataType.DOUBLE, onnx_ir.DataType.FLOAT16)


class CannotLowerError(Exception):
    """Raised by a rule if an older opset cannot express the node; the text is the reason."""


class Maker:
    """Makes the nodes that replace a node, in the order in which they run.

    Args:
        node: the node to replace, whose metadata all new nodes get.
        numbers: numbers that make the names of new values unique in the graph.
    """

    def __init__(self, node: onnx_ir.Node, numbers: Iterator[int]) -> None:
        self.node = node
        self.made: list[onnx_ir.Node] = []
        self._numbers = numbers

    def __call__(
        self,
        kind: str,
        *inputs: onnx_ir.Value | None,
        dtype: onnx_ir.DataType | None = None,
        shape: Sequence[Any] | None = None,
        **attributes: Any,
    ) -> onnx_ir.Value:
        """Add a node with one output, and return this output.

        Args:
            kind: the type of the operator.
            inputs: the inputs of the node.
            dtype: the type of the output; None: the type of the first input.
            shape: the shape of the output; None if unknown.
            attributes: the attributes of the node.
        """
        if dtype is None and inputs and inputs[0] is not None:
            dtype = inputs[0].dtype
        result = onnx_ir.Value(
            name=self.name(kind),
            type=None if dtype is None else onnx_ir.TensorType(dtype),
            shape=None if shape is None else onnx_ir.Shape(list(shape)),
        )
        found = onnx_ir.convenience.convert_attributes(attributes)
        self.add(onnx_ir.Node("", kind, inputs, found, outputs=[result], name=result.name))
        return result

    def name(self, kind: str) -> str:
        """Return an unused name for a new value."""
        return f"{self.node.outputs[0].name}/{kind}_{next(self._numbers)}"

    def add(self, node: onnx_ir.Node) -> None:
        """Add a node that a caller has already made."""
        node.metadata_props.update(self.node.metadata_props)
        state_as_tensor(node)
        self.made.append(node)

    def held(self, values: Any, dtype: onnx_ir.DataType | None = INT64) -> onnx_ir.Value:
        """Add a constant, and return its value.

        Args:
            values: a number, or a list of numbers.
            dtype: the type of the constant.
        """
        assert dtype is not None
        array = np.asarray(values).astype(dtype.numpy())
        tensor = onnx_ir.tensor(array, dtype=dtype)
        return self("Constant", dtype=dtype, shape=array.shape, value=tensor)


def state_as_tensor(node: onnx_ir.Node) -> None:
    """Store the numbers of a Constant as a tensor, which every opset supports."""
    if node.op_type != "Constant" or node.domain:
        return
    for name in ("value_int", "value_ints", "value_float", "value_floats"):
        held = attribute(node, name, None)
        if held is not None:
            kind = INT64 if "int" in name else onnx_ir.DataType.FLOAT
            node.attributes.clear()
            array = np.asarray(held, kind.numpy())
            set_attribute(node, "value", onnx_ir.tensor(array, dtype=kind))


def given(node: onnx_ir.Node, place: int) -> onnx_ir.Value | None:
    """Return an input of a node; None if the node does not have it."""
    return node.inputs[place] if place < len(node.inputs) else None


def rank_of(value: onnx_ir.Value | None) -> int:
    """Return the number of dimensions of a value.

    Raises:
        CannotLowerError: it is unknown.
    """
    found = sizes(value)
    if found is None:
        raise CannotLowerError("the number of dimensions is unknown")
    return len(found)


def set_attribute(node: onnx_ir.Node, name: str, value: Any) -> None:
    """Set an attribute of a node, or remove it if the value is None."""
    if value is None:
        node.attributes.pop(name, None)
    else:
        (made,) = onnx_ir.convenience.convert_attributes({name: value})
        node.attributes[name] = made
