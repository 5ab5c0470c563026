"""Implements items and methods of lists to which a loop in the graph has appended.

A list that grows in the graph contains a single `Collected` for the items of all iterations, where
a Python list would contain an item for each iteration.
"""

from __future__ import annotations

from typing import Any

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.collected import Collected, Rows, is_collected, whole

_UNCHANGED = frozenset({"append", "clear", "copy", "extend"})
"""Methods that treat the items of all iterations like a single item."""


def item(values: Any, at: Any) -> Any:
    """Return `values[at]` for a list to which a loop in the graph has appended."""
    if type(values) is not list or not is_collected(values):
        return values[at]
    if not isinstance(at, slice):
        return values[at] if _is_known(values, at) else whole(values)[at]
    if at == slice(None):
        return values.copy()
    if at == slice(None, None, -1):
        return _backwards(values)
    if at.step not in (None, 1):
        raise _refused("is sliced with a step")
    return Rows(Collected(whole(values)[at]))


def method(values: Any, name: str, *args: Any, **rest: Any) -> Any:
    """Return `values.name(*args, **rest)` for a list to which a loop in the graph has appended."""
    if type(values) is not list or not is_collected(values) or name in _UNCHANGED:
        return getattr(values, name)(*args, **rest)
    if name == "reverse":
        values[:] = _backwards(values)
        return None
    if name == "insert" and _is_known(values, args[0], more=0):
        values.insert(*args)
        return None
    if name == "pop":
        return _popped(values, *args)
    raise _refused(f"is changed or searched by {name}()")


def _popped(values: list[Any], at: Any = -1) -> Any:
    if _is_known(values, at):
        return values.pop(at)
    if at not in (0, -1):
        raise _refused("loses an item in its middle")
    rows = whole(values)
    values[:] = [Collected(rows[1:] if at == 0 else rows[:-1])]
    return rows[at]


def _backwards(values: list[Any]) -> list[Any]:
    return [each.backwards() if isinstance(each, Collected) else each for each in values[::-1]]


def _is_known(values: list[Any], at: Any, more: int = 1) -> bool:
    """Return whether no item between a position and the nearer end comes from iterations."""
    if type(at) is not int:
        return False
    near, count = (values[: at + more], at + more) if at >= 0 else (values[at:], -at)
    return len(near) == count and not any(isinstance(each, Collected) for each in near)


def _refused(what: str) -> RewriteError:
    return RewriteError(
        f"a list whose length depends on a loop or a condition on a tensor {what}; stack it first"
    )
