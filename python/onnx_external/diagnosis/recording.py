"""What every module of a reference takes and gives, recorded on the disk while it runs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..validation.references import leaves
from ..validation.running import first_line
from ..validation.values import Array, from_torch
from .reports import ValueForm
from .spill import Spilled, can_spill, spill

__all__ = ["MOST_CALLS", "Call", "Recorded", "record"]

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""What a module is called with."""

MOST_CALLS = 64
"""Calls of one module in one run whose values are recorded."""

_Place = tuple[int, str]
"""An input set, and "input" or "output"."""


@dataclass
class Recorded:
    """One module, and where its values are."""

    name: str
    module: Any
    number: int
    """Its place in the tree."""
    order: int = -1
    """When it first returned, among all modules; -1: it was never called."""
    calls: dict[int, int] = field(default_factory=dict)
    """By input set."""
    float_types: set[str] = field(default_factory=set)
    """Of all that was recorded, also where its values were not."""
    _files: dict[_Place, list[Spilled]] = field(default_factory=dict)
    _plain: dict[_Place, list[bool]] = field(default_factory=dict)
    """Whether each of them is an argument or a result, and not inside of an object."""
    _forms: dict[_Place, dict[str, tuple[str, list[int]]]] = field(default_factory=dict)
    """Of the first call: type and shape by path."""

    @property
    def cls(self) -> str:
        """The name of its class."""
        return type(self.module).__name__

    def values(self, number: int, side: str) -> list[Array]:
        """Return the arrays of one set, of all calls, mapped."""
        return [each.read() for each in self._files.get((number, side), [])]

    def plain(self, number: int, side: str) -> list[bool]:
        """Return which of these values are no part of an object such as a cache.

        A cache has values of other modules, too, and may be changed while the module runs.
        """
        return self._plain.get((number, side), [])

    def forms(self, side: str) -> list[ValueForm]:
        """Return what the module takes or gives in its first call, with the shape in each set."""
        found: dict[str, ValueForm] = {}
        for (_, where), forms in sorted(self._forms.items()):
            if where == side:
                for path, (dtype, shape) in forms.items():
                    found.setdefault(path, ValueForm(path, dtype, [])).shapes.append(shape)
        return list(found.values())

    def write(self, folder: Path, number: int, side: str, value: Any) -> None:
        """Write the tensors of a value of the call that is running."""
        call = self.calls.get(number, 0)
        if call >= MOST_CALLS:
            return
        files = self._files.setdefault((number, side), [])
        plain = {id(tensor) for _, tensor in leaves(value, objects=False)}
        for path, tensor in leaves(value):
            dtype = str(tensor.dtype).removeprefix("torch.")
            if tensor.is_floating_point():
                self.float_types.add(dtype)
            if call == 0:
                forms = self._forms.setdefault((number, side), {})
                forms[path or "output"] = (dtype, list(tensor.shape))
            array = from_torch(tensor)
            if can_spill(array):
                where = folder / f"{self.number}.{number}.{side}.{len(files)}"
                files.append(spill(array, where))
                self._plain.setdefault((number, side), []).append(id(tensor) in plain)


def _named(method: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by name; by place where there is none."""
    try:
        bound = inspect.signature(method).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {str(number): value for number, value in enumerate(args)} | dict(kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        found |= value if kind == inspect.Parameter.VAR_KEYWORD else {name: value}
    return found


class _Hooks:
    """Records calls while it is entered."""

    def __init__(self, modules: dict[str, Recorded], folder: Path) -> None:
        self._modules, self._folder, self._order = modules, folder, 0
        self.number = 0

    def before(self, recorded: Recorded) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            recorded.write(self._folder, self.number, "input", _named(module.forward, args, kwargs))

        return hook

    def after(self, recorded: Recorded) -> Any:
        def hook(_: Any, args: Any, kwargs: Any, result: Any) -> None:
            recorded.write(self._folder, self.number, "output", result)
            recorded.calls[self.number] = recorded.calls.get(self.number, 0) + 1
            if recorded.order < 0:
                recorded.order = self._order
            self._order += 1

        return hook

    @contextmanager
    def on(self, module: Any) -> Iterator[None]:
        handles = []
        try:
            for name, each in module.named_modules():
                found = self._modules[name]
                handles.append(each.register_forward_pre_hook(self.before(found), with_kwargs=True))
                handles.append(each.register_forward_hook(self.after(found), with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()


def record(module: Any, calls: Sequence[Call], folder: Path) -> list[Recorded]:
    """Run a module, and write down what each of its modules takes and gives.

    Args:
        module: the reference.
        calls: arguments and keywords of each run.
        folder: for the values; memory holds those of one call of one module.
    """
    import torch

    modules = {
        name: Recorded(name, each, number)
        for number, (name, each) in enumerate(module.named_modules())
    }
    hooks = _Hooks(modules, folder)
    with hooks.on(module), torch.no_grad():
        for hooks.number, (args, kwargs) in enumerate(calls):
            try:
                module(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            except Exception as error:
                raise RunError(
                    f"{type(module).__name__} cannot run input set {hooks.number}: "
                    f"{type(error).__name__}: {first_line(error)}"
                ) from error
    return list(modules.values())
