"""Keywords of version 0.1 that stand elsewhere now: an error that shows the new call.

This module is for one release; the next has no memory of the old spellings.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, ParamSpec, TypeVar

from ._options import READING, Layout, Mapping, placed

P = ParamSpec("P")
R = TypeVar("R")

EXPORT = "oe.torch.export(module, args, path), with its own weights"

_LONG = 60
"""Characters of a value that a message shows."""


def shows_new_call(
    call: str, reader: str | None = None, **renamed: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse old keywords of a function with a TypeError that has the new call.

    Args:
        call: the function as callers write it, such as "oe.save".
        reader: the parameter whose files `key`, `variant` and so on said how to read.
        **renamed: the new names of keywords that only have another name, or the new argument, with
            %s for the value. Those of the function that it stands for may be among them.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function).parameters
        places = _places(own, reader, renamed)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if "args" in kwargs and "args" not in own:
                raise TypeError(f"a module is exported by {EXPORT}")
            old = [name for name in kwargs if name in places and name not in own]
            if old:
                raise TypeError(_message(call, reader, renamed, old, kwargs))
            return function(*args, **kwargs)

        return checked

    return decorate


def by_name(call: str, *order: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse all arguments but the first by position, which had another order than now.

    Args:
        call: the function as callers write it.
        *order: the names of the second argument and the following, as they were.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if 1 < len(args) <= 1 + len(order):
                given = zip(order, args[1:], strict=False)
                text = ", ".join(f"{name}={_shown(value)}" for name, value in given)
                raise TypeError(
                    f"{' and '.join(order)} go by name now, since the order of oe.save is another: "
                    f"{call}(model, {text})"
                )
            return function(*args, **kwargs)

        return checked

    return decorate


def _places(own: Collection[str], reader: str | None, renamed: dict[str, str]) -> set[str]:
    """The names of all keywords that are known to have stood there."""
    mapping = Mapping.__dataclass_fields__ if "mapping" in own else ()
    files = Layout.__dataclass_fields__ if "files" in own else ()
    return {*mapping, *files, *renamed} | ({*READING} if reader else set())


def _message(
    call: str, reader: str | None, renamed: dict[str, str], old: list[str], given: dict[str, Any]
) -> str:
    groups: dict[str, list[str]] = {}
    for name in old:
        group = placed(name, "", reader)
        groups.setdefault(group, []).append(name)
    parts = []
    for names in groups.values():
        text = ", ".join(_argument(renamed.get(name, name), given[name]) for name in names)
        text = text.replace("}, onnx_options={", ", ")  # one argument for all of them
        parts.append(placed(names[0], text, reader))
    listed = ", ".join(f"{name}=" for name in old)
    return f"{call} has no {listed}; write {call}(..., {', '.join(parts)})"


def _argument(name: str, value: Any) -> str:
    if "%s" in name:
        return name % _shown(value)
    return name if "=" in name else f"{name}={_shown(value)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONG else "..."
