"""Records conditions on sizes that torch decides silently by assuming that no size is 0.

`x.shape[0] == 0` is false in a trace, and no guard records this. This module records such
conditions, both as guards and on the value of the condition, so that rewritten code can leave the
decision to the graph.
"""

from __future__ import annotations

import contextlib
import contextvars
import operator
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, uninteresting_files

from onnx_external._base.swapping import exchanged, set_within
from onnx_external._tracing.frames import LIBRARIES, outside, tests_value

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_for_users: set[str] = set()
"""The files of this package that make comparisons on behalf of the user's code."""
_MARK = "_oe_compared"
"""The attribute of a torch node in which a comparison is stored that only a size of 0 would
change."""


class NotEmpty(NamedTuple):
    """A line of the user's code that is valid only for sizes above 0."""

    symbol: Any
    path: str
    line: int


class _Compared(NamedTuple):
    """The operands of a comparison."""

    name: str
    """The name of the function in the module `operator`."""
    left: Any
    right: Any
    lines: tuple[NotEmpty, ...]


_found: weakref.WeakKeyDictionary[ShapeEnv, Counter[NotEmpty]] = weakref.WeakKeyDictionary()
"""The number of comparisons in each line that the graph does not decide."""


def compares_for_users(path: str) -> None:
    """Attribute comparisons in a file of this package to the user's code that calls it."""
    _for_users.add(path)


def not_empty(environment: ShapeEnv) -> list[NotEmpty]:
    """Return the lines that are valid only for sizes above 0."""
    return [line for line, count in _found.get(environment, Counter()).items() if count > 0]


_left: contextvars.ContextVar[bool] = contextvars.ContextVar("left_to_graph", default=False)


_tried: contextvars.ContextVar[bool] = contextvars.ContextVar("only_tried", default=False)


def is_only_tried() -> bool:
    """Return whether code runs only as a trial, so that nothing of it enters the graph."""
    return _tried.get()


def only_tried() -> AbstractContextManager[None]:
    """Return a context for code that will run again, whose comparisons are not recorded."""
    return set_within(_tried, True)


def left_to_graph(empty: bool) -> AbstractContextManager[None]:
    """Return a context in which comparisons that a size of 0 would change are left to the graph.

    Args:
        empty: True if sizes of inputs may be 0; otherwise the context has no effect.
    """
    return set_within(_left, empty)


def decided_by_graph(test: torch.SymBool) -> torch.Tensor | None:
    """Return a comparison that is left to the graph as a tensor; None if it is not left to it."""
    mark: _Compared | None = getattr(test.node, _MARK, None)
    if mark is None or not _left.get():
        return None
    sides = (torch.scalar_tensor(each, dtype=torch.int64) for each in (mark.left, mark.right))
    found: torch.Tensor = getattr(operator, mark.name)(*sides)
    # It is not an assumption any longer.
    _found[test.node.shape_env].subtract(mark.lines)
    setattr(test.node, _MARK, mark._replace(lines=()))
    return found


@contextlib.contextmanager
def empty_sizes_noted() -> Iterator[None]:
    """Record comparisons of sizes in the context that would change for a size of 0."""
    with contextlib.ExitStack() as stack:
        for name in _COMPARISONS:
            if hasattr(SymNode, name):
                stack.enter_context(exchanged(SymNode, name, _noting(name, getattr(SymNode, name))))
        yield


def _noting(name: str, plain: Any) -> Any:
    def compared(self: Any, other: Any) -> Any:
        found = plain(self, other)
        if isinstance(found, SymNode) and found.expr.is_Boolean and not found.expr.free_symbols:
            _note(name, self, other, found)
        return found

    return compared


def _note(name: str, one: Any, other: Any, found: Any) -> None:
    symbols = _empty_matters(name, one, other, bool(found.expr))
    frame = _users_test() if symbols else None
    if frame is None:
        return
    place = frame.f_code.co_filename, frame.f_lineno
    lines = tuple(NotEmpty(each, *place) for each in symbols if not _tried.get())
    setattr(found, _MARK, _Compared(name, _side(one), _side(other), lines))
    _found.setdefault(one.shape_env, Counter()).update(lines)


def _empty_matters(name: str, one: Any, other: Any, outcome: bool) -> list[Any]:
    """Return the sizes that would change the outcome of a comparison if they were 0."""
    hints = getattr(one.shape_env, "backed_var_to_val", {})
    pair = [getattr(each, "expr", None) for each in (one, other)]
    if any(each is None for each in pair):
        return []
    found = []
    for symbol in {s for each in pair for s in getattr(each, "free_symbols", ()) if s in hints}:
        sizes = {**hints, symbol: hints[symbol] * 0}
        try:
            left, right = (int(each.xreplace(sizes)) for each in pair if each is not None)
        except Exception:  # a division by the size, or a value that only the graph knows
            continue
        if getattr(operator, name)(left, right) != outcome:
            found.append(symbol)
    return sorted(found, key=str)


def _side(node: Any) -> Any:
    return int(node.expr) if node.expr.is_number else torch.SymInt(node)


def _users_test() -> FrameType | None:
    """Return the frame of user code that compares or takes a truth value; None if torch does.

    Comparisons that rewritten code calls count as the user's.
    """
    frame = outside(sys._getframe(1), {*uninteresting_files(), __file__}.__contains__)
    if frame is None:
        return None
    if frame.f_code.co_filename in _for_users:
        return outside(frame, _is_library)
    if _is_library(frame.f_code.co_filename):
        return None
    return frame if tests_value(frame, "COMPARE_OP") else None


def _is_library(path: str) -> bool:
    return path.startswith(LIBRARIES)
