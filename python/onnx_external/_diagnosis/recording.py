"""Records the inputs and outputs of every module on disk while a model runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._base.errors import ReadWriteError, RunError
from .._comparing.references import leaves, named_arguments
from .._comparing.running import first_line
from .._comparing.values import Array, from_torch
from .._tracing.surroundings import Call
from .reports import ValueForm
from .spill import Spilled, can_spill, spill

MOST_CALLS = 64
"""The maximum number of calls of a module in one run whose values are recorded."""

_Place = tuple[int, str]
"""Identifies recorded values: the number of the input set, and "input" or "output"."""


@dataclass
class ModuleRecord:
    """One module, with the order of its calls and the forms of its inputs and outputs."""

    name: str
    module: Any
    order: int = -1
    """The module's position in the order of first returns; -1 if it is never called."""
    counts: dict[int, int] = field(default_factory=dict)
    """The number of the module's calls in each input set."""
    float_types: set[str] = field(default_factory=set)
    """The float types of all recorded values."""
    _forms: dict[_Place, dict[str, tuple[str, list[int]]]] = field(default_factory=dict)
    """The type and shape of each tensor in the first call, by path."""

    @property
    def cls(self) -> str:
        """The name of the module's class."""
        return type(self.module).__name__

    def forms(self, side: str) -> list[ValueForm]:
        """Return the types of the first call's inputs or outputs, with the shapes in each set."""
        found: dict[str, ValueForm] = {}
        for (_, where), forms in sorted(self._forms.items()):
            if where == side:
                for path, (dtype, shape) in forms.items():
                    found.setdefault(path, ValueForm(path, dtype, [])).shapes.append(shape)
        return list(found.values())

    def note(self, number: int, side: str, value: Any, is_first: bool = True) -> None:
        """Record the types of a value's tensors and, for the first call, their shapes."""
        for path, tensor in leaves(value):
            dtype = str(tensor.dtype).removeprefix("torch.")
            if tensor.is_floating_point():
                self.float_types.add(dtype)
            if is_first:
                forms = self._forms.setdefault((number, side), {})
                forms[path or "output"] = (dtype, list(tensor.shape))


class Recorder:
    """Runs a model on input sets while the inputs and outputs of its modules are recorded."""

    def __init__(self, folder: Path) -> None:
        """Create a recorder that writes values into `folder`."""
        self.folder, self.number, self._order = folder, 0, 0

    def returned(self, found: ModuleRecord) -> None:
        """Record the order in which modules return: a module has just returned."""
        if found.order < 0:
            found.order = self._order
        self._order += 1

    def run(self, title: str, run: Callable[..., object], calls: Sequence[Call]) -> None:
        """Run the model on each input set.

        Args:
            title: the name of the model in errors.
            run: the model, or a method of it.
            calls: the arguments of each run, as (args, kwargs).

        Raises:
            ReadWriteError: values cannot be written.
            RunError: the model does not run.
        """
        import torch

        from .._tracing.padded_encoders import padding_is_zero  # which imports torch

        with torch.no_grad(), padding_is_zero():  # no form is known of nested tensors
            for self.number, (args, kwargs) in enumerate(calls):
                try:
                    run(*copy.deepcopy(args), **copy.deepcopy(kwargs))
                except ReadWriteError:
                    raise
                except Exception as error:
                    raise RunError(
                        f"{title} cannot run input set {self.number}: "
                        f"{type(error).__name__}: {first_line(error)}"
                    ) from error


@dataclass
class Recorded(ModuleRecord):
    """One module, with its recorded values."""

    number: int = 0
    """The position of the module in the tree of modules."""
    _files: dict[_Place, list[Spilled]] = field(default_factory=dict)
    _plain: dict[_Place, list[bool]] = field(default_factory=dict)
    """For each recorded value, whether it is itself an argument or result, not inside an object."""

    def values(self, number: int, side: str) -> list[Array]:
        """Return the recorded arrays of all calls in one set, memory-mapped."""
        return [each.read() for each in self._files.get((number, side), [])]

    def plain(self, number: int, side: str) -> list[bool]:
        """Return, for each of these values, whether it is outside of objects such as caches.

        A cache also contains values of other modules, and may change while the module runs.
        """
        return self._plain.get((number, side), [])

    def write(self, folder: Path, number: int, side: str, value: Any) -> None:
        """Write the tensors in an argument or result of the running call."""
        call = self.counts.get(number, 0)
        if call >= MOST_CALLS:
            return
        self.note(number, side, value, is_first=call == 0)
        files = self._files.setdefault((number, side), [])
        plain = {id(tensor) for _, tensor in leaves(value, objects=False)}
        for _, tensor in leaves(value):
            array = from_torch(tensor)
            if can_spill(array):
                where = folder / f"{self.number}.{number}.{side}.{len(files)}"
                files.append(spill(array, where))
                self._plain.setdefault((number, side), []).append(id(tensor) in plain)


class _Hooks(Recorder):
    """Records calls by hooks, so that the effects of other hooks count as part of a module."""

    def before(self, recorded: Recorded) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            named = named_arguments(module.forward, args, kwargs)
            recorded.write(self.folder, self.number, "input", named)

        return hook

    def after(self, recorded: Recorded) -> Any:
        def hook(_: Any, args: Any, kwargs: Any, result: Any) -> None:
            recorded.write(self.folder, self.number, "output", result)
            recorded.counts[self.number] = recorded.counts.get(self.number, 0) + 1
            self.returned(recorded)

        return hook

    @contextmanager
    def on(self, modules: Sequence[Recorded]) -> Iterator[None]:
        handles = []
        try:
            for each in modules:
                before, after = self.before(each), self.after(each)
                handles.append(each.module.register_forward_pre_hook(before, with_kwargs=True))
                handles.append(each.module.register_forward_hook(after, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()


def record(module: Any, calls: Sequence[Call], folder: Path) -> list[Recorded]:
    """Run a model, and record the inputs and outputs of each of its modules.

    Args:
        module: the reference.
        calls: the arguments of each run, as (args, kwargs).
        folder: the folder for the values; only those of the running call are in memory.
    """
    modules = [
        Recorded(name, each, number=number)
        for number, (name, each) in enumerate(module.named_modules())
    ]
    hooks = _Hooks(folder)
    with hooks.on(modules):
        hooks.run(type(module).__name__, module, calls)
    return modules
