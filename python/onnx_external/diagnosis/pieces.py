"""A module's piece of the model, run on what the module took."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..cut import cut_bytes
from ..errors import NotFoundError
from ..validation.comparing import Comparison, compare
from ..validation.running import Session
from ..validation.values import Array, Value, kind_of
from .recording import Recorded

__all__ = ["Boundary", "Piece", "cut_piece", "run_piece"]


@dataclass
class Piece:
    """The model of one module."""

    data: Any
    """Its bytes, or the path of the whole model."""
    inputs: list[str]


def cut_piece(model: str, name: str) -> Piece | None:
    """Cut a module out of a model; None if no node of the model was made for it."""
    try:
        data, report = cut_bytes(model, module=name)
    except NotFoundError:
        return None
    return Piece(data, list(report.inputs))


class Boundary:
    """Values inside of the model, as the model computes them, on the disk."""

    _AT_ONCE = 64
    """Values that one run of the model gives, and memory holds."""

    def __init__(self, model: str, results: Sequence[str], providers: list[Any]) -> None:
        self._model, self._results, self._providers = model, results, providers

    def values(
        self, names: Sequence[str], feed: Mapping[str, Value], folder: Path
    ) -> dict[str, Value]:
        """Return them by name; arrays are mapped.

        Args:
            names: of values and inputs of the model.
            feed: the model's inputs.
            folder: for the values.
        """
        found = {name: feed[name] for name in names if name in feed}
        inside = [name for name in names if name not in feed]
        for start in range(0, len(inside), self._AT_ONCE):
            part = inside[start : start + self._AT_ONCE]
            for number, (name, value) in enumerate(self._run(part, feed).items(), start):
                found[name] = value
                if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
                    path = folder / f"boundary.{number}.npy"
                    np.save(path, value, allow_pickle=False)
                    found[name] = np.load(path, mmap_mode="r")
        return found

    def _run(self, names: list[str], feed: Mapping[str, Value]) -> dict[str, Value]:
        # With the model's own outputs: they depend on all of its inputs, which a cut asks for.
        outputs = [*names, *(name for name in self._results if name not in names)]
        data, _ = cut_bytes(self._model, inputs=list(feed), outputs=outputs)
        session = Session(data, self._providers, self._model, os.path.dirname(self._model))
        got = session.run(session.feed(feed, "its inputs"), "its inputs")
        return {name: got[name] for name in names}


def _distance(one: Array, other: Array) -> float:
    """The difference as a part of the other's size; infinite if shapes or kinds differ."""
    if one.shape != other.shape or kind_of(one) != kind_of(other):
        return float("inf")
    if not one.size:
        return 0.0
    with np.errstate(all="ignore"):
        left, right = one.astype(np.float64), other.astype(np.float64)
        difference = float(np.sqrt(np.mean((left - right) ** 2)))
        size = float(np.sqrt(np.mean(right**2)))
    if not np.isfinite(difference):
        return _FAR
    return min(difference / max(size, 1e-12), _FAR)


_FAR = 1e30
"""Of values that can be compared, and are NaN or infinite."""
_SAME = 0.5
"""A value of the model stands for a recorded one if it is not farther from it than this."""


def _inputs(
    piece: Piece, recorded: Recorded, number: int, model: Mapping[str, Value]
) -> dict[str, Value]:
    """For each input the recorded value that it stands for, else the model's own.

    A piece has inputs that its module has not: sizes, masks that were converted before.
    """
    given = {}
    candidates = recorded.values(number, "input")
    for name in piece.inputs:
        own = given[name] = model[name]
        if isinstance(own, np.ndarray):
            far = [_distance(own, each) for each in candidates]
            if far and min(far) <= _SAME:
                given[name] = np.asarray(candidates[far.index(min(far))])
    return given


def run_piece(
    piece: Piece,
    session: Session,
    recorded: Recorded,
    number: int,
    model: Mapping[str, Value],
    tolerance: tuple[float | None, float | None, Collection[str]],
) -> list[Comparison]:
    """Compare what a piece gives on recorded inputs with what the module gave.

    Each recorded output is compared with the nearest value of its shape that the piece gives; one
    that the model does not have, since other nodes took its place, is not compared.

    Args:
        piece: the piece.
        session: it, loaded.
        recorded: its module.
        number: the input set.
        model: the values of the piece's inputs, as the model computes them.
        tolerance: atol, rtol and the types of other values, as compare() takes them.
    """
    given = _inputs(piece, recorded, number, model)
    got = session.run(session.feed(given, f"input set {number}"), f"input set {number}")
    arrays = {name: each for name, each in got.items() if isinstance(each, np.ndarray)}
    found = []
    for want in recorded.values(number, "output"):
        far = {name: _distance(each, want) for name, each in arrays.items()}
        nearest = min(far, key=lambda name: far[name], default=None)
        if nearest is not None and far[nearest] <= _FAR:
            found.append(compare(nearest, arrays[nearest], np.asarray(want), *tolerance))
    return found
