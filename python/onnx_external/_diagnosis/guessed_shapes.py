"""Guesses the sizes of a module's outputs as functions of its input sizes, from recorded calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_MOST = 16
"""The maximum number of dynamic sizes for which combinations of three are tried."""


class Sizes(Protocol):
    """The sizes among a call's inputs, by position."""

    def __getitem__(self, place: int, /) -> Any:
        """Return one size."""


@dataclass(frozen=True)
class Size:
    """A constant, or a function of up to three input sizes with constant factors and summands."""

    first: int | None = None
    """The position of the first size among the sizes of the inputs; None for a constant."""
    operation: str = ""
    """The operation on the first and the second size: "+", "-" or "*"."""
    second: int | None = None
    factor: int | None = None
    """The position of a size by which the sum, difference or product is multiplied."""
    times: int = 1
    divided: int = 1
    plus: int = 0

    def of(self, sizes: Sizes) -> Any:
        """Return the value for given input sizes, which may be symbolic torch sizes."""
        if self.first is None:
            return self.plus
        value = sizes[self.first]
        if self.second is not None:
            other = sizes[self.second]
            if self.operation == "+":
                value = value + other
            elif self.operation == "-":
                value = value - other
            else:
                value = value * other
        if self.factor is not None:
            value = value * sizes[self.factor]
        if self.times != 1:
            value = value * self.times
        if self.divided != 1:
            value = value // self.divided
        return value + self.plus if self.plus else value


def _scaled(base: Size, values: Sequence[int], wanted: Sequence[int]) -> Iterator[Size]:
    """Yield the base function, then the same with constants that could fit the first call."""
    yield base
    first, want = values[0], wanted[0]
    parts = (base.first, base.operation, base.second, base.factor)
    if first and want and want % first == 0:
        yield Size(*parts, times=want // first)
    if first and want and first % want == 0:
        yield Size(*parts, divided=first // want)
    yield Size(*parts, plus=want - first)


def _candidates(
    calls: Sequence[Sequence[int]], wanted: Sequence[int], preferred: Sequence[int]
) -> Iterator[Size]:
    """Yield candidates, the simplest first; sizes that are equal in all calls are not used."""
    vary = [place for place in range(len(calls[0])) if len({call[place] for call in calls}) > 1]
    vary.sort(key=lambda place: (place not in preferred, place))
    for place in vary:
        yield Size(place)
    for place in vary:
        yield from _scaled(Size(place), [call[place] for call in calls], wanted)
    for one, other in itertools.permutations(vary, 2):
        for operation in "-" if one > other else "+-*":
            base = Size(one, operation, other)
            yield from _scaled(base, [base.of(call) for call in calls], wanted)
    for one, other, factor in itertools.permutations(vary[:_MOST], 3):
        for operation in "-" if one > other else "+-*":
            base = Size(one, operation, other, factor)
            yield from _scaled(base, [base.of(call) for call in calls], wanted)


def guess_size(
    calls: Sequence[Sequence[int]], wanted: Sequence[int], preferred: Sequence[int] = ()
) -> Size | None:
    """Return the simplest function that yields an output's size in all calls; None if none fits.

    Args:
        calls: the sizes of the inputs, for each call.
        wanted: the size of the output, for each call.
        preferred: the positions of sizes to try first.
    """
    if len(set(wanted)) == 1:
        return Size(plus=wanted[0])
    for each in _candidates(calls, wanted, preferred):
        if all(each.of(call) == want for call, want in zip(calls, wanted, strict=True)):
            return each
    return None
