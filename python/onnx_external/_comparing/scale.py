"""Determines the scale of an array's ordinary elements, ignoring masked and giant elements.

A root mean square is not robust: a single element of 1e9 makes it so large that all other elements
are within any tolerance proportional to it. In this module, elements are counted by magnitude, and
the scale is the 75th percentile of the magnitudes of the ordinary elements, so a few larger
elements do not change it. Zeros, values filled in by a mask, and giants far above the other
elements are not ordinary. The computation takes one pass, and memory for the counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .values import Array

_OCTAVE = 64
"""The number of bins per power of two: one for each value of 6 mantissa bits."""
_SHIFT = 46
"""The number of low bits of a float64 to drop; the exponent and 6 bits of the mantissa remain."""
_GAP = 4 * _OCTAVE
"""The gap, in bins, below repeated extreme values, which are at least 16 times the other values."""
_FAR = 8 * _OCTAVE
"""The gap, in bins, below giants: they are at least 256 times the other elements, and fewer."""
_BAND = _OCTAVE // 8
"""The number of bins that one repeated value may span, because logits may have been added to it."""
_BANDS = 3
"""The maximum number of different repeated values: adding two masks gives a third value."""
_CONCENTRATED = 0.05
"""The fraction of elements in two adjacent bins that counts as a repeated value without a gap."""
_SHARE = 0.75


@dataclass(frozen=True)
class Scale:
    """The scale of an array, the number of its ordinary elements, and the limit for masked ones."""

    size: float
    """The magnitude that 75 % of the ordinary elements do not exceed; 0 if all are zero."""
    ordinary: int
    """The number of ordinary elements."""
    fill: float
    """The magnitude from which elements count as filled in by a mask; infinite if none do."""

    @property
    def careful(self) -> float:
        """The scale, increased if there are few elements, since all may be small by chance.

        A single element says little about how large it could have been, so its scale is multiplied
        by ten.
        """
        return self.size * 10 ** (1 / self.ordinary) if self.ordinary else 0.0


class Sizes:
    """A histogram of elements by magnitude."""

    def __init__(self) -> None:
        self._low = self._zeros = 0
        self._counts = np.empty(0, np.int64)
        """The counts of the bins, beginning with the lowest bin."""
        self._sums = np.empty(0, np.float64)

    def add(self, sizes: Array) -> None:
        """Add magnitudes (float64) to the histogram; infinity and NaN are ignored."""
        bins = sizes.view(np.int64) >> _SHIFT
        taken = (sizes > 0) & (sizes < math.inf)
        self._zeros += int(np.count_nonzero(sizes == 0))
        if not taken.all():
            bins, sizes = bins[taken], sizes[taken]
        if bins.size:
            low = int(bins.min())
            counts = np.bincount(bins - low)
            self._widen(low, low + counts.size)
            place = slice(low - self._low, low - self._low + counts.size)
            self._counts[place] += counts
            self._sums[place] += np.bincount(bins - low, sizes)

    def _widen(self, start: int, end: int) -> None:
        """Extend the histogram so that it covers the bins from start to end."""
        if self._counts.size:
            start, end = min(start, self._low), max(end, self._low + self._counts.size)
        if end - start > self._counts.size:
            counts, sums = np.zeros(end - start, np.int64), np.zeros(end - start)
            place = slice(self._low - start, self._low - start + self._counts.size)
            if self._counts.size:
                counts[place], sums[place] = self._counts, self._sums
            self._low, self._counts, self._sums = start, counts, sums

    def scale(self) -> Scale:
        """Return the scale of the counted elements."""
        bins = np.flatnonzero(self._counts)
        counts = self._counts[bins]
        end = self._without_repeated(bins, counts)
        fill = math.inf if end == bins.size else _lower_edge(self._low + int(bins[end]))
        end = self._without_giants(bins[:end], counts[:end])
        if not end:
            return Scale(0.0, 0, fill)
        reached = np.cumsum(counts[:end])
        place = int(np.searchsorted(reached, math.ceil(_SHARE * int(reached[-1]))))
        size = float(self._sums[bins[place]]) / int(counts[place])
        return Scale(size if math.isfinite(size) else 1.0, int(reached[-1]), fill)

    def _without_repeated(self, bins: Array, counts: Array) -> int:
        """Return the number of bins that remain without repeated extreme values at the end."""
        end, left = bins.size, _BANDS
        while end and left > 0:
            start, bands = self._extreme(bins[:end], counts[:end])
            if start == end or (start == 0 and not self._zeros):
                break
            end, left = start, left - bands
        return end

    @staticmethod
    def _without_giants(bins: Array, counts: Array) -> int:
        """Return the number of bins that remain without the few elements far above the others."""
        end = bins.size
        for gap in np.flatnonzero(np.diff(bins) >= _FAR)[::-1]:
            if 2 * counts[gap + 1 : end].sum() < counts[:end].sum():
                end = int(gap) + 1
        return end

    @staticmethod
    def _extreme(bins: Array, counts: Array) -> tuple[int, int]:
        """Return the index of the first repeated extreme value, and the number of such values.

        If there are none, the index is the number of bins, and the number is 0.
        """
        steps = np.diff(bins)
        gaps = np.flatnonzero(steps >= _GAP)
        start = int(gaps[-1]) + 1 if gaps.size else 0
        if bins.size - start <= _BANDS * (_BAND + 1):
            bands = np.split(np.arange(start, bins.size), np.flatnonzero(steps[start:] > 2) + 1)
            narrow = all(bins[band[-1]] - bins[band[0]] <= _BAND for band in bands)
            if narrow and len(bands) <= _BANDS and counts[start:].sum() >= 2 * len(bands):
                return start, len(bands)
        apart = np.flatnonzero(steps > 1)
        start = int(apart[-1]) + 1 if apart.size else 0
        repeated = int(counts[start:].sum())
        if (
            bins[-1] - bins[start] <= 1
            and repeated >= max(2.0, _CONCENTRATED * int(counts.sum()))
            and (start == 0 or steps[start - 1] >= _OCTAVE)
        ):
            return start, 1
        return bins.size, 0


def _lower_edge(number: int) -> float:
    """Return the smallest magnitude in a bin."""
    return float(np.array([number << _SHIFT], np.int64).view(np.float64)[0])
