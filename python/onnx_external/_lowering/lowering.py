"""Lowers a graph to an older opset by replacing, node by node, operators that the opset lacks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir

from . import forms, resizing  # noqa: F401  (they register rules)
from .bodies import expand_body
from .nodes import CannotLowerError, Maker, state_as_tensor
from .rules import RULES, Results
from .schemas import drop_defaults, first_opset, misfit, schema_of


@dataclass(frozen=True)
class Refusal:
    """An operator that an opset cannot express."""

    operator: str
    since: int
    """The oldest opset that can express the operator."""
    reason: str
    node: onnx_ir.Node
    """The first node with this operator and reason."""


def lower(model: onnx_ir.Model, version: int) -> list[Refusal]:
    """Change a graph to an older opset version.

    All nodes keep their metadata, and initializers are not changed. Operators of other domains
    than ONNX's are kept.

    Args:
        model: the model, which has no functions. If there are refusals, it is unusable.
        version: the opset version.

    Returns:
        What the version cannot express, each operator once for each reason; empty if the model is
        changed.
    """
    _infer_shapes(model)
    lowering = _Lowering(itertools.count())
    has = model.opset_imports[""]
    found: dict[tuple[str, str], Refusal] = {}
    nodes = list(onnx_ir.traversal.RecursiveGraphIterator(model.graph))
    for node in nodes:
        state_as_tensor(node)
    for node in nodes:
        for each, reason in lowering.node(node, has, version):
            key = (each.op_type, reason)
            if key not in found:
                since = lowering.oldest(each, has, version)
                found[key] = Refusal(each.op_type, since, reason, node)
    for node, its in lowering.constants:
        if _is_dead(node):
            continue
        for each, reason in lowering.constant(node, its, version):
            since = lowering.oldest(each, its, version)
            found[each.op_type, reason] = Refusal(each.op_type, since, reason, node)
    if not found:
        model.opset_imports[""] = version
        needed = onnx.helper.find_min_ir_version_for(
            [onnx.helper.make_opsetid("", version)], ignore_unknown=True
        )
        model.ir_version = max(4, needed)  # in version 3, all initializers were also inputs
    return list(found.values())


def _is_dead(constant: onnx_ir.Node) -> bool:
    """Remove a constant if nothing uses it any more; return whether it has been removed."""
    (value,) = constant.outputs
    if constant.graph is None or value.uses() or value.is_graph_output():
        return constant.graph is None
    constant.graph.remove(constant, safe=True)
    return True


def _infer_shapes(model: onnx_ir.Model) -> None:
    """Infer the types and shapes that rules need, if some are unknown."""
    nodes = onnx_ir.traversal.RecursiveGraphIterator(model.graph)
    if any(value.shape is None or value.type is None for node in nodes for value in node.outputs):
        onnx_ir.passes.common.ShapeInferencePass()(model)


@dataclass(frozen=True)
class _Lowering:
    numbers: Iterator[int]
    """The counter that makes the names of new values unique."""
    constants: list[tuple[onnx_ir.Node, int]] = field(default_factory=list)
    """Constants, with their opset versions: they are lowered last, because rules read them."""

    def oldest(self, node: onnx_ir.Node, has: int, version: int) -> int:
        """Return the oldest opset that can express a node, which may be replaced."""
        for newer in range(version + 1, has):
            if not list(self.constant(node, has, newer)):
                return newer
        return has

    def node(
        self, node: onnx_ir.Node, has: int, version: int
    ) -> Iterator[tuple[onnx_ir.Node, str]]:
        """Lower a node and the nodes that replace it, and yield those that cannot be lowered.

        Args:
            node: the node.
            has: the opset version of the node.
            version: the opset version to change it to.
        """
        if node.domain not in ("", "ai.onnx") or node.graph is None:
            return
        if node.op_type == "Constant":
            self.constants.append((node, has))
            return
        yield from self.constant(node, has, version)

    def constant(
        self, node: onnx_ir.Node, has: int, version: int
    ) -> Iterator[tuple[onnx_ir.Node, str]]:
        newer, older = schema_of(node.op_type, has), schema_of(node.op_type, version)
        if newer is not None and older is not None and older.since_version == newer.since_version:
            return
        make = Maker(node, self.numbers)
        try:
            results, its, reason = _replacement(node, newer, older, make, (has, version))
        except CannotLowerError as error:
            results, its, reason = None, has, str(error)
        if reason:
            yield node, reason
            return
        graph = node.graph
        graph.insert_before(node, make.made)
        if results is not None:
            _replace(node, results)
        for each in make.made:
            lowered = self.constant if node.op_type == "Constant" else self.node
            yield from lowered(each, its, version)


def _replacement(
    node: onnx_ir.Node, newer: Any, older: Any, make: Maker, versions: tuple[int, int]
) -> tuple[Results, int, str]:
    """Apply the rules to a node.

    Returns:
        The values that replace its outputs, or None; the opset of the new nodes; and the reason why
        the node cannot be lowered.
    """
    has, version = versions
    for below, function in RULES.get(node.op_type, ()):
        if version < below:
            results = function(node, make)
            if results is not None:
                return results, has, ""
    if older is not None:
        drop_defaults(node, newer or older, older)
        reason = misfit(node, older)
    else:
        reason = f"ONNX has it since opset {first_opset(node.op_type)}"
    if not reason:
        return None, has, ""
    results, its = (None, has) if newer is None else expand_body(node, newer, make)
    return results, its, "" if results is not None else reason


def _replace(node: onnx_ir.Node, results: Sequence[onnx_ir.Value]) -> None:
    """Let values replace the outputs of a node, and take over their names, types and shapes."""
    graph = node.graph
    assert graph is not None
    for old, new in zip(node.outputs, results, strict=False):
        if new in node.inputs:  # it keeps its own name
            kept = onnx_ir.Node("", "Identity", [new], num_outputs=1, name=node.name)
            graph.insert_before(node, kept)
            new = kept.outputs[0]
        name, old.name = old.name, None
        new.type = old.type or new.type
        new.shape = old.shape if old.shape is not None else new.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        new.name = name
    graph.remove(node, safe=True)
