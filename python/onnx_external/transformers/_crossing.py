"""Makes an encoder graph that also computes keys and values for the decoder's cache.

ONNX Runtime GenAI runs a Whisper with two graphs: this encoder, and the decoder graph for the
steps, which also reads the prompt if its cache is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._base.errors import ExportError
from .._comparing.chaining import ENCODED, RESULT
from ..torch._skeleton import described
from ..torch._walking import graphs_of
from ._merging import rename_computed
from ._naming import order
from ._saving import Graph

if TYPE_CHECKING:
    import onnx_ir
    import torch

_PREFIX = "cross/"


def crossed(encoder: Graph, prompt: Graph) -> Graph:
    """Return an encoder graph extended by the part of a decoder that only depends on the encoder.

    Args:
        encoder: the graph of the encoder, which is not changed.
        prompt: the decoder's graph for a prompt. Its outputs `present.N.encoder.key` and `.value`
            move to the encoder.

    Raises:
        ExportError: these outputs depend on the prompt.
    """
    import onnx_ir as ir

    model, decoder = encoder.skeleton.model.clone(), prompt.skeleton.model.clone()
    outputs = {v.name or "": v for v in decoder.graph.outputs if ".encoder." in (v.name or "")}
    rename_computed(decoder, _PREFIX)
    result = next(v for v in model.graph.outputs if v.name == RESULT)
    nodes = _nodes_behind(outputs.values(), list(decoder.graph))
    for value in list(decoder.graph.inputs):
        users = [(node, place) for node, place in value.uses() if node in nodes]
        if value.name != ENCODED and not all(_is_of_rows(node) for node, _ in users):
            raise ExportError(
                "the keys and values that the decoder caches from the encoder's output depend on "
                f"{value.name}, so the encoder cannot return them, as genai expects"
            )
        for node, place in users:
            node.replace_input_with(place, result)
    used = {id(value) for node in nodes for value in node.inputs}
    decoder.graph.outputs.clear()
    decoder.graph.remove(nodes)
    made: dict[str, Any] = dict(encoder.made)
    origins = dict(encoder.skeleton.constants)
    for name, value in list(decoder.graph.initializers.items()):
        if id(value) not in used:
            continue
        del decoder.graph.initializers[name]
        is_weight = name in prompt.made and name not in model.graph.initializers
        new = name if is_weight else f"{_PREFIX}{name}"
        value.name = new
        model.graph.initializers[new] = value
        if name in prompt.made:
            made[new] = prompt.made[name]
        if name in prompt.skeleton.constants:
            origins[new] = prompt.skeleton.constants[name]
    model.graph.extend(nodes)
    for name, value in outputs.items():
        value.name = name
    model.graph.outputs.extend(outputs.values())
    model.graph.outputs[:] = sorted(model.graph.outputs, key=lambda each: order(each.name or ""))
    for domain, version in decoder.graph.opset_imports.items():
        version = max(version, model.graph.opset_imports.get(domain, version))
        model.graph.opset_imports[domain] = version
    functions = {**decoder.functions, **model.functions}
    whole = ir.Model(
        model.graph,
        ir_version=max(model.ir_version, decoder.ir_version),
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        functions=list(functions.values()),
        metadata_props=dict(model.metadata_props),
    )
    return Graph(described(whole, origins), made, encoder.sizes)


def _nodes_behind(values: Iterable[onnx_ir.Value], nodes: list[onnx_ir.Node]) -> list[onnx_ir.Node]:
    """Return the nodes on which values depend, in the order of the graph."""
    wanted, open_values = set(), list(values)
    while open_values:
        node = open_values.pop().producer()
        if node is not None and node not in wanted:
            wanted.add(node)
            open_values += [value for value in node.inputs if value is not None]
            inner = [each for graph in graphs_of(node) for each in graph]
            open_values += [value for each in inner for value in each.inputs if value is not None]
    return [node for node in nodes if node in wanted]


def _is_of_rows(node: onnx_ir.Node) -> bool:
    """Return whether a node only reads the batch size, which the encoder also has."""
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    if node.op_type != "Shape" or end is None:
        return False
    return (0 if start is None else start.as_int(), end.as_int()) == (0, 1)


def reference_of(model: Any) -> torch.nn.Module:
    """Return transformers' encoder with additional outputs: the decoder's keys and values."""
    import torch
    import transformers

    class CrossedEncoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **given: Any) -> Any:
            found = self.model.get_encoder()(**given)
            start = torch.zeros((len(found[RESULT]), 1), dtype=torch.int64)
            later = self.model(encoder_outputs=found, decoder_input_ids=start, use_cache=True)
            caches = later.past_key_values.cross_attention_cache
            empty = transformers.DynamicCache()
            return {**found, "past_key_values": transformers.EncoderDecoderCache(empty, caches)}

    return CrossedEncoder().eval()
