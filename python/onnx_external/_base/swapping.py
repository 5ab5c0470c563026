"""Changes attributes temporarily, and restores them even after errors and Ctrl-C."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")
_MISSING = object()
"""The placeholder for the old value of an attribute that did not exist."""


class _Owed(threading.local):
    """The undo functions that the current thread has yet to call, in the order of registration."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []


_owed = _Owed()


@contextlib.contextmanager
def undoing(undo: Callable[[], None]) -> Iterator[None]:
    """Call `undo` when the context ends; if Ctrl-C interrupts that, `all_undone` calls it.

    Args:
        undo: the function; it may be called twice, and before the change that it undoes.
    """
    _owed.undo.append(undo)
    try:
        yield
    finally:
        undo()
        if undo in _owed.undo:  # and was not undone by `all_undone`
            _owed.undo.remove(undo)


@contextlib.contextmanager
def all_undone() -> Iterator[None]:
    """When the context ends, run every undo function registered inside it that has not completed.

    Ctrl-C can interrupt the end of an `undoing` context. The remaining functions are then called
    here, even if there is a second interruption.
    """
    start = len(_owed.undo)
    try:
        yield
    finally:
        try:
            _undo_from(start)
        finally:
            _undo_from(start)


def _undo_from(start: int) -> None:
    while len(_owed.undo) > start:
        _owed.undo[-1]()
        _owed.undo.pop()


@contextlib.contextmanager
def exchanged(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of an object or a class inside the context.

    A class gets back exactly the content of its own dict. Inherited methods are inherited again,
    and static methods and class methods remain what they were.
    """
    before = vars(owner).get(name, _MISSING)

    def put_back() -> None:
        if before is not _MISSING:
            setattr(owner, name, before)
        elif name in vars(owner):
            delattr(owner, name)

    with undoing(put_back):
        setattr(owner, name, value)
        yield


@contextlib.contextmanager
def set_within(variable: ContextVar[_T], value: _T) -> Iterator[None]:
    """Set a `ContextVar` for the duration of the `with` block."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)
