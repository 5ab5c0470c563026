"""The inputs of a module in several sets, all in the form of the first."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from ..errors import InvalidArgumentError
from ..validation.giving import call_of
from .guards import Call

__all__ = ["calls_of", "shapes_of"]


def calls_of(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, input_sets: Sequence[Any]
) -> list[Call]:
    """Return what the module is called with: the example, and each further set.

    Args:
        target: the module, if it is one; then arguments may be given by place or by name.
        args: positional inputs of the example.
        kwargs: its inputs by name.
        input_sets: further sets: a tuple of arguments, a dict of keywords, or a pair of both.
    """
    example: Call = tuple(args), dict(kwargs or {})
    program = getattr(target, "exported_program", target)
    if not any(example) and getattr(program, "example_inputs", None):
        example = program.example_inputs  # a program needs none to be exported
    if isinstance(input_sets, Mapping) or not isinstance(input_sets, Sequence):
        raise InvalidArgumentError(
            "input_sets: expected a list of sets, each a tuple of positional inputs, a dict of "
            "inputs by name, or a pair of both"
        )
    return [example, *(_alike(target, example, call_of(each)) for each in input_sets)]


def _alike(target: Any, example: Call, call: Call) -> Call:
    """A call with as many positional arguments as the example, and its order of keywords."""
    args, kwargs = call
    if isinstance(target, nn.Module) and len(args) != len(example[0]):
        parameters = inspect.signature(target.forward).parameters.values()
        plain = [each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
        given = {**dict(zip(plain, args, strict=False)), **kwargs}
        names = plain[: len(example[0])]
        if len(args) <= len(plain) and all(name in given for name in names):
            args = tuple(given.pop(name) for name in names)
            kwargs = given
    if len(args) != len(example[0]) or kwargs.keys() != example[1].keys():
        raise InvalidArgumentError(
            f"input_sets: a set has {_told(args, kwargs)}, the example {_told(*example)}; all sets "
            "must have the same inputs"
        )
    return args, {name: kwargs[name] for name in example[1]}


def _told(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return f"{len(args)} positional inputs" + (f" and {', '.join(kwargs)}" if kwargs else "")


def shapes_of(target: Any, calls: Sequence[Call]) -> dict[str, Any] | None:
    """Return dynamic_shapes in which the sizes vary that differ among the sets."""
    if not isinstance(target, nn.Module) or len(calls) < 2:
        return None
    from ..diagnosis.dynamic_dimensions import guessed_shapes

    return guessed_shapes(target.forward, calls)
