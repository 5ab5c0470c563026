"""Finds matrix products that compute the results of several modules at once."""

from __future__ import annotations

from typing import NamedTuple

from .unmarked import scopes_of

_WIDTHS = "pkg.onnx_external.widths"
"""The metadata of a node that computes the results of several modules, concatenated."""
_INT64 = 7


class Part(NamedTuple):
    """A range of the last dimension of a value."""

    of: str
    start: int
    end: int


def own_outputs(data: bytes, name: str, outputs: list[str]) -> list[str]:
    """Leave out results that a shared product computes for other modules.

    A Split node separates the results; the last module names of that node belong to its outputs.
    """
    if b"Split" not in data:
        return outputs
    try:
        import onnx
    except ImportError:
        return outputs
    others: set[str] = set()
    for node in onnx.ModelProto.FromString(data).graph.node:
        parts = scopes_of(node)[-len(node.output) :] if node.op_type == "Split" else []
        siblings = {part.rpartition(".")[0] for part in parts}
        if name in parts and len(set(parts)) == len(node.output) and len(siblings) == 1:
            others.update(
                made for part, made in zip(parts, node.output, strict=True) if part != name
            )
    return [each for each in outputs if each not in others]


def apart(data: bytes, name: str, outputs: list[str]) -> tuple[bytes, list[str], Part | None]:
    """Split the result of a shared product, if a module's output is one part of it.

    The node of the product states the widths; its last module names belong to the parts.
    """
    if _WIDTHS.encode() not in data:
        return data, outputs, None
    try:
        import onnx
    except ImportError:
        return data, outputs, None
    model = onnx.ModelProto.FromString(data)
    graph = model.graph
    for node in graph.node:
        found = [each.value for each in node.metadata_props if each.key == _WIDTHS]
        widths = [int(each) for each in found[0].split(",")] if found else []
        parts, whole = scopes_of(node)[-len(widths) :] if widths else [], node.output[0]
        if name not in parts or len(set(parts)) != len(widths) or outputs != [whole]:
            continue
        place = parts.index(name)
        made = [f"{whole} {part}" for part in parts]
        given = onnx.helper.make_tensor(f"{whole} widths", _INT64, [len(widths)], widths)
        graph.initializer.append(given)
        graph.node.append(onnx.helper.make_node("Split", [whole, given.name], made, axis=-1))
        kind = next(each.type.tensor_type.elem_type for each in graph.output if each.name == whole)
        del graph.output[:]
        graph.output.append(onnx.helper.make_tensor_value_info(made[place], kind, None))
        start = sum(widths[:place])
        return model.SerializeToString(), [made[place]], Part(whole, start, start + widths[place])
    return data, outputs, None
