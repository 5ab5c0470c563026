"""Determines the tolerances for comparing elements, by their type."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .scale import Scale, Sizes
from .slices import Scales, Slices
from .values import Array, kind_of

BLOCK = 1 << 17
"""The number of elements that are compared at a time."""


@dataclass(frozen=True)
class Tolerance:
    """A tolerance: an element agrees if its difference is at most atol + rtol * |expected|."""

    atol: float
    rtol: float
    scale: float | None = None
    """The scale of the expected elements, to which atol is proportional."""
    fill: float = math.inf
    """The magnitude from which an expected element counts as filled in by a mask."""
    row: float = 0.0
    """The allowed difference relative to the largest element of the row."""
    most: float = 0.0
    """The limit of the difference that `row` allows if a row's largest elements are equal."""
    precision: str | None = None
    """The float type that determines the tolerance."""
    scales: Scales | None = None
    """The scales of those slices that are not compared by the array's scale."""
    rest: float = 0.0
    """The allowed difference in a slice of small elements, which may be remainders of large
    elements; at most `most`."""
    least_rest: float = 0.0
    """The lower bound of the allowed difference in such a slice."""


EXACT = Tolerance(0.0, 0.0)


class _Precision(NamedTuple):
    """The resolution of a float type, and the tolerance for its results."""

    atol: float
    """The absolute tolerance, for elements of magnitude 1."""
    rtol: float
    step: float
    """The distance from 1 to the next larger number of the type."""
    least: float
    """The smallest positive number of the type."""


_DEFAULTS = {
    "float64": _Precision(1e-7, 1e-6, 2.0**-52, 2.0**-1074),
    "float32": _Precision(1e-4, 2e-4, 2.0**-23, 2.0**-149),
    "float16": _Precision(2e-2, 2e-2, 2.0**-10, 2.0**-24),
    "bfloat16": _Precision(1e-1, 1e-1, 2.0**-7, 2.0**-133),
    "complex128": _Precision(1e-7, 1e-6, 2.0**-52, 2.0**-1074),
    "complex64": _Precision(1e-4, 2e-4, 2.0**-23, 2.0**-149),
}
_COARSEST = _Precision(0.25, 0.25, 2.0**-2, 2.0**-16)
"""The precision of 8-bit types."""
_ROUNDINGS = 8
"""The number of rounding steps by which a result of several operations may be off."""
_RESTS = 16
"""The number of rounding steps of the largest slices by which small slices may be off."""
_LEAST_RESTS = 4
"""The number of rounding steps of float32 by which small slices may always be off."""


def default_tolerance(got: Array, want: Array, others: Collection[str] = ()) -> Tolerance:
    """Return the tolerance of the coarsest type; for types other than floats, nothing may differ.

    A small element is a sum of larger values, so `atol` is proportional to the scale of the
    expected elements. The scale is robust: values that a mask fills in on both sides, zeros, and a
    few giants do not change it (scale.py). With a root mean square, a single -1e9 would make
    everything else agree.

    A slice that is much smaller or larger than the rest has a scale of its own (slices.py).

    Args:
        got: the model's output.
        want: the expected output.
        others: types of the values from which the arrays were computed, which may be coarser.
    """
    if kind_of(want) not in ("float", "complex"):
        return EXACT
    types = (str(got.dtype), str(want.dtype), *others)
    precision = max(types, key=lambda each: _DEFAULTS.get(each, _COARSEST).atol)
    coarsest = _DEFAULTS.get(precision, _COARSEST)
    scale, row = _scale_of(want), min(_ROUNDINGS * coarsest.step, coarsest.rtol)
    # If everything should be zero, the size of the summands is unknown.
    atol = coarsest.atol * scale.careful if scale.size else row
    slices = Slices(want.shape, scale)
    slices.count(want)
    scales = slices.scales()
    top = scale.size * (scales.largest if scales is not None else 1.0)
    return Tolerance(
        max(atol, _ROUNDINGS * coarsest.least),
        coarsest.rtol,
        scale.size,
        scale.fill,
        row,
        max(1e-2, 2.5 * coarsest.atol) * scale.size,
        precision,
        scales,
        _RESTS * coarsest.step * top,
        max(
            _LEAST_RESTS * min(coarsest.step, _DEFAULTS["float32"].step) * top,
            _ROUNDINGS * coarsest.least,
        ),
    )


def _scale_of(array: Array) -> Scale:
    sizes, flat = Sizes(), array.reshape(-1)
    wide = np.complex128 if kind_of(array) == "complex" else np.float64
    for start in range(0, flat.size, BLOCK):
        sizes.add(np.abs(flat[start : start + BLOCK].astype(wide)))
    return sizes.scale()
