"""Replaces floats with floats that report comparisons with sizes.

In `6.5 < n`, Python first asks the float to compare itself, so a reporting size that is an int does
not notice. Therefore, the floats in a model's code and modules are replaced with reporting floats
while the model is recorded.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from torch import nn

Wrap = Callable[[float], float]


@contextlib.contextmanager
def floats_seen(module: nn.Module, wrap: Wrap) -> Iterator[None]:
    """Replace a module's floats with reporting floats in the context: attributes, configs, code.

    The code consists of all files in which the classes are defined: constants, default values of
    functions, and variables of classes and files. Floats in lists, tuples and dicts are included.

    Args:
        module: the module; its submodules are included.
        wrap: a function that returns a reporting float with the same value.
    """
    undo: list[tuple[Callable[..., None], Any, str, Any]] = []
    try:
        for settings in settings_of(module.modules()):
            _tell_inside(settings, wrap, undo, set())
        for owner, name, value in list(_code(module)):
            if isinstance(value, (list, dict)) and not name.startswith("__"):
                _tell_inside(value, wrap, undo, set())
                continue
            told = _told(value, wrap)
            if told is not value:
                undo.append((setattr, owner, name, value))
                setattr(owner, name, told)
        yield
    finally:
        for put, owner, name, value in reversed(undo):
            with contextlib.suppress(IndexError):  # the code has made a list shorter
                put(owner, name, value)


def _tell_inside(holder: Any, wrap: Wrap, undo: list[Any], seen: set[int]) -> None:
    """Replace the floats in a list or a dict, including nested ones, with reporting floats."""
    if id(holder) in seen:
        return
    seen.add(id(holder))
    items = enumerate(holder) if type(holder) is list else holder.items()
    for key, value in list(items):
        if type(value) in (list, dict):
            _tell_inside(value, wrap, undo, seen)
        elif type(value) in (float, tuple):
            told = _told(value, wrap)
            if told is not value:
                undo.append((type(holder).__setitem__, holder, key, value))
                holder[key] = told


def settings_of(modules: Iterable[nn.Module]) -> Iterator[dict[str, Any]]:
    """Yield the attributes of modules and of their configs, including nested configs."""
    found: list[Any] = list(modules)
    seen = set(map(id, found))
    while found:
        each = found.pop()
        yield vars(each)
        for value in list(vars(each).values()):
            inner = type(value).__name__.endswith("Config") and hasattr(value, "__dict__")
            if inner and id(value) not in seen:
                seen.add(id(value))
                found.append(value)


def _code(module: nn.Module) -> Iterator[tuple[Any, str, Any]]:
    """Yield values that may contain floats in the user's files, as owner, name and value."""
    kinds = {kind for each in module.modules() for kind in type(each).__mro__}
    files = {kind.__module__ for kind in kinds if not kind.__module__.startswith("torch.")}
    files.discard("builtins")
    scopes: list[Any] = [sys.modules[name] for name in files if name in sys.modules]
    scopes += [kind for kind in kinds if kind.__module__ in files]  # those inside of functions, too
    scopes += [each for scope in scopes for each in vars(scope).values() if isinstance(each, type)]
    scopes = [each for each in scopes if getattr(each, "__module__", each.__name__) in files]
    functions: dict[int, FunctionType] = {}
    for scope in {id(each): each for each in scopes}.values():
        for name, value in list(vars(scope).items()):
            if type(value) in (float, tuple, list, dict):
                yield scope, name, value
            functions.update((id(each), each) for each in _functions(value))
    for function in functions.values():
        if function.__module__ in files:
            yield from ((function, name, getattr(function, name)) for name in _OF_FUNCTIONS)


_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")


_BEHIND = (FunctionType, staticmethod, classmethod, type(functools.cache(len)))


def _functions(value: Any) -> Iterator[FunctionType]:
    """Yield a function and those that it wraps, also behind static methods and properties."""
    value = value.fget if isinstance(value, property) else value
    while isinstance(value, _BEHIND):
        if isinstance(value, FunctionType):
            yield value
        value = getattr(value, "__wrapped__", None)


def _told(value: Any, wrap: Wrap) -> Any:
    """Return a value with reporting floats, also in code and defaults, or the same value."""
    if type(value) is float:
        return wrap(value)
    if isinstance(value, CodeType):
        constants = _told(value.co_consts, wrap)
        return value if constants is value.co_consts else value.replace(co_consts=constants)
    if type(value) is tuple:
        each = tuple(_told(one, wrap) for one in value)
        return value if _same(each, value) else each
    if type(value) is dict:
        named = {key: _told(one, wrap) for key, one in value.items()}
        return value if _same(named.values(), value.values()) else named
    return value


def _same(one: Iterable[Any], other: Iterable[Any]) -> bool:
    return all(a is b for a, b in zip(one, other, strict=True))
