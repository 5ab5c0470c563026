"""What every module of a reference takes and gives, recorded on the disk while it runs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RunError
from ..validation.references import leaves
from ..validation.running import first_line
from ..validation.values import Array, from_torch

__all__ = ["Call", "Recorded", "record"]

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""What a module is called with."""


@dataclass
class Recorded:
    """One module, and where its values are."""

    name: str
    cls: str
    number: int
    """Its place in the tree."""
    order: int = -1
    """When it first returned, among all modules; -1: it was never called."""
    calls: dict[int, int] = field(default_factory=dict)
    """By input set."""
    files: dict[tuple[int, str], list[Path]] = field(default_factory=dict)
    """By input set and side ("input", "output")."""
    float_types: set[str] = field(default_factory=set)
    """Of all that was recorded, also where its values were not."""

    def values(self, number: int, side: str) -> list[Array]:
        """Return the arrays of one set, mapped."""
        return [np.load(path, mmap_mode="r") for path in self.files.get((number, side), [])]

    def spill(self, folder: Path, number: int, side: str, value: Any) -> None:
        """Write the tensors of a value; numpy's files hold no bfloat16 and nothing narrower."""
        files = self.files.setdefault((number, side), [])
        for _, tensor in leaves(value):
            if tensor.is_floating_point():
                self.float_types.add(str(tensor.dtype).removeprefix("torch."))
            array = from_torch(tensor)
            if array.dtype.kind in "fiub":
                path = folder / f"{self.number}.{number}.{side}.{len(files)}.npy"
                np.save(path, array, allow_pickle=False)
                files.append(path)


class _Hooks:
    """Records calls while it is entered."""

    def __init__(self, modules: dict[str, Recorded], folder: Path) -> None:
        self._modules, self._folder, self._order = modules, folder, 0
        self.number = 0

    def before(self, recorded: Recorded) -> Any:
        def hook(_: Any, args: Any, kwargs: Any) -> None:
            recorded.spill(self._folder, self.number, "input", (args, kwargs))

        return hook

    def after(self, recorded: Recorded) -> Any:
        def hook(_: Any, args: Any, kwargs: Any, result: Any) -> None:
            recorded.calls[self.number] = recorded.calls.get(self.number, 0) + 1
            if recorded.order < 0:
                recorded.order = self._order
            self._order += 1
            recorded.spill(self._folder, self.number, "output", result)

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
        name: Recorded(name, type(each).__name__, number)
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
