"""Finds places outside a module that its code may write to: its classes and files' globals.

A trace puts tensors without values wherever the code stores something: in an attribute that is set
on first use, in a table of the class, or in a global dict. After the trace, tensors without values
must not remain in such places.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

from torch import nn

from onnx_external._base.errors import RewriteError
from onnx_external._base.swapping import exchanged, undoing
from onnx_external._control_flow.runtime.places import (
    HOOKS,
    Place,
    Places,
    is_foreign,
    memory_kept,
    names_of,
)
from onnx_external._control_flow.values import is_symbolic, version_of

_NO_DATA = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
"""The types of globals that are code, and not computed values."""
_HOLDERS = (
    threading.local,
    types.SimpleNamespace,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
)
"""Python classes whose objects contain other objects."""
_INSTALLED = ("/site-packages/", "/dist-packages/")
_CACHED: Any = functools._lru_cache_wrapper


class _Names(Place):
    """The globals of a file, or the attributes of a class, that are data and not code."""

    def read(self) -> Any:
        return {name: value for name, value in vars(self.owner).items() if _is_data(value)}

    def write(self, content: Any) -> None:
        now = self.read()
        for name in now.keys() - content.keys():
            delattr(self.owner, name)
        for name, value in content.items():
            if now.get(name, self) is not value:
                setattr(self.owner, name, value)


class _Slots(Place):
    """The attributes of an object that are stored in `__slots__`."""

    def read(self) -> Any:
        names = (name for cls in type(self.owner).__mro__ for name in _slots_of(cls))
        return {name: getattr(self.owner, name) for name in names if hasattr(self.owner, name)}

    write = _Names.write


def _is_data(value: Any) -> bool:
    return not isinstance(value, _NO_DATA)


def _slots_of(cls: type) -> list[str]:
    slots = vars(cls).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if not name.startswith("__")]


class OuterPlaces(Places):
    """All places outside a module that the module's own code may write to.

    Global state of an installed package is restored only if it comes from a trace. Otherwise, the
    package may have registered something permanently, and the state records this.
    """

    most = 500_000

    def __init__(self, module: Any) -> None:
        self.cached: list[tuple[Any, str]] = []
        """The owners and names of functions that cache their results (`functools.lru_cache`)."""
        self._careful: set[int] = set()
        """The numbers of the places that belong to installed packages."""
        self._noted: set[Any] = set()
        """The classes and modules of installed packages that have been recorded."""
        super().__init__([module])

    def changes(self) -> dict[int, Any]:
        """Return the changes in the places that are restored."""
        found = super().changes()
        return {
            number: content
            for number, content in found.items()
            if number not in self._careful or _holds_traced(content)
        }

    def _inside(self, value: Any, label: str) -> Iterator[tuple[Any, str]]:
        if _is_installed(value):
            self._package(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, types.ModuleType):
            if not is_foreign(value):
                self.all.append(_Names(value, "global "))
        elif isinstance(value, (staticmethod, classmethod, _CACHED)):
            yield value.__wrapped__, label
        elif isinstance(value, property):
            yield from ((each, label) for each in (value.fget, value.fset) if each is not None)
        elif isinstance(value, _HOLDERS):
            self.all.append(Place(vars(value), f"{label}."))
            yield from ((each, label) for each in list(vars(value).values()))
        else:
            yield from super()._inside(value, label)
            yield from self._object(value, label)

    def _package(self, value: Any) -> None:
        """Record the state that a package stores in a class and in its module, except functions."""
        before = len(self.all)
        classes = value.__mro__ if isinstance(value, type) else ()
        names = [each.__module__ for each in classes or (value,) if hasattr(each, "__module__")]
        modules = [value] if isinstance(value, types.ModuleType) else map(sys.modules.get, names)
        for owner in (*classes, *modules):
            if owner is None or owner in self._noted or not _is_installed(owner):
                continue
            self._noted.add(owner)
            self.all.append(_Names(owner, f"{owner.__name__}."))
            for each in self.all[-1].before.values():
                if isinstance(each, (dict, list, set)):
                    self.all.append(Place(each, f"{owner.__name__}."))
        self._careful.update(range(before, len(self.all)))

    def _object(self, value: Any, label: str) -> Iterator[tuple[Any, str]]:
        cls = type(value)
        if isinstance(value, types.FunctionType):
            if not is_foreign(value):
                self.all.append(Place(vars(value), f"{label}."))
                yield from ((each, label) for each in list(vars(value).values()))
            return
        if isinstance(value, nn.Module):
            for name, each in vars(value).items():
                if isinstance(each, dict) and (name == "_modules" or name.startswith(HOOKS)):
                    self.all.append(Place(each, f"{label}.{name}."))
        if not is_foreign(cls) and cls.__module__ != "builtins":
            yield cls, ""
            if any(map(_slots_of, cls.__mro__)):
                self.all.append(_Slots(value, f"{label}."))
                yield from ((each, label) for each in self.all[-1].before.values())

    def _class(self, value: type) -> Iterator[tuple[Any, str]]:
        for cls in value.__mro__:
            if is_foreign(cls) or cls.__module__ == "builtins":
                continue
            if cls is not value:
                yield cls, ""
                continue
            self.all.append(_Names(cls, f"{cls.__name__}."))
            for name, each in list(vars(cls).items()):
                self._note_cached(cls, name, each)
                yield each, f"{cls.__name__}.{name}"

    def _globals(self, value: types.FunctionType) -> Iterator[tuple[Any, str]]:
        """Yield the globals that a function uses, in its file and in modules that it names."""
        yield from super()._globals(value)
        module = sys.modules.get(value.__module__ or "")
        if module is None or vars(module) is not value.__globals__ or is_foreign(value):
            return
        yield module, ""
        names = names_of(value.__code__)
        for owner in [module, *self._modules_in(module, names)]:
            yield owner, ""
            for name in names & vars(owner).keys():
                found = vars(owner)[name]
                self._note_cached(owner, name, found)
                if not isinstance(found, types.ModuleType) and not _is_foreign_object(found):
                    yield found, name

    def _modules_in(self, module: types.ModuleType, names: frozenset[str]) -> list[Any]:
        found = (vars(module).get(name) for name in names)
        return [
            each for each in found if isinstance(each, types.ModuleType) and not is_foreign(each)
        ]

    def _note_cached(self, owner: Any, name: str, value: Any) -> None:
        plain = getattr(value, "__func__", value)
        if isinstance(plain, _CACHED) and not _is_installed(plain):
            self.cached.append((owner, name))


def _is_foreign_object(value: Any) -> bool:
    """Return whether the module's code cannot write to anything in this object."""
    return is_foreign(value if isinstance(value, (type, types.FunctionType)) else type(value)) and (
        not isinstance(value, (list, dict, set, _CACHED, *_HOLDERS))
    )


@functools.lru_cache(4096)
def _is_installed_file(name: str) -> bool:
    path = str(getattr(sys.modules.get(name), "__file__", None) or "").replace("\\", "/")
    return any(part in path for part in _INSTALLED)


def _is_installed(value: Any) -> bool:
    """Return whether a class, function or module is from an installed package other than torch."""
    if is_foreign(value):
        return False
    if isinstance(value, types.ModuleType):
        return _is_installed_file(value.__name__)
    if isinstance(value, (type, types.FunctionType, _CACHED)):
        return _is_installed_file(str(value.__module__))
    return False


def _holds_traced(content: Any) -> bool:
    """Return whether a place contains traced values, up to two levels down."""
    values = content.values() if isinstance(content, dict) else content
    for each in values:
        inner = each.values() if isinstance(each, dict) else each
        among = inner if isinstance(each, (list, tuple, set, dict)) else [each]
        if any(map(is_symbolic, among)):
            return True
    return False


@contextlib.contextmanager
def outside_kept(module: Any) -> Iterator[Places]:
    """Undo all writes by a module's code outside the module when the context ends.

    The writes include those to attributes, classes, globals and their contents, but not to the
    memory of tensors. Functions that cache their results do not cache anything meanwhile, because a
    trace would leave tensors without values in the cache, and a dynamic size cannot be a key. The
    context yields the places that the code may write to.

    Args:
        module: a module, or a function that makes one.
    """
    places = OuterPlaces(module)

    def undo() -> None:
        places.restore(places.changes())

    with undoing(undo), contextlib.ExitStack() as stack:
        for owner, name in dict.fromkeys(places.cached):
            value = vars(owner)[name]
            plain = getattr(value, "__func__", value).__wrapped__
            made = type(value)(plain) if isinstance(value, (staticmethod, classmethod)) else plain
            stack.enter_context(exchanged(owner, name, made))
        yield places


@contextlib.contextmanager
def state_kept(module: Any) -> Iterator[tuple[Places, Places]]:
    """Allow a module to write to itself and its contents inside the context; restore everything.

    Restored are also the places elsewhere that its code writes to (see `outside_kept`), and the
    memory of tensors, except that of parameters, which would have to be copied. The context yields
    the module's own places, and the places elsewhere.

    Raises:
        RewriteError: a parameter was written to.
    """
    places = Places([module])
    is_module = isinstance(module, nn.Module)
    own = [each for each in places.tensors if not isinstance(each, nn.Parameter)]
    parameters = dict(module.named_parameters()) if is_module else {}
    versions = {name: version_of(each) for name, each in parameters.items()}
    buffers = module.buffers() if is_module else ()
    with memory_kept([*buffers, *own]), outside_kept(module) as outer:
        yield places, outer
    for name, each in parameters.items():
        if version_of(each) != versions[name]:
            raise RewriteError(
                f"the parameter {name} is written to in place when the module runs, so each run "
                "changes the next run; write to a buffer or to a clone instead"
            )
