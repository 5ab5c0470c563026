"""Checks that dynamic_shapes fit the inputs, before torch does so with less clear errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch.export.dynamic_shapes import Dim, _DimHint

from .._base.errors import InvalidArgumentError
from .._tracing.surroundings import Call

_EXAMPLE = "dynamic_shapes={'x': {0: 'batch', 1: Dim.AUTO}, 'mask': None}"
_FORMS = (
    "a dict with an entry for each argument of forward, or a tuple in their order: a dict of "
    f"dimensions for a tensor, None where no size varies, such as {_EXAMPLE}"
)


def check_shapes(signature: inspect.Signature | None, calls: Sequence[Call], shapes: Any) -> None:
    """Raise an error if torch.export would reject dynamic_shapes, or if a name has several sizes.

    Args:
        signature: the signature of the module's forward; None if it is not known.
        calls: the example, and further input sets.
        shapes: the caller's dynamic_shapes.

    Raises:
        InvalidArgumentError: an entry does not fit; the message names the input and the dimension.
    """
    if shapes is None or hasattr(shapes, "dynamic_shapes"):  # such as torch's ShapesCollection
        return
    if not isinstance(shapes, (Mapping, tuple, list)):
        raise InvalidArgumentError(
            f"dynamic_shapes: {shapes!r} has no entries for inputs; expected {_FORMS}"
        )
    if not shapes or signature is None:
        return
    for number, (args, kwargs) in enumerate(calls):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # inputs that hooks change
            return
        given: dict[str, Any] = bound.arguments
        where = f"input set {number}" if number else "the example"
        _Check(where).inputs(given, shapes)


@dataclass
class _Check:
    """Compares the caller's dynamic_shapes with one input set."""

    set_name: str
    sizes: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The size of each name, and the dimension in which it was found."""

    def inputs(self, given: Mapping[str, Any], shapes: Any) -> None:
        if not isinstance(shapes, Mapping):
            if len(shapes) != len(given):
                _refuse(
                    f"{len(shapes)} entries for {len(given)} inputs ({', '.join(given)})",
                    f"expected {_FORMS}",
                )
            shapes = dict(zip(given, shapes, strict=True))
        unknown, left_out = _without(shapes, given), _without(given, shapes)
        if unknown or left_out:
            fault = f"the module does not get {', '.join(map(str, unknown))}" if unknown else ""
            more = f"{' and ' if unknown else ''}there is no entry for {', '.join(left_out)}"
            _refuse(fault + (more if left_out else ""), f"it is called with {', '.join(given)}")
        for name, value in given.items():
            self._value(name, value, shapes[name])

    def _value(self, place: str, value: Any, shapes: Any) -> None:
        if shapes is None:
            return
        if isinstance(value, torch.Tensor):
            for dim, what in _dims(place, value, shapes):
                self._size(f"{place}[{dim}]", value.shape[dim], what)
        elif type(value) in (tuple, list) and isinstance(shapes, (tuple, list)):
            if len(value) != len(shapes):
                _refuse(f"{place} has {len(value)} values, not {len(shapes)}", f"expected {_FORMS}")
            for number, (each, inner) in enumerate(zip(value, shapes, strict=True)):
                self._value(f"{place}[{number}]", each, inner)
        elif type(value) is dict and isinstance(shapes, Mapping):
            for key in [*_without(shapes, value), *_without(value, shapes)]:
                _refuse(f"{place}: {key!r} is not on both sides", f"expected {_FORMS}")
            for key, each in value.items():
                self._value(f"{place}[{key!r}]", each, shapes[key])

    def _size(self, place: str, size: int, what: Any) -> None:
        if what is None or isinstance(what, _DimHint):
            return
        if isinstance(what, int):
            if what != size:
                _refuse(
                    f"{place} is {size} in {self.set_name}, not {what}",
                    "a size that varies has a name or Dim.AUTO, and the key in a dict is the index "
                    "of the dimension: {0: 'batch', 1: 'length'}",
                )
            return
        if not isinstance(what, (str, Dim)):
            _refuse(f"{place} is to be {what!r}", "expected a name, a Dim, Dim.AUTO or None")
        name = what if isinstance(what, str) else what.__name__
        least, most = getattr(what, "min", None), getattr(what, "max", None)
        if isinstance(least, int) and isinstance(most, int) and not least <= size <= most:
            _refuse(
                f"{place} is {size} in {self.set_name}, but {name} ranges from {least} to {most}",
                "give inputs within these bounds, or other bounds",
            )
        before, first = self.sizes.setdefault(name, (size, place))
        if before != size:
            _refuse(
                f"{name!r} is used for {first}, which is {before} in {self.set_name}, and for "
                f"{place}, which is {size}",
                "one name means one size; use different names for sizes that differ",
            )


def _dims(place: str, tensor: torch.Tensor, shapes: Any) -> Iterator[tuple[int, Any]]:
    """Yield the dimensions of a tensor for which there is an entry, with the entries."""
    rank = tensor.dim()
    known = f"it has {rank} dimensions" + (f", 0 to {rank - 1}" if rank else "")
    if isinstance(shapes, Mapping):
        for dim in shapes:
            if type(dim) is not int or not 0 <= dim < rank:
                counted = type(dim) is int and -rank <= dim < 0
                way = f"{dim} from the end is {dim + rank}" if counted else known
                _refuse(f"{place} has no dimension {dim!r}", way)
        yield from shapes.items()
    elif isinstance(shapes, (tuple, list)):
        if len(shapes) != rank:
            _refuse(f"{place} has {len(shapes)} entries for sizes", known)
        yield from enumerate(shapes)
    else:
        _refuse(f"{place} has the entry {shapes!r}", "expected {0: 'batch'}, or None")


def _without(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> list[Any]:
    return [key for key in one if key not in other]


def _refuse(fault: str, way_out: str) -> NoReturn:
    raise InvalidArgumentError(f"dynamic_shapes: {fault}; {way_out}")
