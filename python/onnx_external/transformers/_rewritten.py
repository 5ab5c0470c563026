"""Graphs of a folder that are traced plainly first, and then with control flow rewritten."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from .._base.errors import ExportError, RewriteError
from .._base.keywords import only
from .._base.packages import missing_text
from .._base.temporary import temporary_folder
from .._comparing.precision import graph_at
from .._comparing.running import Session
from .._control_flow import Rewriter, Rewriting
from .._tracing.surroundings import TransformersSurroundings, register_caches
from ..torch._checking import WrongGraphError
from ..torch._keywords import TraceKeywords
from ..torch._rewritten import MOST_GRAPHS, REWRITER_KEYWORDS, learn, not_helped, refusal_in
from ..torch._tracing import as_torch_onnx
from ..torch._untouched import ZeroProducts
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


@dataclass
class _Observed:
    """A part of a twin with its input sets, and its rewriting."""

    twin: Twin
    parts: dict[str, Part]
    """The parts, by the input set."""
    surroundings: TransformersSurroundings
    rewriter: Rewriter
    tries: int = 0

    @property
    def module(self) -> Any:
        """The part of the twin."""
        return self.parts["example"].module


@dataclass
class FolderWays:
    """Traces the graphs of a model: plainly, and after a failure or error with rewritten code.

    Args:
        tracing: traces one graph.
        inputs: examples, or the names of those that are made.
        how: whether code is rewritten, and whether layers are repeated.
    """

    tracing: Tracing
    inputs: Inputs
    how: TraceKeywords
    done: dict[str, Rewriting] = field(default_factory=dict)
    """The rewriting of each graph."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    _observed: dict[str, _Observed] = field(default_factory=dict)
    _plain: dict[str, ExportError] = field(default_factory=dict)
    """The errors of the plain graphs."""

    def __post_init__(self) -> None:
        """Prepare to repeat layers."""
        self.repeating = Repeating(self.tracing, self.inputs)

    def with_inputs(self, inputs: Inputs) -> FolderWays:
        """Return new ways with the same options, without any state on graphs."""
        self.tracing.lengths.clear()
        return FolderWays(self.tracing, inputs, self.how)

    def graph(self, name: str, part: Part) -> Graph:
        """Trace a part, plainly if that works.

        Raises:
            ExportError: no way leads to a graph.
        """
        tracing = self.tracing
        if (
            self.how["rewrite"] is not False
            and tracing.dynamic
            and has_length(tracing.loaded.model, part)
        ):
            tracing.lengths.add(name)
            return self.again(name, part, None)
        return self._first(name, part)

    def _first(self, name: str, part: Part) -> Graph:
        if self.how["rewrite"] is True:
            return self.again(name, part, None)
        made = self.repeating.graph(name, part) if self.how["repeat"] else None
        if made is not None:
            return made
        try:
            return self.tracing.graph(name, part)
        except ExportError as error:
            return self.again(name, part, error)

    def again(self, name: str, part: Part, error: ExportError | None) -> Graph:
        """Trace a part with more of its code rewritten.

        Args:
            name: the name of the graph.
            part: the module and its inputs.
            error: why the graph before was no good; None: there was none.

        Raises:
            ExportError: it does not help; the message says what was tried.
        """
        if isinstance(error, WrongGraphError) and self.tracing.fusing.has_fused(name):
            return self._not_fused(name, part, "the graph with fused attention was wrong")
        if name in self.repeating.done:
            self.repeating.refuse(name)
            return self._first(name, part)
        if isinstance(error, UnloadablePartError):
            raise error
        if self.how["rewrite"] is False:
            assert error is not None
            raise error
        if error is not None:
            self._plain.setdefault(name, error)
        try:
            return self._rewritten(name, part, error)
        except ExportError as refused:
            if self.tracing.fusing.has_fused(name):
                return self._not_fused(name, part, "the graph cannot be made with fused attention")
            if name in self.tracing.lengths:
                return self._of_one_length(name, part, refused)
            plain = self._plain.get(name)
            if plain is None or refused is plain:
                raise
            if isinstance(refused, RewriteError) and not isinstance(plain, WrongGraphError):
                raise refused from plain
            raise not_helped(plain, refused) from plain.__cause__

    def _of_one_length(self, name: str, part: Part, refused: ExportError) -> Graph:
        """Trace a part for the example's length, which needs no rewriting."""
        self.tracing.lengths.discard(name)
        self._forget(name)
        self.notes.append((name, f"the length of the text does not vary, since {refused.args[0]}"))
        return self._first(name, part)

    def _not_fused(self, name: str, part: Part, why: str) -> Graph:
        """Trace a part again, with the attention of transformers."""
        self.tracing.fusing.refuse(name, why)
        self._forget(name)
        return self.graph(name, part)

    def _forget(self, name: str) -> None:
        """Start over with a graph, forgetting all about it."""
        for found in (self._observed, self.done, self._plain):
            found.pop(name, None)
        self.notes = [(graph, text) for graph, text in self.notes if graph != name]

    def _rewritten(self, name: str, part: Part, error: ExportError | None) -> Graph:
        observed = self._observed.get(name)
        if observed is None:
            with self.tracing.meter.step(f"observe {name}"):
                observed = self._observed[name] = self._observe(name)
            self.notes.append((name, f"rewritten after a run of {observed.twin.text}"))
        observed.tries += 1
        if observed.tries > MOST_GRAPHS:
            raise RewriteError(
                f"{name}: after {MOST_GRAPHS} attempts, no graph agrees with the module"
            )
        rewriter = observed.rewriter
        if error is not None and not learn(rewriter, error) and name in self.done:
            raise error
        if error is not None and not rewriter.observed.chosen:
            raise error
        if name not in self.done:
            with _running(observed.twin, observed.surroundings):
                rewriter.check()

        def run(trace: Any) -> Any:
            with as_torch_onnx():
                found, self.done[name] = rewriter.exported(trace, part.module)
            return found

        try:
            return self.tracing.graph(name, part, run)
        except ExportError as refused:
            raise refusal_in(refused) or refused from refused.__cause__

    def _observe(self, name: str) -> _Observed:
        """Run a part on small weights, or on none, and observe its conditions and loops.

        Raises:
            ExportError: nothing of its code runs.
        """
        reason: Exception | None = None
        with silently(f"{name}: rewriting has to run the model's code", ""):
            for twin in twins(self.tracing.loaded.model):
                try:
                    return self._observe_twin(twin, name)
                except Exception as error:  # of the model's code, which such sizes may break
                    reason = reason or error
        raise ExportError(
            f"{name}: rewriting has to run the model's code, and that fails: "
            f"{type(reason).__name__}: {reason}"
        ) from reason

    def _observe_twin(self, twin: Twin, name: str) -> _Observed:
        parts = self._parts(twin.model, name)
        surroundings = TransformersSurroundings(parts["example"].module)
        register_caches(twin.model)
        calls = [surroundings.prepared(each.given) for each in parts.values()]
        with _running(twin, surroundings):
            rewriter = Rewriter(parts["example"].module, calls, **only(self.how, REWRITER_KEYWORDS))
        return _Observed(twin, parts, surroundings, rewriter)

    def _parts(self, model: Any, name: str) -> dict[str, Part]:
        """Return a part of a model by the name of the input set."""
        kind: Graphs = "one" if name == "model" else "two"
        graphs, _ = example_graphs(model, self.inputs, self.tracing.dynamic, kind)
        if not self.tracing.dynamic:
            graphs = {"example": graphs["example"]}
        return {title: each[name] for title, each in graphs.items()}

    def rename(self, old: str, new: str) -> None:
        """Rename a graph that is already traced."""
        named: tuple[dict[str, Any], ...] = (self.done, self._observed, self._plain)
        for found in named:
            if old in found:
                found[new] = found.pop(old)
        self.repeating.rename(old, new)
        self.tracing.fusing.rename(old, new)
        self.notes = [(new if name == old else name, text) for name, text in self.notes]

    def all_notes(self) -> list[str]:
        """Return how graphs were rewritten, and what they leave out."""
        left = [f"{name}: {note}" for name, each in self.done.items() for note in each.notes]
        notes = (*self.tracing.fusing.notes(), *self.repeating.notes, *self.notes)
        made = [f"{name}: {text}" for name, text in notes]
        return [*made, *left]

    def prove(self, checked: CheckedGraphs) -> None:
        """Compare rewritten graphs with their code on the twins, without reading weights.

        Raises:
            ExportError: the outputs of one differ.
        """
        for name, observed in self._observed.items():
            if name not in self.done or checked.sets.get(name):
                continue
            missing = missing_text("onnxruntime")
            if not observed.twin.has_weights or missing:
                why = f": {missing}" if missing else ""
                self.notes.append((name, f"nothing has compared the rewritten graph{why}"))
                continue
            with self.tracing.meter.step(f"prove {name}"):
                found = self._proved(name, observed)
            told = f"the rewritten graph of {observed.twin.text}, was right for {found} input sets"
            self.notes.append((name, told))

    def _proved(self, name: str, observed: _Observed) -> int:
        import onnx_ir

        if observed.twin.model.dtype == torch.bfloat16:  # of which ONNX Runtime multiplies nothing
            observed.twin.model.float()
            observed.parts = self._parts(observed.twin.model, name)

        def run(trace: Any) -> Any:
            with as_torch_onnx():
                return observed.rewriter.exported(trace, observed.module)[0]

        example = Part(observed.module, dict(observed.parts["example"].given))
        found = CheckedGraphs({name: 0})
        with temporary_folder() as folder:
            path = folder / f"{name}.onnx"
            program, sizes, _ = self.tracing.converted(name, example, observed.twin.model, run)
            name_graph(program, name, example)
            onnx_ir.save(program, path, external_data=f"{name}.data")
            session = Session(path, ["CPUExecutionProvider"], path.name)
            graph = graph_at(path)
            names = session.output_names
            reference = TransformersReference(observed.module, names, graph)
            given = {title: part.given for title, part in observed.parts.items()}
            for each in input_sets(given, graph):
                judge(name, session, reference, each, sizes, found)
        return found.sets[name]


@contextlib.contextmanager
def _running(twin: Twin, surroundings: TransformersSurroundings) -> Iterator[None]:
    """Let the code of a twin run, inside the context, as the trace will run it."""
    products = contextlib.nullcontext() if twin.has_weights else ZeroProducts()
    quietly = silently("the model's code does not run", "")
    with quietly, torch.no_grad(), surroundings.recording(), products:
        yield
