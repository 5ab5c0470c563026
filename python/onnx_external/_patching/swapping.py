"""Attributes that are exchanged for a while, and put back whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")
_MISSING = object()
"""Stands for an attribute that is not there."""


@contextlib.contextmanager
def exchanged(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object or a class another attribute.

    A class gets back just what stood in its own dict, so that inherited methods are inherited
    again, and static and class methods stay what they are.
    """
    before = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextlib.contextmanager
def set_within(variable: ContextVar[_T], value: _T) -> Iterator[None]:
    """Give a variable of the context another value."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)
