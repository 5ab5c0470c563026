"""Runs a graph once, and describes how its outputs differ from the expected ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._base.errors import RunError
from .branches import Runs
from .comparing import Comparison
from .inputs import Given
from .reconsidering import Outputs
from .references import ModuleReference
from .running import Session
from .values import Value

_NEAR = 100
"""A difference of up to this many tolerances may be rounding that the check does not model."""
_SMALL = 1e-5
"""The relative difference that may be rounding if the caller's tolerance is less than that."""


class Tolerance(NamedTuple):
    """The differences from the expected outputs that count as rounding."""

    atol: float | None = None
    """The absolute tolerance; None to choose it by the types and magnitudes of the results."""
    rtol: float | None = None
    types: Collection[str] = ()
    """The 16-bit float types in which the module computes; they limit the precision of results."""


class CheckedRun(NamedTuple):
    """The result of running a graph on one input set."""

    problem: str
    """How the graph differs from the module; "" if it does not."""
    notes: list[str]
    """Remarks on outputs that agree although they differ by more than the tolerance."""
    outputs: Mapping[str, Value]


def on_cpu(path: Path, name: str = "") -> Session:
    """Open a graph on the CPU; `name` is its name in errors, by default the file's name."""
    return Session(path, ["CPUExecutionProvider"], name or path.name)


def checked_run(
    session: Runs,
    feed: Mapping[str, Value],
    reference: ModuleReference,
    given: Given,
    wanted: Mapping[str, Value],
    what: str,
    tolerance: Tolerance = Tolerance(),  # noqa: B008
) -> CheckedRun:
    """Run a graph on one input set, and compare its outputs.

    Args:
        session: runs the graph.
        feed: the values of the graph's inputs.
        reference: the source of the expected outputs.
        given: the inputs of the reference.
        wanted: the expected outputs.
        what: the name of the input set.
        tolerance: the differences that count as rounding.

    Raises:
        MismatchError: the graph does not take these values.
    """
    values = session.feed(feed, what)
    try:
        got = session.run(values, what)
    except RunError as error:
        return CheckedRun(str(error), [], {})
    outputs = Outputs(session.output_names, got, *tolerance)
    compared = outputs.judged(reference, given, what, wanted)
    notes = [f"output {each.output}: {each.note}" for each in compared if each.note]
    return CheckedRun(difference(compared), notes, got)


def difference(compared: Sequence[Comparison]) -> str:
    """Describe how outputs differ from the expected outputs; return "" if they do not."""
    wrong = next((each for each in compared if each.is_wrong), None)
    return _difference(wrong) if wrong is not None else ""


def _difference(compared: Comparison) -> str:
    if compared.problem is not None:
        return f"output {compared.output}: {compared.problem}"
    told = f"output {compared.output} differs in {compared.beyond} of {compared.elements} elements"
    if compared.max_abs is not None:
        told += f", by {compared.max_abs:.3g} at most, at {compared.max_abs_at}"
    told += f" (expected {compared.expected}, got {compared.actual})"
    return f"{told}; if this is rounding, set atol=" if _may_be_rounding(compared) else told


def _may_be_rounding(compared: Comparison) -> bool:
    if compared.times <= _NEAR or compared.max_abs is None:
        return compared.times <= _NEAR
    special = (compared.nan, compared.inf) != (compared.expected_nan, compared.expected_inf)
    if special or compared.precision is not None or "float" not in str(compared.dtype):
        return False
    return compared.max_abs <= _SMALL * max(abs(float(compared.expected)), compared.scale or 0.0)


def add_new(notes: list[Any], found: Sequence[Any]) -> None:
    """Append the notes that are not in the list yet."""
    notes += [each for each in found if each not in notes]
