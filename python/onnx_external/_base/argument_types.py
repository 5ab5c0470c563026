"""Checks the types of arguments by name before any work starts."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import os
from collections import abc
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar, get_args

from .errors import InvalidArgumentError, WrongTypeError
from .keywords import dicts_with, explain, keywords_of
from .options import FloatType, Layout, LayoutName, Mapping, Quantize, StrPath, flat

P = ParamSpec("P")
R = TypeVar("R")
_Options = TypeVar("_Options", Mapping, Layout)

_LONG = 60
"""The number of characters of a value that a message shows."""


class _Type(NamedTuple):
    """The types and values that one argument may have."""

    fits: Callable[[Any], bool]
    expected: str


def _is_flag(value: Any) -> bool:
    return type(value).__name__ in ("bool", "bool_")  # of Python and of numpy


def _is_count(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _is_path(value: Any) -> bool:
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    return isinstance(text, str) and "\0" not in text


def _is_tolerance(value: Any) -> bool:
    try:
        return not isinstance(value, (str, bytes, bool)) and float(value) >= 0
    except (TypeError, ValueError):
        return False


def _takes(value: Any, *args: Any) -> bool:
    if not callable(value):
        return False
    try:
        inspect.signature(value).bind(*args)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def _is_progress(value: Any) -> bool:
    return _is_flag(value) or (_takes(value, "", 0, 0) and not isinstance(value, type))


def _are_named(value: Any) -> bool:
    return isinstance(value, abc.Mapping) and all(isinstance(name, str) for name in value)


def are_names(value: Any) -> bool:
    """Return whether the value is a collection of strings, and not itself a string."""
    is_several = isinstance(value, Collection) and not isinstance(value, (str, bytes))
    return is_several and all(isinstance(name, str) for name in value)


def _are_modules(value: Any) -> bool:
    one = isinstance(value, (str, type))
    several = isinstance(value, Collection) and not isinstance(value, bytes)
    return one or (several and all(isinstance(each, (str, type)) for each in value))


def _is_several(value: Any) -> bool:
    return isinstance(value, abc.Iterable) and not isinstance(value, (str, bytes, type))


def _choice(*known: str, hidden: Sequence[str] = ()) -> _Type:
    def fits(value: Any) -> bool:
        return str(value).rpartition(".")[2] in (*known, *hidden)  # torch.float32 is one of them

    return _Type(fits, f"one of {', '.join(known)}")


_FLAG = _Type(_is_flag, "True or False")
_COUNT = _Type(_is_count, "an int")
_TEXT = _Type(lambda value: isinstance(value, str), "a str")
_PATH = _Type(_is_path, "a path")
_TOLERANCE = _Type(_is_tolerance, "a number that is not negative")
_NAMED = _Type(_are_named, "a dict whose keys are names")
_BY_MODULE = _Type(
    lambda value: isinstance(value, abc.Mapping) and _are_modules(list(value)),
    "a dict whose keys are names or classes of modules",
)

_TYPES: dict[str, _Type] = {
    **dict.fromkeys(("overwrite", "verify", "fsync", "dry_run", "cold", "overlay"), _FLAG),
    **dict.fromkeys(("densify", "widen_complex32", "raw", "sha256", "transpose_weights"), _FLAG),
    **dict.fromkeys(("optimize", "repeat", "dynamic", "run", "follow", "memory"), _FLAG),
    **dict.fromkeys(("torch", "transformers", "caches", "stop_if_static"), _FLAG),
    **dict.fromkeys(("threads", "max_expand", "seed", "latency", "max_new_tokens"), _COUNT),
    **dict.fromkeys(("sets", "max_iterations"), _COUNT),
    **dict.fromkeys(("key", "variant", "filter", "task", "source"), _TEXT),
    **dict.fromkeys(("path", "folder"), _PATH),
    **dict.fromkeys(("base", "dump", "output", "scratch_dir"), _PATH),
    **dict.fromkeys(("atol", "rtol", "max_kl", "min_agreement", "max_error"), _TOLERANCE),
    **dict.fromkeys(("kwargs", "onnx_options"), _NAMED),
    **dict.fromkeys(("traced_method", "shape_functions"), _BY_MODULE),
    "check": _Type(lambda value: isinstance(value, bool), "True or False"),
    "progress": _Type(_is_progress, "True, False or a function of three arguments"),
    "keep": _Type(are_names, "a list of names"),
    "opaque": _Type(_are_modules, "the name or the class of a module, or a list of them"),
    "rewrite": _Type(
        lambda value: isinstance(value, bool) or (isinstance(value, str) and value == "auto"),
        '"auto", True or False',
    ),
    "quantize": _Type(
        lambda value: isinstance(value, (str, Quantize)), '"int4", a scheme, or oe.Quantize(...)'
    ),
    "clients": _Type(
        lambda value: isinstance(value, str) or are_names(value),
        "the name of a client, or a list of names",
    ),
    "variants": _Type(
        lambda value: isinstance(value, str) or are_names(value),
        "the name of a variant, or a list of names",
    ),
    "classes": _Type(_is_several, "a list of classes"),
    "custom": _Type(_is_several, "a list of classes and modules"),
    "make": _Type(_takes, "a function without arguments"),
    "layout": _choice(*get_args(LayoutName)),
    "dtype": _choice(*get_args(FloatType), hidden=("slot",)),  # an alias of Mapping.cast
    "graphs": _choice("one", "two"),
    "attention": _choice("fused", "lengths", "standard", "traced"),
    "asserts": _choice("omit", "refuse"),
    "unreached": _choice("note", "refuse"),
    "state": _choice("note", "outputs"),
}


def wrong_type(name: str, expected: str, value: Any) -> WrongTypeError:
    """Make the error for an argument that has an unexpected type or value."""
    shown = repr(value) if isinstance(value, (str, int, float)) else type(value).__name__
    given = "a class" if isinstance(value, type) else shown
    return WrongTypeError(f"{name}: expected {expected}, not {given[:_LONG]}")


def check_type(name: str, value: Any, may_be_none: bool = False) -> None:
    """Raise an error if the value does not have a type that this argument can have.

    Args:
        name: the name of the argument; an argument that is not in the table is not checked.
        value: the value of the argument.
        may_be_none: True if None is valid.

    Raises:
        InvalidArgumentError: the value is a string, but not one of the valid strings.
        WrongTypeError: the value has another type; the message lists the valid types.
    """
    kind = _TYPES.get(name)
    if kind is None or (value is None and may_be_none) or kind.fits(value):
        return
    if isinstance(value, str) and kind.expected.startswith("one of "):
        raise InvalidArgumentError(f"{name}: {value[:_LONG]!r} is not {kind.expected}")
    raise wrong_type(name, kind.expected + (", or None" if may_be_none else ""), value)


def checks_types(function: Callable[P, R]) -> Callable[P, R]:
    """Check the names and types of a function's arguments before each call.

    Keywords that a TypedDict declares (`**how: Unpack[...]`) get their default values.
    """
    taken, keywords = inspect.signature(function), keywords_of(function)
    defaults = {name: keyword.default for name, keyword in keywords.items()}
    named = {
        name: each.default is None or str(each.annotation).endswith("| None")
        for name, each in taken.parameters.items()
        if each.kind is not each.VAR_KEYWORD
    } | {name: keyword.takes_none for name, keyword in keywords.items()}
    known = {
        name: may_be_none
        for name, may_be_none in named.items()
        if name in _TYPES and (name != "path" or "args" not in named)
    }  # the function itself reports swapped `path` and `args`
    explain(function, keywords)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not named.keys() >= kwargs.keys():
            _refuse_unknown(function, kwargs, named)
        filled: Any = {**defaults, **kwargs}
        try:
            given = {**filled, **taken.bind(*args, **kwargs).arguments}
        except TypeError:
            return function(*args, **kwargs)  # which says so
        for name, may_be_none in known.items():
            if name in given:
                check_type(name, given[name], may_be_none)
        return function(*args, **filled)

    return checked


def _refuse_unknown(
    function: Callable[..., Any], given: Iterable[str], known: Iterable[str]
) -> NoReturn:
    name = next(each for each in given if each not in known)
    near = difflib.get_close_matches(name, [*known], 1)
    near = [f"{each}={{'{name}': ...}}" for each in dicts_with(function, name)] or near
    fix = f"; did you mean {near[0]}?" if near else ""
    raise WrongTypeError(f"{name}: {function.__name__}() has no argument of this name{fix}")


def path_of(name: str, value: Any) -> StrPath:
    """Return the value as a path.

    Raises:
        WrongTypeError: the value is not a path; the message names the argument.
    """
    if not _is_path(value):
        raise wrong_type(name, "a path", value)
    path: StrPath = value
    return path


def paths_of(name: str, given: Any) -> list[StrPath]:
    """Return the paths as a list; a single path may be given without a list.

    Raises:
        WrongTypeError: a value is not a path; the message names the argument.
    """
    if isinstance(given, (str, os.PathLike)):
        return [path_of(name, given)]
    if isinstance(given, bytes) or not isinstance(given, abc.Iterable):
        raise wrong_type(name, "a path or a list of paths", given)
    return [path_of(name, each) for each in given]


def of_class(name: str, kind: type[_Options], given: _Options | None) -> _Options:
    """Return the given options object, or one with the default values if None is given.

    Raises:
        WrongTypeError: the value is something else, such as the dict that `map` takes.
    """
    if given is None:
        return kind()
    if not isinstance(given, kind):
        hint = "; its map is oe.Mapping(map=...)" if isinstance(given, abc.Mapping) else ""
        raise WrongTypeError(
            f"{name}: expected oe.{kind.__name__}(...), not {type(given).__name__}{hint}"
        )
    return given


def refuse_others(name: str, given: Mapping | Layout, allowed: Sequence[str], where: str) -> None:
    """Raise an error for options that would have no effect.

    Raises:
        InvalidArgumentError: a field that is not allowed differs from its default.
    """
    usual = flat(type(given)())
    for field, value in flat(given).items():
        if field not in allowed and value != usual[field]:
            raise InvalidArgumentError(f"{name}: {field} is not for {where}")
