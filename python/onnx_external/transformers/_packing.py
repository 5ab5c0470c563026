"""Merges the matrix products for queries, keys and values in a decoder's graph."""

from __future__ import annotations

from ..torch._skeleton import described
from ._recording import Join, Made
from ._saving import Graph


def packed(graph: Graph) -> Graph:
    """Return a graph in which one weight replaces the weights of several products.

    Args:
        graph: the only graph of its model, because another graph would need the separate weights,
            and they would be stored twice. The graph is not changed.
    """
    from .._fusing.packing import pack_products  # which needs onnx_ir

    model = graph.skeleton.model.clone()
    packs = pack_products(model)
    if not packs:
        return graph
    made: dict[str, Made] = dict(graph.made)
    for pack in packs:
        made[pack.name] = Join("concat", 0, tuple(made.pop(part) for part in pack.parts))
    skeleton = described(model, graph.skeleton.constants)
    skeleton.guards = graph.skeleton.guards
    return graph._replace(skeleton=skeleton, made=made)
