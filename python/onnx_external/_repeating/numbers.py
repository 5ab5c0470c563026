"""Predicts the numbers that torch appends to names in a deep model from those in a shallow model.

"linear_12" is the thirteenth value named "linear". Therefore the numbers in the names of two
consecutive layers differ by the number of times that a layer uses the name. If this difference is
unknown, the name contains the index of its layer instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .kinds import Stack
from .layers import Layers, segment_of
from .recording import Segment

if TYPE_CHECKING:
    import onnx_ir

_NUMBERED = re.compile(r"^(.*?)(?:_(\d+))?$")
_NEAR = 1e-6


Starts: TypeAlias = Mapping[Segment, Mapping[str, int]]
"""The smallest number that each layer appends to each name."""


def starts_of(model: onnx_ir.Model, stacks: Sequence[Stack]) -> Starts:
    """Return the smallest numbers appended to the names in each layer before optimization.

    Args:
        model: the graph of a shallow model.
        stacks: the lists of layers.
    """
    found: dict[Segment, dict[str, int]] = {}
    for node in model.graph:
        segment = segment_of(node, stacks)
        if segment is None:
            continue
        mine = found.setdefault(segment, {})
        for name in (node.name, *(value.name for value in node.outputs)):
            base, count = _apart(name or "")
            mine[base] = min(count, mine.get(base, count))
    return found


def _apart(name: str) -> tuple[str, int]:
    found = _NUMBERED.match(name)
    assert found is not None
    return found[1], int(found[2] or 0)


def _solved(equations: Sequence[tuple[list[float], int]], count: int) -> dict[int, float]:
    """Return the unknowns that a system of equations determines; none if it has no solution."""
    matrix = np.array([row for row, _ in equations])
    wanted = np.array([float(value) for _, value in equations])
    solved = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    if np.abs(matrix @ solved - wanted).max() >= _NEAR:
        return {}
    rank = np.linalg.matrix_rank(matrix)
    units = np.eye(count)
    return {
        place: float(solved[place])
        for place in range(count)
        if np.linalg.matrix_rank(np.vstack([matrix, units[place]])) == rank
    }


@dataclass
class Numbers:
    """The differences between the numbers in the names of a deep and of a shallow model's graph."""

    stacks: Sequence[Stack]
    layers: Layers
    places: Mapping[Any, Segment | None] = field(default_factory=dict)
    """The layers of the nodes in torch's program; their names also count if the graph has no such
    node."""
    starts: Starts = field(default_factory=dict)
    """The smallest numbers in the graph as it was converted."""
    _steps: dict[tuple[int, int], dict[str, float]] = field(default_factory=dict)
    """The number of times that one layer uses each name, by stack and kind."""
    _last: dict[int, dict[str, int]] = field(default_factory=dict)
    """The largest number that a repeated layer uses in each name, by stack."""

    def __post_init__(self) -> None:
        """Count how often layers use each name."""
        for number, stack in enumerate(self.stacks):
            if Segment(number, 0) in self.layers.nodes:
                self._count(number, stack)

    def _count(self, number: int, stack: Stack) -> None:
        rows: list[list[float]] = []
        found: list[dict[str, int]] = []
        kinds = sorted(set(stack.kinds))
        last = self._last[number] = {}
        for template in sorted(set(map(stack.stand_in, stack.gone))):
            kind = stack.kept_kinds[template]
            before = max(place for place in range(template) if stack.kept_kinds[place] == kind)
            between = stack.kept_kinds[before:template]
            rows.append([float(between.count(each)) for each in kinds])
            one, other = Segment(number, before), Segment(number, template)
            told = self._differences(self._told(one), self._told(other))
            found.append(told | self._differences(self._names(one), self._names(other)))
            for name in self._names(Segment(number, template)):
                base, count = _apart(name)
                last[base] = max(last.get(base, 0), count)
        for base in {base for each in found for base in each}:
            known = [
                (row, each[base]) for row, each in zip(rows, found, strict=True) if base in each
            ]
            solved = _solved(known, len(kinds))
            if len(solved) < len(kinds):  # the kinds alternate
                more = _solved([*known, *self._counts(number, stack, kinds, base)], len(kinds))
                solved = more | solved
            for kind, value in solved.items():
                self._steps.setdefault((number, kinds[kind]), {})[base] = value

    def _counts(
        self, number: int, stack: Stack, kinds: Sequence[int], base: str
    ) -> Iterator[tuple[list[float], int]]:
        """Yield equations for the number of uses of a name per layer, from the start numbers."""
        for layer, kind in enumerate(stack.kinds):
            place = stack.stand_in(layer)
            after = self.starts.get(Segment(number, place + 1), {})
            mine = self.starts.get(Segment(number, place), {})
            if layer not in stack.kept and base in mine and base in after:
                yield [float(each == kind) for each in kinds], after[base] - mine[base]

    def _names(self, segment: Segment) -> list[str]:
        nodes = self.layers.nodes[segment]
        made = [value.name or "" for node in nodes for value in node.outputs]
        return made + [node.name or "" for node in nodes]

    def _told(self, segment: Segment) -> list[str]:
        return [node.name for node, place in self.places.items() if place == segment]

    @staticmethod
    def _differences(one: Sequence[str], other: Sequence[str]) -> dict[str, int]:
        """Return, for each name, the difference between its numbers in two similar layers."""
        found: dict[str, set[int]] = {}
        for before, after in zip(one, other, strict=False):
            (base, first), (same, second) = _apart(before), _apart(after)
            if base == same:
                found.setdefault(base, set()).add(second - first)
        return {base: steps.pop() for base, steps in found.items() if len(steps) == 1}

    def of_layer(self, name: str, segment: Segment, layer: int) -> str | None:
        """Translate a name in a layer to the name in a layer of the deep model; None if unknown."""
        stack = self.stacks[segment.stack]
        moves = {segment.stack: (stack.kinds[:layer], stack.kept_kinds[: segment.layer])}
        return self._moved(name, moves, segment.stack)

    def afterwards(self, name: str, stacks: Sequence[int]) -> str | None:
        """Translate a name used after all layers of the given stacks; return None if unknown."""
        return self._moved(name, {number: self._whole(number) for number in stacks}, -1)

    def _whole(self, number: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the kinds of all layers of a stack, in the deep model and in the shallow model."""
        return self.stacks[number].kinds, self.stacks[number].kept_kinds

    def passed(self, name: str) -> list[int]:
        """Return the stacks whose repeated layers use only smaller numbers than this name has."""
        base, count = _apart(name)
        return [number for number, last in self._last.items() if count > last.get(base, count)]

    def _moved(
        self, name: str, moves: Mapping[int, tuple[Sequence[int], Sequence[int]]], own: int
    ) -> str | None:
        base, count = _apart(name)
        if own >= 0:
            order = list(dict.fromkeys(segment.stack for segment in self.layers.nodes))
            before = {number: self._whole(number) for number in order[: order.index(own)]}
            moves = {**moves, **before}
        moved = float(count)
        for number, (deep, shallow) in moves.items():
            for kind in set(self.stacks[number].kinds):
                more = list(deep).count(kind) - list(shallow).count(kind)
                step = self._steps.get((number, kind), {}).get(base)
                if more and step is None:
                    return None
                moved += more * (step or 0.0)
        whole = round(moved)
        if abs(moved - whole) > _NEAR or whole < 0:
            return None
        if whole == count:
            return name  # which may end in "_0"
        return f"{base}_{whole}" if whole else base
