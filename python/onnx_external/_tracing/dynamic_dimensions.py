"""Detects the dynamic dimensions of a module's inputs from several calls."""

from __future__ import annotations

import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .surroundings import Call


def _dims(shapes: Sequence[Sequence[int]]) -> dict[int, Any] | None:
    """Return the dynamic dimensions; AUTO for sizes 0 and 1, which torch may specialize."""
    dim = torch.export.Dim
    found = {
        place: dim.AUTO if sizes[0] < 2 else dim.DYNAMIC
        for place, sizes in enumerate(zip(*shapes, strict=True))
        if len(set(sizes)) > 1
    }
    return found or None


def _guessed(values: Sequence[Any]) -> Any:
    """Return the entry in dynamic_shapes for one argument, in torch.export's form."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return _dims([each.shape for each in values])
    if first is None or isinstance(first, (bool, float, str)):
        return None
    if isinstance(first, int):
        return torch.export.Dim.DYNAMIC if len(set(values)) > 1 else None
    if type(first) in (list, tuple):
        return type(first)(_guessed(each) for each in zip(*values, strict=True))
    if isinstance(first, tuple) and hasattr(first, "_fields"):  # a NamedTuple
        return type(first)(*(_guessed(each) for each in zip(*values, strict=True)))
    if type(first) in (dict, OrderedDict, defaultdict):
        found = copy(first)
        found.update({name: _guessed([each[name] for each in values]) for name in first})
        return found
    node = pytree.SUPPORTED_NODES.get(type(first))
    if node is None:
        return None
    children = [node.flatten_fn(each)[0] for each in values]
    return [_guessed(each) for each in zip(*children, strict=True)]


def _varies(shapes: Any) -> bool:
    if isinstance(shapes, dict):
        return any(map(_varies, shapes.values()))
    if isinstance(shapes, (list, tuple)):
        return any(map(_varies, shapes))
    return shapes is not None


def with_plain_signature(method: Any, call: Call) -> Any:
    """Return a function whose signature lists the keywords that are passed as `**kwargs`.

    torch.export does not accept dynamic shapes for a module with `**kwargs` in any form.
    """
    signature = inspect.signature(method)
    named = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
    more = [name for name in call[1] if name not in {each.name for each in named}]
    if not more:
        return method

    def forward(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [*named, *(inspect.Parameter(name, keyword) for name in more)]
    forward.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return forward


def guessed_shapes(method: Any, calls: Sequence[Call]) -> dict[str, Any] | None:
    """Return `dynamic_shapes` for torch.export.export; None if no size varies.

    Args:
        method: the method that is called.
        calls: calls with different sizes; the first call is the one that is exported.
    """
    signature = inspect.signature(method)
    bound = [signature.bind(*args, **kwargs).arguments for args, kwargs in calls]
    found = {name: _guessed([each[name] for each in bound]) for name in bound[0]}
    return found if _varies(found) else None


def _named(shapes: Any, name: str) -> Iterator[str]:
    if isinstance(shapes, dict):
        for key, each in shapes.items():
            yield from _named(each, f"{name}[{key}]" if isinstance(key, int) else f"{name}.{key}")
    elif isinstance(shapes, (list, tuple)):
        for number, each in enumerate(shapes):
            yield from _named(each, f"{name}.{number}")
    elif shapes is not None:
        yield name


def named_dimensions(shapes: dict[str, Any] | None) -> list[str]:
    """Return the dynamic dimensions as text, such as "x[0]"."""
    return [text for name, each in (shapes or {}).items() for text in _named(each, name)]
