"""Provides input sets for running a model: passed by the caller, recorded, or generated."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .._base.errors import InvalidArgumentError
from .running import Form
from .values import Array, Value, dtype_of_type, is_float, shape_text


@dataclass
class Given:
    """One input set whose values are in memory."""

    feed: dict[str, Value]
    """The input values, by the names of the model's inputs."""
    expected: dict[str, Value] = field(default_factory=dict)
    """The recorded outputs, by the names of the model's outputs."""
    call: Any = None
    """The arguments of a torch module: (args, kwargs)."""
    origin: str = "given"
    """The origin of the set: "given" or "recorded"."""
    how: dict[str, str] = field(default_factory=dict)
    """For each generated input, a description of the way in which its values were chosen."""


def given_by_name(values: dict[str, Any]) -> Given:
    """Return the input set for a torch module that is called with keyword arguments only."""
    return Given({}, call=((), values))


@dataclass(frozen=True)
class InputSet:
    """One input set, which is read or generated only when needed."""

    name: str
    load: Callable[[], Given]
    may_misfit: bool = False
    """True if the set is skipped when the model does not accept its sizes."""


@dataclass(frozen=True)
class Making:
    """Settings for generating inputs."""

    dims: Mapping[str, int | Sequence[int]] = field(default_factory=dict)
    """Sizes of dynamic dimensions by name; a list has one size for each set."""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The minimum and maximum values of inputs, by name."""
    seed: int = 0
    sets: int | None = None
    """The number of sets; the default is the length of the longest list of sizes."""

    @property
    def count(self) -> int:
        """The number of sets to generate."""
        lists = [len(each) for each in self.dims.values() if not isinstance(each, int)]
        return self.sets or max(lists, default=1)

    @property
    def is_asked(self) -> bool:
        """True if any setting differs from its default."""
        return bool(self.dims or self.ranges) or self.sets is not None

    def sizes(self, number: int) -> dict[str, int]:
        """Return the dynamic sizes for the input set with the given number."""
        return {
            name: size if isinstance(size, int) else size[number % len(size)]
            for name, size in self.dims.items()
        }


_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def _evaluated(node: ast.expr, sizes: Mapping[str, int]) -> int | None:
    """Evaluate a size expression such as "past + length"; None if a name has no known size."""
    if isinstance(node, ast.Name):
        return sizes.get(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluated(node.left, sizes), _evaluated(node.right, sizes)
        divides = isinstance(node.op, ast.FloorDiv)
        if left is not None and right is not None and (right or not divides):
            return _OPERATORS[type(node.op)](left, right)
    return None


def _size(form: Form, place: int, sizes: Mapping[str, int]) -> int | None:
    stated = form.shape[place]
    if isinstance(stated, int):
        return stated
    given = sizes.get(f"{form.name}[{place}]", sizes.get(stated or ""))
    if given is not None or stated is None:
        return given
    try:
        return _evaluated(ast.parse(stated, mode="eval").body, sizes)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _names_of_sizes(forms: Sequence[Form]) -> list[str]:
    """Return the names whose sizes a caller may set: "batch", or "x[0]" for unnamed dimensions."""
    found: dict[str, None] = {}
    for form in forms:
        for place, size in enumerate(form.shape):
            if not isinstance(size, int):
                found[size or f"{form.name}[{place}]"] = None
    return list(found)


def _shape(form: Form, sizes: Mapping[str, int], forms: Sequence[Form]) -> tuple[int, ...]:
    found = [_size(form, place, sizes) for place in range(len(form.shape))]
    if None in found or any(size is not None and size < 0 for size in found):
        raise InvalidArgumentError(
            f"input {form.name} {shape_text(form.shape)}: its sizes are not known; give sizes for "
            f"{', '.join(_names_of_sizes(forms))}: dims={{NAME: SIZE}}"
        )
    return tuple(size for size in found if size is not None)


_LARGEST = 1 << 31
_MOST_SETS = 10_000
"""The maximum numbers of elements in a generated input, and of generated sets; more is probably a
mistake."""


def _values(
    form: Form, shape: tuple[int, ...], limits: tuple[float, float] | None, random: Any
) -> tuple[Array, str]:
    dtype = dtype_of_type(form.type)
    if dtype.kind == "O" or not form.type.startswith("tensor("):
        raise InvalidArgumentError(
            f"input {form.name} is {form.type}, which cannot be generated; give inputs="
        )
    if np.prod(shape, dtype=float) > _LARGEST:
        raise InvalidArgumentError(f"input {form.name} {list(shape)} is too large to be generated")
    if dtype == np.dtype(bool):
        return random.integers(0, 2, shape).astype(bool), "made: false or true"
    if is_float(np.empty(0, dtype)):
        if limits is None:
            made = random.standard_normal(shape, np.float32)
            return np.asarray(made).astype(dtype), "made: standard normal"
        made = random.uniform(limits[0], limits[1], shape)
        return np.asarray(made).astype(dtype), f"made: uniform in {limits[0]:g} .. {limits[1]:g}"
    low, high = (0, 1) if limits is None else (int(limits[0]), int(limits[1]))
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    if not least <= low <= high <= most:
        raise InvalidArgumentError(f"input {form.name}: {low} .. {high} is not a range of {dtype}")
    made = random.integers(low, high, shape, dtype, endpoint=True)
    return np.asarray(made, dtype), f"made: {low} .. {high}"


def _check_size(forms: Sequence[Form], name: str) -> None:
    """Raise an error if no dynamic size has this name, or if the model fixes the size."""
    sizes = _names_of_sizes(forms)
    places = {
        f"{form.name}[{place}]": (form, place, size)
        for form in forms
        for place, size in enumerate(form.shape)
    }
    if name in places and isinstance(places[name][2], int):
        form, place, size = places[name]
        raise InvalidArgumentError(
            f"dims: {name}: the model fixes dimension {place} of input {form.name} at {size} "
            f"({shape_text(form.shape)}), so no other size can be tried; leave it out, or export "
            "the model with this dimension dynamic"
        )
    inside = {node.id for each in sizes for node in _names_in(each)}
    if name not in places and name not in sizes and name not in inside:
        fixed = ", ".join(f"{form.name} {shape_text(form.shape)}" for form in forms)
        known = f"available: {', '.join(sizes)}" if sizes else f"the model fixes all: {fixed}"
        raise InvalidArgumentError(f"dims: no input has the size {name!r}; {known}")


def _refuse_unknown(forms: Sequence[Form], making: Making) -> None:
    for name, given in making.dims.items():
        _check_size(forms, name)
        numbers = [given] if isinstance(given, int) else list(given)
        if not numbers or min(numbers) < 0:
            raise InvalidArgumentError(
                f"dims: {name}: {given} is neither a size nor a list of sizes"
            )
    if making.sets is not None and not 1 <= making.sets <= _MOST_SETS:
        raise InvalidArgumentError(
            f"sets: {making.sets} is not a number of sets; use 1 to {_MOST_SETS:,}"
        )
    if making.seed < 0:
        raise InvalidArgumentError(f"seed: {making.seed} is not a seed; use 0 or more")
    names = [form.name for form in forms]
    for name, limits in making.ranges.items():
        if name not in names:
            raise InvalidArgumentError(
                f"ranges: no input has the name {name!r}; available: {', '.join(names)}"
            )
        if not limits[0] <= limits[1]:
            raise InvalidArgumentError(f"ranges: {name}: {limits[0]} is larger than {limits[1]}")


def _names_in(text: str) -> list[ast.Name]:
    try:
        return [
            node for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def made_sets(forms: Sequence[Form], making: Making) -> list[InputSet]:
    """Return input sets of random values with the types and shapes that the model states."""
    _refuse_unknown(forms, making)

    def make(number: int) -> Given:
        sizes = making.sizes(number)
        random = np.random.default_rng([making.seed, number])
        given = Given({})
        for form in forms:
            shape = _shape(form, sizes, forms)
            given.feed[form.name], given.how[form.name] = _values(
                form, shape, making.ranges.get(form.name), random
            )
        return given

    return [InputSet(f"made_{number}", partial(make, number)) for number in range(making.count)]
