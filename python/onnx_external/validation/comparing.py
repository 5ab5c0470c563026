"""How far an output is from what was expected, block by block.

No array is converted as a whole: what this takes beside its arguments is some megabytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .values import Array, Value, kind_of, type_name

__all__ = ["Comparison", "Tolerance", "compare", "default_tolerance", "flattened"]

_BLOCK = 1 << 17
"""Elements that are compared at once."""


@dataclass(frozen=True)
class Tolerance:
    """An element agrees if its difference is at most atol + rtol * |expected|."""

    atol: float
    rtol: float


_EXACT = Tolerance(0.0, 0.0)
_DEFAULTS = {
    "float64": Tolerance(1e-7, 1e-6),
    "float32": Tolerance(1e-4, 1e-3),
    "float16": Tolerance(2e-2, 2e-2),
    "bfloat16": Tolerance(1e-1, 1e-1),
    "complex128": Tolerance(1e-7, 1e-6),
    "complex64": Tolerance(1e-4, 1e-3),
}
_COARSEST = Tolerance(0.25, 0.25)
"""Of types of 8 bits."""


def default_tolerance(got: Array, want: Array, others: Collection[str] = ()) -> Tolerance:
    """Return the tolerance of the coarsest type; integers, bools and strings are exact.

    `others` are types of values that the arrays were computed from, if these may be coarser. A
    small element is a sum of larger ones, so `atol` grows with the values that are expected.
    """
    if kind_of(want) not in ("float", "complex"):
        return _EXACT
    types = (str(got.dtype), str(want.dtype), *others)
    coarsest = max((_DEFAULTS.get(each, _COARSEST) for each in types), key=lambda each: each.atol)
    return Tolerance(coarsest.atol * max(1.0, _root_mean_square(want)), coarsest.rtol)


def _root_mean_square(array: Array) -> float:
    """Of the finite elements."""
    total, count, flat = 0.0, 0, array.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        sizes = np.abs(block.astype(np.complex128 if kind_of(array) == "complex" else np.float64))
        sizes = sizes[np.isfinite(sizes)]
        with np.errstate(over="ignore"):
            total += float(np.dot(sizes, sizes))
        count += sizes.size
    return math.sqrt(total / count) if count and math.isfinite(total) else 1.0


@dataclass
class Comparison:
    """One output of one input set, beside what was expected."""

    output: str
    """The model's name; elements of a sequence have their number behind it."""
    dtype: str | None = None
    expected_dtype: str | None = None
    shape: list[int] | None = None
    expected_shape: list[int] | None = None
    problem: str | None = None
    """Why the values were not compared: one is missing, or shapes or kinds of types differ."""
    elements: int = 0
    beyond: int = 0
    """Elements that do not agree; one that is NaN or infinite agrees with its equal only."""
    atol: float = 0.0
    rtol: float = 0.0
    max_abs: float | None = None
    """The largest difference of finite elements; None if there are none, or they are strings."""
    max_abs_at: list[int] | None = None
    max_rel: float | None = None
    """The largest of |difference| / max(|expected|, atol)."""
    max_rel_at: list[int] | None = None
    actual: Any = None
    """The element at max_abs_at; for strings and elements that are not finite at first_at."""
    expected: Any = None
    first_at: list[int] | None = None
    """The first element that does not agree."""
    nan: int = 0
    expected_nan: int = 0
    inf: int = 0
    expected_inf: int = 0

    @property
    def ok(self) -> bool:
        """Whether every element agrees."""
        return self.problem is None and self.beyond == 0

    @property
    def share(self) -> float:
        """The share of the elements that do not agree."""
        return self.beyond / self.elements if self.elements else 0.0


class _Largest:
    """A maximum and its place."""

    def __init__(self) -> None:
        self.value = -1.0
        self.place = 0

    def look(self, block: Array, start: int) -> None:
        place = int(block.argmax())
        if block[place] > self.value:
            self.value, self.place = float(block[place]), start + place


def _differences(got: Array, want: Array, tolerance: Tolerance) -> tuple[Array, Array, Array]:
    """By element: the difference where both are finite, else 0; the relative one; what is off."""
    finite = np.isfinite(got) & np.isfinite(want)
    size = np.abs(want)
    difference = np.where(finite, np.abs(got - want), 0.0)
    off = difference > tolerance.atol + tolerance.rtol * np.where(finite, size, 0.0)
    off |= ~finite & ~((got == want) | (np.isnan(got) & np.isnan(want)))
    scale = np.maximum(np.where(finite, size, 1.0), tolerance.atol)
    relative = np.where(difference > 0, difference / scale, 0.0)
    return difference, relative, off


def _integer_difference(got: Array, want: Array) -> Array:
    """The distance of integers of any types; a subtraction in 64 bits would overflow."""
    if got.dtype == want.dtype:
        larger, smaller = np.maximum(got, want), np.minimum(got, want)
        return (larger.astype(np.uint64) - smaller.astype(np.uint64)).astype(np.float64)
    # Two types of 64 bits have no common one; unequal neighbours must stay unequal.
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return np.where((got != want) & (difference == 0), 1.0, difference)


class _Sums:
    """What the blocks of one pair of arrays add up to."""

    def __init__(self, found: Comparison, kind: str, tolerance: Tolerance) -> None:
        self._found, self._kind, self._tolerance = found, kind, tolerance
        self.absolute, self.relative = _Largest(), _Largest()
        self.first: int | None = None
        self.finite = False

    def add(self, got: Array, want: Array, start: int) -> None:
        if self._kind in ("float", "complex"):
            off = self._add_floats(got, want, start)
        elif self._kind == "string":
            off = np.fromiter((one != other for one, other in zip(got, want, strict=True)), bool)
        else:
            if self._kind == "bool":
                got, want = got.astype(np.uint8), want.astype(np.uint8)
            difference = _integer_difference(got, want)
            off = difference > 0
            self._look(difference, difference / np.maximum(np.abs(want.astype(float)), 1.0), start)
        self._found.beyond += int(np.count_nonzero(off))
        if self.first is None and off.any():
            self.first = start + int(off.argmax())

    def _add_floats(self, got: Array, want: Array, start: int) -> Array:
        wide = np.complex128 if self._kind == "complex" else np.float64
        got, want, found = got.astype(wide), want.astype(wide), self._found
        found.nan += int(np.count_nonzero(np.isnan(got)))
        found.inf += int(np.count_nonzero(np.isinf(got)))
        found.expected_nan += int(np.count_nonzero(np.isnan(want)))
        found.expected_inf += int(np.count_nonzero(np.isinf(want)))
        difference, relative, off = _differences(got, want, self._tolerance)
        if np.any(np.isfinite(got) & np.isfinite(want)):
            self._look(difference, relative, start)
        return off

    def _look(self, difference: Array, relative: Array, start: int) -> None:
        self.finite = True
        self.absolute.look(difference, start)
        self.relative.look(relative, start)


def _place(index: int, shape: tuple[int, ...]) -> list[int]:
    return [int(each) for each in np.unravel_index(index, shape)]


def _plain(element: Any) -> Any:
    """An element as Python has it."""
    if isinstance(element, (str, bytes)):
        return element if isinstance(element, str) else element.decode(errors="replace")
    if isinstance(element, (complex, np.complexfloating)):
        return str(complex(element))
    if isinstance(element, (bool, np.bool_, int, np.integer)):
        return element.item() if isinstance(element, np.generic) else element
    return float(element)


def _compare_arrays(found: Comparison, got: Array, want: Array, tolerance: Tolerance) -> None:
    kind = kind_of(want)
    sums = _Sums(found, kind, tolerance)
    flat_got, flat_want = got.reshape(-1), want.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat_got.size, _BLOCK):
            end = start + _BLOCK
            sums.add(flat_got[start:end], flat_want[start:end], start)
    if sums.finite:
        found.max_abs, found.max_rel = sums.absolute.value, sums.relative.value
        found.max_abs_at = _place(sums.absolute.place, got.shape)
        found.max_rel_at = _place(sums.relative.place, got.shape)
    if sums.first is not None:
        found.first_at = _place(sums.first, got.shape)
    shown = sums.absolute.place if sums.finite and sums.absolute.value > 0 else sums.first
    if shown is not None:
        found.actual, found.expected = _plain(flat_got[shown]), _plain(flat_want[shown])


def _problem(got: Value, want: Value) -> str | None:
    """Why two values cannot be compared element by element."""
    if got is None or want is None:
        return f"the {'model' if got is None else 'reference'} gives none"
    kinds = kind_of(got), kind_of(want)
    if kinds[0] != kinds[1]:
        return f"types differ: {type_name(got)}, expected {type_name(want)}"
    if got.shape != want.shape:
        return f"shapes differ: {list(got.shape)}, expected {list(want.shape)}"
    return None


def compare(
    output: str,
    got: Value,
    want: Value,
    atol: float | None = None,
    rtol: float | None = None,
    others: Collection[str] = (),
) -> Comparison:
    """Compare two arrays, or None for one that there is not.

    Args:
        output: the name for the report.
        got: what the model gave.
        want: what was expected.
        atol: for floats; by default that of the coarsest type.
        rtol: likewise.
        others: types that count as well, as default_tolerance() takes them.
    """
    found = Comparison(output, problem=_problem(got, want))
    if got is not None:
        found.dtype, found.shape = type_name(got), list(got.shape)
    if want is not None:
        found.expected_dtype, found.expected_shape = type_name(want), list(want.shape)
    if found.problem is None:
        tolerance = default_tolerance(got, want, others)
        if tolerance is not _EXACT:
            tolerance = Tolerance(
                tolerance.atol if atol is None else atol, tolerance.rtol if rtol is None else rtol
            )
        found.elements, found.atol, found.rtol = got.size, tolerance.atol, tolerance.rtol
        _compare_arrays(found, got, want, tolerance)
    return found


def flattened(output: str, got: Value, want: Value) -> Iterator[tuple[str, Value, Value]]:
    """Yield the pairs of arrays that make up an output: one, or those of a sequence."""
    if not isinstance(got, list) and not isinstance(want, list):
        if got is not None or want is not None:
            yield output, got, want
        return
    pairs = itertools.zip_longest(
        got if isinstance(got, list) else [got], want if isinstance(want, list) else [want]
    )
    for number, (one, other) in enumerate(pairs):
        yield f"{output}[{number}]", one, other
