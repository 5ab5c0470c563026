"""Finds state that forward() changes: buffers that it updates, and inputs that it writes in place.

A graph computes each call from the values of its initializers and inputs, and does not change them.
The torch.export program of a module shows which buffers and inputs the module changes.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from .._base.notes import Note


@dataclass(frozen=True)
class Changed:
    """A buffer or an input that forward() changes."""

    name: str
    """The name of the buffer, or the path of the input."""
    is_buffer: bool
    place: int
    """The position of the tensor among the caller's inputs; 0 for a buffer."""
    node: str
    """The name of the tensor's node in the program."""

    @property
    def note(self) -> Note:
        """The note for the report on the changed buffer or input."""
        what, start = "input", "what is given"
        if self.is_buffer:
            what, start = "buffer", "its value in the model"
        return Note(
            f"forward changes the {what} {self.name!r}, but the graph does not: each run starts "
            f'from {start}; state="outputs" makes the new value an output',
            "changed-state",
        )


def changed_by(
    program: torch.export.ExportedProgram, taken: inspect.Signature | None
) -> list[Changed]:
    """Return the buffers and inputs that a program changes, in the order of the program's inputs.

    Args:
        program: a torch.export program.
        taken: the signature of the module's forward, which has the names of inputs, if known.
    """
    signature = program.graph_signature
    written = {node.name for node in _written(program.graph)}
    written.update(signature.user_inputs_to_mutate.values())  # of one that was decomposed
    buffers = {*signature.buffers_to_mutate.values()}
    found, place = [], 0
    names = _input_names(program, taken) if written else []
    for spec in signature.input_specs:
        node = getattr(spec.arg, "name", "")
        if spec.kind is InputKind.BUFFER and (node in written or spec.target in buffers):
            found.append(Changed(str(spec.target), True, 0, node))
        elif spec.kind is InputKind.USER_INPUT:
            if node in written:
                found.append(Changed(names[place] or node, False, place, node))
            place += 1
    return found


def _input_names(
    program: torch.export.ExportedProgram, taken: inspect.Signature | None
) -> list[str]:
    """Return the paths of a program's inputs, such as "cache.0"; "" for unknown paths."""
    spec = program.call_spec.in_spec
    args, kwargs = pytree.tree_unflatten(range(spec.num_leaves), spec)
    parameters = taken.parameters if taken is not None else {}
    known = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    known = [*known, *[""] * len(args)][: len(args)]
    paths, _ = pytree.tree_flatten_with_path([*args, *kwargs.values()])
    names = []
    for path, _ in paths:
        parts = [getattr(key, "key", getattr(key, "name", getattr(key, "idx", ""))) for key in path]
        first = [*known, *kwargs][int(parts[0])]
        names.append(".".join(map(str, [first, *parts[1:]])) if first else "")
    return names


def _written(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yield the inputs of a graph to which an operator writes, directly or through views."""
    base: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            base[node] = node
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None:
            source = node.args[0] if node.target is operator.getitem and node.args else None
            if isinstance(source, torch.fx.Node) and source in base:
                base[node] = base[source]  # of a list of views
            continue
        for place, argument in enumerate(schema.arguments):
            if argument.alias_info is None:
                continue
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            for each in given if isinstance(given, (list, tuple)) else [given]:
                if isinstance(each, torch.fx.Node) and each in base:
                    if argument.alias_info.is_write:
                        yield base[each]
                    base[node] = base[each]


def with_outputs(program: torch.export.ExportedProgram, changed: Sequence[Changed]) -> None:
    """Add outputs for what a program changes, after the program's own outputs."""
    graph, signature = program.graph, program.graph_signature
    nodes = {node.name: node for node in graph.nodes}
    (results,) = (node for node in graph.nodes if node.op == "output")
    entry = program.module_call_graph[0].signature
    assert entry is not None
    added = []
    for each in changed:
        with graph.inserting_before(results):
            node = graph.call_function(torch.ops.aten.clone.default, (nodes[each.node],))
        node.meta["val"] = nodes[each.node].meta["val"].clone()
        added.append(node)
        argument = TensorArgument(name=node.name)
        signature.output_specs.append(OutputSpec(OutputKind.USER_OUTPUT, argument, None))
        entry.outputs.append(argument)
    results.args = ((*results.args[0], *added),)
    count = entry.out_spec.num_leaves
    whole = pytree.tree_unflatten(range(count), entry.out_spec), tuple(range(len(added)))
    entry.out_spec = pytree.tree_flatten(whole)[1]
    program.graph_module.recompile()


def titles(changed: Sequence[Changed], results: Sequence[str | None]) -> list[str]:
    """Return the names of the outputs for changed buffers and inputs.

    Args:
        changed: the buffers and inputs.
        results: the names of the module's own outputs.
    """
    return [f"{each.name}.new" if each.name in results else each.name for each in changed]
