"""Represents iterables of loops: rows of tensors, ranges, zip, enumerate and reversed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.collected import Collected, Mark, Rows, is_collected, whole
from onnx_external._control_flow.runtime.sizes import size_of
from onnx_external._control_flow.values import described, is_fake

Columns: TypeAlias = tuple[list[torch.Tensor], Callable[[list[torch.Tensor]], Any]]
"""Tensors with the same number of rows, and a function that makes an iteration's item from one row
of each tensor."""


class Lazy:
    """An iterable whose length the trace does not know."""

    def rows(self) -> Columns:
        """Return the columns of the iterable: tensors with a row for each iteration."""
        raise NotImplementedError

    def __iter__(self) -> Any:
        """Raise an error, because Python cannot iterate over this."""
        raise RewriteError(
            "the number of iterations depends on a tensor or a size, but a Python loop has to know "
            "it"
        )


class Range(Lazy):
    """The result of range() for sizes or tensors."""

    def __init__(self, *args: Any) -> None:
        self.start, self.stop, self.step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]

    def rows(self) -> Columns:
        """Return the numbers as a column."""
        numbers = torch.arange(self.count())
        if not _is(self.step, 1):
            numbers = numbers * self.step
        if not _is(self.start, 0):
            numbers = numbers + self.start
        return [numbers], lambda row: row[0]

    def count(self) -> Any:
        """Return the number of elements in the range."""
        distance = self.stop - self.start
        if isinstance(self.step, int):
            over = self.step - 1 if self.step > 0 else self.step + 1
            distance = distance if over == 0 else distance + over
        elif isinstance(self.step, torch.Tensor):
            distance = distance + self.step - self.step.sign()
        found = distance if _is(self.step, 1) else distance // self.step
        if not isinstance(found, torch.Tensor):
            return torch.sym_max(found, 0)
        return size_of(found.clamp(min=0))


def _is(value: Any, number: int) -> bool:
    return type(value) is int and value == number


class Enumerate(Lazy):
    """The result of enumerate() for rows whose number the trace does not know."""

    def __init__(self, values: Any, start: Any) -> None:
        self.values, self.start = values, start

    def rows(self) -> Columns:
        """Return the numbers and the columns of the values."""
        columns, make = rows_of(self.values)
        numbers = torch.arange(columns[0].shape[0]) + self.start
        return [numbers, *columns], lambda row: (row[0], make(row[1:]))


class Zip(Lazy):
    """The result of zip() for rows whose number the trace does not know."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values

    def rows(self) -> Columns:
        """Return all columns, cut to the length of the shortest."""
        parts = [rows_of(each) for each in self.values]
        columns = _cut([column for part, _ in parts for column in part])

        def make(row: list[torch.Tensor]) -> Any:
            found, at = [], 0
            for part, one in parts:
                found.append(one(row[at : at + len(part)]))
                at += len(part)
            return tuple(found)

        return columns, make


def _cut(columns: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return all columns with the same number of rows, cut to the length of the shortest."""
    counts = {str(each.shape[0]): each.shape[0] for each in columns}
    if len(counts) == 1:
        return columns
    shortest = columns[0].shape[0]
    for each in counts.values():
        shortest = torch.sym_min(shortest, each)
    return [each[:shortest] for each in columns]


class Reversed(Lazy):
    """The result of reversed() for rows whose number the trace does not know."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def rows(self) -> Columns:
        """Return the columns with their rows in reverse order."""
        columns, make = rows_of(self.values)
        return [each.flip(0) for each in columns], make


def is_lazy(values: Any) -> bool:
    """Return whether the number of iterations over the values is known only in the graph."""
    if isinstance(values, Lazy) or is_collected(values):
        return True
    return is_fake(values) and values.dim() > 0 and isinstance(values.shape[0], torch.SymInt)


def rows_of(values: Any) -> Columns:
    """Return the columns of a loop's iterable."""
    if isinstance(values, Lazy):
        return values.rows()
    if isinstance(values, Rows):
        return [values.rows], lambda row: row[0]
    if isinstance(values, range):
        return [torch.arange(values.start, values.stop, values.step)], lambda row: row[0]
    if isinstance(values, torch.Tensor):
        return [values], lambda row: row[0]
    if isinstance(values, (list, tuple)) and values:
        if all(isinstance(e, (torch.Tensor, Collected)) for e in list.__iter__(list(values))):
            return [whole(values)], lambda row: row[0]
    raise RewriteError(
        f"a loop runs over a tensor of unknown length together with {described(values)}; convert "
        "that to a tensor as well"
    )


def length(values: Any) -> Any:
    """Return len() of a list whose length is known only in the graph."""
    if isinstance(values, torch.Tensor):
        return values.shape[0]
    if isinstance(values, Range):
        return values.count()
    if is_collected(values):
        items = list(list.__iter__(values))
        return sum(_items(each) for each in items)
    return rows_of(values)[0][0].shape[0]


def _items(each: Any) -> Any:
    """Return the number of items that a list element represents."""
    if not isinstance(each, Collected):
        return 1
    if isinstance(each, Mark):
        return each.many()
    return each.values.shape[0] if each.kept is None else each.kept.sum()
