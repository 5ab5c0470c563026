"""Converts loops over rows without early exit to scan."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from onnx_external._control_flow.runtime.branches import operator
from onnx_external._control_flow.runtime.carrying import Carried
from onnx_external._control_flow.runtime.collected import NotCountedError
from onnx_external._control_flow.runtime.lifting import Lift, apart, run
from onnx_external._control_flow.runtime.loops import Loop
from onnx_external._control_flow.runtime.places import Places
from onnx_external._control_flow.runtime.sizes import may_be_zero
from onnx_external._control_flow.runtime.state import State, quietly

_cond = torch.ops.higher_order.cond
_scan = torch.ops.higher_order.scan


class GrowsError(Exception):
    """The state grows, or iterations have to be counted, which scan does not support."""


def scanned(
    state: State,
    columns: list[torch.Tensor],
    step: Callable[..., tuple[Any, ...]],
    names: tuple[str, ...],
    init: tuple[Any, ...],
    key: str,
) -> tuple[Any, ...]:
    """Return the state after an iteration for each row of `columns`.

    Args:
        state: the state of the runtime.
        columns: tensors with a row for each iteration.
        step: an iteration, as a function from a list of rows and the state to the next state.
        names: the names of the values in the state.
        init: the state before the first iteration.
        key: the key of the loop.

    Raises:
        GrowsError: the state grows, or an iteration needs the length of a list that grows.
    """
    # Made of zeros: none of it is in the graph.
    rows = quietly(lambda: [each.new_zeros(each.shape[1:]) for each in columns])
    first = _Step(step, rows)
    try:
        carried = Carried(state, first, names, key, Places([step]), init)
    except NotCountedError as error:
        raise GrowsError from error
    if carried.growth:
        carried.remove_marks()
        raise GrowsError
    loop = Loop(carried, [carried.done], rows)
    return _Scan(loop, columns, first).call()


class _Step:
    """An iteration on given rows."""

    def __init__(self, step: Callable[..., tuple[Any, ...]], rows: list[torch.Tensor]) -> None:
        self.step, self.rows = step, rows

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        return self.step(self.rows, *values)


class _Scan:
    """The scan operator, whose operands are the state, the columns, and other values read."""

    def __init__(self, loop: Loop, columns: list[torch.Tensor], step: _Step) -> None:
        self.loop, self.carried, self.state = loop, loop.carried, loop.state
        self.columns, self.step = columns, step
        self.many = len(loop.now) + len(loop.mutated)
        # The operator wants something that is carried.
        self.dummy = [] if self.many else [torch.zeros(())]
        self.kept = self.many + len(self.dummy)
        self.emitted = loop.emitted()

    def call(self) -> tuple[Any, ...]:
        """Run the operator, and return the final state."""
        operands = [*self.loop.operands, *self.loop.starts()]  # a round has no column as a whole
        results = list(operator(self._called, self._types, self.carried.places, operands))
        final = self.loop.finished(results[: self.many])
        self.loop.append(iter(results[self.kept :]))
        return final

    def _given(self, sizes: list[torch.SymInt]) -> list[Any]:
        columns = [self.state.resolved(each) for each in self.columns]
        return [*self.loop.starts(), *self.dummy, *columns, *self.loop.more(sizes)]

    def _types(self) -> Any:
        return self._nothing(*self._given([]))

    def _called(self, sizes: list[torch.SymInt]) -> Any:
        given = self._given(sizes)
        if not may_be_zero(self.columns[0].shape[0]):
            return self._scanned(*given)
        # ONNX Runtime refuses a Scan over no rows, so there is an If around it.
        some = torch.scalar_tensor(given[self.kept].shape[0], dtype=torch.int64) > 0
        return _cond(some, self._scanned, self._nothing, tuple(apart(given)))

    def _scanned(self, *given: Any) -> tuple[Any, ...]:
        front, columns, rest = self._split(given)
        return tuple(_scan(self._round, front, columns, rest))

    def _nothing(self, *given: Any) -> tuple[Any, ...]:
        """Return the result if there are no iterations: the initial state, and empty lists."""
        front, columns, _ = self._split(given)
        count = columns[0].shape[0]
        lists = (torch.zeros([count, *e.shape], dtype=e.dtype) for e in self.emitted)
        return (*(each.clone() for each in front), *lists)

    def _round(self, *given: Any) -> list[torch.Tensor]:
        front, row, operands = self._split(given)
        leaves, table = self.loop.split(front[: self.many], operands)
        with self.state.branch(table):
            lift = Lift(self.state, table)
            here = copy.copy(self.carried)
            here.step = _Step(self.step.step, row)
            done = run(lambda: here.round(here.full(leaves)), lift, here.places)
            out = self.loop.outputs(done, lift, table)
            dummy = (each.clone() for each in front[self.many :])
            return [*out, *dummy, *self.loop.emissions(done, lift)]

    def _split(self, given: Any) -> tuple[list[Any], list[Any], list[Any]]:
        values, ends = list(given), self.kept + len(self.columns)
        return values[: self.kept], values[self.kept : ends], values[ends:]
