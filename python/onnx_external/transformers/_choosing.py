"""Chooses the graphs into which a model is exported."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._base.errors import ExportError, InvalidArgumentError, Remedy
from .._comparing.chaining import missing_links
from .._folders.models import DECODE
from ..torch._checking import broken_text
from ._checking import WrongPartError
from ._decoders import Graphs, unfit_for_prompts
from ._inputs import Inputs
from ._naming import forms
from ._rewritten import FolderWays
from ._saving import Graph
from ._tracing import Part, graph_modules
from ._unseen import refuse_unseen

_MAY_BE_TWO = "a graph for the prompt and one for the steps, if each of them can be traced"


@dataclass
class Choice:
    """The graphs of a model; a decoder has one or two.

    Args:
        ways: the ways in which each graph is traced.
        inputs: examples, or the names of inputs for which examples are made.
        asked: the number of graphs for a decoder; None for one if possible.
        fewer: the inputs to use if no graph can take all of `inputs`; None if there are no fewer.
    """

    ways: FolderWays
    inputs: Inputs
    asked: Graphs | None
    fewer: Inputs | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    graphs: dict[str, Graph] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def trace(self) -> None:
        """Trace all graphs.

        Raises:
            ExportError: a graph cannot be traced.
            InvalidArgumentError: one graph was requested, but the model has several.
        """
        try:
            self._trace()
        except ExportError as error:
            self._do_with_fewer(error)

    def _trace(self) -> None:
        self.parts = self._modules(self.asked)
        model = self.ways.tracing.loaded.model
        refuse_unseen(model, [part.given for part in self.parts.values()])
        one = self.parts.get("model")
        if self.asked == "one" and one is None:
            raise InvalidArgumentError(
                f"graphs='one': the model has the graphs {', '.join(self.parts)}, because only a "
                "decoder whose cache keeps all tokens can be a single graph; leave graphs out"
            )
        try:
            self.graphs = {name: self.ways.graph(name, part) for name, part in self.parts.items()}
        except ExportError as error:
            if one is not None and one.prompt is not None and self.asked is None:
                error.remedies.append(Remedy("graphs", "two", _MAY_BE_TWO))
            raise
        if one is not None and one.prompt is not None:
            broken = unfit_for_prompts(self.graphs["model"].sizes, one.module, one.prompt)
            if broken:
                self._split(f"it is only valid for {broken_text(broken)}")

    def refuse_gaps(self) -> None:
        """Raise an error if a graph does not return an input of a later graph.

        Raises:
            ExportError: there is such a graph.
        """
        ends = {name: graph.skeleton.model.graph for name, graph in self.graphs.items()}
        links = missing_links(
            {name: forms(graph.inputs) for name, graph in ends.items()},
            {name: forms(graph.outputs) for name, graph in ends.items()},
        )
        if links:
            more = f" (and {len(links) - 1} more)" if links[1:] else ""
            raise ExportError(
                f"{links[0]}{more}, so no runtime can generate with these graphs; give the trace "
                "other examples with inputs={name: tensor}, or use oe.torch.export, which takes "
                "any module"
            )

    def again(self, error: WrongPartError) -> None:
        """Trace a graph in another way if it is wrong or cannot be loaded.

        Raises:
            ExportError: every way was tried.
        """
        part = self.parts[error.name]
        if part.prompt is not None and "prompt" in error.inputs and self.asked is None:
            self._split("it is wrong for an empty cache")
            return
        try:
            self.graphs[error.name] = self.ways.again(error.name, part, error)
        except ExportError as refused:
            self._do_with_fewer(refused)

    def _do_with_fewer(self, error: ExportError) -> None:
        """Trace all graphs without those inputs that have defaults."""
        if self.fewer is None:
            raise error
        left = ", ".join(name for name in self.inputs if name not in self.fewer)
        self.notes.append(f"exported without {left}: otherwise {str(error).partition('; ')[0]}")
        self.inputs, self.fewer = self.fewer, None
        self.ways = self.ways.with_inputs(self.inputs)
        try:
            self._trace()
        except ExportError:
            raise error from error.__cause__

    def _split(self, why: str) -> None:
        if self.asked == "one":
            raise ExportError(
                f"graphs='one': the graph with a cache cannot read a prompt: {why}; leave "
                "graphs out"
            )
        self.notes.append(f"two graphs: the graph with a cache cannot read a prompt, because {why}")
        self.parts = self._modules("two")
        decode = self.graphs.pop("model")
        self.ways.rename("model", DECODE)
        self.graphs = {
            name: decode if name == DECODE else self.ways.graph(name, part)
            for name, part in self.parts.items()
        }

    def _modules(self, graphs: Graphs | None) -> dict[str, Part]:
        tracing = self.ways.tracing
        with tracing.meter.step("inputs"):
            return graph_modules(tracing.loaded.model, self.inputs, tracing.dynamic, graphs)
