"""Fuses an addition and the norm after it into one ONNX Runtime operator that returns both."""

from __future__ import annotations

import onnx_ir

from .matching import FLOAT, HALVES, attribute, belong_to, made_by, make, replace, sizes

_DOMAIN = "com.microsoft"
_KINDS = {
    "RMSNormalization": "SkipSimplifiedLayerNormalization",
    "LayerNormalization": "SkipLayerNormalization",
}


def fuse_skip_norms(graph: onnx_ir.Graph) -> int:
    """Merge additions whose sum is also used into the norms after them; return their number.

    A merged node belongs to two modules: the end of one layer, and the start of the next layer. The
    last norm is not merged, because the sum is the result of the last layer, which can be cut out.

    Args:
        graph: the graph, which is changed.
    """
    count = 0
    for node in list(graph):
        added = None if node.domain or node.op_type not in _KINDS else _added(node)
        if added is None:
            continue
        for value in node.inputs[1:]:
            _move_before(added, value)
        total, result = added.outputs[0], node.outputs[0]
        results = [result, None, None, total]
        made = make(
            _KINDS[node.op_type],
            [*added.inputs, *node.inputs[1:]],
            node,
            results,
            {"epsilon": float(attribute(node, "epsilon", 1e-5))},
            domain=_DOMAIN,
        )
        belong_to(made, [added])
        replace(graph, added, made, [(result, made.outputs[0]), (total, made.outputs[3])])
        count += 1
    return count


def _added(node: onnx_ir.Node) -> onnx_ir.Node | None:
    """Return the addition that a norm is applied to, if both can be merged; otherwise None."""
    added = made_by(node.inputs[0], "Add")
    if added is None or added.graph is not node.graph or len(node.inputs) > 3:
        return None
    total = added.outputs[0]
    first, second, form = (sizes(each) for each in (*added.inputs, total))
    is_plain = form is not None and len(form) == 3 and None not in form
    is_last = attribute(node, "axis", -1) in (-1, 2) and attribute(node, "stash_type", 1) == 1
    types = {value.dtype for value in (*added.inputs, *node.inputs[1:]) if value is not None}
    users = [user for user, _ in total.uses()]
    norms = [user for user in users if user.op_type in _KINDS and not user.domain]
    fits = (
        is_plain
        and first == second == form
        and is_last
        and len(types) == 1
        and types <= {FLOAT, *HALVES}
        and all(map(_is_fixed, node.inputs[1:]))
        and len(norms) == 1
        and (len(users) > 1 or total.is_graph_output())
    )
    return added if fits else None


def _is_fixed(value: onnx_ir.Value | None) -> bool:
    """Return whether a scale or bias is a weight, or computed from weights by one node."""
    if value is None or value.is_initializer():
        return value is not None
    maker = value.producer()
    return maker is not None and all(
        each is not None and each.is_initializer() for each in maker.inputs
    )


def _move_before(place: onnx_ir.Node, value: onnx_ir.Value | None) -> None:
    """Move the node that computes a scale or bias from weights before another node."""
    maker = None if value is None else value.producer()
    graph = place.graph
    if maker is not None and graph is not None:
        graph.remove(maker)
        graph.insert_before(place, maker)
