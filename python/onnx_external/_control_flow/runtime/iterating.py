"""Runs `for` and `while` loops and comprehensions as operators or as unrolled Python loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.branches import branched
from onnx_external._control_flow.runtime.collected import Collected, Rows
from onnx_external._control_flow.runtime.conditions import as_bool, both, negated, truth
from onnx_external._control_flow.runtime.indexing import at_row
from onnx_external._control_flow.runtime.loops import while_looped
from onnx_external._control_flow.runtime.rows import is_lazy, rows_of
from onnx_external._control_flow.runtime.scanning import GrowsError, scanned
from onnx_external._control_flow.runtime.sizes import is_free
from onnx_external._control_flow.runtime.state import State
from onnx_external._control_flow.values import described, is_number

Body = Callable[..., tuple[Any, ...]]
Names = tuple[str, ...]
Values = tuple[Any, ...]
Make = Callable[[Any], Any]
"""The element or the condition of a comprehension, as a function of an item."""


def for_loop(
    state: State, iterable: Any, body: Body, names: Names, init: Values, breaks: bool, key: str
) -> Values:
    """Return the state after a for loop; with `breaks`, its first value is True after a break."""
    if is_lazy(iterable):
        with state.loop():
            return _over_rows(state, iterable, body, names, init, breaks, key)
    values, items = init, iter(iterable)
    with state.loop():
        while not breaks or (broken := truth(values[0])) is not True:
            try:
                item = next(items)
            except StopIteration:
                break
            if not breaks or broken is False:
                values = body(item, *values)
            else:
                values = _round_unless(state, broken, body, item, values, names, key)
    return values


def _round_unless(
    state: State, broken: Any, body: Body, item: Any, values: Values, names: Names, key: str
) -> Values:
    """Return the state after an iteration of an unrolled loop that a tensor may have ended."""

    def stay() -> Values:
        return values

    def go() -> Values:
        return tuple(body(item, *values))

    found: Values = branched(state, broken, (stay, go), key, names)
    return found


def while_loop(
    state: State, cond: Body, body: Body, names: Names, init: Values, breaks: bool, key: str
) -> Values:
    """Return the state after a while loop; with `breaks`, its first value is True after a break."""

    def goes_on(*values: Any) -> Any:
        if not breaks:
            return cond(*values)
        return both(state, (lambda: negated(values[0]), lambda: cond(*values)))

    values = init
    with state.loop():
        while True:
            test = truth(goes_on(*values))
            if not isinstance(test, bool):
                return while_looped(state, goes_on, body, names, values, key)
            if not test:
                return values
            values = body(*values)


def _over_rows(
    state: State, iterable: Any, body: Body, names: Names, init: Values, breaks: bool, key: str
) -> Values:
    """Loop over rows: with scan if there is no early exit, otherwise with a counter."""
    columns, make = rows_of(iterable)
    count = columns[0].shape[0]

    def step(row: list[torch.Tensor], *values: Any) -> Values:
        return tuple(body(make(row), *values))

    if not breaks and not is_free(count):
        try:
            return scanned(state, columns, step, names, init, key)
        except GrowsError:
            pass  # its state grows, which while_loop takes in a buffer
    return _counted(state, columns, step, names, init, breaks, key)


def _counted(
    state: State,
    columns: list[torch.Tensor],
    step: Body,
    names: Names,
    init: Values,
    breaks: bool,
    key: str,
) -> Values:
    count = columns[0].shape[0]
    if is_free(count):
        torch._check(count >= 0)

    def goes_on(at: torch.Tensor, *values: Any) -> Any:
        within = at < count
        return both(state, (lambda: negated(values[0]), lambda: within)) if breaks else within

    def counted(at: torch.Tensor, *values: Any) -> Values:
        return (at + 1, *step([at_row(each, at) for each in columns], *values))

    start = torch.zeros((), dtype=torch.int64)
    _, *rest = while_looped(
        state, goes_on, counted, ("at", *names), (start, *init), key, count, breaks
    )
    return tuple(rest)


def comprehended(state: State, iterable: Any, make: Make, test: Make | None, key: str) -> Any:
    """Return a list comprehension, whose length may depend on conditions on tensors."""
    if is_lazy(iterable):
        return _rows_comprehended(state, iterable, make, test, key)
    if test is None:
        return [make(each) for each in iterable]
    found, tests, symbolic = [], [], False
    for each in iterable:
        known = truth(test(each))
        if known is not False:
            found.append(make(each))
            tests.append(known)
            symbolic = symbolic or known is not True
    return _kept(found, tests, key) if symbolic else found


def _kept(found: list[Any], tests: list[Any], key: str) -> Rows:
    """Return the items of a comprehension whose conditions hold."""
    for each in found:
        if not isinstance(each, torch.Tensor):
            raise RewriteError(
                f"a comprehension selects {described(each)} by a condition on a tensor; such a "
                "list can contain only tensors",
                key,
            )
    shapes = {(str(tuple(each.shape)), each.dtype) for each in found}
    if len(shapes) > 1:
        raise RewriteError(
            "a comprehension selects tensors of different shapes or types by a condition on a "
            "tensor; the tensors in such a list must have the same shape and type",
            key,
        )
    kept = torch.stack([as_bool(each).reshape(()) for each in tests])
    return Rows(Collected(torch.stack(found), kept))


def _rows_comprehended(
    state: State, iterable: Any, make: Make, test: Make | None, key: str
) -> Rows:
    items: list[Any] = []
    tests: list[Any] = []

    def body(item: Any) -> Values:
        made = make(item)
        if not isinstance(made, torch.Tensor) and not is_number(made):
            raise RewriteError(
                f"a comprehension over rows returns {described(made)} for each row, but only "
                "tensors and numbers are supported: make one list for each value, or use the "
                "values in the loop",
                key,
            )
        items.append(made)
        if test is not None:
            tests.append(as_bool(truth(test(item))))
        return ()

    for_loop(state, iterable, body, (), (), False, key)
    found: Collected = items[0]
    return Rows(Collected(found.values, tests[0].values if tests else None, found.lengths))
