"""Finds nodes that are in no module's piece: without a module name, or inside a branch or loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._base.errors import Error
from .._saving.cut import cut_bytes

_MARKS = ("pkg.torch.onnx.name_scopes", "namespace")
"""Metadata of a node that names its module; torch's older exporter uses the node's name instead."""
_ROOT = "_export_root."
"""The prefix of module names in torch's graphs of branches and loops."""
_SHOWN = 5


@dataclass
class Unmarked:
    """The nodes of a model that no module's piece contains."""

    kinds: list[str] = field(default_factory=list)
    """The operator types of these nodes, one for each node."""
    reads: set[str] = field(default_factory=set)
    """The values that these nodes read. A module's last results may depend on them."""
    gives: set[str] = field(default_factory=set)
    """The values that these nodes compute, which may be in the middle of a module."""
    inside: set[str] = field(default_factory=set)
    """The modules with nodes inside a branch or loop, where no piece can begin or end."""

    @property
    def note(self) -> str:
        """The report's note about nodes without a module name; empty if there are none."""
        if not self.kinds:
            return ""
        kinds = list(dict.fromkeys(self.kinds))
        shown = ", ".join([*kinds[:_SHOWN], *(["..."] if len(kinds) > _SHOWN else [])])
        return (
            f"{len(self.kinds)} nodes have no module name ({shown}), like nodes added by a "
            "quantizer or an optimizer. Modules whose results these nodes compute cannot be "
            "judged alone; the modules around them are judged."
        )


def find_unmarked(model: str, outputs: Sequence[str]) -> Unmarked:
    """Return the nodes of a model that depend on its inputs and have no module name.

    Args:
        model: the path of the model.
        outputs: the names of all its outputs.
    """
    try:
        import onnx

        data, _ = cut_bytes(model, outputs=outputs)  # which has no weights
        graph = onnx.ModelProto.FromString(data).graph
    except (ImportError, Error):  # the pieces report faults of the model
        return Unmarked()
    found = Unmarked()
    varying = {each.name for each in graph.input}
    for node in graph.node:
        taken = varying.intersection(node.input)
        found.inside.update(_modules_inside(node))
        if taken or _has_graph(node):
            varying.update(node.output)
            if not _is_marked(node):
                found.kinds.append(node.op_type)
                found.reads |= taken
                found.gives.update(node.output)
    return found


def _is_marked(node: Any) -> bool:
    return node.name.startswith("/") or any(each.key in _MARKS for each in node.metadata_props)


def _has_graph(node: Any) -> bool:
    """Return whether a node is an If or a loop; nodes inside it may read any outer value."""
    return any(each.HasField("g") for each in node.attribute)


def _modules_inside(node: Any) -> Iterator[str]:
    """Yield the modules of the nodes in the graphs of an If or a loop."""
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            for inner in graph.node:
                for scope in scopes_of(inner):
                    yield scope.removeprefix(_ROOT)
                yield from _modules_inside(inner)


def scopes_of(node: Any) -> list[str]:
    """Return the names of the modules that contain a node, without the scope of the node itself."""
    marks = [each.value for each in node.metadata_props if each.key == _MARKS[0]]
    try:
        return [str(each) for mark in marks for each in ast.literal_eval(mark)[:-1]]
    except (ValueError, SyntaxError):  # another tool wrote it
        return []
