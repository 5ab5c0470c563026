"""Scale of the ordinary elements of an array, without those of a mask or a few giants.

A root mean square is not robust: a single element of 1e9 makes it so large that all others are
within any tolerance that grows with it. Here elements are counted by size, and the scale is the
size that three quarters of the ordinary ones do not exceed. Larger elements do not change it;
zeros, values filled in by a mask, and giants that stand apart are not ordinary. It takes one pass,
and memory for the counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .values import Array

_OCTAVE = 64
"""The number of bins per power of two: as many as 6 bits of a mantissa distinguish."""
_SHIFT = 46
"""The dropped bits of a float64; its exponent and 6 bits of its mantissa remain."""
_GAP = 4 * _OCTAVE
"""Elements that stand apart are at least 16 times as large as the others."""
_FAR = 8 * _OCTAVE
"""Giants are at least 256 times as large as the others, and fewer than these."""
_BAND = _OCTAVE // 8
"""The bins of one repeated value, or of a logit that is added to it, as far as float types keep
it."""
_BANDS = 3
"""The most repeated values in one place: two masks that are added give a third."""
_CONCENTRATED = 0.05
"""The share of elements in two bins that makes a repeated value, even close to the others."""
_SHARE = 0.75


@dataclass(frozen=True)
class Scale:
    """The result of counting."""

    size: float
    """A size that three quarters of the ordinary elements do not exceed; 0 if they are all zero."""
    ordinary: int
    """The number of elements that are not zero."""
    fill: float
    """The size from which elements count as filled in by a mask; infinite if there are none."""

    @property
    def careful(self) -> float:
        """The size, increased if there are few elements, which may all be small by chance.

        One element says little about how large it could have been, so it counts ten times.
        """
        return self.size * 10 ** (1 / self.ordinary) if self.ordinary else 0.0


class Sizes:
    """A histogram of elements by their size."""

    def __init__(self) -> None:
        self._low = self._zeros = 0
        self._counts = np.empty(0, np.int64)
        """The counts of the bins, from the lowest one on."""
        self._sums = np.empty(0, np.float64)

    def add(self, sizes: Array) -> None:
        """Count absolute values, of type float64, without NaN and infinity."""
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
        """Extend the histogram to the bins from start to end."""
        if self._counts.size:
            start, end = min(start, self._low), max(end, self._low + self._counts.size)
        if end - start > self._counts.size:
            counts, sums = np.zeros(end - start, np.int64), np.zeros(end - start)
            place = slice(self._low - start, self._low - start + self._counts.size)
            if self._counts.size:
                counts[place], sums[place] = self._counts, self._sums
            self._low, self._counts, self._sums = start, counts, sums

    def scale(self) -> Scale:
        """Return the scale of the elements."""
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
        """Return how many bins are left after removing repeated extremes from the end."""
        end, left = bins.size, _BANDS
        while end and left > 0:
            start, bands = self._extreme(bins[:end], counts[:end])
            if start == end or (start == 0 and not self._zeros):
                break
            end, left = start, left - bands
        return end

    @staticmethod
    def _without_giants(bins: Array, counts: Array) -> int:
        """Return how many bins are left after removing the few elements far above the others."""
        end = bins.size
        for gap in np.flatnonzero(np.diff(bins) >= _FAR)[::-1]:
            if 2 * counts[gap + 1 : end].sum() < counts[:end].sum():
                end = int(gap) + 1
        return end

    @staticmethod
    def _extreme(bins: Array, counts: Array) -> tuple[int, int]:
        """Return where repeated values at the end start, and their number of bands.

        Without any, the start is the end and the number is 0.
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
    """Return the smallest size in a bin."""
    return float(np.array([number << _SHIFT], np.int64).view(np.float64)[0])
