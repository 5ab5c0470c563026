"""Registered classes of the caller: the tensors in their objects, and the tensors' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .._base.argument_types import are_names, wrong_type
from .._base.errors import InvalidArgumentError
from .._core import PickledValue

Flatten = Callable[[PickledValue], dict[str, PickledValue] | Iterable[tuple[str, PickledValue]]]
"""Lists the children of an object, in the order in which they are flattened. A child's name is
appended, after a dot, to that of its object."""

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
    """Lists attributes of an object."""

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
    """Return the registered attributes of each class, by the names of the classes."""
    every = list(_registered.items())
    return {name: each.names for name, each in every if isinstance(each, _Attributes)}


def register_class(cls: type | str, flatten: Flatten | Sequence[str]) -> None:
    """Register the tensors that objects of a class hold, for all later calls.

    Without that, objects of unknown classes in a checkpoint are left out. Classes of transformers
    (caches, outputs) are known; a registration of the same name takes precedence. Exports look into
    objects of classes that are registered with the names of their attributes.

    Args:
        cls: the class, or its name as pickles spell it: "module.Class"; "module.*" for all classes
            of a module that have no registration of their own. It is never imported or called.
        flatten: the names of the attributes that hold tensors (or lists, dicts, ... of them), or a
            function that gets an object as the pickle describes it, and returns names and values.
            It may be called on another thread, and in several calls at once. If it raises an
            exception, that becomes the cause of an InvalidArgumentError that names the class.
    """
    name = _name_of(cls)
    if callable(flatten):
        _registered[name] = flatten
        return
    if not are_names(flatten):
        raise wrong_type("flatten", "a function, or a sequence of attributes' names", flatten)
    _registered[name] = _Attributes(tuple(flatten))


def unregister_class(cls: type | str) -> bool:
    """Undo a registration. Calls that have already begun still use it.

    Args:
        cls: the registered class.

    Returns:
        False if there is none.
    """
    return _registered.pop(_name_of(cls), None) is not None
