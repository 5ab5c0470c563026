"""Provides the functions with which rules match and replace nodes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir

_SCOPES = "pkg.torch.onnx.name_scopes"
WIDTHS = "pkg.onnx_external.widths"
"""The metadata key for the widths in a packed product, which computes the results of several
modules side by side."""
_LARGEST = 64
"""The maximum number of elements of a constant that a rule reads."""

FLOAT = onnx_ir.DataType.FLOAT
HALVES = (onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16)


def made_by(value: onnx_ir.Value | None, *kinds: str) -> onnx_ir.Node | None:
    """Return the node that computes a value, if it is an ONNX operator of one of these kinds."""
    node = None if value is None else value.producer()
    if node is None or node.domain not in ("", "ai.onnx") or node.op_type not in kinds:
        return None
    return node


def constant(value: onnx_ir.Value | None) -> np.ndarray[Any, Any] | None:
    """Return the elements of a small constant; None for any other value."""
    if value is None or value.is_graph_input():
        return None
    held = value.const_value
    if held is None:
        node = made_by(value, "Constant")
        held = node.attributes["value"].as_tensor() if node and "value" in node.attributes else None
    return None if held is None or held.size > _LARGEST else held.numpy()


def scalar(value: onnx_ir.Value | None) -> float | None:
    """Return the value of a constant with one element; None for any other value."""
    found = constant(value)
    return None if found is None or found.size != 1 else float(found.reshape(()))


def integers(value: onnx_ir.Value | None) -> list[int] | None:
    """Return the elements of a small integer constant; None for any other value."""
    found = constant(value)
    if found is None or not np.issubdtype(found.dtype, np.integer):
        return None
    return [int(each) for each in found.reshape(-1)]


def sizes(value: onnx_ir.Value | None) -> list[Any] | None:
    """Return the dimensions of a value: integers, names of dynamic sizes, or None if unknown."""
    if value is None or value.shape is None:
        return None
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape]


def last_size(value: onnx_ir.Value | None) -> int | None:
    """Return the last dimension of a value; None unless it is an integer."""
    found = sizes(value)
    return found[-1] if found and isinstance(found[-1], int) else None


def is_last_axis(axis: int, value: onnx_ir.Value) -> bool:
    """Return whether an axis is the last axis of a value."""
    found = sizes(value)
    return axis == -1 or (found is not None and axis == len(found) - 1)


def pairs(node: onnx_ir.Node) -> list[tuple[onnx_ir.Value | None, onnx_ir.Value | None]]:
    """Return the inputs of a commutative node in both orders."""
    one, other = node.inputs
    return [(one, other), (other, one)]


def attribute(node: onnx_ir.Node, name: str, default: Any) -> Any:
    """Return the value of an attribute, or the default if the node does not have it."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def is_swap(node: onnx_ir.Node | None) -> bool:
    """Return whether a node is a Transpose that swaps the two middle dimensions of four."""
    return node is not None and list(attribute(node, "perm", ())) == [0, 2, 1, 3]


# --- replacing


def make(
    kind: str,
    inputs: Sequence[onnx_ir.Value | None],
    like: onnx_ir.Node,
    results: Sequence[onnx_ir.Value | None],
    attributes: Mapping[str, Any] | None = None,
    shape: Sequence[Any] | None = None,
    domain: str = "",
) -> onnx_ir.Node:
    """Make a node that takes the place of another node.

    Args:
        kind: the type of the operator.
        inputs: the inputs of the node.
        like: the node whose metadata (its module and source line) is copied.
        results: the values whose types the outputs get; None for an output that is omitted.
        attributes: the attributes of the node.
        shape: the shape of the outputs; None: the shapes of `results`.
        domain: the domain of the operator.
    """
    outputs = [onnx_ir.Value(name="" if each is None else None) for each in results]
    for made, each in zip(outputs, results, strict=True):
        if each is not None:
            made.type = each.type
            made.shape = each.shape if shape is None else onnx_ir.Shape(list(shape))
    found = onnx_ir.convenience.convert_attributes(attributes or {})
    node = onnx_ir.Node(domain, kind, inputs, found, outputs=outputs)
    node.metadata_props.update(like.metadata_props)
    return node


def replace(
    graph: onnx_ir.Graph,
    place: onnx_ir.Node,
    node: onnx_ir.Node,
    outputs: Iterable[tuple[onnx_ir.Value, onnx_ir.Value]],
) -> None:
    """Replace several nodes with one, and remove the nodes that are no longer needed.

    Args:
        graph: the graph that contains the nodes.
        place: the node before which the new node is inserted; all users of the outputs come after
            it.
        node: the new node, which gets the name of the node that computed the first replaced value.
        outputs: pairs of a replaced value and the output that replaces it and takes over its name.
    """
    graph.insert_before(place, node)
    makers = []
    for old, new in outputs:
        maker = old.producer()
        assert maker is not None
        node.name = node.name or maker.name
        makers.append(maker)
        name, old.name = old.name, None
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        new.name = name
    remove_dead(makers)


def remove_dead(nodes: Sequence[onnx_ir.Node]) -> None:
    """Remove nodes whose outputs are unused, and then the nodes that only these nodes used."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        used = any(value.uses() or value.is_graph_output() for value in node.outputs)
        if used or node.graph is None:
            continue
        makers = [value.producer() for value in node.inputs if value is not None]
        node.graph.remove(node, safe=True)
        stack += [each for each in makers if each is not None]


def scopes_of(node: onnx_ir.Node) -> list[str]:
    """Return the modules that a node was traced in, outermost first, followed by its own name."""
    try:
        return [str(each) for each in ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))]
    except (SyntaxError, ValueError):
        return []


def belong_to(node: onnx_ir.Node, others: Iterable[onnx_ir.Node]) -> None:
    """Assign a node that replaces several nodes to the modules of all of them.

    The piece cut out for a module consists of the nodes that list this module, so each of these
    modules can be run alone.
    """
    found = [scopes_of(each) for each in (*others, node)]
    if all(found):
        modules = dict.fromkeys(name for each in found for name in each[:-1])
        node.metadata_props[_SCOPES] = repr([*modules, found[-1][-1]])
