"""Provides expected outputs, from recorded outputs, another model, or a torch module."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .._base.errors import Error, InvalidArgumentError, MismatchError, RunError
from .._sources.classes import registered_attributes
from .comparing import flattened
from .inputs import Given
from .randomness import drawing_nodes, drawing_of_program
from .running import Session, first_line
from .values import Array, Value, from_torch, is_float, to_torch


class Reference(Protocol):
    """Provides the expected outputs."""

    name: str

    def outputs(self, given: Given, what: str) -> dict[str, Value]:
        """Return the expected outputs by name; the names are those of the reference."""

    def draws(self) -> list[str]:
        """Return the operators of the reference that draw random numbers, as far as known."""


class RecordedReference:
    """A reference that returns the outputs recorded with the inputs."""

    name = "recorded outputs"

    def outputs(self, given: Given, what: str) -> dict[str, Value]:
        """Return the recorded outputs of the input set."""
        if not given.expected:
            raise InvalidArgumentError(
                f"{what}: has inputs but no outputs, so there is nothing to compare with; "
                "give against="
            )
        return given.expected

    def draws(self) -> list[str]:
        """Return an empty list, because recorded outputs are not computed again."""
        return []


class OnnxReference:
    """A reference that runs another model on ONNX Runtime."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.name = session.name

    def outputs(self, given: Given, what: str) -> dict[str, Value]:
        """Run the other model, and return its outputs."""
        return self.session.run(self.session.feed(given.feed, what), what)

    def draws(self) -> list[str]:
        """Return the nodes of the other model that draw random numbers."""
        return drawing_nodes(self.session.source)


def paired(
    names: Sequence[str], expected: Mapping[str, Value]
) -> list[tuple[str, str | None, str | None]]:
    """Return the outputs to compare, as tuples of title, model's name and reference's name.

    If any name occurs on both sides, outputs are paired by name, otherwise by position.

    Raises:
        MismatchError: the two sides have no name in common, and different numbers of outputs.
    """
    plain = {name: name if name in expected else name.removeprefix("output.") for name in names}
    if any(other in expected for other in plain.values()):
        pairs = [
            (name, name, other if other in expected else None) for name, other in plain.items()
        ]
        rest = [name for name in expected if name not in plain.values()]
        return [*pairs, *((name, None, name) for name in rest)]
    if len(names) != len(expected):
        raise MismatchError(
            f"the outputs cannot be paired: the model returns {', '.join(names) or 'none'}, the "
            f"reference returns {', '.join(expected) or 'none'}"
        )
    return [(name, name, other) for name, other in zip(names, expected, strict=True)]


def pairs_of(
    names: Sequence[str], got: Mapping[str, Value], expected: Mapping[str, Value]
) -> Iterator[tuple[str, Value, Value]]:
    """Yield each output's name, the model's array and the expected array."""
    for title, one, other in paired(names, expected):
        yield from flattened(title, got.get(one or ""), expected.get(other or ""))


def as_given(
    names: Sequence[str],
    got: Mapping[str, Any],
    wanted: Mapping[str, Any],
    numbers: Collection[str],
) -> dict[str, Any]:
    """Return a module's outputs, with Python scalars only if the graph has outputs for them.

    A scalar is converted to the type of the graph's output if both are of the same kind: the graph
    computes in float32 what Python computes in float64.

    Args:
        names: the graph's outputs, in order.
        got: the graph's outputs, by name.
        wanted: the module's outputs, by its own names.
        numbers: the names of the outputs that are Python scalars.
    """
    if len(names) != len(wanted):
        return {name: value for name, value in wanted.items() if name not in numbers}
    found = dict(wanted)
    for output, name in zip(names, wanted, strict=True):
        one, other = got.get(output), wanted[name]
        if name in numbers and one is not None and one.dtype.kind == other.dtype.kind:
            found[name] = other.astype(one.dtype)
    return found


def leaves(
    value: Any, path: str = "", objects: bool = True, numbers: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield the tensors inside a value with their paths, in the order of torch's pytree.

    If `objects` is false, tensors inside objects such as caches are left out. If `numbers` is
    true, Python scalars are included.
    """
    import torch

    pytree = torch.utils._pytree
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from leaves(each, f"{path}.{name}" if path else str(name), objects, numbers)
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from leaves(each, f"{path}.{number}" if path else str(number), objects, numbers)
    elif isinstance(value, (bool, int, float)):
        if numbers:
            yield path, value
    elif (known := _registered(value)) is not None and objects:
        yield from leaves(known, path, objects, numbers)
    elif value is not None and objects:  # a class, such as a cache, that is registered for tracing
        kinds = (torch.Tensor, bool, int, float) if numbers else torch.Tensor
        flat = [each for each in pytree.tree_leaves(value) if isinstance(each, kinds)]
        yield from leaves(flat, path, numbers=numbers)


def _registered(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object whose class was registered by oe.register_class().

    Return None for all other objects.
    """
    cls = type(value)
    attributes = registered_attributes().get(f"{cls.__module__}.{cls.__qualname__}")
    return None if attributes is None else {name: getattr(value, name) for name in attributes}


def training_mode_of(module: Any, name: str) -> str:
    """Return a note if a module is in training mode; otherwise an empty string."""
    if not any(each.training for each in module.modules()):
        return ""
    return (
        f"{name} is in training mode, in which dropout and normalizations do not compute what the "
        "exported model computes; call its eval()"
    )


def named_arguments(method: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call by name, or by position if they have no names."""
    try:
        bound = inspect.signature(method).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {str(number): value for number, value in enumerate(args)} | dict(kwargs)
    return _by_name(bound)


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        found |= value if kind == inspect.Parameter.VAR_KEYWORD else {name: value}
    return found


class ModuleReference:
    """A reference that runs a torch module, or a program that torch.export made of a module."""

    def __init__(self, module: Any, name: str = "", any_mode: bool = False) -> None:
        """Create the reference; a module in training mode is an error unless `any_mode` is true."""
        import torch

        self._mode: Any = contextlib.nullcontext()
        self._change: Callable[[Any], Any] | None = None
        self.numbers: set[str] = set()
        """The names of results that are Python scalars; a graph may have outputs for some."""
        self.program = module if isinstance(module, torch.export.ExportedProgram) else None
        self.module = module.module() if self.program is not None else module
        self.name = name or (
            "the exported program" if self.program is not None else type(module).__name__
        )
        if self.program is None and not any_mode:
            if fault := training_mode_of(self.module, self.name):
                raise InvalidArgumentError(fault)

    def outputs(self, given: Given, what: str) -> dict[str, Value]:
        """Call the module on copies of its arguments, because it may change them."""
        import torch

        call = given.call if given.call is not None else self._call(given.feed, what)
        args, kwargs = copy.deepcopy(call[0]), copy.deepcopy(call[1])
        if self._change is not None:
            args, kwargs = self._change((args, kwargs))
        try:
            with torch.no_grad(), self._mode:
                result = self.module(*args, **kwargs)
        except Error:
            raise
        except Exception as error:
            raise RunError(
                f"{what}: {self.name} fails on it: {type(error).__name__}: {first_line(error)}"
            ) from error
        return {name: from_torch(tensor) for name, tensor in self.named(result)}

    @contextlib.contextmanager
    def within(self, mode: Any, change: Callable[[Any], Any] | None) -> Iterator[None]:
        """Make outputs() run the module inside a torch mode, on inputs changed by `change`."""
        before = self._mode, self._change
        self._mode, self._change = mode, change
        try:
            yield
        finally:
            self._mode, self._change = before

    def comparable(self, given: Given, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the model's outputs that correspond to module outputs (all, in this class)."""
        return dict(values)

    def draws(self) -> list[str]:
        """Return the random operators of a program; empty for a module, which is not searched."""
        return [] if self.program is None else drawing_of_program(self.program)

    def named(self, result: Any) -> Iterator[tuple[str, Any]]:
        """Yield the tensors in a result with the names by which outputs are paired.

        Python scalars become tensors of the corresponding types.
        """
        import torch

        for name, value in leaves(result, numbers=True):
            if not isinstance(value, torch.Tensor):
                self.numbers.add(name)
                kind = torch.float64 if isinstance(value, float) else None
                value = torch.tensor(value, dtype=kind)
            yield name, value

    def feed(self, call: tuple[Any, Any], names: Sequence[str]) -> dict[str, Array]:
        """Return the model's inputs for a call of the module, paired by name or else by place."""
        found = dict(self._arguments(*call))
        plain = {name: name.removeprefix("input.") for name in names}
        if not all(path in found for path in plain.values()):
            if len(found) != len(names):
                raise MismatchError(
                    f"the inputs cannot be paired: the model takes {', '.join(names) or 'none'}, "
                    f"but {self.name} is called with {', '.join(found) or 'none'}"
                )
            plain = dict(zip(names, found, strict=True))
        return {name: from_torch(found[path]) for name, path in plain.items()}

    def lacking(self, call: tuple[Any, Any], names: Sequence[str]) -> list[str]:
        """Return the named tensor arguments of the module that are not inputs of the model.

        If the model's inputs are paired by position, the list is empty.
        """
        plain = {name.removeprefix("input.") for name in names}
        found = dict(self._arguments(*call))
        return [path for path in found if path not in plain] if plain <= found.keys() else []

    def _arguments(self, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
        if self.program is not None:
            return leaves((args, kwargs))
        try:
            bound = inspect.signature(self.module.forward).bind(*args, **kwargs)
        except TypeError as error:
            raise MismatchError(f"{self.name} cannot be called like this: {error}") from error
        return leaves(_by_name(bound))

    def example(self) -> Any:
        """Return the arguments with which the program was exported, if known."""
        return self.program.example_inputs if self.program is not None else None

    def _call(self, feed: Mapping[str, Value], what: str) -> tuple[Any, Any]:
        """Return the module's arguments, made from the values of the model's inputs."""
        tensors = [self._tensor(name, value, what) for name, value in feed.items()]
        if self.program is not None:
            return self._program_call(tensors, what)
        names = [name.removeprefix("input.") for name in feed]
        taken = inspect.signature(self.module.forward).parameters
        if all(name in taken for name in names):
            return (), dict(zip(names, tensors, strict=True))
        required = [
            name
            for name, each in taken.items()
            if each.default is each.empty and each.kind == each.POSITIONAL_OR_KEYWORD
        ]
        several = any(each.kind == each.VAR_POSITIONAL for each in taken.values())
        if len(required) != len(tensors) and not several:
            raise MismatchError(
                f"{what}: {self.name} takes {', '.join(taken)}, which the model's inputs "
                f"{', '.join(feed)} do not determine; give inputs= in the form that it takes"
            )
        return tuple(tensors), {}

    def _program_call(self, tensors: list[Any], what: str) -> tuple[Any, Any]:
        import torch

        pytree = torch.utils._pytree
        assert self.program is not None
        spec, example = self.program.call_spec.in_spec, self.program.example_inputs
        flat = pytree.tree_leaves(example) if example is not None else list(tensors)
        places = [i for i, each in enumerate(flat) if isinstance(each, torch.Tensor)]
        if len(places) != len(tensors) or len(flat) != spec.num_leaves:
            raise MismatchError(
                f"{what}: the exported program takes {len(places)} tensors, but the model takes "
                f"{len(tensors)}"
            )
        for place, tensor in zip(places, tensors, strict=True):
            flat[place] = tensor
        args, kwargs = pytree.tree_unflatten(flat, spec)
        return args, kwargs

    def _tensor(self, name: str, value: Value, what: str) -> Any:
        """Return a tensor on the module's device; floats get the module's float type."""
        if not isinstance(value, np.ndarray):
            raise MismatchError(
                f"{what}: input {name} is a sequence, which is not supported for {self.name}"
            )
        tensor = to_torch(value)
        parameters = [each for each in self.module.parameters() if each.is_floating_point()]
        if not parameters:
            return tensor
        types = {each.dtype for each in parameters}
        dtype = types.pop() if is_float(value) and len(types) == 1 else tensor.dtype
        return tensor.to(parameters[0].device, dtype)
