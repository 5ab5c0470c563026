"""Finds slices of an array whose elements are much smaller, or much larger, than the others.

An output may have parts of two scales, such as boxes in pixels next to scores from 0 to 1. Along
each axis, the elements of every slice are counted by magnitude. A slice that is 30 times as small
or as large as the array is judged by its own scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .scale import Scale
from .values import Array

_RATIO = 30.0
"""A slice gets its own scale if it is smaller or larger than the array by this factor."""
_ENOUGH = 8
"""The minimum number of elements for which quartiles describe the magnitude of a slice."""
_FEW = 4
"""The minimum number of elements in adjacent small slices that get their own scale together."""
_SHARE = 0.75
"""The minimum fraction of nonzero elements; a slice with fewer is small because of clipping, as
after ReLU, and does not get its own scale."""
_OCTAVES = 48
"""The number of powers of two that are distinguished."""
_BELOW = 40
"""The number of these powers of two below the scale of the array."""
_MOST_COUNTS = 1 << 22
"""The maximum number of counts for an axis; an axis that needs more is not examined."""
_MOST_ELEMENTS = 1 << 20
"""The approximate number of elements that are counted; larger arrays are sampled."""
_SHOWN = 3
"""The maximum number of parts that a text lists."""


@dataclass(frozen=True)
class Part:
    """Adjacent slices along an axis that share a scale."""

    axis: int
    start: int
    end: int
    scale: float

    def text(self, dimensions: int) -> str:
        """Return the part as an array index with its scale, such as "[:, 4:84, :]"."""
        places = [":"] * dimensions
        places[self.axis] = f"{self.start}:{self.end}"
        return f"[{', '.join(places)}] by a scale of {self.scale:.2g}"


class Slices:
    """A histogram of an array's magnitudes, by slice along each axis."""

    def __init__(self, shape: tuple[int, ...], scale: Scale) -> None:
        self._shape, self._fill, self._size = shape, scale.fill, scale.size
        self._lowest = math.frexp(scale.size)[1] - _BELOW
        usable = scale.size > 0 and math.prod(shape) >= _FEW
        self._counts = {
            axis: np.zeros((length, _OCTAVES + 1), np.int64)
            for axis, length in enumerate(shape if usable else ())
            if 1 < length <= _MOST_COUNTS // _OCTAVES
        }

    def count(self, array: Array) -> None:
        """Count the elements of an array; of a large array, count an evenly spaced sample."""
        if not self._counts:
            return
        step = -(-array.size // _MOST_ELEMENTS)
        while math.gcd(step, array.size) > 1:
            step += 1
        wide = np.complex128 if array.dtype.kind == "c" else np.float64
        sizes = np.abs(array.reshape(-1)[::step].astype(wide))
        taken = sizes < self._fill  # without values filled in by a mask, NaN and infinity
        sizes, index = sizes[taken], np.flatnonzero(taken) * step
        octaves = np.clip(np.frexp(sizes)[1] - self._lowest, 0, _OCTAVES - 1)
        octaves[sizes == 0] = _OCTAVES
        for axis, counts in self._counts.items():
            stride = math.prod(self._shape[axis + 1 :])
            keys = (index // stride % self._shape[axis]) * (_OCTAVES + 1) + octaves
            counts += np.bincount(keys, minlength=counts.size).reshape(counts.shape)

    def scales(self) -> Scales | None:
        """Return the scales of the slices; None if no slice needs a scale of its own."""
        factors, parts = {}, []
        for axis, counts in self._counts.items():
            found = self._parts(axis, counts)
            if found:
                factor = np.ones(self._shape[axis])
                for part in found:
                    factor[part.start : part.end] = part.scale / self._size
                factors[axis] = factor
                parts += found
        return Scales(self._shape, factors, parts) if parts else None

    def _parts(self, axis: int, counts: Array) -> list[Part]:
        """Return the groups of adjacent slices along an axis that need a scale of their own."""
        zeros, counts = counts[:, _OCTAVES], counts[:, :_OCTAVES]
        ordinary = counts.sum(axis=1)
        reached = counts.cumsum(axis=1)
        several = ordinary >= _ENOUGH

        def size(share: float, otherwise: float) -> Array:
            """Return the power of two that this share of the ordinary elements does not exceed."""
            part = np.ceil(np.where(several, share, otherwise) * ordinary)
            octave = (reached < np.maximum(part, 1)[:, None]).sum(axis=1)
            found: Array = 2.0 ** (octave + self._lowest)
            return found

        upper, middle = size(0.75, 1.0), size(0.5, 0.0)
        full = (ordinary > 0) & (ordinary >= _SHARE * (ordinary + zeros))
        small = full & (upper < self._size / _RATIO)
        large = full & (middle / 2 > self._size * _RATIO)
        kinds = np.where(small, -1, np.where(large, 1, 0))
        found = []
        for start, end in _runs(kinds):
            several_in = ordinary[start:end].sum() >= (_FEW if self._each(axis) > 1 else _ENOUGH)
            if kinds[start] and several_in:
                found += self._of_run(axis, start, end, upper, several)
        return found

    def _each(self, axis: int) -> int:
        """Return the number of elements in a slice along an axis."""
        return math.prod(self._shape) // self._shape[axis]

    @staticmethod
    def _of_run(axis: int, start: int, end: int, upper: Array, several: Array) -> list[Part]:
        """Return one part for a run of slices, or one per magnitude if each is large enough."""
        if not several[start:end].all():
            return [Part(axis, start, end, float(upper[start:end].max()))]
        runs = _runs(upper[start:end])
        return [Part(axis, start + a, start + b, float(upper[start + a])) for a, b in runs]


def _runs(values: Array) -> list[tuple[int, int]]:
    """Return the start and end of each run of equal adjacent values."""
    edges = np.flatnonzero(np.diff(values)) + 1
    ends = [*edges.tolist(), len(values)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


@dataclass(frozen=True)
class Scales:
    """The scales of the slices of an array, relative to the scale of the whole array."""

    _shape: tuple[int, ...]
    _factors: dict[int, Array]
    """The factor of each slice, by axis; 1 for a slice that is judged by the array's scale."""
    parts: list[Part]

    def block(self, start: int, end: int) -> Array:
        """Return the factors of the elements with flat indices from start to end.

        An element that is in a small slice along one axis is small, regardless of the other axes.
        """
        index, low, high = np.arange(start, end), np.ones(end - start), np.ones(end - start)
        for axis, factor in self._factors.items():
            stride = math.prod(self._shape[axis + 1 :])
            found = factor[index // stride % self._shape[axis]]
            low, high = np.minimum(low, found), np.maximum(high, found)
        return np.where(low < 1, low, high)

    @property
    def largest(self) -> float:
        """The factor of the slices with the largest scale; at least 1."""
        return max(float(factor.max()) for factor in self._factors.values())

    def texts(self) -> list[str]:
        """Return a text for each part, for use in a report."""
        shown = [each.text(len(self._shape)) for each in self.parts[:_SHOWN]]
        more = len(self.parts) - _SHOWN
        return [*shown, *([f"{more} more"] if more > 0 else [])]
