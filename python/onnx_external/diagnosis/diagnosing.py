"""oe.diagnose."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import Error, InvalidArgumentError
from ..validation.folders import graph_of, is_transformers
from ..validation.references import ModuleReference
from ..validation.running import Session, provider_names
from ..validation.values import Value
from .pieces import Boundary, Piece, cut_piece, run_piece
from .recording import Call, Recorded, record
from .reports import WRONG, Diagnosis, ModuleDiagnosis, Status

__all__ = ["diagnose"]


@dataclass
class _Work:
    """What the diagnosis of each module needs."""

    model: str
    whole: Session
    providers: list[Any]
    tolerance: tuple[float | None, float | None, set[str]]
    """atol, rtol, and the float types of all modules: one may compute in float16 inside."""
    feeds: list[dict[str, Value]]
    """The model's inputs, by input set."""
    folder: Path


def _nothing_to_run(recorded: Recorded, piece: Piece | None) -> str:
    if recorded.order < 0:
        return "it was not called"
    if piece is None:
        return "no node of the model was made for it"
    if max(recorded.calls.values()) > 1:
        return "it was called several times"
    return ""


def _pieces(recorded: Sequence[Recorded], work: _Work) -> dict[str, Piece | Error | None]:
    """By module: its piece, why it cannot be cut, or None if the model has none of its nodes."""
    found: dict[str, Piece | Error | None] = {}
    for each in recorded:
        if not each.name:
            found[""] = Piece(work.model, [form.name for form in work.whole.inputs])
        elif each.order >= 0:
            try:
                found[each.name] = cut_piece(work.model, each.name)
            except Error as error:
                found[each.name] = error
    return found


def _boundaries(pieces: Mapping[str, Any], work: _Work) -> list[dict[str, Value]]:
    """The inputs of all pieces as the model computes them, by input set."""
    names = sorted(
        {name for piece in pieces.values() if isinstance(piece, Piece) for name in piece.inputs}
    )
    boundary = Boundary(work.model, work.whole.output_names, work.providers)
    found = []
    for number, feed in enumerate(work.feeds):
        folder = work.folder / str(number)
        folder.mkdir()
        found.append(boundary.values(names, feed, folder))
    return found


def _diagnosed(
    recorded: Recorded,
    piece: Piece | Error | None,
    values: Sequence[Mapping[str, Value]],
    work: _Work,
) -> ModuleDiagnosis:
    found = ModuleDiagnosis(recorded.name, recorded.cls, Status.NOINPUT, order=recorded.order)
    if isinstance(piece, Error):
        found.status, found.reason = Status.FAIL, str(piece).partition("\n")[0]
        return found
    found.reason = _nothing_to_run(recorded, piece)
    if found.reason or piece is None:
        return found
    try:
        session = work.whole
        if recorded.name:
            folder = os.path.dirname(work.model)
            session = Session(piece.data, work.providers, recorded.name, folder)
        for number, own in enumerate(values):
            found.sets.append(run_piece(piece, session, recorded, number, own, work.tolerance))
    except Error as error:
        found.status, found.reason = Status.FAIL, str(error).partition("\n")[0]
        return found
    every = [each for compared in found.sets for each in compared]
    if every:
        found.status = Status.OK if all(each.ok for each in every) else Status.DISC
    else:
        found.reason = "the model has none of its outputs"
    return found


def _mark_parents(modules: Sequence[ModuleDiagnosis]) -> None:
    wrong = [each.name for each in modules if each.status & WRONG]
    for each in modules:
        prefix = f"{each.name}." if each.name else ""
        if any(name != each.name and name.startswith(prefix) for name in wrong):
            each.status |= Status.CHILDC


def _calls(inputs: Any) -> list[Call]:
    """What the module is called with in each set."""
    found: list[Call] = []
    for each in inputs if isinstance(inputs, list) else [inputs]:
        if isinstance(each, Mapping):
            found.append(((), dict(each)))
        elif not isinstance(each, tuple):
            found.append(((each,), {}))
        elif len(each) == 2 and isinstance(each[0], tuple) and isinstance(each[1], Mapping):
            found.append((each[0], dict(each[1])))
        else:
            found.append((each, {}))
    return found


def _reference(
    model: str, against: Any, inputs: Any, task: str | None, dtype: str | None
) -> tuple[ModuleReference, list[Call], list[str]]:
    if is_transformers(against):
        reference, sets, notes = graph_of(model, against, inputs, task, dtype)
        return reference, [each.load().call for each in sets], list(notes)
    import torch

    if not isinstance(against, torch.nn.Module):
        raise InvalidArgumentError(
            f"against: expected a module of torch or a folder of transformers, not {against!r}; "
            "nothing else has modules whose values can be recorded"
        )
    if inputs is None or (isinstance(inputs, list) and not inputs):
        raise InvalidArgumentError("inputs: give at least one set, as the module takes it")
    return ModuleReference(against), _calls(inputs), []


def diagnose(
    model: str | os.PathLike[str],
    against: Any,
    inputs: Any = None,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    providers: str | Sequence[Any] | None = None,
    task: str | None = None,
    dtype: str | None = None,
) -> Diagnosis:
    """Find the modules whose part of a model computes something else than they do.

    Each module is cut out of the model and run on what it took in the reference, so that an error
    in one does not go on to the next.

    Args:
        model: the path of the model.
        against: the module of torch that it was exported from, in eval mode, or the folder of
            transformers, of which the model is the graph of its name ("prefill.onnx").
        inputs: for a module, as it takes them: a tensor, a tuple of arguments, a dict of keywords,
            a tuple and a dict, or a list of such. For a folder as for oe.transformers.export().
        atol: as for oe.validate().
        rtol: likewise.
        providers: likewise.
        task: of a folder, as for oe.transformers.export().
        dtype: likewise.

    Raises:
        RunError: ONNX Runtime cannot load the model, or the reference does not run.
        Error: everything else that keeps the model from being compared.
    """
    path, chosen = os.path.abspath(model), provider_names(providers)
    whole = Session(path, chosen, path)
    reference, calls, notes = _reference(path, against, inputs, task, dtype)
    names = [form.name for form in whole.inputs]
    feeds: list[dict[str, Value]] = []
    taken: list[Call] = []
    for number, call in enumerate(calls):
        feed = reference.feed(call, names)
        misfits = whole.misfits(feed)
        if misfits and feeds:
            notes.append(f"input set {number} is left out: {'; '.join(misfits)}")
            continue
        feeds.append(whole.feed(feed, f"input set {number}"))
        taken.append(call)
    with tempfile.TemporaryDirectory() as folder:
        work = _Work(path, whole, chosen, (atol, rtol, set()), feeds, Path(folder))
        recorded = record(reference.module, taken, work.folder)
        work.tolerance[2].update(*(each.float_types for each in recorded))
        pieces = _pieces(recorded, work)
        values = _boundaries(pieces, work)
        modules = [_diagnosed(each, pieces.get(each.name), values, work) for each in recorded]
    _mark_parents(modules)
    return Diagnosis(path, modules, notes)
