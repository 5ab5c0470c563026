"""Registers callers' classes, so that the tensors in their objects are found and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .._base.argument_types import are_names, wrong_type
from .._base.errors import InvalidArgumentError
from .._core import PickledValue

Flatten = Callable[[PickledValue], dict[str, PickledValue] | Iterable[tuple[str, PickledValue]]]
"""A function that returns the children of an object, in the order in which they are flattened. The
name of a child is appended to the name of its object, after a dot."""

# The extension copies it when a call begins.
_registered: dict[str, Flatten] = {}


def _name_of(cls: type | str) -> str:
    name = f"{cls.__module__}.{cls.__qualname__}" if isinstance(cls, type) else cls
    if not isinstance(name, str):
        raise wrong_type("cls", "a class or its name", cls)
    if not all(name.partition(".")):
        raise InvalidArgumentError(f"cls: expected 'module.Class' or 'module.*', not {name!r}")
    return name


@dataclass(frozen=True)
class _Attributes:
    """Returns the values of an object's attributes."""

    names: tuple[str, ...]

    def __call__(self, value: PickledValue) -> dict[str, PickledValue]:
        parts = {}
        for name in self.names:
            part = value.attribute(name)
            if part is None:
                raise AttributeError(f"{value.type} has no attribute {name!r}")
            parts[name] = part
        return parts


def registered_attributes() -> dict[str, tuple[str, ...]]:
    """Return the registered attributes of each class, by class name."""
    every = list(_registered.items())
    return {name: each.names for name, each in every if isinstance(each, _Attributes)}


def register_class(cls: type | str, flatten: Flatten | Sequence[str]) -> None:
    """Register which tensors the objects of a class contain, for all later calls.

    Without a registration, objects of unknown classes in a checkpoint are skipped. The classes of
    transformers (caches, outputs) are known, but a registration with the same name takes
    precedence. Exports look into the objects of a class if the names of its attributes are
    registered.

    Args:
        cls: the class, or its name in pickles, "module.Class"; "module.*" means all classes in a
            module that are not registered themselves. The class is never imported or called.
        flatten: the names of the attributes that contain tensors (or lists, dicts, ... of tensors),
            or a function that receives an object as described in the pickle, and returns names and
            values. The function may be called on other threads, and concurrently. If it raises an
            exception, an InvalidArgumentError that names the class is raised from it.
    """
    name = _name_of(cls)
    if callable(flatten):
        _registered[name] = flatten
        return
    if not are_names(flatten):
        raise wrong_type("flatten", "a function or a sequence of attribute names", flatten)
    _registered[name] = _Attributes(tuple(flatten))


def unregister_class(cls: type | str) -> bool:
    """Undo a registration; calls that have already begun still use it.

    Args:
        cls: the registered class.

    Returns:
        True if the class was registered.
    """
    return _registered.pop(_name_of(cls), None) is not None
