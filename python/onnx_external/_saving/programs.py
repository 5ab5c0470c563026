"""Lists the nodes of torch.export programs, and detects programs in training mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SHOWN = 3
"""The maximum number of operators that a note names."""


def nodes_of(program: Any) -> Iterator[Any]:
    """Yield the nodes of an ExportedProgram, including those of its subgraphs."""
    for module in program.graph_module.modules():
        yield from getattr(getattr(module, "graph", None), "nodes", ())


def arguments_of(node: Any) -> dict[str, Any]:
    """Return the arguments of a node's operator by parameter name, including default values."""
    arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
    defaults = [each.default_value if each.has_default_value() else None for each in arguments]
    return {
        each.name: node.args[place]
        if place < len(node.args)
        else node.kwargs.get(each.name, defaults[place])
        for place, each in enumerate(arguments)
    }


def notes_on_training(models: Iterable[Any]) -> list[str]:
    """Return a note for each ONNXProgram whose operators compute in training mode.

    Args:
        models: in any form that oe.save() takes; only an ONNXProgram has its exported program.
    """
    found = []
    for model in models:
        names = training_operators(getattr(model, "exported_program", None))
        if names:
            shown = ", ".join(names[:_SHOWN])
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            found.append(
                f"the program computes as in training: {shown}{more}; unless this is intended, "
                "call module.eval() before torch.onnx.export"
            )
    return found


def training_operators(program: Any) -> list[str]:
    """Return the operators of an ExportedProgram that run in training mode, with the nodes' names.

    Normalizations without running statistics are not returned: they compute the same in eval
    mode. If the program is None, the list is empty.
    """
    if getattr(program, "graph_module", None) is None:
        return []

    return [
        f"{node.target} ({node.name})"
        for node in nodes_of(program)
        if _is_training(node, arguments_of(node))
    ]


def _is_training(node: Any, given: Mapping[str, Any]) -> bool:
    if given.get("train", given.get("training")) is not True:
        return False
    if "running_mean" in given:
        return given["running_mean"] is not None
    ratio = given.get("dropout", given.get("p"))  # for recurrent layers, and for a dropout
    if ratio is not None:
        return bool(ratio != 0)
    return "batch_norm" not in str(node.target)
