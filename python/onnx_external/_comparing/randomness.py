"""Detects random operators, which make a model's outputs differ from run to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._saving.programs import arguments_of, nodes_of
from .precision import may_have, model_proto

_ALWAYS = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
    "Sampling",
)
_DROPOUTS = {"Dropout": 2, "BitmaskDropout": 2, "BiasDropout": 4, "BitmaskBiasDropout": 4}
"""The index of the input training_mode of each operator; the input before it is the ratio."""
_STANDARD = ("", "ai.onnx")


def drawing_nodes(model: Any) -> list[str]:
    """Return the nodes of a model that draw random numbers, such as "Dropout (node_3)".

    The search includes subgraphs and the functions that are called.

    Args:
        model: the model's path or bytes.
    """
    words = ("Random", "Multinomial", "Bernoulli", "Sampl", "Dropout")
    proto = model_proto(model) if may_have(model, words) else None
    return [] if proto is None else list(dict.fromkeys(_Search(proto).nodes()))


class _Search:
    """Searches the nodes of one model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._functions = {
            (_domain(each.domain), each.name, each.overload): each for each in model.functions
        }
        self._entered: set[tuple[str, str, str]] = set()

    def nodes(self) -> Iterator[str]:
        """Yield the nodes that draw random numbers."""
        yield from self._of_graph(self._model.graph, {}, self._model.opset_import, "")

    def _of_graph(
        self, graph: Any, outer: Mapping[str, Any], opsets: Any, where: str
    ) -> Iterator[str]:
        known = {**outer, **{each.name: _plain(each) for each in graph.initializer}}
        yield from self._of_nodes(graph.node, known, opsets, where)

    def _of_nodes(
        self, nodes: Any, known: dict[str, Any], opsets: Any, where: str
    ) -> Iterator[str]:
        for node in nodes:
            attributes = {each.name: each for each in node.attribute}
            if node.op_type == "Constant" and "value" in attributes:
                known[node.output[0]] = _plain(attributes["value"].t)
            key = (_domain(node.domain), node.op_type, getattr(node, "overload", ""))
            if key in self._functions:
                yield from self._of_function(key)
            elif self._draws(node, known, attributes, opsets):
                yield f"{node.op_type} ({where}{node.name or next(iter(node.output), '')})"
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    yield from self._of_graph(graph, known, opsets, where)

    def _of_function(self, key: tuple[str, str, str]) -> Iterator[str]:
        if key not in self._entered:
            self._entered.add(key)
            function = self._functions[key]
            yield from self._of_nodes(
                function.node, {}, function.opset_import, f"{function.name}: "
            )

    @staticmethod
    def _draws(
        node: Any, known: Mapping[str, Any], attributes: Mapping[str, Any], opsets: Any
    ) -> bool:
        if node.op_type in _ALWAYS:
            return _domain(node.domain) in ("", "com.microsoft")
        place = _DROPOUTS.get(node.op_type)
        if place is None or _domain(node.domain) not in ("", "com.microsoft"):
            return False
        version = next((each.version for each in opsets if _domain(each.domain) == ""), 0)
        if not _domain(node.domain) and version < 12:
            # Until version 6 it is on unless an attribute says otherwise; then it is always off.
            return 0 < version < 7 and not ("is_test" in attributes and attributes["is_test"].i)
        inputs = [*node.input, "", "", "", "", ""]
        on, ratio = inputs[place], inputs[place - 1]
        # A value that is computed, or an input, may be true.
        return bool(on) and known.get(on, True) is not False and known.get(ratio, 1.0) != 0


def _domain(name: str) -> str:
    return "" if name in _STANDARD else name


def _plain(tensor: Any) -> Any:
    """Return the value of a scalar constant; None if the tensor is not a scalar."""
    from onnx import numpy_helper

    if tensor.data_location or sum(tensor.dims) > 1:
        return None
    try:
        array = numpy_helper.to_array(tensor)
    except Exception:
        return None
    return array.reshape(-1)[0].item() if array.size == 1 else None


def drawing_of_program(program: Any) -> list[str]:
    """Return the operators of an ExportedProgram that draw random numbers."""
    import torch

    found: dict[str, None] = {}
    for node in nodes_of(program):
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags and not _is_off(node):
            found[f"{node.target} ({node.name})"] = None
    return list(found)


def _is_off(node: Any) -> bool:
    """Return whether a dropout node is inactive: exported in eval mode, or with rate 0."""
    given = arguments_of(node)
    if any(given.get(name) is False for name in ("train", "training")):
        return True
    rates = ("dropout", "dropout_p", *(["p"] if "dropout" in str(node.target) else []))
    return any(given.get(name) == 0 for name in rates)
