"""Checks the names of modules in options."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from .._base.errors import InvalidArgumentError


def one_or_several(given: Any) -> Collection[Any]:
    """Return names and classes as a collection; a single one may be given directly."""
    return (given,) if isinstance(given, (str, type)) else given


def is_named(name: str, module: Any, keys: Collection[Any]) -> bool:
    """Return whether a module's name, class or class name is among the keys."""
    return any(key in keys for key in (name, type(module).__name__, type(module)))


def check_names(module: Any, **options: Iterable[Any]) -> None:
    """Raise an error for names that no module has.

    Args:
        module: the outermost module.
        **options: the names given in each option.
    """
    known: set[Any] = set()
    for name, each in module.named_modules():
        known |= {name, type(each).__name__, type(each)}
    for option, keys in options.items():
        for key in keys:
            if key not in known:
                raise InvalidArgumentError(
                    f"{option}: {key!r} is neither the name nor the class of a module of "
                    f"{type(module).__name__}"
                )


def check_choice(option: str, value: Any, allowed: Collection[str]) -> None:
    """Raise an error if a value is not one of those allowed."""
    if value not in allowed:
        known = ", ".join(map(repr, allowed))
        raise InvalidArgumentError(f"{option}: {value!r} is not one of {known}")
