"""Finds what a function may write to: the lists, dicts, sets, objects and outer names it sees.

Trying a branch must have no lasting effect, and its writes must be merged with those of the other
branch. Therefore everything that can be reached from the function is recorded before it runs,
compared afterwards, and restored.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import nn

from onnx_external._control_flow.runtime.collected import Rows
from onnx_external._control_flow.values import UNDEFINED, version_of

_FOREIGN = frozenset(sys.stdlib_module_names) | {"numpy", "onnx_external", "sympy", "torch"}
HOOKS = ("_forward_", "_backward_", "_state_dict_", "_load_state_dict_", "_non_persistent_")
"""The prefixes of attributes in which a module, or torch, registers hooks."""
_EMPTY_CELL = UNDEFINED
CACHES = frozenset({"_flat_weights", "_flat_weight_refs"})
"""Caches that torch's recurrent layers update when weights change; they are not state."""


class Place:
    """One object that can be written to, as a mapping from keys to values."""

    def __init__(self, owner: Any, label: str) -> None:
        self.owner = owner
        self.label = label
        self.before = self.read()

    @property
    def is_variable(self) -> bool:
        """True for a closure variable, which may turn out to be unbound only when it is read."""
        return isinstance(self.owner, types.CellType)

    def read(self) -> Any:
        """Return a shallow copy of the current content."""
        owner = self.owner
        if isinstance(owner, types.CellType):
            try:
                return {"": owner.cell_contents}
            except ValueError:
                return {"": _EMPTY_CELL}
        if isinstance(owner, list):
            return list.copy(owner)
        if isinstance(owner, deque):
            return list(owner)
        if isinstance(owner, set):
            return set(owner)
        return dict(dict.items(owner))

    @property
    def may_grow(self) -> bool:
        """True if the object can contain a number of items that is known only in the graph."""
        return isinstance(self.owner, list)

    def changed(self) -> bool:
        """Return whether the object contains other objects than before."""
        now = self.read()
        if isinstance(now, set):
            return bool(now != self.before)
        if len(now) != len(self.before):
            return True
        if isinstance(now, list):
            return any(one is not other for one, other in zip(now, self.before, strict=True))
        return any(now.get(key, UNDEFINED) is not old for key, old in self.before.items())

    def write(self, content: Any) -> None:
        """Replace the whole content of the object."""
        owner = self.owner
        if isinstance(owner, types.CellType):
            if content[""] is _EMPTY_CELL:
                del owner.cell_contents
            else:
                owner.cell_contents = content[""]
        elif isinstance(owner, list):
            owner[:] = content
        elif isinstance(owner, deque):
            owner.clear()
            owner.extend(content)
        elif isinstance(owner, set):
            owner.clear()
            owner.update(content)
        else:
            _write_dict(owner, content)

    def assign(self, content: Any) -> None:
        """Replace the content with the operations that the user's code would use."""
        self.write(content)

    def named(self, key: Any) -> str:
        """Return the name of a value in the object, for messages."""
        if isinstance(self.owner, types.CellType):
            return self.label
        return f"{self.label}[{key!r}]" if not self.label.endswith(".") else f"{self.label}{key}"


def _write_dict(owner: dict[Any, Any], content: dict[Any, Any]) -> None:
    for key in [key for key in dict.keys(owner) if key not in content]:
        dict.__delitem__(owner, key)
    for key, value in content.items():
        if dict.get(owner, key, UNDEFINED) is not value:
            dict.__setitem__(owner, key, value)


Changes: TypeAlias = dict[int, Any]
"""The contents of changed places, by the number of the place."""


class Places:
    """All places that the given functions may write to."""

    most = 50_000
    """The maximum number of objects to search; in a larger model, no branch sees all objects."""

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        self.all: list[Place] = []
        self.sizes: list[torch.SymInt] = []
        """The dynamic sizes that the given functions can access."""
        self.tensors: list[torch.Tensor] = []
        """The tensors that the functions see, except parameters and buffers of modules."""
        self._seen: dict[int, Any] = {}
        self._global_names: dict[int, frozenset[str]] = {}
        stack: list[tuple[Any, str]] = [(each, "") for each in functions]
        while stack and len(self._seen) < self.most:
            value, label = stack.pop()
            if id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            stack += self._inside(value, label)

    def changes(self) -> Changes:
        """Return the changes since the places were recorded."""
        return {n: place.read() for n, place in enumerate(self.all) if place.changed()}

    def restore(self, changes: Changes) -> None:
        """Undo all changes since the places were recorded."""
        for number in changes:
            self.all[number].write(self.all[number].before)

    def _inside(self, value: Any, label: str) -> Iterator[tuple[Any, str]]:
        if isinstance(value, torch.SymInt):
            self.sizes.append(value)
        elif isinstance(value, torch.Tensor):
            self.tensors.append(value)
        elif isinstance(value, Rows):
            return
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, types.MethodType):
            yield value.__func__, label
            yield value.__self__, "self"
        elif isinstance(value, functools.partial):
            yield from ((each, label) for each in (value.func, *value.args))
            yield from ((each, name) for name, each in value.keywords.items())
        elif isinstance(value, (list, dict, set, deque)):
            yield from self._container(value, label or f"a {type(value).__name__}")
            yield from self._attributes(value, label)
        elif isinstance(value, (tuple, frozenset)):
            yield from ((each, label) for each in value)
        else:
            yield from self._attributes(value, label)

    def _container(self, value: Any, label: str) -> Iterator[tuple[Any, str]]:
        self.all.append(Place(value, label))
        if isinstance(value, dict):
            yield from ((each, f"{label}[{key!r}]") for key, each in dict.items(value))
        else:
            yield from ((each, label) for each in list(value))

    def _function(self, value: types.FunctionType) -> Iterator[tuple[Any, str]]:
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            if id(cell) not in self._seen:
                self._seen[id(cell)] = cell
                self.all.append(Place(cell, name))
            try:
                yield cell.cell_contents, name
            except ValueError:
                continue
        defaults = value.__defaults__ or ()
        names = value.__code__.co_varnames[: value.__code__.co_argcount]
        yield from zip(defaults, names[len(names) - len(defaults) :], strict=True)
        yield from ((each, name) for name, each in (value.__kwdefaults__ or {}).items())
        yield from self._globals(value)

    def _globals(self, value: types.FunctionType) -> Iterator[tuple[Any, str]]:
        """Yield the mutable globals that a function names."""
        space = value.__globals__
        if is_foreign(value):
            return
        for name in names_of(value.__code__):
            found = space.get(name, UNDEFINED)
            if isinstance(found, (list, dict, set)) or (
                isinstance(found, types.FunctionType) and not is_foreign(found)
            ):
                yield found, name
        written = _written_globals(value.__code__)
        if written - self._global_names.get(id(space), frozenset()):
            self._global_names[id(space)] = written
            self.all.append(_Globals(space, written))

    def _attributes(self, value: Any, label: str) -> Iterator[tuple[Any, str]]:
        content = getattr(value, "__dict__", None)
        if not isinstance(content, dict) or isinstance(value, (type, types.ModuleType)):
            return
        label = f"{label or type(value).__name__}."
        if isinstance(value, nn.Module):
            self._seen[id(content)] = content
            self.all.append(Place(content, label))
            kept = {"_parameters", "_buffers"}
            for name in kept:
                if isinstance(content.get(name), dict):
                    self._seen[id(content[name])] = content[name]
                    self.all.append(_Registered(content[name], label, value))
            for name, each in dict.items(content.get("_modules") or {}):
                yield each, f"{label}{name}"
            for name, each in content.items():
                if name != "_modules" and name not in kept and not name.startswith(HOOKS):
                    yield each, f"{label}{name}"
        elif not is_foreign(type(value)):
            self._seen[id(content)] = content
            self.all.append(Place(content, label))
            yield from ((each, f"{label}{name}") for name, each in content.items())


@contextlib.contextmanager
def memory_kept(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Undo writes to the memory of tensors when the context ends."""
    with torch.no_grad():
        before = [(each, version_of(each), each.clone()) for each in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, version, value in before:
                if version_of(tensor) != version:
                    tensor.copy_(value)


class _Registered(Place):
    """The buffers or the parameters of a module."""

    def __init__(self, owner: dict[str, Any], label: str, module: nn.Module) -> None:
        self.module = module
        super().__init__(owner, label)

    def assign(self, content: Any) -> None:
        for name, value in content.items():
            if self.owner.get(name, UNDEFINED) is not value:
                setattr(self.module, name, value)  # torch.export sees it


class _Globals(Place):
    """The globals of a module that a function assigns to."""

    def __init__(self, space: dict[str, Any], names: frozenset[str]) -> None:
        self.names = names
        super().__init__(space, "global ")

    def read(self) -> Any:
        return {name: self.owner[name] for name in self.names if name in self.owner}

    def write(self, content: Any) -> None:
        for name in self.names:
            if name in content:
                self.owner[name] = content[name]
            else:
                self.owner.pop(name, None)

    def named(self, key: Any) -> str:
        return f"the global {key}"


def at_key(content: Any, key: Any) -> Any:
    """Return the value for a key in a place's content, or UNDEFINED if there is none."""
    if isinstance(content, set):
        return content
    if isinstance(content, list):
        return content[key] if key < len(content) else UNDEFINED
    return content.get(key, UNDEFINED)


def put_key(content: Any, key: Any, value: Any) -> None:
    """Set the value for a key in a place's content."""
    if isinstance(content, set):
        content.clear()
        content.update(value)
    elif isinstance(content, list) and key == len(content):
        content.append(value)
    elif value is UNDEFINED:
        content.pop(key, None)
    else:
        content[key] = value


def starts_with(items: list[Any], start: list[Any]) -> bool:
    """Return whether a list begins with the same objects as another list."""
    return len(items) >= len(start) and all(a is b for a, b in zip(items, start, strict=False))


def is_foreign(value: Any) -> bool:
    """Return whether a class, function or module belongs to torch or Python, and not to a model."""
    own = "__name__" if isinstance(value, types.ModuleType) else "__module__"
    return str(getattr(value, own, "")).partition(".")[0] in _FOREIGN


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


@functools.lru_cache(4096)
def names_of(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes used in a function and its inner functions."""
    return frozenset(name for each in _codes(code) for name in each.co_names)


@functools.lru_cache(4096)
def _written_globals(code: types.CodeType) -> frozenset[str]:
    return frozenset(
        str(one.argval)
        for each in _codes(code)
        for one in dis.get_instructions(each)
        if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
    )
