"""Compares a model with its reference on input sets, for oe.validate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._base.meter import Meter, anonymous_memory
from .._comparing.comparing import agree
from .._comparing.inputs import Given, InputSet
from .._comparing.precision import quantized, weight_type
from .._comparing.quality import Limits, QualitySums, default_limits, quantized_weights
from .._comparing.randomness import drawing_nodes
from .._comparing.reconsidering import Outputs
from .._comparing.recorded import write_set
from .._comparing.references import (
    ModuleReference,
    OnnxReference,
    Reference,
    paired,
    pairs_of,
)
from .._comparing.running import Session, remarks_on
from .._comparing.values import Value, type_name
from .reports import ComparedOutput, GraphValidation, ValidatedInput, latency_of


@dataclass
class Settings:
    """The settings that the comparison of every graph needs."""

    providers: list[Any]
    atol: float | None
    rtol: float | None
    latency: int
    memory: bool
    dump: Path | None
    meter: Meter = field(default_factory=Meter)
    limits: Limits = field(default_factory=Limits)
    text: Path | None = None

    @property
    def has_tolerance(self) -> bool:
        """True if the caller gave a tolerance for floats."""
        return self.atol is not None or self.rtol is not None


@dataclass
class _Comparing:
    """Runs a model and its reference on input sets, one set after another."""

    session: Session
    reference: Reference
    settings: Settings
    found: GraphValidation
    sums: QualitySums | None = None
    """The sums from which the quality of a quantized model is computed; None if not wanted."""

    def run(self, sets: Sequence[InputSet], asked: str | None) -> None:
        """Run all sets; `asked` is the float type to which the reference was converted."""
        found, session, reference = self.found, self.session, self.reference
        found.computes = _computes(session, reference, asked)
        found.draws += drawing_nodes(session.source)
        found.draws += [f"{each} of the reference" for each in reference.draws()]
        self._prepare_quality()
        names = [form.name for form in session.inputs]
        for number, each in enumerate(sets):
            given = each.load()
            if given.call is not None and isinstance(reference, ModuleReference):
                given.feed = dict(reference.feed(given.call, names))
                found.lacks = reference.lacking(given.call, names)
            misfits = session.misfits(given.feed) if each.may_misfit else []
            if misfits:
                found.notes.append(f"{each.name} is skipped: {'; '.join(misfits)}")
                continue
            self._run_set(each.name, given, number)
        if self.sums is not None:
            found.quality = self.sums.found()
        elif found.wrong:
            found.quantized = quantized(session.source)

    def _prepare_quality(self) -> None:
        """Prepare to measure the quality of a model if it is quantized, but its reference is not.

        Unless a tolerance is given, this quality then decides whether float outputs are right.
        """
        how, limits = quantized_weights(self.session.source), self.settings.limits
        if isinstance(self.reference, OnnxReference):
            how = None if quantized_weights(self.reference.session.source) else how
        if how is not None:
            self.found.quantized = how
            if not limits and not self.settings.has_tolerance:
                limits = default_limits(how)
        if how is not None or limits:
            self.sums = QualitySums("the input sets", limits)

    def _run_set(self, name: str, given: Given, number: int) -> None:
        found, session, settings = self.found, self.session, self.settings
        feed = session.feed(given.feed, name)
        given.feed = {name: given.feed[name] for name in feed}
        found.inputs += [
            ValidatedInput(name, key, *_form(value), given.how.get(key, given.origin))
            for key, value in feed.items()
        ]
        before, first = anonymous_memory(), not found.outputs
        with settings.meter.step(f"run {found.name} on {name}"):
            got = session.run(feed, name)
        if first and settings.memory:
            found.run_memory = added_memory(settings.meter, before)
        with settings.meter.step(f"reference of {found.name} on {name}"):
            want = self._wanted(given, name)
        names, types = session.output_names, found.computes
        outputs = Outputs(names, got, settings.atol, settings.rtol, types)
        if self._by_quality:
            compared = outputs.compared(self.reference, want)
        else:
            compared = outputs.judged(self.reference, given, name, want)
        for each in compared:
            mark = self._by_quality and each.precision is not None
            found.outputs.append(ComparedOutput(**{**vars(each), "set": name, "by_quality": mark}))
        if self.sums is not None:
            for output, left, right in pairs_of(names, got, want):
                self.sums.add(output, left, right)
        notes = [f"{each.output}: {each.note}" for each in compared if each.note]
        found.notes += [note for note in notes if note not in found.notes]
        if found.wrong and first and not found.draws:
            if not agree(got, session.run(feed, name)):
                found.draws.append("the model, as two runs differ")
            if not agree(want, self.reference.outputs(given, name)):
                found.draws.append(f"{found.against}, as two runs differ")
        if settings.dump is not None:
            pairs = paired(session.output_names, want)
            expected = {one: want[other] for _, one, other in pairs if one and other}
            write_set(settings.dump, number, feed, got, expected)
        if first and settings.latency:
            self._measure(name, feed, given)

    @property
    def _by_quality(self) -> bool:
        known = self.found.quantized is not None and self.sums is not None
        return known and not self.settings.has_tolerance

    def _wanted(self, given: Given, name: str) -> dict[str, Value]:
        """Return the outputs of the reference for one input set.

        The state that a module keeps for its next call is restored afterwards.
        """
        if not isinstance(self.reference, ModuleReference):
            return self.reference.outputs(given, name)
        from .._comparing.second_calls import first_call

        want, notes = first_call(self.reference, given, name)
        self.found.notes += [note for note in notes if note not in self.found.notes]
        return want

    def _measure(self, name: str, feed: Mapping[str, Value], given: Given) -> None:
        times = self.settings.latency
        self.found.latency = latency_of(self.session.seconds(feed, name, times))
        if isinstance(self.reference, OnnxReference):
            other = self.reference.session
            seconds = other.seconds(other.feed(given.feed, name), name, times)
            self.found.reference_latency = latency_of(seconds)


def compared_on_sets(
    session: Session,
    reference: Reference,
    sets: Sequence[InputSet],
    settings: Settings,
    name: str,
    asked: str | None = None,
) -> GraphValidation:
    """Compare a model with its reference, which was converted to the float type `asked`."""
    found = GraphValidation(name, session.name, reference.name, session.providers)
    found.notes += remarks_on(settings.providers)
    _Comparing(session, reference, settings, found).run(sets, asked)
    return found


def _computes(session: Session, reference: Reference, asked: str | None) -> dict[str, str]:
    """Return the float types used in the computation, which may differ from the outputs' types."""
    types = {asked: "the requested type"}
    if isinstance(reference, OnnxReference):
        types[weight_type(reference.session.source)] = "weights of the reference"
    types[weight_type(session.source)] = "weights"
    return {name: why for name, why in types.items() if name is not None}


def _form(value: Value) -> tuple[str, list[int]]:
    if isinstance(value, np.ndarray):
        return type_name(value), list(value.shape)
    return f"sequence of {len(value)}" if isinstance(value, list) else "none", []


def added_memory(meter: Meter, before: int | None) -> int | None:
    """Return the difference of the last step's peak memory and the memory before that step."""
    peak = meter.steps[-1].peak_memory
    return None if peak is None or before is None else max(0, peak - before)
