"""Compares the graphs of a folder with transformers' own model, before they are saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .._base.errors import NO_KERNEL, Error, ExportError, MismatchError, RunError
from .._base.meter import Meter
from .._base.options import contents_of
from .._base.packages import missing_text
from .._base.temporary import temporary_folder
from .._comparing.branches import CrossEncoder, FirstStep, Runs, branches
from .._comparing.chaining import handed_on
from .._comparing.checked_runs import CheckedRun, add_new, checked_run, on_cpu
from .._comparing.inputs import InputSet, given_by_name
from .._comparing.randomness import drawing_nodes
from .._comparing.references import ModuleReference
from .._comparing.running import Session
from .._folders.models import ENCODER, PROMPT, STEP, merged_name, pair_names
from .._saving.transposing import Learned
from ..torch._checking import WrongGraphError, broken_text, refuse_unloadable
from ..torch._guards import Guard, Sizes
from ._compared import Folder
from ._decoders import prepared
from ._reference import TransformersReference
from ._saving import Graph, Part, Saving

_CROSSED = "encoder_with_caches"
LARGEST = 512 << 20
"""The maximum size in bytes of the weights of graphs that are checked by default."""


class Example(NamedTuple):
    """One run of a graph whose outputs agreed with those of transformers' model."""

    given: dict[str, Any]
    found: Mapping[str, Any]


@dataclass
class CheckedGraphs:
    """The result of comparing all graphs of a model."""

    sets: dict[str, int] = field(default_factory=dict)
    """The number of input sets on which each graph agrees with transformers' model."""
    notes: list[str] = field(default_factory=list)
    chain: list[str] = field(default_factory=list)
    """The graphs that were run in order, each on the outputs of the graphs before it."""
    examples: dict[str, Example] = field(default_factory=dict)
    """For each graph, the inputs and outputs of one run that agreed."""


@dataclass
class Judging:
    """Saves graphs temporarily, runs them, and compares them."""

    weights: list[Path]
    """The folder or the files of the model's checkpoint."""
    graphs: Mapping[str, Graph]
    folder: Callable[[dict[str, Path]], Folder]
    """A function that makes the references for graphs, given the files of the graphs."""
    size: int
    """The size of the weights in bytes."""
    options: Mapping[str, Any]
    """The options with which the graphs are saved."""
    merged: Graph | None = None
    """The graph into which the decoder's graphs are merged, if it is saved."""
    crossed: Graph | None = None
    """The encoder that also returns keys and values for the decoder's cache, if it is saved."""
    learned: Learned = field(default_factory=Learned)
    """The plans of other saves of these graphs."""

    def judged(self, asked: bool | None, meter: Meter) -> CheckedGraphs:
        """Compare all graphs with transformers' model.

        Args:
            asked: True compares at any cost, False never compares.
            meter: measures the step.

        Raises:
            ExportError: a graph is wrong, or a requested check is not possible.
        """
        found = CheckedGraphs(dict.fromkeys(self.graphs, 0))
        if asked is False:
            return found
        reason = self._why_not(asked)
        if not reason:
            with meter.step("check"), temporary_folder() as folder:
                reason = self._run(folder, found)
        if reason and asked:
            raise ExportError(f"check=True: the graphs cannot be checked: {reason}")
        found.notes += [f"not checked: {reason}"] if reason else []
        return found

    def _why_not(self, asked: bool | None) -> str:
        if missing := missing_text("onnxruntime"):
            return missing
        if self.size > LARGEST and not asked:
            return f"the weights have {self.size / 1e9:.1f} GB; check=True runs the graphs"
        return ""

    def _run(self, target: Path, found: CheckedGraphs) -> str:
        """Compare as many graphs as possible; return why the other graphs were not compared."""
        quick = {"layout": "single", "overwrite": False, "fsync": False, "verify": False}
        quick |= {"progress": False, "files": contents_of(self.options["files"])}
        whole_name = merged_name(ENCODER in self.graphs)
        more = {whole_name: self.merged, _CROSSED: self.crossed}
        given = {name: graph for name, graph in more.items() if graph is not None}
        parts = [Part({**self.graphs, **given}, learned=self.learned)]
        Saving(self.weights, target, parts).save({**self.options, **quick})
        paths = {name: target / f"{name}.onnx" for name in self.graphs}
        reasons, sessions = [], {}
        unloadable: list[str] = []
        folder = self.folder(paths)
        try:
            references = folder.graphs()
        except Error as error:
            return str(error)
        for name, (reference, sets, notes) in references.items():
            found.notes += [f"{name}: {note}" for note in notes]
            try:
                session = on_cpu(paths[name])
            except RunError as error:
                if error.kind not in NO_KERNEL:
                    raise UnloadablePartError(name, "", str(error)) from error
                unloadable.append(str(error))
                continue
            draws = drawing_nodes(session.source)
            if draws:
                reasons.append(f"{name}.onnx draws random numbers: {', '.join(draws)}")
                continue
            try:
                for each in sets:
                    judge(name, session, reference, each, self.graphs[name].sizes, found)
            except MismatchError as error:  # what the graph takes is not what the model takes
                reasons.append(str(error))
            sessions[name] = session
        refuse_unloadable("; ".join(unloadable))
        if len(sessions) == len(self.graphs) > 1:
            beside = {name: reference for name, (reference, _, _) in references.items()}
            self._run_chain(folder, sessions, beside, found)
            if self.merged is not None:
                whole = on_cpu(target / f"{whole_name}.onnx")
                both = branches(whole, *pair_names(ENCODER in self.graphs))
                alone = self._run_instead(folder, both, sessions, beside)
                found.sets[whole_name] = alone.chain.count(whole.name)
            if self.crossed is not None:
                encoder = CrossEncoder(on_cpu(target / f"{_CROSSED}.onnx"))
                first = FirstStep(sessions[STEP], encoder)
                crossed: dict[str, Runs] = {ENCODER: encoder, PROMPT: first}
                self._run_instead(folder, crossed, sessions, beside)
        return "; ".join(reasons)

    def _run_instead(
        self,
        folder: Folder,
        instead: Mapping[str, Runs],
        sessions: Mapping[str, Session],
        references: Mapping[str, ModuleReference],
    ) -> CheckedGraphs:
        """Run the graphs that replace graphs already checked, and return the result.

        Raises:
            ExportError: the outputs of a graph differ from those of the module that it replaces.
        """
        found = CheckedGraphs()
        try:
            self._run_chain(folder, {**sessions, **instead}, references, found)
        except WrongPartError as error:
            raise ExportError(str(error)) from error
        return found

    def _run_chain(
        self,
        folder: Folder,
        sessions: Mapping[str, Runs],
        references: Mapping[str, ModuleReference],
        found: CheckedGraphs,
    ) -> None:
        """Run the graphs in order, as a runtime does, and compare them with transformers' model.

        Raises:
            WrongPartError: the outputs of a graph differ from those of its module.
        """
        try:
            passes = folder.passes()
        except ExportError as error:
            found.notes.append(f"the graphs were not run one after the other: {error}")
            return
        if not {each.graph for each in passes} <= sessions.keys():
            return
        carried: dict[str, Any] = {}
        for name, given in passes:
            session = sessions[name]
            reference = references[name]
            if not isinstance(session, Session):  # it has other outputs than what it stands for
                reference = TransformersReference(reference.module, session.output_names)
            feed = _feed(session, reference, ((), given))
            feed |= {each: carried[each] for each in feed.keys() & carried.keys()}
            known = given_by_name(given)
            try:
                wanted = reference.outputs(known, "chain")
                run = checked_run(session, feed, reference, known, wanted, "chain")
            except (MismatchError, RunError) as error:
                run = CheckedRun(str(error), [], {})
            if run.problem:
                raise WrongPartError(
                    name,
                    "chain",
                    f"{session.name} is wrong for the outputs of {' and '.join(found.chain)}, run "
                    f"one after the other: {run.problem}; check=False omits this check",
                )
            carried |= handed_on(name, run.outputs)
            found.chain.append(session.name)


class WrongPartError(WrongGraphError):
    """Raised if a graph's outputs differ from those of transformers' model."""

    def __init__(self, name: str, inputs: str, message: str, guards: Sequence[Guard] = ()) -> None:
        super().__init__(message, guards)
        self.name = name
        """The name of the graph."""
        self.inputs = inputs
        """The input set for which the graph is wrong."""


class UnloadablePartError(WrongPartError):
    """Raised if ONNX Runtime cannot load a graph of a model."""


def judge(
    name: str,
    session: Session,
    reference: ModuleReference,
    each: InputSet,
    sizes: Sizes,
    found: CheckedGraphs,
) -> None:
    """Compare one graph with its reference on one input set.

    Args:
        name: the name of the graph.
        session: the session that runs the graph.
        reference: the reference to compare with.
        each: the input set.
        sizes: the assumptions of the trace.
        found: the result, in which the set is counted.

    Raises:
        WrongPartError: the outputs differ.
    """
    given = each.load()
    try:
        wanted = reference.outputs(given, each.name)
    except RunError as error:  # sizes that the model does not take
        found.notes.append(f"{name}: {error}")
        return
    feed = _feed(session, reference, given.call)
    if each.may_misfit and session.misfits(feed):
        return  # `ModelReport.fixed` says which sizes do not vary
    run = checked_run(session, feed, reference, given, wanted, each.name)
    add_new(found.notes, [f"{name}: {note}" for note in run.notes])
    if run.problem:
        shapes = ", ".join(f"{key}: {list(value.shape)}" for key, value in feed.items())
        broken = sizes.broken(((), prepared(reference.module, given.call[1])))
        cause = f"it is only valid for {broken_text(broken)}; " if broken else ""
        raise WrongPartError(
            name,
            each.name,
            f"{name}.onnx is wrong for the inputs {each.name!r} ({shapes}): {run.problem}; {cause}"
            "dynamic=False fixes all sizes, oe.diagnose_export(folder) finds the module, and "
            "check=False omits this check",
            broken,
        )
    found.sets[name] += 1
    found.examples.setdefault(name, Example(dict(feed), run.outputs))


def _feed(session: Runs, reference: ModuleReference, call: Any) -> dict[str, Any]:
    """Return a graph's inputs; transformers.exporters computes some of them from the model's."""
    names = [form.name for form in session.inputs]
    try:
        return dict(reference.feed(call, names))
    except MismatchError:
        return dict(reference.feed(((), prepared(reference.module, call[1])), names))
