"""Names a graph's outputs after the structure of the module's result.

torch names an output after the operator that computes it (`getitem_18`), which may differ in
another trace of the same module. The keys of a dict and the attributes of an object do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.utils import _pytree as pytree

from ._walking import all_values

if TYPE_CHECKING:
    import onnx_ir
    import torch


def names_of_results(program: torch.export.ExportedProgram) -> list[str]:
    """Return a name for each result of a program, except for results that are None.

    The name is the path to the result, such as "boxes" or "layers.0.keys". If all paths consist of
    positions in tuples and lists, the list is empty.
    """
    spec = program.call_spec.out_spec
    results = results_of(program)
    if spec is None or spec.num_leaves != len(results):
        return []
    try:
        whole = pytree.tree_unflatten(range(len(results)), spec)
        paths = pytree.tree_flatten_with_path(whole)[0]
    except Exception:  # a class of the user's without keys, or that accepts no numbers
        return []
    parts = [_parts(path) for path, _ in paths]
    names = [".".join(map(str, each)) for each in parts]
    if not any(isinstance(part, str) for each in parts for part in each):
        return []
    if len({*names}) < len(names):  # {"a.b": ..., "a": {"b": ...}}
        return []
    return [name for name, each in zip(names, results, strict=True) if not _is_none(each.arg)]


def results_of(program: torch.export.ExportedProgram) -> list[Any]:
    """Return all results of a program, including None."""
    specs = program.graph_signature.output_specs
    return [each for each in specs if each.kind is OutputKind.USER_OUTPUT]


def all_names(program: torch.export.ExportedProgram, names: Sequence[str]) -> list[str | None]:
    """Return a name for each result of a program except None, or None for each without names."""
    return [*names] or [None for each in results_of(program) if not _is_none(each.arg)]


def _is_none(result: Any) -> bool:
    return isinstance(result, ConstantArgument) and result.value is None


def _parts(path: Sequence[Any]) -> list[str | int]:
    return [getattr(key, "key", getattr(key, "name", getattr(key, "idx", ""))) for key in path]


def name_outputs(model: onnx_ir.Model, names: Sequence[str | None]) -> None:
    """Give the outputs of a graph the names of the module's results.

    Args:
        model: the graph, whose outputs still have the names from torch.
        names: a name for each output, or an empty list; None keeps the output's name. If an input
            or a weight has the name, the output is called "output.NAME".
    """
    if len(names) != len(model.graph.outputs):  # none, or more layers than the trace had
        return
    _make_outputs_own(model.graph)
    kept = {*(value.name for value in model.graph.inputs), *model.graph.initializers}
    old = [value.name for value in model.graph.outputs]
    wanted = [
        was if name is None else f"output.{name}" if name in kept else name
        for name, was in zip(names, old, strict=True)
    ]
    others = {id(value) for value in model.graph.outputs}
    for value in all_values(model):
        if value.name in wanted and id(value) not in others:
            value.name = f"{value.name}.inner"
    for value, name in zip(model.graph.outputs, wanted, strict=True):
        value.name = name


def _make_outputs_own(graph: onnx_ir.Graph) -> None:
    """Make each output a value of its own, distinct from inputs, weights and other outputs."""
    import onnx_ir

    seen: set[int] = set()
    for place, value in enumerate(list(graph.outputs)):
        if value.producer() is None or id(value) in seen:
            node = onnx_ir.node("Identity", [value])
            copy = node.outputs[0]
            copy.shape, copy.type = value.shape, value.type
            graph.append(node)
            graph.outputs[place] = copy
        seen.add(id(value))
