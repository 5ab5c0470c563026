"""Builds a deep model's graph from a shallow model's, and proves it equal to a traced one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .._attention.fusing import Fusing
from .._base.errors import ExportError
from .._repeating.kinds import Stack, find_stacks
from .._repeating.naming import Names, deep_name
from .._repeating.proof import proved
from .._repeating.recording import Record, Unprovable, recorded
from .._repeating.repetition import Repetition, not_repeated
from .._repeating.shallow import shallow
from ..torch._guards import Input, Sizes
from ..torch._untouched import has_data, tensors_of
from ._decoders import Graphs
from ._exporter import exporter, silently
from ._inputs import Inputs
from ._saving import Graph
from ._tracing import Part, Tracing, graph_modules, made_of, refuse_one_step


@dataclass
class Repeating:
    """Makes the graphs of a model from graphs of the same model with fewer layers.

    Args:
        tracing: traces one graph.
        inputs: examples, or the names of inputs for which examples are made.
    """

    tracing: Tracing
    inputs: Inputs
    done: set[str] = field(default_factory=set)
    """The graphs that were made by repeating layers."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    """For other graphs, remarks on why their layers were not repeated."""
    _refused: set[str] = field(default_factory=set)
    _stacks: list[Stack] | None = None
    _parts: dict[Graphs, dict[str, Part]] = field(default_factory=dict)
    """The parts of the shallow model, by the number of graphs into which a decoder is split."""

    def graph(self, name: str, part: Part) -> Graph | None:
        """Make a graph; return None and add a note if its layers cannot be repeated."""
        if self._stacks is None:
            self._stacks = find_stacks(self.tracing.loaded.model, has_data)
        stacks = within(self._stacks, self.tracing.loaded.model, part.module)
        if not stacks or name in self._refused:
            return None
        try:
            made = self._graph(name, part, stacks)
        except ExportError as reason:
            self.notes.append((name, not_repeated(reason)))
            return None
        self.done.add(name)
        return made

    def refuse(self, name: str) -> None:
        """From now on, trace this graph in full, because repeating its layers made it wrong."""
        self.done.discard(name)
        self._refused.add(name)
        self.notes.append((name, "traced in full, because the repeated graph was wrong"))

    def _graph(self, name: str, part: Part, stacks: Sequence[Stack]) -> Graph:
        tracing = self.tracing
        recipes = made_of(tracing.loaded, part.module)
        with tracing.meter.step(f"record {name}"):
            deep = _recorded(name, part, stacks, tracing.fusing)
        with shallow(tracing.loaded.model, self._stacks or ()):
            few = self._shallow_part(name)
            keep = [
                each for each, _ in tensors_of(few.module) if deep_name(each, stacks) not in recipes
            ]
            with tracing.meter.step(f"record {name}"):
                small = _recorded(name, few, stacks, tracing.fusing)
                proof = proved(stacks, deep.record, small.record)
                proof.match_unused(stacks, deep.inputs, small.inputs)
            with tracing.meter.step(f"trace {name}"):
                made_by = tracing.converted(name, few, tracing.loaded.model)
            names = Names(stacks, proof, deep.inputs, deep.outputs, small.inputs, small.outputs)
            repetition = Repetition(stacks, proof, small.record)
            starts = repetition.starts(made_by.graph)

            def repeat(model: Any) -> Any:
                repetition.repeat(model, made_by.program, starts, names)
                return model

            made = tracing.skeleton(name, few, made_by.graph, keep, repeat)
        tracing.name_graph(made.model, name, part)
        if tracing.dynamic:
            refuse_one_step(f"{type(part.module).__name__} ({name})", made)
        missing = sorted(made.slots.keys() - recipes.keys())
        if missing:
            raise Unprovable(f"the graph has a weight that the model lacks: {missing[0]}")
        found = Graph(
            made, {slot: recipes[slot] for slot in made.slots}, _deep_sizes(made_by.sizes, names)
        )
        return tracing.finished(found)

    def _shallow_part(self, name: str) -> Part:
        """Return a part of the temporarily shallow model, with its own inputs."""
        kind: Graphs = "one" if name == "model" else "two"
        if kind not in self._parts:
            model, dynamic = self.tracing.loaded.model, self.tracing.dynamic
            self._parts[kind] = graph_modules(model, self.inputs, dynamic, kind)
        if name not in self._parts[kind]:
            raise Unprovable(f"with fewer layers, the graphs are {', '.join(self._parts[kind])}")
        return self._parts[kind][name]

    def rename(self, old: str, new: str) -> None:
        """Change the name under which a graph that was already made is stored."""
        for names in (self.done, self._refused):
            if old in names:
                names.remove(old)
                names.add(new)
        self.notes = [(new if name == old else name, text) for name, text in self.notes]


@dataclass
class _Run:
    """The recorded operators of a part, and the names of its inputs and outputs."""

    record: Record
    inputs: list[str]
    outputs: list[str]


def within(stacks: Sequence[Stack], model: Any, module: Any) -> list[Stack]:
    """Return the layer lists that are in a part of a model, by their names in the part."""
    names = {id(each): name for name, each in module.named_modules()}
    found = [(stack, id(model.get_submodule(stack.name))) for stack in stacks]
    return [replace(stack, name=names[each]) for stack, each in found if each in names]


def _recorded(name: str, part: Part, stacks: Sequence[Stack], fusing: Fusing) -> _Run:
    """Run a part in the way transformers.exporters traces it, with the sizes of the example."""
    from transformers.exporters import OnnxConfig

    exporting = exporter(lambda trace: trace())
    config = OnnxConfig(dynamic=False, optimize=False)

    def export() -> None:
        with torch.no_grad(), silently("it does not run", ""), fusing.tracing(name):
            exporting.export(part.module, copy.copy(part.given), config)

    record = recorded(part.module, stacks, export)
    inputs, outputs = (list(map(str, names)) for names in exporting.names[:2])
    if (len(inputs), len(outputs)) != (len(record.inputs), len(record.outputs)):
        raise Unprovable("it has an input or output without a name")
    from transformers.exporters.utils import disambiguate_io_names

    inputs, outputs = disambiguate_io_names(inputs, outputs)
    return _Run(record, inputs, outputs)


def _deep_sizes(sizes: Sizes, names: Names) -> Sizes:
    """Return the assumptions about the sizes of the deep model's inputs."""
    if [each.dims is not None for each in sizes.inputs] != names.proof.shallow_given:
        raise Unprovable("its tensor inputs are at other positions than in the shallow model")
    tensors = [each for each in sizes.inputs if each.dims is not None]
    others = iter([each for each in sizes.inputs if each.dims is None])
    places = iter(range(len(names.inputs)))
    inputs = [
        _deep_size(next(places), tensors, names) if is_tensor else next(others)
        for is_tensor in names.proof.given
    ]
    return Sizes(inputs, sizes.guards, sizes.ranges)


def _deep_size(place: int, tensors: Sequence[Input], names: Names) -> Input:
    new = names.inputs[place]
    slot = names.proof.inputs.get(place)
    if slot is None:
        raise Unprovable(f"nothing is known about the input {new}")
    given = tensors[slot.number]
    told = names.numbered(given.name, names.shallow_inputs[slot.number], new)
    return replace(given, name=told)
