"""Compares outputs with expected outputs, block by block.

No array is converted as a whole, so the comparison needs only a few megabytes of memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .tolerances import BLOCK, EXACT, Tolerance, default_tolerance
from .values import Array, Value, kind_of, type_name


@dataclass
class Comparison:
    """The comparison of one output with the expected output, for one input set."""

    output: str
    """The output's name in the model, followed by an index for elements of a sequence."""
    dtype: str | None = None
    expected_dtype: str | None = None
    shape: list[int] | None = None
    expected_shape: list[int] | None = None
    problem: str | None = None
    """The reason why values were not compared: an output is missing, or shapes or kinds of types
    differ."""
    elements: int = 0
    beyond: int = 0
    """The number of elements that do not agree. NaN and infinity only agree with the same value."""
    masked: int = 0
    """The number of elements that a mask filled in on both sides: a repeated extreme value, such as
    -1e9 or the lowest float. Masked elements are compared, but do not affect the scale."""
    scale: float | None = None
    """The magnitude that 75 % of the other expected elements do not exceed; atol is proportional to
    the scale."""
    atol: float = 0.0
    rtol: float = 0.0
    parts: list[str] = field(default_factory=list)
    """Slices that are much smaller or larger than the rest. Each is listed with its scale, to which
    atol is proportional."""
    precision: str | None = None
    """The float type that determines the tolerance; None if atol is given or nothing may differ."""
    max_abs: float | None = None
    """The largest difference between finite elements, taken over the elements that do not agree if
    there are any; None if there are no finite elements, or the elements are strings."""
    max_abs_at: list[int] | None = None
    factor: float = 1.0
    """The factor of atol at max_abs_at; differs from 1 only in slices with a scale of their own."""
    note: str = ""
    """The reason why the output counts as equal although it differs by more than the tolerance."""
    max_rel: float | None = None
    """The maximum of |difference| / max(|expected|, atol)."""
    max_rel_at: list[int] | None = None
    actual: Any = None
    """The element at max_abs_at or, for strings and elements that are not finite, at first_at."""
    expected: Any = None
    first_at: list[int] | None = None
    """The index of the first element that does not agree."""
    nan: int = 0
    expected_nan: int = 0
    inf: int = 0
    expected_inf: int = 0

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to compare: no elements, or only NaN on both sides."""
        return self.problem is None and self.beyond == 0 and self.nan == self.elements

    @property
    def ok(self) -> bool:
        """True if there are elements, and all of them agree."""
        return self.problem is None and self.beyond == 0 and not self.is_empty

    @property
    def is_wrong(self) -> bool:
        """True if at least one element does not agree."""
        return not self.ok and not self.is_empty

    @property
    def difference(self) -> str:
        """A sentence on how many elements differ and by how much, or why none were compared."""
        if self.problem:
            return f"{self.output}: {self.problem}"
        verb = "does" if self.beyond == 1 else "do"
        most = f", by {self.max_abs:.3g} at most" if self.max_abs else ""
        told = f"{self.beyond} of {self.elements} elements of {self.output} {verb} not agree"
        return told + most

    @property
    def share(self) -> float:
        """The fraction of elements that do not agree."""
        return self.beyond / self.elements if self.elements else 0.0

    @property
    def times(self) -> float:
        """The largest difference as a multiple of the tolerance; infinite if the tolerance is 0."""
        if self.problem is not None or self.max_abs is None:
            return math.inf if self.problem is not None or self.beyond else 0.0
        size = complex(self.expected) if self.max_abs and self.expected is not None else 0.0
        tolerance = self.atol * self.factor + self.rtol * abs(size)
        found = self.max_abs and (self.max_abs / tolerance if tolerance else math.inf)
        if self.beyond and found <= 1.0:  # the largest difference is not the one that is too large
            special = self.nan or self.inf or self.expected_nan or self.expected_inf
            return math.inf if special else math.nextafter(1.0, 2.0)
        if (self.nan, self.inf) != (self.expected_nan, self.expected_inf):
            return math.inf
        return found if self.beyond else min(found, 1.0)  # beside giants of its row more is allowed


class _Largest:
    """The largest value seen so far, and its index."""

    def __init__(self) -> None:
        self.value = -1.0
        self.place = 0

    def look(self, block: Array, start: int) -> None:
        place = int(block.argmax())
        if block[place] > self.value:
            self.value, self.place = float(block[place]), start + place


def _differences(
    got: Array,
    want: Array,
    tolerance: Tolerance,
    row: int,
    factors: Array | float,
    rounding: Array | None,
) -> tuple[Array, Array, Array]:
    """Return absolute and relative differences (0 if not finite), and which elements do not agree.

    `factors` are the scales of slices relative to the array's scale. `rounding` contains the
    differences that are known to be acceptable.
    """
    finite = np.isfinite(got) & np.isfinite(want)
    size = np.where(finite, np.abs(want), 0.0)
    difference = np.where(finite, np.abs(got - want), 0.0)
    atol = tolerance.atol * factors
    off = difference > atol + tolerance.rtol * size
    if tolerance.row and off.any():
        of_rows = _of_rows(difference / factors, size / factors, tolerance, row) * factors
        off &= difference > of_rows + tolerance.rtol * size
    if tolerance.scales is not None and off.any():
        rest = np.minimum(tolerance.rest, tolerance.most * factors)
        off &= difference > np.maximum(rest, tolerance.least_rest) + tolerance.rtol * size
    if rounding is not None:
        off &= difference > rounding
    off |= ~finite & ~((got == want) | (np.isnan(got) & np.isnan(want)))
    scale = np.maximum(np.where(finite, size, 1.0), atol)
    relative = np.where(difference > 0, difference / scale, 0.0)
    return difference, relative, off


_MORE = 4
"""The factor by which the worst difference may exceed the difference of the largest elements."""


def _of_rows(difference: Array, size: Array, tolerance: Tolerance, row: int) -> Array:
    """Return the difference that rounding may cause in elements whose row contains giant values.

    The elements of a row are computed from the same values, which are as large as the row's largest
    element, so a small element may be the remainder of large values. A small element may be off by
    some rounding steps of the largest element, if these steps are small compared with the scale, or
    if the largest elements themselves differ as much.
    """
    rows = (size.size // row, row) if size.size % row == 0 else (1, size.size)
    sizes = np.where(size < tolerance.fill, size, 0.0).reshape(rows)
    largest = sizes.max(axis=1, keepdims=True)
    differs = np.where(sizes > largest / 2, difference.reshape(rows), 0.0)
    steps = tolerance.row * largest
    allowed = np.maximum(
        np.minimum(steps, tolerance.most),
        np.minimum(steps, _MORE * differs.max(axis=1, keepdims=True)),
    )
    return np.broadcast_to(allowed, rows).reshape(size.shape)


def _integer_difference(got: Array, want: Array) -> Array:
    """Return the absolute differences of integers of one type, without overflow at 64 bits."""
    larger, smaller = np.maximum(got, want), np.minimum(got, want)
    return (larger.astype(np.uint64) - smaller.astype(np.uint64)).astype(np.float64)


class _Sums:
    """Accumulates the comparison of two arrays, block by block."""

    def __init__(self, found: Comparison, kind: str, tolerance: Tolerance, row: int) -> None:
        self._found, self._kind, self._tolerance, self._row = found, kind, tolerance, row
        self.absolute, self.relative, self.wrong = _Largest(), _Largest(), _Largest()
        self.first: int | None = None
        self.finite = False
        self.rounding: Array | None = None

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
            size = np.maximum(np.abs(want.astype(float)), 1.0)
            self._look(difference, difference / size, off, start)
        self._found.beyond += int(np.count_nonzero(off))
        if self.first is None and off.any():
            self.first = start + int(off.argmax())

    def _add_floats(self, got: Array, want: Array, start: int) -> Array:
        lowest = _extremes(got, want)
        wide = np.complex128 if self._kind == "complex" else np.float64
        got, want, found = got.astype(wide), want.astype(wide), self._found
        if lowest is not None:
            got[lowest] = want[lowest]
        found.nan += int(np.count_nonzero(np.isnan(got)))
        found.inf += int(np.count_nonzero(np.isinf(got)))
        found.expected_nan += int(np.count_nonzero(np.isnan(want)))
        found.expected_inf += int(np.count_nonzero(np.isinf(want)))
        scales = self._tolerance.scales
        factors = 1.0 if scales is None else scales.block(start, start + got.size)
        known = None if self.rounding is None else self.rounding[start : start + got.size]
        difference, relative, off = _differences(
            got, want, self._tolerance, self._row, factors, known
        )
        fill = self._tolerance.fill
        if fill < math.inf:
            both = (np.abs(got) >= fill) & (np.abs(want) >= fill) & np.isfinite(want) & ~off
            found.masked += int(np.count_nonzero(both))
        if np.any(np.isfinite(got) & np.isfinite(want)):
            self._look(difference, relative, off, start)
        return off

    def _look(self, difference: Array, relative: Array, off: Array, start: int) -> None:
        self.finite = True
        self.absolute.look(difference, start)
        self.relative.look(relative, start)
        if off.any():
            self.wrong.look(np.where(off, difference, 0.0), start)

    @property
    def largest(self) -> _Largest:
        """The largest finite difference, among the elements that do not agree if possible."""
        return self.wrong if self.wrong.value > 0 else self.absolute


def _extremes(got: Array, want: Array) -> Array | None:
    """Return where both sides have the lowest, or the largest, finite value of their own types.

    A float16 model's mask that fills in torch.finfo(float16).min corresponds to the mask of a
    float32 model that fills in torch.finfo(float32).min.
    """
    if got.dtype == want.dtype:
        return None
    sides = []
    for each in (got, want):
        limits = _limits(each.dtype)
        if limits is None:
            return None
        sides.append((each == limits[0], each == limits[1]))
    found: Array = (sides[0][0] & sides[1][0]) | (sides[0][1] & sides[1][1])
    return found


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any] | None:
    """Return the lowest and the largest finite value of a float type; None for complex types."""
    if dtype.kind == "c":
        return None
    if dtype.kind == "f":
        limits = np.finfo(dtype)
    else:
        import ml_dtypes

        limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return limits.min, limits.max


def _place(index: int, shape: tuple[int, ...]) -> list[int]:
    return [int(each) for each in np.unravel_index(index, shape)]


def _plain(element: Any) -> Any:
    """Convert an array element to a Python value."""
    if isinstance(element, (str, bytes)):
        return element if isinstance(element, str) else element.decode(errors="replace")
    if isinstance(element, (complex, np.complexfloating)):
        return str(complex(element))
    if isinstance(element, (bool, np.bool_, int, np.integer)):
        return element.item() if isinstance(element, np.generic) else element
    return float(element)


def _compare_arrays(
    found: Comparison, got: Array, want: Array, tolerance: Tolerance, rounding: Array | None
) -> None:
    kind = kind_of(want)
    row = got.shape[-1] if got.ndim else 1
    sums = _Sums(found, kind, tolerance, row)
    if rounding is not None and rounding.shape == got.shape:
        sums.rounding = rounding.reshape(-1)
    flat_got, flat_want = got.reshape(-1), want.reshape(-1)
    block = BLOCK // row * row or BLOCK if row else BLOCK  # whole rows
    with np.errstate(all="ignore"):
        for start in range(0, flat_got.size, block):
            end = start + block
            sums.add(flat_got[start:end], flat_want[start:end], start)
    largest = sums.largest
    if sums.finite:
        found.max_abs, found.max_rel = largest.value, sums.relative.value
        found.max_abs_at = _place(largest.place, got.shape)
        found.max_rel_at = _place(sums.relative.place, got.shape)
    if sums.first is not None:
        found.first_at = _place(sums.first, got.shape)
    if tolerance.scales is not None:
        found.parts = tolerance.scales.texts()
        found.factor = float(tolerance.scales.block(largest.place, largest.place + 1)[0])
    shown = largest.place if sums.finite and largest.value > 0 else sums.first
    if shown is not None:
        found.actual, found.expected = _plain(flat_got[shown]), _plain(flat_want[shown])


def _problem(got: Value, want: Value) -> str | None:
    """Return the reason why two values cannot be compared element by element, or None."""
    if got is None or want is None:
        return f"the {'model' if got is None else 'reference'} does not return it"
    kinds = kind_of(got), kind_of(want)
    if kinds[0] != kinds[1] or (kinds[0] == "integer" and got.dtype != want.dtype):
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
    rounding: Array | None = None,
) -> Comparison:
    """Compare two arrays; either is None if the output does not exist.

    Args:
        output: the output's name in the report.
        got: the model's output.
        want: the expected output.
        atol: the absolute tolerance for floats; by default that of the coarsest type.
        rtol: the relative tolerance, likewise.
        others: further types that determine the tolerance; see default_tolerance().
        rounding: for each element, a difference that is known to be rounding.
    """
    found = Comparison(output, problem=_problem(got, want))
    if got is not None:
        found.dtype, found.shape = type_name(got), list(got.shape)
    if want is not None:
        found.expected_dtype, found.expected_shape = type_name(want), list(want.shape)
    if found.problem is None:
        tolerance = default_tolerance(got, want, others)
        if tolerance is not EXACT and rtol is not None:
            tolerance = replace(tolerance, rtol=rtol)
        if tolerance is not EXACT and atol is not None:
            tolerance = replace(tolerance, atol=atol, row=0.0, precision=None, scales=None)
        found.elements, found.atol, found.rtol = got.size, tolerance.atol, tolerance.rtol
        found.scale, found.precision = tolerance.scale, tolerance.precision
        _compare_arrays(found, got, want, tolerance, rounding)
    return found


def flattened(output: str, got: Value, want: Value) -> Iterator[tuple[str, Value, Value]]:
    """Yield the pairs of arrays in an output: one pair, or one for each element of a sequence."""
    if not isinstance(got, list) and not isinstance(want, list):
        if got is not None or want is not None:
            yield output, got, want
        return
    if isinstance(got, list) and isinstance(want, list) and not got and not want:
        yield output, np.empty(0), np.empty(0)
    pairs = itertools.zip_longest(
        got if isinstance(got, list) else [got], want if isinstance(want, list) else [want]
    )
    for number, (one, other) in enumerate(pairs):
        yield f"{output}[{number}]", one, other


def agree(got: Mapping[str, Value], want: Mapping[str, Value]) -> bool:
    """Return whether two sets of outputs with the same names agree everywhere."""
    return all(
        each.problem is None and each.beyond == 0
        for name in got
        for output, one, other in flattened(name, got[name], want.get(name))
        for each in (compare(output, one, other),)
    )
