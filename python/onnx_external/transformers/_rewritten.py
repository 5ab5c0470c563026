"""Makes the graphs of a folder, first plainly, and then with control flow rewritten."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from .._base.errors import ExportError, RewriteError
from .._base.keywords import only
from .._base.packages import missing_text
from .._base.temporary import temporary_folder
from .._comparing.checked_runs import on_cpu
from .._comparing.precision import graph_at
from .._control_flow import Rewriter, Rewriting
from .._tracing.surroundings import TransformersSurroundings, register_caches
from ..torch._checking import WrongGraphError
from ..torch._keywords import TraceKeywords
from ..torch._tracing import as_torch_onnx
from ..torch._untouched import ZeroProducts
from ..torch._ways import REWRITER_KEYWORDS, Ways
from ._checking import CheckedGraphs, UnloadablePartError, judge
from ._compared import example_graphs, input_sets
from ._decoders import Graphs
from ._exporter import silently
from ._inputs import Inputs
from ._reference import TransformersReference
from ._repeated import Repeating
from ._saving import Graph
from ._tracing import Part, Tracing, has_length, name_graph
from ._twins import Twin, twins


class PartWays(Ways[Graph]):
    """The ways of making one graph of a model.

    Args:
        all_ways: the ways for all graphs of the model.
        name: the name of the graph.
        part: the module and its inputs.
    """

    twin: Twin
    """The small model of which a part is run instead of the model's part."""
    parts: dict[str, Part]
    """The part of the small model, with the inputs of each input set."""
    surroundings: TransformersSurroundings

    def __init__(self, all_ways: FolderWays, name: str, part: Part) -> None:
        super().__init__(all_ways.how, f"{name}: ")
        self.name, self.part = name, part
        self._all, self._tracing = all_ways, all_ways.tracing

    def first(self) -> Graph:
        """Trace the part, without rewriting if that works."""
        tracing = self._tracing
        if self.may_rewrite and tracing.dynamic and has_length(tracing.loaded.model, self.part):
            tracing.lengths.add(self.name)
            return self.again(None)
        return super().first()

    def traced(self) -> Graph:
        """Trace the part, with few of its layers if this is possible."""
        repeating = self._all.repeating
        made = repeating.graph(self.name, self.part) if self._all.how["repeat"] else None
        return self._tracing.graph(self.name, self.part) if made is None else made

    def traced_rewritten(self, rewriter: Rewriter) -> Graph:
        """Trace the part with its functions rewritten as for the small model."""

        def run(trace: Any) -> Any:
            with as_torch_onnx():
                found, self.rewriting = rewriter.exported(trace, self.part.module)
            return found

        return self._tracing.graph(self.name, self.part, run)

    def other(self, error: ExportError) -> Callable[[], Graph] | None:
        """Return a function that traces without fused attention or repeated layers, or None."""
        if isinstance(error, WrongGraphError) and self._tracing.fusing.has_fused(self.name):
            return partial(self._not_fused, "the graph with fused attention was wrong")
        if self.name in self._all.repeating.done:
            self._all.repeating.refuse(self.name)
            return partial(self.tried, self.traced)
        if isinstance(error, UnloadablePartError):
            raise error
        return None

    def instead(
        self, refused: ExportError, plain: ExportError | None
    ) -> Callable[[], Graph] | None:
        """Return a function that traces without fused attention or for a fixed length, or None."""
        if self._tracing.fusing.has_fused(self.name):
            return partial(self._not_fused, "the graph cannot be made with fused attention")
        if self.name in self._tracing.lengths:
            return partial(self._of_one_length, refused)
        return None

    def _not_fused(self, why: str) -> Graph:
        self._tracing.fusing.refuse(self.name, why)
        self.start()
        return self.first()

    def _of_one_length(self, refused: ExportError) -> Graph:
        self._tracing.lengths.discard(self.name)
        self.start()
        self.note(f"the length of the text does not vary, because {refused.args[0]}")
        return super().first()

    def prefers(self, refused: ExportError, plain: ExportError) -> bool:
        """Return whether control flow is the reason why the plain graph could not be made."""
        return isinstance(refused, RewriteError) and not isinstance(plain, WrongGraphError)

    def start(self) -> None:
        """Forget all graphs and the notes on them."""
        super().start()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Add a note to the notes that the report will contain."""
        self.notes.append(text)

    def observed(self) -> Rewriter:
        """Run the part with few or no weights, and observe its conditions and loops."""
        told = f"{self.name}: rewriting has to run the model's code"
        reason: Exception | None = None
        with self._tracing.meter.step(f"observe {self.name}"), silently(told, ""):
            for twin in twins(self._tracing.loaded.model):
                try:
                    rewriter = self._observed_in(twin)
                except Exception as error:  # of the model's code, which such sizes may break
                    reason = reason or error
                else:
                    self.note(f"rewritten after a run of {twin.text}")
                    return rewriter
        raise ExportError(f"{told}, and that fails: {type(reason).__name__}: {reason}") from reason

    def _observed_in(self, twin: Twin) -> Rewriter:
        parts = self._parts(twin.model)
        self.twin, self.parts = twin, parts
        self.surroundings = TransformersSurroundings(parts["example"].module)
        register_caches(twin.model)
        calls = [self.surroundings.prepared(each.given) for each in parts.values()]
        with _running(twin, self.surroundings):
            return Rewriter(parts["example"].module, calls, **only(self.how, REWRITER_KEYWORDS))

    def check(self, rewriter: Rewriter) -> None:
        """Compare the rewritten small model with the original one."""
        with _running(self.twin, self.surroundings):
            rewriter.check()

    def _parts(self, model: Any) -> dict[str, Part]:
        """Return this part of a model, with the inputs of each input set."""
        kind: Graphs = "one" if self.name == "model" else "two"
        graphs, _ = example_graphs(model, self._all.inputs, self._tracing.dynamic, kind)
        if not self._tracing.dynamic:
            graphs = {"example": graphs["example"]}
        return {title: each[self.name] for title, each in graphs.items()}

    def prove(self) -> None:
        """Compare the rewritten graph of the small model with its code, without reading weights.

        Raises:
            ExportError: the outputs differ.
        """
        missing = missing_text("onnxruntime")
        if not self.twin.has_weights or missing:
            why = f": {missing}" if missing else ""
            self.note(f"the rewritten graph was not compared{why}")
            return
        with self._tracing.meter.step(f"prove {self.name}"):
            found = self._proved()
        self.note(f"the rewritten graph of {self.twin.text}, was right for {found} input sets")

    def _proved(self) -> int:
        import onnx_ir

        model, name, rewriter = self.twin.model, self.name, self.rewriter
        assert rewriter is not None
        if model.dtype == torch.bfloat16:  # of which ONNX Runtime multiplies nothing
            model.float()
            self.parts = self._parts(model)
        module = self.parts["example"].module

        def run(trace: Any) -> Any:
            with as_torch_onnx():
                return rewriter.exported(trace, module)[0]

        example = Part(module, dict(self.parts["example"].given))
        found = CheckedGraphs({name: 0})
        with temporary_folder() as folder:
            path = folder / f"{name}.onnx"
            program, sizes, _ = self._tracing.converted(name, example, model, run)
            name_graph(program, name, example)
            onnx_ir.save(program, path, external_data=f"{name}.data")
            session = on_cpu(path)
            graph = graph_at(path)
            reference = TransformersReference(module, session.output_names, graph)
            given = {title: part.given for title, part in self.parts.items()}
            for each in input_sets(given, graph):
                judge(name, session, reference, each, sizes, found)
        return found.sets[name]


@dataclass
class FolderWays:
    """The ways of making all graphs of a model.

    Args:
        tracing: traces one graph.
        inputs: examples, or the names of inputs for which examples are made.
        how: whether code is rewritten, and whether layers are repeated.
    """

    tracing: Tracing
    inputs: Inputs
    how: TraceKeywords
    _parts: dict[str, PartWays] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the object that makes graphs by repeating layers."""
        self.repeating = Repeating(self.tracing, self.inputs)

    def with_inputs(self, inputs: Inputs) -> FolderWays:
        """Return new ways for other inputs, with the same options and no graphs yet."""
        self.tracing.lengths.clear()
        return FolderWays(self.tracing, inputs, self.how)

    @property
    def done(self) -> dict[str, Rewriting]:
        """The rewriting of each graph that was rewritten."""
        found = {name: each.rewriting for name, each in self._parts.items()}
        return {name: rewriting for name, rewriting in found.items() if rewriting is not None}

    def graph(self, name: str, part: Part) -> Graph:
        """Trace a part, without rewriting if that works.

        Raises:
            ExportError: no way leads to a graph.
        """
        self._parts[name] = PartWays(self, name, part)
        return self._parts[name].first()

    def again(self, name: str, part: Part, error: ExportError) -> Graph:
        """Trace a part in another way because its graph is wrong.

        Raises:
            ExportError: every way was tried; the message lists the attempts.
        """
        ways = self._parts.setdefault(name, PartWays(self, name, part))
        ways.part = part
        return ways.again(error)

    def rename(self, old: str, new: str) -> None:
        """Change the name under which a graph that was already traced is stored."""
        if old in self._parts:
            self._parts[new] = self._parts.pop(old)
            self._parts[new].name, self._parts[new].title = new, f"{new}: "
        self.repeating.rename(old, new)
        self.tracing.fusing.rename(old, new)

    def all_notes(self) -> list[str]:
        """Return notes on how graphs were rewritten, and on what they leave out."""
        notes = [*self.tracing.fusing.notes(), *self.repeating.notes]
        notes += [(name, text) for name, each in self._parts.items() for text in each.notes]
        notes += [(name, str(text)) for name, each in self.done.items() for text in each.notes]
        return [f"{name}: {text}" for name, text in notes]

    def prove(self, checked: CheckedGraphs) -> None:
        """Compare rewritten graphs that were not compared yet.

        Raises:
            ExportError: the outputs of a graph differ.
        """
        for name in self.done:
            if not checked.sets.get(name):
                self._parts[name].prove()


@contextlib.contextmanager
def _running(twin: Twin, surroundings: TransformersSurroundings) -> Iterator[None]:
    """Make the code of a small model run inside the context as it will run in the trace."""
    products = contextlib.nullcontext() if twin.has_weights else ZeroProducts()
    quietly = silently("the model's code does not run", "")
    with quietly, torch.no_grad(), surroundings.recording(), products:
        yield
