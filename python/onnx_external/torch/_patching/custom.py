"""Applies patches written as classes, whose methods replace methods of other classes.

```python
class patched_Encoder:
    _PATCHED_CLASS_ = Encoder          # or its dotted name
    _PATCHES_ = ["forward"]
    _VERSIONS_ = {"transformers": ">=5.0"}   # optional: where it holds

    def forward(self, x):
        ...
```
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Any

from ..._base.errors import InvalidArgumentError


@dataclass(frozen=True)
class MethodPatch:
    """A method that replaces a method of another class."""

    owner: type
    method: str
    function: Any
    """The new method: a function, property, static method or class method."""
    patch: type

    @property
    def name(self) -> str:
        """The full name of the replaced method: "module.Class.method"."""
        return f"{self.owner.__module__}.{self.owner.__qualname__}.{self.method}"

    @property
    def code(self) -> Any:
        """The code object of the new method; None if it has none."""
        function = getattr(self.function, "__func__", self.function)
        function = getattr(function, "fget", function)
        return getattr(inspect.unwrap(function), "__code__", None)


@dataclass(frozen=True)
class Skipped:
    """A patch that is not applied, and the reason."""

    name: str
    why: str


def _is_patch(value: Any) -> bool:
    return isinstance(value, type) and "_PATCHED_CLASS_" in vars(value)


def patches_in(module: ModuleType) -> Iterator[type]:
    """Yield the classes in a module that are patches."""
    yield from filter(_is_patch, vars(module).values())


def _classes(custom: Iterable[type | ModuleType]) -> Iterator[type]:
    for each in custom:
        if isinstance(each, ModuleType):
            yield from (one for one in patches_in(each) if one.__module__ == each.__name__)
        elif _is_patch(each):
            yield each
        else:
            raise InvalidArgumentError(
                f"custom: {each!r} is not a class with _PATCHED_CLASS_ and _PATCHES_, nor a module "
                "of such classes"
            )


def _resolved(dotted: str) -> type | None:
    """Return a class by its full name, such as "package.module.Class"; None if there is none."""
    module, _, name = dotted.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) else None


def _unmet(patch: type) -> str | None:
    """Return the first version requirement that is not met, as a sentence; None if all are."""
    for package, wanted in getattr(patch, "_VERSIONS_", {}).items():
        from packaging.specifiers import SpecifierSet

        try:
            there = metadata.version(package)
        except metadata.PackageNotFoundError:
            return f"{package} is not installed"
        if not SpecifierSet(wanted).contains(there, prereleases=True):
            return f"it is for {package} {wanted}, but {there} is installed"
    return None


def _methods(patch: type, owner: type) -> Iterator[MethodPatch]:
    names = getattr(patch, "_PATCHES_", None)
    if not isinstance(names, (list, tuple)):
        raise InvalidArgumentError(
            f"{patch.__qualname__}: _PATCHES_ must be the list of the methods to replace"
        )
    for name in names:
        own = [each for each in patch.__mro__ if each not in owner.__mro__ and name in vars(each)]
        if not own:
            raise InvalidArgumentError(
                f"{patch.__qualname__}: _PATCHES_ names {name!r}, which the class does not define"
            )
        if not hasattr(owner, name):
            raise InvalidArgumentError(
                f"{patch.__qualname__}: {owner.__qualname__} has no {name!r} in the installed "
                "version; state in _VERSIONS_ for which versions the patch is meant"
            )
        yield MethodPatch(owner, name, vars(own[0])[name], patch)


def method_patches(
    custom: Iterable[type | ModuleType], strict: bool = True
) -> tuple[list[MethodPatch], list[Skipped]]:
    """Return the patches defined by classes, and by all such classes in modules.

    Args:
        custom: the classes and modules.
        strict: True raises an error for patches that do not fit; False skips them.

    Raises:
        InvalidArgumentError: a class does not have the required form, or names something that
            does not exist.
    """
    found: list[MethodPatch] = []
    skipped: list[Skipped] = []
    for patch in _classes(custom):
        owner = patch._PATCHED_CLASS_  # type: ignore[attr-defined]
        name = owner if isinstance(owner, str) else getattr(owner, "__qualname__", str(owner))
        if isinstance(owner, str):
            owner = _resolved(owner)
        why = "the class is not there" if owner is None else _unmet(patch)
        if why is not None:
            skipped.append(Skipped(name, why))
            continue
        try:
            if not isinstance(owner, type):
                raise InvalidArgumentError(f"{patch.__qualname__}: _PATCHED_CLASS_ is not a class")
            found += _methods(patch, owner)
        except InvalidArgumentError as error:
            if strict:
                raise
            skipped.append(Skipped(name, str(error)))
    return found, skipped
