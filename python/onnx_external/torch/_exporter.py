"""Runs the stages of an export: trace, skeleton, weights, comparison and save."""

from __future__ import annotations

import re
from collections import abc
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from .._base.errors import ExportError, RewriteError
from .._base.keywords import only
from .._base.meter import Meter, versions
from .._base.notes import UNCHECKED, Note
from .._base.options import Mapping, StrPath, Weights, contents_of
from .._comparing.randomness import drawing_of_program
from .._control_flow import Rewriting
from .._repeating.recording import Unprovable
from .._repeating.repetition import not_repeated
from .._saving.reports import SaveReport
from .._saving.transposing import Learned, with_pairs
from .._tracing.surroundings import Call
from ._checking import (
    Checked,
    Checking,
    UnloadableGraphError,
    WrongGraphError,
    half_types,
    refuse_broken,
    refuse_unloadable,
    why_not,
)
from ._export_reports import PACKAGES, ExportReport, left_in, sources_of
from ._filling import keys_of, save_skeleton, ties_for
from ._keywords import ModuleKeywords
from ._optimizing import OptimizerError, skeleton_of
from ._programs import Captured, captured
from ._rewritten import ModuleWays, may_repeat
from ._skeleton import Skeleton
from ._targets import Program, state_of, weights_of
from ._tracing import Tracer


def _run_by(target: nn.Module | Program, weights: Any, is_made: bool) -> Any:
    """Return the module that computes with the graph's weights; None if there is none."""
    if weights is None:
        return getattr(target, "exported_program", target)
    if isinstance(weights, nn.Module) and (is_made or type(weights) is type(target)):
        return weights
    return None


@dataclass
class Attempt:
    """One graph that was made, and the data to store with it."""

    found: Captured
    made: Skeleton
    weights: Weights | nn.Module | None
    options: dict[str, Any]
    tracer: Tracer
    checked: Checked = field(default_factory=Checked)
    note: str = ""
    learned: Learned = field(default_factory=Learned)
    """The plans of the saves of this graph."""

    def take(self, other: Attempt) -> None:
        """Take over the graph and the data of another attempt."""
        vars(self).update(vars(other))

    def take_weights(self, target: nn.Module | Program, keep: Collection[str]) -> None:
        """Take the weights of a module, and determine which keys are tied, unused or ignored."""
        own = self.weights is None
        if self.weights is None or isinstance(self.weights, nn.Module):
            self.weights = weights_of(target if own else self.weights, self.made.named())
        mapping: Mapping = self.options["mapping"]
        if not own:
            given = mapping.ignore or []
            spare = {*keep, *(state_of(target).keys() - self.made.named())}
            ignored = [f"^{re.escape(name)}$" for name in sorted(spare)]
            mapping = replace(
                mapping, ignore=[*([given] if isinstance(given, str) else given), *ignored]
            )
        if self.made.ties and self.weights is not None:
            ties = ties_for(self.made, keys_of(self.weights))
            mapping = replace(mapping, map=with_pairs(ties, mapping.map))
        self.options["mapping"] = mapping

    def save_into(self, path: Path) -> None:
        """Save the graph temporarily, in order to run it."""
        given = {"mapping": self.options["mapping"], "files": contents_of(self.options["files"])}
        quick = {"progress": False, "fsync": False, "verify": False}
        save_skeleton(self.made, path, self.weights, self.learned, **quick, **given)

    def compared(
        self, runs: Any, calls: Sequence[Call], how: ModuleKeywords, meter: Meter
    ) -> Checked:
        """Compare the graph with the module, or reject input sets for which it may be wrong."""
        check = how["check"]
        found, converts = self.found, self.options["dtype"] or self.options["mapping"].cast
        reason = "the weights are converted" if converts else why_not(runs, check)
        if check is False or reason or self.options["dry_run"]:
            refuse_broken(found.sizes, calls)
            if check and reason:
                raise ExportError(f"check=True: the graph cannot be checked: {reason}")
            note = Note(f"not checked: {reason}", UNCHECKED)
            return Checked(0, [note] if reason and check is None else [])
        draws = [] if found.traced is None else drawing_of_program(found.traced)
        types = [] if found.traced is None else half_types(found.traced)
        with meter.step("check"):
            checking = Checking(runs, found.sizes, calls, draws, types, isinstance(runs, nn.Module))
            checking.atol, checking.rtol = how["atol"], how["rtol"]
            checking.changed, checking.state_named = found.changed, found.state_named
            return checking.run(self.save_into)


@dataclass
class Exporter:
    """Makes the graph for one target, compares it with the target, and saves it."""

    target: nn.Module | Program
    is_made: bool
    """True if the caller's function made the target, so that its parameters have no values."""
    calls: Sequence[Call]
    """The calls to compare: the example, and all further input sets."""
    weights: Weights | nn.Module | None
    saving: abc.Mapping[str, Any]
    """The options of oe.save."""
    how: ModuleKeywords
    shapes: Any
    """The dynamic shapes, as torch.export.export takes them."""
    onnx: abc.Mapping[str, Any]
    """The options of torch.onnx.export."""
    meter: Meter
    ways: ModuleWays[Attempt] = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the list of ways in which the export is tried."""
        self.ways = ModuleWays(self.target, self.calls, self.how, self._captured, self._judge)

    @property
    def gives_state(self) -> bool:
        """True if state that forward updates is returned in additional outputs."""
        return self.how["state"] == "outputs"

    def save(self, attempt: Attempt, path: StrPath) -> SaveReport:
        """Save the graph of an attempt with its weights, quantizing them if requested."""
        refuse_unloadable(attempt.checked.unloadable)
        with self.meter.step("save"):
            given = (attempt.weights, attempt.learned)
            return save_skeleton(attempt.made, path, *given, **attempt.options)

    def report(
        self,
        attempt: Attempt,
        rewriting: Rewriting,
        saved: SaveReport,
        early: Sequence[str],
        fixed: Sequence[str],
    ) -> ExportReport:
        """Return the report on an export that was saved.

        Args:
            attempt: the saved attempt.
            rewriting: the rewriting that was needed.
            saved: the report on the save.
            early: notes that were already logged before the trace.
            fixed: notes on sizes that are fixed.
        """
        made, found, checked = attempt.made, attempt.found, attempt.checked
        changed = [] if self.gives_state else [each.note for each in found.changed]
        return ExportReport(
            path=saved.model,
            sources=sources_of(made, saved, "module" if self.weights is None else "checkpoint"),
            steps=self.meter.steps,
            versions=versions(PACKAGES),
            patches=[],
            checked=checked.sets,
            guards=[
                text
                for text, guard in zip(made.guards, found.sizes.guards, strict=True)
                if str(guard) not in checked.disproved
            ],
            rewriting=rewriting,
            notes=[
                *early,
                *filter(None, [found.note, attempt.note]),
                *fixed,
                *changed,
                *checked.notes,
                *rewriting.notes,
            ],
            left=left_in(made, saved),
            save=saved,
            made_sets=checked.made,
        )

    def _captured(self, tracer: Tracer) -> Attempt:
        """Trace the target; if the optimizer fails, trace it again without optimizing the graph."""
        try:
            return self._traced(tracer, self.how["optimize"])
        except OptimizerError as error:
            attempt = self._traced(tracer, False)
            attempt.note = f"the graph is not optimized: {error}"
            return attempt

    def _traced(self, tracer: Tracer, optimize: bool) -> Attempt:
        """Trace few layers and repeat them if possible; otherwise trace all layers."""
        few = self.how["repeat"] and may_repeat(tracer) and not self.gives_state
        few = few and not (self.how["extra"] or self.how["keep"])
        if not few:
            return self._attempt(tracer, optimize, False)
        try:
            return self._attempt(tracer, optimize, True)
        except OptimizerError:  # a full trace would not help
            raise
        except ExportError as error:
            note = not_repeated(error) if isinstance(error, Unprovable) else ""
        attempt = self._attempt(tracer, optimize, False)
        attempt.note = note
        return attempt

    def _attempt(self, tracer: Tracer, optimize: bool, few: bool) -> Attempt:
        given = (*self.ways.example, self.shapes, self.onnx, self.meter, tracer)
        values = only(self.how, ("extra", "keep"))
        with captured(self.target, *given, few, self.is_made, self.gives_state) as found:
            made = skeleton_of(found, self.meter, optimize=optimize, **values)
        return Attempt(found, made, self.weights, dict(self.saving), tracer)

    def _judge(self, attempt: Attempt) -> None:
        """Compare a graph; if it repeats layers and is wrong, trace all layers and compare it."""
        try:
            self._compare(attempt)
        except (WrongGraphError, UnloadableGraphError):
            if attempt.found.repetition is None:
                raise
            attempt.take(self._attempt(attempt.tracer, self.how["optimize"], False))
            attempt.note = "traced in full, because the graph with repeated layers was wrong"
            self._compare(attempt)

    def _compare(self, attempt: Attempt) -> None:
        attempt.take_weights(self.target, self.how["keep"])
        runs = None
        if not self.how["extra"] and not self.saving["mapping"].partial:
            runs = _run_by(self.target, self.weights, self.is_made)
        attempt.checked = attempt.compared(runs, self.calls, self.how, self.meter)


def refuse_unreached(rewriting: Rewriting) -> None:
    """Raise an error if no input set reached some branches or iteration counts.

    Raises:
        RewriteError: there are such branches or iteration counts.
    """
    if rewriting.unreached:
        raise RewriteError(
            "; ".join(rewriting.unreached) + "; give an input set for each in input_sets="
        )
