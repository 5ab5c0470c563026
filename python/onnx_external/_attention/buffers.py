"""Changes graphs so that the input cache and the output cache can share one buffer.

A runtime with a shared buffer passes a buffer of the maximum length as the input cache, and also
receives the output cache in that buffer. GroupQueryAttention then appends to the buffer in place,
at the positions given by its length inputs. Therefore no node of the graph may use the length of
the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir

from .translating import DOMAIN, NAME

_PAST = "past_key_values."
_MASK, _TOKENS = "attention_mask", "input_ids"
_LENGTH = 2
"""The index of the dimension of a cache that grows with each token."""


def let_buffers_be_shared(model: onnx_ir.Model) -> None:
    """Make a graph compute the number of cached tokens from its mask, not from the cache."""
    graph = model.graph
    given = {value.name: value for value in graph.inputs}
    if not {_MASK, _TOKENS} <= given.keys() or any(_others(graph)):
        return
    lengths = [node for value in _caches(graph) for node in _lengths(value)]
    if not lengths:
        return
    sizes = [
        onnx_ir.node("Shape", [given[name]], attributes={"start": 1, "end": 2})
        for name in (_MASK, _TOKENS)
    ]
    past = onnx_ir.node("Sub", [each.outputs[0] for each in sizes])
    for each in (*sizes, past):
        each.outputs[0].dtype, each.outputs[0].shape = onnx_ir.DataType.INT64, onnx_ir.Shape([1])
    names = ("all_tokens", "new_tokens", "cached_tokens")
    taken = {value.name for node in graph.all_nodes() for value in node.outputs} | given.keys()
    taken |= set(graph.initializers)
    for node, name in zip((*sizes, past), names, strict=True):
        while name in taken:
            name += "_"
        node.name = node.outputs[0].name = name
        _describe(node, lengths[0])
    graph.insert_before(graph[0], [*sizes, past])
    for node in lengths:
        node.outputs[0].replace_all_uses_with(past.outputs[0])
        assert node.graph is not None
        node.graph.remove(node, safe=True)


def may_share_buffers(model: onnx_ir.Model) -> bool:
    """Return whether the input cache and the output cache of a graph can share one buffer."""
    graph = model.graph
    caches = list(_caches(graph))
    return bool(caches) and not any(_others(graph)) and not any(map(list, map(_lengths, caches)))


def _caches(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Value]:
    yield from (value for value in graph.inputs if (value.name or "").startswith(_PAST))


def _lengths(cache: onnx_ir.Value) -> Iterator[onnx_ir.Node]:
    """Yield the nodes that compute only the length of a cache, and none of its other dimensions."""
    yield from (node for node, _ in cache.uses() if _asked(node) == (_LENGTH, _LENGTH + 1))


def _others(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Node]:
    """Yield the nodes that read a cache's elements, or compute dimensions besides its length."""
    for cache in _caches(graph):
        if cache.is_graph_output():
            yield from (node for node, _ in cache.uses())
        for node, _ in cache.uses():
            start, end = _asked(node)
            is_attention = node.op_type == NAME and node.domain == DOMAIN
            if not is_attention and (start, end) != (_LENGTH, _LENGTH + 1) and end > _LENGTH:
                yield node


def _asked(node: onnx_ir.Node) -> tuple[int, int]:
    """Return the range of dimensions that a Shape node returns; all of them for other nodes."""
    if node.op_type != "Shape" or node.domain:
        return 0, 4
    found = [node.attributes.get_int(name, usual) for name, usual in (("start", 0), ("end", 4))]
    start, end = (each + 4 if each < 0 else each for each in found)
    return start, end


def _describe(node: onnx_ir.Node, like: Any) -> None:
    """Copy the metadata of a node, which names the module that it comes from, to another node."""
    node.metadata_props.update(like.metadata_props)
