"""Registers classes temporarily, so that torch.export can take their objects apart."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._base.errors import InvalidArgumentError
from .._sources.classes import registered_attributes


def _fields(cls: type, names: Sequence[str] | None) -> Sequence[str] | None:
    """Return the names of the attributes to use; None for all attributes that an object has."""
    if names is None and dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return names


def _register(cls: type, names: Sequence[str] | None) -> None:
    fields = _fields(cls, names)

    def flatten(value: Any) -> tuple[list[Any], tuple[str, ...]]:
        parts = vars(value) if fields is None else {name: getattr(value, name) for name in fields}
        return list(parts.values()), tuple(parts)

    def flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
        parts, context = flatten(value)
        keys = [pytree.GetAttrKey(name) for name in context]
        return list(zip(keys, parts, strict=True)), context

    def unflatten(parts: Iterable[Any], context: tuple[str, ...]) -> Any:
        made: Any = object.__new__(cls)
        for name, part in zip(context, parts, strict=True):
            object.__setattr__(made, name, part)
        return made

    pytree.register_pytree_node(
        cls,
        flatten,
        unflatten,
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        flatten_with_keys_fn=flatten_with_keys,
    )


def _forget(classes: Iterable[type]) -> None:
    for cls in classes:
        if cls in pytree.SUPPORTED_SERIALIZED_TYPES:
            pytree._deregister_pytree_node(cls)
        else:
            pytree.SUPPORTED_NODES.pop(cls, None)
    gone = set(classes)
    pytree._cxx_pytree_pending_imports[:] = [
        each for each in pytree._cxx_pytree_pending_imports if each[0][0] not in gone
    ]


def _registered() -> Iterator[tuple[type, Sequence[str]]]:
    """Yield the classes given to oe.register_class() that are already imported."""
    for name, attributes in registered_attributes().items():
        module, _, path = name.rpartition(".")
        while module and module not in sys.modules:  # a class inside of another
            module, _, outer = module.rpartition(".")
            path = f"{outer}.{path}"
        found: Any = sys.modules.get(module)
        if path == "*" and found is not None:
            own = (each for each in vars(found).values() if isinstance(each, type))
            yield from ((each, attributes) for each in own if each.__module__ == module)
            continue
        for part in path.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type):
            yield found, attributes


@contextlib.contextmanager
def known_classes(
    classes: Iterable[type | tuple[type, Sequence[str]]], module: torch.nn.Module | None
) -> Iterator[list[str]]:
    """Let torch take apart objects of these classes, and the transformers caches of a module.

    Classes that were given to oe.register_class() with attribute names are included.

    Args:
        classes: classes, or pairs of a class and the names of its attributes. Without names, the
            fields of a dataclass are used, and for other classes all attributes that an object has.
        module: the module to export; if it contains a transformers model, the model's caches are
            registered.
    """
    from .surroundings import register_caches

    added: list[type] = []
    try:
        for each in (*classes, *sorted(_registered(), key=lambda one: one[0].__qualname__)):
            cls, names = each if isinstance(each, tuple) else (each, None)
            if not isinstance(cls, type):
                raise InvalidArgumentError(f"classes: {cls!r} is not a class")
            if cls not in pytree.SUPPORTED_NODES:
                _register(cls, names)
                added.append(cls)
        if module is not None:
            if "transformers" in sys.modules:
                with contextlib.suppress(ImportError):  # older ones have no exporters
                    import_module("transformers.exporters.exporter_dynamo")
            # Modules imported meanwhile register classes of their own, once: those stay.
            before = set(pytree.SUPPORTED_NODES)
            register_caches(module)
            added += set(pytree.SUPPORTED_NODES) - before
        yield sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in added)
    finally:
        _forget(added)
