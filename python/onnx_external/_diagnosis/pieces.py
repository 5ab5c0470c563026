"""Cuts a piece for each module out of a model, and provides the values on which the piece runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._base.errors import NotFoundError, RunError
from .._comparing.comparing import Comparison, compare
from .._comparing.running import Session
from .._comparing.values import Array, Value, is_equal, kind_of
from .._saving.cut import cut_bytes
from .shared_products import Part, apart, own_outputs
from .spill import Spilled, can_spill, spill

_LARGE = 128 << 20
"""The size of weights in bytes from which a piece is loaded without copying them."""

Tolerance = tuple[float | None, float | None, Collection[str]]
"""The arguments of compare(): atol, rtol, and further types."""


@dataclass
class Piece:
    """The part of a model that implements a module, or some operations of a module."""

    data: Any
    """The bytes of the piece as a model, or the path of the whole model."""
    inputs: list[str]
    outputs: list[str]
    weight_bytes: int
    sums: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of inputs that the first nodes of the piece only add to each other: the module itself
    takes the sum of a pair."""
    gives: Set[str] = frozenset()
    """All results of the piece's nodes, including results that belong to other modules."""
    part: Part | None = None
    """If several modules produce one value of the model together: the part that is the output."""


_ADDING = ("SkipSimplifiedLayerNormalization", "SkipLayerNormalization")
"""ONNX Runtime's operators that add two values and normalize the sum."""


def cut_piece(model: str, name: str, without: Sequence[str] = ()) -> Piece | None:
    """Cut a module out of a model; None if the model has no nodes for the module."""
    try:
        data, report = cut_bytes(model, module=name, without=list(without))
    except NotFoundError:
        return None
    sums = _sums(data, set(report.inputs))
    outputs = own_outputs(data, name, report.outputs)
    data, outputs, part = apart(data, name, outputs)
    gives = set(report.outputs)
    return Piece(data, report.inputs, outputs, report.weight_bytes, sums, gives, part)


def _sums(data: bytes, inputs: Set[str]) -> list[tuple[str, str]]:
    """Return the pairs of a piece's inputs that are only added to each other."""
    if not any(kind.encode() in data for kind in _ADDING):
        return []
    try:
        import onnx
    except ImportError:
        return []
    nodes = onnx.ModelProto.FromString(data).graph.node
    users = Counter(name for node in nodes for name in node.input)
    pairs = [node.input[:2] for node in nodes if node.op_type in _ADDING]
    return [
        (one, other)
        for one, other in pairs
        if {one, other} <= inputs and users[one] == users[other] == 1
    ]


def load(piece: Piece, providers: list[Any], name: str, folder: str) -> Session:
    """Load a piece without changing it; if its weights are large, they are memory-mapped."""
    is_piece = isinstance(piece.data, bytes)
    lean = piece.weight_bytes >= _LARGE
    return Session(piece.data, providers, name, folder if is_piece else None, lean, is_piece)


class Boundary:
    """The inner values that the model computes, stored on disk."""

    _AT_ONCE = 64
    """The number of values that one run of the model returns and that are in memory at a time."""

    def __init__(
        self,
        model: str,
        feeds: Sequence[Mapping[str, Value]],
        providers: list[Any],
        folder: Path,
    ) -> None:
        self._model, self._providers, self._folder = model, providers, folder
        self._known: list[dict[str, Value | Spilled]] = [dict(feed) for feed in feeds]
        self._feeds, self._count = feeds, 0
        self._lost: set[str] = set()
        """The names of values that cannot be computed."""

    @property
    def given(self) -> Set[str]:
        """The names of the model's inputs."""
        return self._feeds[0].keys()

    def fetch(self, names: Iterable[str]) -> None:
        """Compute inner values that are not known yet, in all input sets.

        If a node of the model fails, only the values before this node are computed.

        Args:
            names: the names of the values, approximately in the order of their computation.
        """
        done = self._lost.union(self._known[0])
        inside = [each for each in dict.fromkeys(names) if each not in done]
        for start in range(0, len(inside), self._AT_ONCE):
            if not self._try(inside[start : start + self._AT_ONCE]):
                self._lost.update(inside[start + self._AT_ONCE :])
                break

    def values(self, names: Sequence[str], number: int) -> dict[str, Value]:
        """Return values of one input set by name; arrays are memory-mapped.

        Raises:
            RunError: the model fails before one of the values.
        """
        self.fetch(names)
        lost = [name for name in names if name in self._lost]
        if lost:
            raise RunError(f"the model fails before it computes {lost[0]}, which the module takes")
        known = self._known[number]
        found = {name: known[name] for name in names}
        return {n: each.read() if isinstance(each, Spilled) else each for n, each in found.items()}

    def _try(self, names: list[str]) -> bool:
        """Compute all values or, if one cannot be computed, the values before it."""
        try:
            self._compute(names)
        except RunError:
            if len(names) == 1:
                self._lost.update(names)
                return False
            half = len(names) // 2
            if self._try(names[:half]):
                return self._try(names[half:])
            self._lost.update(names[half:])
            return False
        return True

    def _compute(self, names: list[str]) -> None:
        data, report = cut_bytes(self._model, outputs=names)
        piece = Piece(data, report.inputs, report.outputs, report.weight_bytes)
        session = load(piece, self._providers, self._model, os.path.dirname(self._model))
        for known, feed in zip(self._known, self._feeds, strict=True):
            got = session.run(session.feed(feed, "its inputs"), "its inputs")
            for name in names:
                value = got.pop(name)
                if can_spill(value):
                    self._count += 1
                    value = spill(value, self._folder / f"boundary.{self._count}")
                known[name] = value


def _distance(one: Array, other: Array) -> float:
    """Return the relative difference of two arrays; infinite if shapes or kinds differ.

    Elements that are infinite or have the same extreme value on both sides are assumed to be filled
    in by a mask, and are left out.
    """
    if one.shape != other.shape or kind_of(one) != kind_of(other):
        return float("inf")
    if not one.size:
        return 0.0
    with np.errstate(all="ignore"):
        wide = np.complex128 if kind_of(one) == "complex" else np.float64
        left, right = (each.astype(wide).reshape(-1) for each in (one, other))
        sizes = np.abs(right)
        filled = (left == right) & (sizes >= sizes.max() / 2) & (sizes > 0)
        if filled.any() and not filled.all():
            left, right, sizes = left[~filled], right[~filled], sizes[~filled]
        elif filled.all():
            return 0.0
        difference = float(np.sqrt(np.mean(np.abs(left - right) ** 2)))
        size = float(np.sqrt(np.mean(sizes**2)))
    if not np.isfinite(difference):
        return _FAR
    return min(difference / max(size, 1e-12), _FAR)


_FAR = 1e30
"""The distance of comparable arrays whose difference is NaN or infinite."""
_REORDERED = 1e-3
"""The maximum distance of sorted arrays; it is low because sorting makes random arrays similar."""
_SAME = 0.5
"""The maximum distance at which a value of the model corresponds to a recorded value."""


def stand_ins(
    own: Mapping[str, Value],
    candidates: Sequence[Array],
    plain: Sequence[bool],
    right: Container[str],
) -> dict[str, Array]:
    """Return the recorded values that correspond to values of the model, where there are any.

    The corresponding value is the nearest recorded value. If the model goes wrong, its value may be
    far from all recorded values; then the corresponding value is the most similar one of the same
    shape that does not correspond to any other value.

    Args:
        own: values of the model by name.
        candidates: the recorded values.
        plain: which candidates may correspond to a value that is far from all candidates.
        right: the names of correct values, which only correspond to near candidates.
    """
    found, taken, lost = {}, set(), []
    for name, value in own.items():
        if not can_spill(value):
            continue
        far = [_distance(value, each) for each in candidates]
        place = _place_of(value, candidates, far)
        if place is not None:
            found[name] = candidates[place]
            taken.add(place)
        elif kind_of(value) == "float" and name not in right:
            lost += [
                (name, place) for place, each in enumerate(far) if each <= _FAR and plain[place]
            ]
    ranked = sorted(lost, key=lambda pair: -_similarity(own[pair[0]], candidates[pair[1]]))
    for name, place in ranked:
        if name not in found and place not in taken:
            found[name] = candidates[place]
            taken.add(place)
    return found


def _place_of(value: Array, candidates: Sequence[Array], far: Sequence[float]) -> int | None:
    """Return the index of the candidate near a value, or with the same elements in another order.

    Rows that a model groups, such as by the expert that processes them, may be in any order within
    a group.
    """
    nearest = min(far, default=float("inf"))
    if nearest <= _SAME:
        return far.index(nearest)
    for place, each in enumerate(candidates):
        if far[place] <= _FAR and kind_of(value) == "float":
            ordered = [np.sort(one.astype(np.float64), axis=None) for one in (value, each)]
            if _distance(ordered[0], ordered[1]) <= _REORDERED:
                return place
    return None


def _similarity(one: Array, other: Array) -> float:
    """Return the cosine similarity of two arrays with the same shape."""
    with np.errstate(all="ignore"):
        left, right = (each.astype(np.float64).reshape(-1) for each in (one, other))
        size = float(np.linalg.norm(left) * np.linalg.norm(right))
        cosine = float(np.dot(left, right)) / size if size else 0.0
    return cosine if np.isfinite(cosine) else -1.0


def stand_ins_of_sums(
    own: Mapping[str, Value],
    sums: Iterable[tuple[str, str]],
    find: Callable[[dict[str, Value]], dict[str, Array]],
) -> dict[str, Array]:
    """Return the recorded values that correspond to the model's values or to sums of two of them.

    Args:
        own: values of the model by name.
        sums: pairs of names. The recorded value for a pair's sum is used for the first name, and
            zeros for the second.
        find: a function that finds the corresponding values.
    """
    values = dict(own)
    pairs = {f"{one} + {other}": (one, other) for one, other in sums if {one, other} <= own.keys()}
    for name, (one, other) in pairs.items():
        values[name] = np.add(values.pop(one), values.pop(other))
    found = find(values)
    for name, (one, other) in pairs.items():
        if name in found:
            found[one] = found.pop(name)
            found[other] = np.zeros_like(found[one])
    return found


class Wanted(NamedTuple):
    """An output of a module that its piece is expected to compute."""

    array: Array
    is_plain: bool
    """True if the output is not part of an object; see Recorded.plain()."""
    is_first: bool
    """True if the expected output is the module's first output."""


def compare_outputs(
    got: Mapping[str, Value],
    wanted: Sequence[Wanted],
    handed_on: Sequence[Array],
    ends: Container[str],
    tolerance: Tolerance,
    unfinished: Set[str] = frozenset(),
) -> list[Comparison]:
    """Compare a piece's outputs with recorded outputs.

    Each recorded value is compared with the nearest output of the piece that has its shape. If no
    output is near, the output may be wrong, or the model may not have the value: other nodes
    replaced it, nothing uses it, the module passes its input through, or a cache has it from
    another module. In this case, the module's first result counts as wrong. Another result only
    counts as wrong if a single output is left for it.

    Args:
        got: the outputs of the piece.
        wanted: the recorded outputs.
        handed_on: the recorded inputs of the module, which it may pass through.
        ends: outputs of the whole model, which can only correspond to the first result.
        tolerance: the tolerance of the comparison.
        unfinished: values from which nodes without a module name may compute a result. If such a
            value is among the remaining outputs, results without a near output are skipped.
    """
    arrays = {name: each for name, each in got.items() if can_spill(each)}
    found: dict[int, Comparison] = {}
    lost, claimed = [], set()
    for number, want in enumerate(wanted):
        far = {name: _distance(each, want.array) for name, each in arrays.items()}
        nearest = min(far, key=lambda name: far[name], default=None)
        if nearest is not None and far[nearest] <= _SAME:
            claimed.add(nearest)
            found[number] = compare(nearest, arrays[nearest], want.array, *tolerance)
        elif want.is_plain and not any(is_equal(want.array, each) for each in handed_on):
            lost.append((number, want, far))
    for number, want, far in lost:
        left = [name for name in far if far[name] <= _FAR and name not in claimed]
        if not unfinished.isdisjoint(left):
            continue
        if not want.is_first:
            left = [name for name in left if name not in ends]
        if left and (want.is_first or len(left) == 1):
            nearest = min(left, key=lambda name: far[name])
            found[number] = compare(nearest, arrays[nearest], want.array, *tolerance)
    return [found[number] for number in sorted(found)]
