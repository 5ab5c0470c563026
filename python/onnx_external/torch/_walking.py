"""Iterates over all nodes of an ONNX graph, and over the graphs inside a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir


def all_nodes(model: onnx_ir.Model) -> Iterator[onnx_ir.Node]:
    """Yield the nodes of a model and its functions, including nodes in branches and loops."""
    import onnx_ir

    for graph in (model.graph, *model.functions.values()):
        yield from onnx_ir.traversal.RecursiveGraphIterator(graph)


def graphs_of(node: onnx_ir.Node) -> Iterator[onnx_ir.Graph]:
    """Yield the graphs inside a node: branches, or bodies of loops."""
    import onnx_ir

    for attribute in node.attributes.values():
        if attribute.type == onnx_ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == onnx_ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def all_values(model: onnx_ir.Model) -> Iterator[onnx_ir.Value]:
    """Yield inputs, outputs and the values of nodes, including those in branches and loops."""
    yield from model.graph.inputs
    yield from model.graph.outputs
    for node in all_nodes(model):
        yield from node.outputs
        for graph in graphs_of(node):
            yield from (*graph.inputs, *graph.initializers.values())
