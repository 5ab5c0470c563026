"""Nodes that another tool put into a model, which are marked with no module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .._cut import cut_bytes
from .._errors import Error

__all__ = ["Unmarked", "find_unmarked"]

_MARKS = ("pkg.torch.onnx.name_scopes", "namespace")
"""Metadata of a node that names its module; torch's older exporter has it in the node's name."""
_SHOWN = 5


@dataclass
class Unmarked:
    """What is known of the nodes of one model that are marked with no module."""

    kinds: list[str] = field(default_factory=list)
    """The operators of these nodes, one for each node."""
    reads: set[str] = field(default_factory=set)
    """Values that they take. What a module computes last may come after one of them."""
    gives: set[str] = field(default_factory=set)
    """Values that they compute, which may lie in the middle of a module."""

    @property
    def note(self) -> str:
        """What a report says of them; empty if there are none."""
        if not self.kinds:
            return ""
        kinds = list(dict.fromkeys(self.kinds))
        shown = ", ".join([*kinds[:_SHOWN], *(["..."] if len(kinds) > _SHOWN else [])])
        return (
            f"{len(self.kinds)} nodes are marked with no module ({shown}), as those that a "
            "quantizer or an optimizer makes: a module whose results they compute cannot be "
            "judged alone; the modules around it are."
        )


def find_unmarked(model: str, outputs: Sequence[str]) -> Unmarked:
    """Return the nodes of a model that depend on its inputs and are marked with no module.

    Args:
        model: its path.
        outputs: the names of all its outputs.
    """
    try:
        import onnx

        data, _ = cut_bytes(model, outputs=outputs)  # which has no weights
        graph = onnx.ModelProto.FromString(data).graph
    except (ImportError, Error):  # the pieces tell what is wrong with the model
        return Unmarked()
    found = Unmarked()
    varying = {each.name for each in graph.input}
    for node in graph.node:
        taken = varying.intersection(node.input)
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
    """Whether it is an If or a loop, whose inner nodes may take values that are not its inputs."""
    return any(each.HasField("g") for each in node.attribute)
