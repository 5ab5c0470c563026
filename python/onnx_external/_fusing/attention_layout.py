"""Removes transpositions around attention, whose operators take a token's heads side by side.

In a model's code, heads are split into their own dimension, rotated, and moved in front of the
tokens. GroupQueryAttention needs none of this, because it takes heads side by side, and
RotaryEmbedding can rotate heads that are side by side.
"""

from __future__ import annotations

import onnx_ir

from .matching import (
    attribute,
    is_swap,
    last_size,
    made_by,
    make,
    remove_dead,
    sizes,
)

_DOMAIN, _NAME = "com.microsoft", "GroupQueryAttention"


def attentions(graph: onnx_ir.Graph) -> list[onnx_ir.Node]:
    """Return ONNX Runtime's attention nodes (GroupQueryAttention), which have a cache."""
    return [node for node in graph if (node.domain, node.op_type) == (_DOMAIN, _NAME)]


def lay_flat(graph: onnx_ir.Graph) -> int:
    """Remove transpositions and reshapes around attention; return the number of changed inputs.

    Args:
        graph: the graph, which is changed.
    """
    count = 0
    for node in attentions(graph):
        for place, heads in enumerate(("num_heads", "kv_num_heads", "kv_num_heads")):
            user, at = _behind_a_sum(node, place)
            before = user.inputs[at]
            flat = _flat(graph, before, int(attribute(node, heads, 0)))
            if flat is not None:
                assert before is not None
                maker = before.producer()
                user.replace_input_with(at, flat)
                remove_dead([] if maker is None else [maker])
                count += 1
        _shorten_result(node)
    return count


def _behind_a_sum(node: onnx_ir.Node, place: int) -> tuple[onnx_ir.Node, int]:
    """Return the node that reads an attention input, and its index, skipping an added scalar."""
    added = made_by(node.inputs[place], "Add")
    is_number = added is not None and sizes(added.inputs[1]) == []
    return (added, 0) if added is not None and is_number else (node, place)


def _flat(graph: onnx_ir.Graph, value: onnx_ir.Value | None, heads: int) -> onnx_ir.Value | None:
    """Return the 3-d value for an attention input, computed without transpositions."""
    joined = made_by(value, "Reshape")
    if joined is None or value is None or len(sizes(value) or ()) != 3:
        return None
    swapped = made_by(joined.inputs[0], "Transpose")
    if swapped is None:
        return _source(joined.inputs[0], last_size(value))
    if not is_swap(swapped):
        return None
    by_head = swapped.inputs[0]
    turn = made_by(by_head, "RotaryEmbedding")
    swapped_back = turn.inputs[0] if turn else by_head
    norm = _norm(swapped_back)
    again = made_by(norm.inputs[0] if norm else swapped_back, "Transpose")
    if again is None or not is_swap(again) or again.inputs[0] is None:
        return None
    by_token = again.inputs[0]
    form = sizes(by_token)
    if form is None or len(form) != 4 or form[2] != heads or not isinstance(form[3], int):
        return None
    if norm is not None:
        by_token = _normed(graph, norm, by_token)
    flat = _side_by_side(graph, by_token, joined, [*form[:2], heads * form[3]])
    if turn is None:
        return flat
    attributes = {"num_heads": heads}
    made = make("RotaryEmbedding", [flat, *turn.inputs[1:]], turn, [value], attributes, sizes(flat))
    for name, each in turn.attributes.items():
        made.attributes[name] = each
    made.name, made.outputs[0].name = turn.name, f"{turn.outputs[0].name}_flat"
    graph.insert_before(joined, made)
    return made.outputs[0]


def _norm(value: onnx_ir.Value | None) -> onnx_ir.Node | None:
    """Return the RMSNormalization node of each head that computes a value; None for other nodes."""
    node = made_by(value, "RMSNormalization")
    return node if node is not None and attribute(node, "axis", -1) in (-1, 3) else None


def _normed(graph: onnx_ir.Graph, norm: onnx_ir.Node, by_token: onnx_ir.Value) -> onnx_ir.Value:
    """Move the norm of heads in front of the transposition, and return the normalized value."""
    inputs = [by_token, *norm.inputs[1:]]
    made = make("RMSNormalization", inputs, norm, norm.outputs, None, sizes(by_token))
    made.attributes.update(norm.attributes)
    made.name, made.outputs[0].name = norm.name, f"{norm.outputs[0].name}_by_token"
    graph.insert_before(norm, made)
    return made.outputs[0]


def _side_by_side(
    graph: onnx_ir.Graph, value: onnx_ir.Value, joined: onnx_ir.Node, form: list[object]
) -> onnx_ir.Value:
    """Return a value whose head dimension is merged into the last dimension."""
    source = _source(value, form[-1])
    if source is not None:
        return source
    made = make("Reshape", [value, joined.inputs[1]], joined, [value], {}, form)
    made.name, made.outputs[0].name = joined.name, f"{value.name}_flat"
    graph.insert_before(joined, made)
    return made.outputs[0]


def _source(value: onnx_ir.Value | None, width: object) -> onnx_ir.Value | None:
    """Return the 3-d value that a Reshape splits into heads; None if its width differs."""
    form, apart = sizes(value), made_by(value, "Reshape")
    source = None if apart is None else apart.inputs[0]
    before = sizes(source)
    if form is None or before is None or len(form) != 4 or len(before) != 3:
        return None
    return source if before[:2] == form[:2] and before[-1] == width is not None else None


def _shorten_result(attention: onnx_ir.Node) -> None:
    """Remove pairs of reshapes that split the result of attention into heads and merge these."""
    result = attention.outputs[0]
    width = last_size(attention.inputs[0])
    for apart, _ in list(result.uses()):
        if apart.op_type != "Reshape" or len(sizes(apart.outputs[0]) or ()) != 4:
            continue
        form = sizes(apart.outputs[0])
        for joined, _ in list(apart.outputs[0].uses()):
            value = joined.outputs[0]
            is_whole = form is not None and None not in form[2:] and form[2] * form[3] == width
            is_same = joined.op_type == "Reshape" and not joined.domain and is_whole
            if is_same and len(sizes(value) or ()) == 3 and last_size(value) == width:
                result.shape = result.shape or value.shape
                value.replace_all_uses_with(result, replace_graph_outputs=False)
                remove_dead([joined])
