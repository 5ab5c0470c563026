"""Compares nodes with the definitions of operators in an opset."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir


def schema_of(kind: str, version: int) -> Any:
    """Return the definition of an ONNX operator in an opset; None if the opset lacks it."""
    try:
        found = onnx.defs.get_schema(kind, version, "")
    except onnx.defs.SchemaError:
        return None
    return None if found.deprecated else found


def first_opset(kind: str) -> int:
    """Return the first opset that has an operator."""
    return int(min((each.since_version for each in _all_schemas(kind)), default=0))


def _all_schemas(kind: str) -> list[Any]:
    found, version = [], onnx.defs.onnx_opset_version()
    while version > 0 and (schema := schema_of(kind, version)) is not None:
        found.append(schema)
        version = schema.since_version - 1
    return found


def drop_defaults(node: onnx_ir.Node, newer: Any, older: Any) -> None:
    """Remove attributes that an older opset lacks, if they have their default values."""
    for name, held in list(node.attributes.items()):
        if name in older.attributes or name not in newer.attributes:
            continue
        default = newer.attributes[name].default_value
        value = held.value
        if default is not None and default.name:
            is_default = value == onnx.helper.get_attribute_value(default) or (
                isinstance(value, str) and value.encode() == default.s
            )
        else:
            is_default = name == "dilations" and set(value) == {1}
        if is_default:
            del node.attributes[name]
    while node.inputs and node.inputs[-1] is None:
        node.resize_inputs(len(node.inputs) - 1)


def misfit(node: onnx_ir.Node, schema: Any) -> str:
    """Return the reason why a node does not fit the definition of its operator; empty if it does.

    A value of unknown type is assumed to fit.
    """
    extra = sorted(node.attributes.keys() - schema.attributes.keys())
    if extra:
        return f"its attribute {extra[0]} is newer"
    for name, form in schema.attributes.items():
        if form.required and name not in node.attributes:
            return f"it needs the attribute {name}"
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        return f"it has {len(node.inputs)} inputs"
    for count, value in enumerate(node.inputs):
        if value is None and count < schema.min_input:
            return "an input that it leaves out is newer"
    if len(node.outputs) > schema.max_output:
        return f"it has {len(node.outputs)} outputs"
    for values, forms in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for place, value in enumerate(values):
            form = forms[min(place, len(forms) - 1)]
            name = _type_name(value)
            if name and name not in form.types:
                return f"it supports {name.removeprefix('tensor(').rstrip(')')} only since then"
    return ""


_TYPE_NAMES = {"FLOAT": "float", "DOUBLE": "double", "STRING": "string"}


def _type_name(value: onnx_ir.Value | None) -> str:
    """Return a value's type as definitions spell it; "" if it is unknown or not a tensor."""
    if value is None or value.dtype is None or not isinstance(value.type, onnx_ir.TensorType):
        return ""
    name = value.dtype.name
    return f"tensor({_TYPE_NAMES.get(name, name.lower())})"
