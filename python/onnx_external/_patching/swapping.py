"""Attributes that are exchanged for a while, and put back whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["MISSING", "exchanged"]


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING = _Missing()
"""Stands for an attribute that is not there."""


@contextlib.contextmanager
def exchanged(owner: Any, name: str, value: Any) -> Iterator[Any]:
    """Give an object or a class another attribute, and yield what it had of its own.

    A class gets back just what stood in its own dict, so that inherited methods are inherited
    again, and static and class methods stay what they are.
    """
    before = vars(owner).get(name, MISSING)
    setattr(owner, name, value)
    try:
        yield before
    finally:
        if before is MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
