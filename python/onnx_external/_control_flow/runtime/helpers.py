"""Defines the functions that rewritten code calls."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime import (
    arithmetic,
    conditions,
    deciding,
    iterating,
    listing,
    lookup,
)
from onnx_external._control_flow.runtime.branches import Function, branched
from onnx_external._control_flow.runtime.collected import is_collected, whole
from onnx_external._control_flow.runtime.merging import as_tensor
from onnx_external._control_flow.runtime.rows import (
    Enumerate,
    Range,
    Reversed,
    Zip,
    is_lazy,
    length,
)
from onnx_external._control_flow.runtime.state import State
from onnx_external._control_flow.runtime.tracing import tracing
from onnx_external._control_flow.values import (
    UNDEFINED,
    element_type,
    is_fake,
    is_symbolic,
    promoted,
)
from onnx_external._tracing.empty_sizes import compares_for_users

compares_for_users(__file__)


class Runtime:
    """The functions called by the code of one rewriting.

    For tensors with data, and for Python values, each function does the same as Python. For traced
    values, it calls torch.cond, while_loop or scan.

    Args:
        max_iterations: the maximum number of iterations of loops whose state grows, because a graph
            needs a bound.
        asserts: the treatment of assertions and exceptions that depend on tensors: "omit" leaves
            them out of the graph, with a note; "refuse" raises an error.
        absorbed: the keys of conditions whose branches already contain the code after them.
        empty_sizes: True if sizes of inputs may be 0. torch assumes that they are not 0. splits:
        the key of the condition, for calls that are made for both outcomes of a condition inside
        them.
    """

    def __init__(
        self,
        max_iterations: int | None = None,
        asserts: str = "omit",
        absorbed: Collection[str] = (),
        empty_sizes: bool = False,
        splits: Mapping[str, str] | None = None,
    ) -> None:
        self._state = State(
            max_iterations=max_iterations,
            refuses_assertions=asserts == "refuse",
            absorbed=absorbed,
            empty_sizes=empty_sizes,
            splits=splits or {},
        )

    @property
    def notes(self) -> list[str]:
        """Notes on differences between the graph and the code, one line for each place."""
        return self._state.notes

    def tracing(self, module: nn.Module | None = None) -> AbstractContextManager[None]:
        """Return the context in which rewritten code is traced."""
        return tracing(self._state, module)

    @staticmethod
    def get(read: Function) -> Any:
        """Return the value of a name, or UNDEFINED if the name is not bound."""
        try:
            return read()
        except NameError:
            return UNDEFINED

    # Tests.

    def if_(
        self, test: Any, then: Function, other: Function, names: tuple[str, ...], key: str
    ) -> Any:
        """Return the values of `names` after the branch taken, or the result that it returns."""
        found = self._decided(test, key)
        if isinstance(found, bool):
            return then() if found else other()
        return branched(self._state, found, (then, other), key, names, promotes=bool(names))

    def ifexp(self, test: Any, then: Function, other: Function, key: str) -> Any:
        """Return `then() if test else other()`; the test may be a tensor."""
        found = self._decided(test, key)
        if isinstance(found, bool):
            return then() if found else other()
        return branched(self._state, found, (then, other), key, ())

    def _decided(self, test: Any, key: str) -> Any:
        found = conditions.truth(test)
        return found if isinstance(found, bool) else deciding.answer(self._state, key, found)

    def decided(self, call: Function, key: str) -> Any:
        """Return the condition inside a function that decides the result of a call."""
        return deciding.decided(self._state, call, key)

    def taken(self, call: Function, key: str, outcome: bool) -> Any:
        """Return a call's result for the given outcome of the condition inside it."""
        return deciding.taken(self._state, call, key, outcome)

    def looked_up(self, items: Any, parts: tuple[Any, ...], key: str) -> Any:
        """Return `items[f"..."]`, for a string given in parts."""
        return lookup.looked_up(self._state, items, parts, key)

    def chosen(self, items: Any, index: Any, key: str) -> Any:
        """Return `items[index]`; the index may be a tensor."""
        return lookup.chosen(self._state, items, index, key)

    def and_(self, *parts: Function) -> Any:
        """Return `a and b and ...`; the parts are functions, and may return tensors."""
        return conditions.both(self._state, parts)

    def or_(self, *parts: Function) -> Any:
        """Return `a or b or ...`; the parts are functions, and may return tensors."""
        return conditions.either(self._state, parts)

    def not_(self, value: Any) -> Any:
        """Return `not value`; the value may be a tensor."""
        return conditions.negated(value)

    def in_(self, value: Any, items: Any) -> Any:
        """Return `value in items`; the value and the items may be tensors."""
        if is_fake(items):
            return conditions.as_bool(items == value).any()
        several = isinstance(items, (list, tuple)) and not is_lazy(items)
        if not several or not builtins.any(map(is_symbolic, (value, *items))):
            return value in items
        if builtins.any(each is value for each in items):
            return True
        return self.any([each == value for each in items])

    def chain(self, first: Function, *rest: Any) -> Any:
        """Return `a < b < c`; `rest` alternates names of operators and operands."""
        left = first()
        found: Any = True
        for name, operand in zip(rest[::2], rest[1::2], strict=True):
            test = conditions.truth(found)
            if test is False:
                return found
            right = operand()
            compared = conditions.COMPARISONS[name](left, right)
            found = compared if test is True else self.and_(_given(found), _given(compared))
            left = right
        return found

    def assert_(self, test: Any, key: str, message: Function | None = None) -> None:
        """Run `assert test, message`; a test on a traced tensor is left out, or is an error."""
        found = conditions.truth(test)
        if not isinstance(found, bool):
            self._leave_out("an assertion", key)
        elif not found:
            raise AssertionError(*([] if message is None else [message()]))

    def raise_(self, test: Any, fail: Function, key: str) -> None:
        """Run `if test: raise ...`; a test on a traced tensor is left out, or is an error."""
        found = conditions.truth(test)
        if not isinstance(found, bool):
            self._leave_out("an exception", key)
        elif found:
            fail()

    def _leave_out(self, what: str, key: str) -> None:
        if self._state.refuses_assertions:
            raise RewriteError(
                f"{what} depends on the value of a tensor, but a graph cannot raise exceptions; "
                'asserts="omit" leaves it out',
                key,
            )
        self._state.note(f"{key}: {what} that depends on a tensor is left out of the graph")

    # Loops.

    def for_(self, *loop: Any) -> tuple[Any, ...]:
        """Return the state after a loop, as `iterating.for_loop` does."""
        return iterating.for_loop(self._state, *loop)

    def while_(self, *loop: Any) -> tuple[Any, ...]:
        """Return the state after a loop, as `iterating.while_loop` does."""
        return iterating.while_loop(self._state, *loop)

    def comprehend(self, iterable: Any, make: Callable[[Any], Any], key: str) -> Any:
        """Return `[make(each) for each in iterable]`; the iterable may be the rows of a tensor."""
        return iterating.comprehended(self._state, iterable, make, None, key)

    def comprehend_if(
        self, iterable: Any, make: Callable[[Any], Any], test: Callable[[Any], Any], key: str
    ) -> Any:
        """Return `[make(each) for each in iterable if test(each)]`; tests may be tensors."""
        return iterating.comprehended(self._state, iterable, make, test, key)

    def item(self, values: Any, at: Any) -> Any:
        """Return `values[at]`, for a list to which a loop has appended."""
        return listing.item(values, at)

    def end_of(self, values: Any, at: Any) -> Any:
        """Return the first or last item of a list, or UNDEFINED if the list is empty."""
        is_empty = isinstance(values, list) and not list.__len__(values)
        return UNDEFINED if is_empty else listing.item(values, at)

    def method(self, values: Any, name: str, *args: Any, **rest: Any) -> Any:
        """Return `values.name(*args, **rest)`, for a list to which a loop has appended."""
        return listing.method(values, name, *args, **rest)

    # Builtins.

    def bool(self, value: Any = False) -> Any:
        """Call the builtin `bool`, or its equivalent for traced values."""
        found = conditions.truth(value)
        return conditions.as_bool(found) if is_fake(found) else found

    def int(self, *args: Any, **rest: Any) -> Any:
        """Call the builtin `int`, or its equivalent for tensors and sizes."""
        if len(args) == 1 and is_symbolic(args[0]):
            return arithmetic.whole_number(args[0])
        return builtins.int(*args, **rest)

    def round(self, number: Any, ndigits: Any = None) -> Any:
        """Call the builtin `round`, or its equivalent for tensors and sizes."""
        if is_symbolic(number):
            return arithmetic.rounded(number, ndigits)
        return builtins.round(number, ndigits)

    def quotient(self, function: Callable[[Any], Any], one: Any, other: Any) -> Any:
        """Return `function(one / other)`, for int, math.floor, math.ceil or math.trunc."""
        found = arithmetic.quotient(function, one, other)
        if found is not None:
            return found
        if function is builtins.int:
            return self.int(one / other)
        return self.call(function, one / other)

    def call(self, function: Callable[..., Any], *args: Any, **rest: Any) -> Any:
        """Call a function that may belong to math and receive a tensor."""
        return arithmetic.called(function, args, rest)

    def float(self, *args: Any) -> Any:
        """Call the builtin `float`, or its equivalent for tensors and sizes."""
        if len(args) == 1 and is_fake(args[0]):
            value = args[0].reshape(())
            return value if value.dtype == torch.float64 else value.to(torch.float32)
        if len(args) == 1 and isinstance(args[0], (torch.SymInt, torch.SymFloat)):
            return torch.sym_float(args[0])
        return builtins.float(*args)

    def max(self, *values: Any, **rest: Any) -> Any:
        """Call the builtin `max`, or its equivalent for tensors and sizes."""
        return _extreme(builtins.max, torch.amax, torch.maximum, torch.sym_max, values, rest)

    def min(self, *values: Any, **rest: Any) -> Any:
        """Call the builtin `min`, or its equivalent for tensors and sizes."""
        return _extreme(builtins.min, torch.amin, torch.minimum, torch.sym_min, values, rest)

    def sum(self, values: Any, start: Any = 0) -> Any:
        """Call the builtin `sum`, or its equivalent for tensors."""
        if not is_lazy(values):
            return builtins.sum(values, start)
        rows = whole_of(values)
        kind = torch.int64 if rows.dtype == torch.bool else rows.dtype
        return rows.sum(0, dtype=kind) + start

    def any(self, values: Any) -> Any:
        """Call the builtin `any`, or its equivalent for tensors."""
        if is_lazy(values):
            return conditions.as_bool(whole_of(values)).any()
        return _until(True, self.or_, values)

    def all(self, values: Any) -> Any:
        """Call the builtin `all`, or its equivalent for tensors."""
        if is_lazy(values):
            return conditions.as_bool(whole_of(values)).all()
        return _until(False, self.and_, values)

    def len(self, values: Any) -> Any:
        """Call the builtin `len`, or its equivalent for lists that grow in the graph."""
        return length(values) if is_lazy(values) else builtins.len(values)

    def range(self, *args: Any) -> Any:
        """Call the builtin `range`, or its equivalent for tensors and sizes."""
        return Range(*args) if builtins.any(map(is_symbolic, args)) else builtins.range(*args)

    def enumerate(self, iterable: Any, start: Any = 0) -> Any:
        """Call the builtin `enumerate`, or its equivalent for rows of tensors."""
        if is_lazy(iterable) or is_symbolic(start):
            return Enumerate(iterable, start)
        return builtins.enumerate(iterable, start)

    def zip(self, *values: Any, **rest: Any) -> Any:
        """Call the builtin `zip`, or its equivalent for rows of tensors."""
        if builtins.any(map(is_lazy, values)):
            return Zip(values)
        return builtins.zip(*values, **rest)  # noqa: B905

    def reversed(self, values: Any) -> Any:
        """Call the builtin `reversed`, or its equivalent for rows of tensors."""
        return Reversed(values) if is_lazy(values) else builtins.reversed(values)


def whole_of(values: Any) -> torch.Tensor:
    """Return a list whose length is known only in the graph, as one tensor."""
    if isinstance(values, torch.Tensor):
        return values
    if is_collected(values):
        return whole(values)
    columns, _ = values.rows()
    if len(columns) > 1:
        raise RewriteError("the items are tuples, but a number or a tensor is expected")
    found: torch.Tensor = columns[0]
    return found


def _given(value: Any) -> Function:
    return lambda: value


def _until(end: bool, join: Callable[..., Any], values: Any) -> Any:
    """Return the truth of values joined one after the other, up to one that decides it."""
    found: Any = not end
    for each in values:
        found = join(_given(found), _given(conditions.truth(each)))
        if found is end:
            break
    return found


def _extreme(plain: Any, of_rows: Any, tensors: Any, sizes: Any, values: Any, rest: Any) -> Any:
    """Return the largest or smallest of several values."""
    if len(values) == 1 and not rest and is_lazy(values[0]):
        return of_rows(whole_of(values[0]), 0)
    if len(values) < 2 or rest or not any(map(is_symbolic, values)):
        return plain(*values, **rest)
    if not any(map(is_fake, values)):
        return functools.reduce(sizes, values)
    kinds = [element_type(each) for each in values]
    floats = [e.dtype for e in values if isinstance(e, torch.Tensor) and e.dtype.is_floating_point]
    kind = promoted(*(floats or kinds))
    return functools.reduce(tensors, [as_tensor(each, kind) for each in values])
