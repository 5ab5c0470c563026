"""Defines keyword arguments that several functions share.

A TypedDict defines the type, default and description of each keyword in one place, and a function
takes the keywords as `**how: Unpack[Writing]`. The decorator `checks_types` fills in the defaults,
rejects other names, and explains each keyword in help().
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, is_typeddict

_T = TypeVar("_T", bound=Mapping[str, Any])


class Keyword(NamedTuple):
    """A keyword argument that several functions share."""

    default: Any
    text: str
    """The description of the keyword, from the docstring of the TypedDict."""
    takes_none: bool


_DEFINED: dict[type, dict[str, Keyword]] = {}


def define(kind: type[_T], defaults: _T, *bases: type) -> None:
    """Define the keywords of a TypedDict, which itself can state neither defaults nor bases.

    Args:
        kind: the class; its docstring describes its own keywords.
        defaults: the default value of each keyword.
        bases: the classes whose keywords it inherits.
    """
    text = inspect.cleandoc(kind.__doc__ or "")
    texts = dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE))
    found = _DEFINED[kind] = {n: each for base in bases for n, each in _DEFINED[base].items()}
    for name, default in defaults.items():
        hint = kind.__annotations__[name].__forward_arg__
        found[name] = Keyword(default, texts[name], default is None or hint.endswith("| None"))


def keywords_of(function: Callable[..., Any]) -> dict[str, Keyword]:
    """Return the keywords that a function takes through `**how: Unpack[...]`."""
    plain = inspect.unwrap(function)
    for each in inspect.signature(plain).parameters.values():
        if each.kind is each.VAR_KEYWORD and str(each.annotation).startswith("Unpack["):
            return _DEFINED[plain.__globals__[each.annotation[len("Unpack[") : -1]]]
    return {}


def dicts_with(function: Callable[..., Any], key: str) -> list[str]:
    """Return the arguments of a function that are dicts with this key, as a TypedDict declares."""
    plain = inspect.unwrap(function)
    found = []
    for name, each in inspect.signature(plain).parameters.items():
        kind = plain.__globals__.get(str(each.annotation).partition(" | ")[0])
        if is_typeddict(kind) and key in kind.__annotations__:
            found.append(name)
    return found


def only(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return those of the given keywords whose names are listed."""
    return {name: given[name] for name in names if name in given}


def explain(function: Callable[..., Any], keywords: Mapping[str, Keyword]) -> None:
    """Replace the line for `**how` in a docstring with the descriptions of its keywords.

    A keyword that the docstring itself describes keeps that description.
    """
    text = function.__doc__ or ""
    line = re.search(r"^( +)\*\*how: .*\n", text, re.MULTILINE)
    if line is None:
        return
    entries = [
        _entry(line[1], name, keyword)
        for name, keyword in keywords.items()
        if f"\n{line[1]}{name}: " not in text
    ]
    function.__doc__ = text[: line.start()] + "".join(entries) + text[line.end() :]


def _entry(indent: str, name: str, keyword: Keyword) -> str:
    default = keyword.default
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    told = "" if default is None or default == () else f" By default {shown}."
    lines = textwrap.wrap(f"{name}: {keyword.text}{told}", 96 - len(indent))
    return indent + f"\n{indent}    ".join(lines) + "\n"
