"""Records the calls of a model's modules on disk, with the structure of arguments and results."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._base.errors import InvalidArgumentError, ReadWriteError
from .._comparing.references import named_arguments
from .._comparing.running import first_line
from .._tracing.padded_encoders import padding_is_zero
from .._tracing.surroundings import Call
from .recording import ModuleRecord, Recorder


class Stored:
    """A nested value whose tensors are stored in a file; all other leaves are kept in memory."""

    def __init__(self, value: Any, path: Path) -> None:
        leaves, self.spec = pytree.tree_flatten(value)
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        self._devices = [each.device for each in tensors]
        self.forms = [(tuple(each.shape), each.dtype, each.device) for each in tensors]
        self.others = [None if isinstance(e, torch.Tensor) else _kept(e) for e in leaves]
        self.is_tensor = [isinstance(each, torch.Tensor) for each in leaves]
        self._path = path
        if tensors:
            _write([_alone(each) for each in tensors], path)

    def leaves(self) -> list[Any]:
        """Read the leaves of the value; tensors on the CPU are memory-mapped."""
        tensors: list[Any] = []
        if self.forms:
            read = torch.load(self._path, mmap=True, weights_only=True)
            tensors = [each.to(d) for each, d in zip(read, self._devices, strict=True)]
        return self.around(tensors)

    def around(self, tensors: Iterable[Any]) -> list[Any]:
        """Return the leaves of the value, with the given tensors in place of its own."""
        rest = iter(tensors)
        return [
            next(rest) if is_tensor else copy.copy(other)
            for is_tensor, other in zip(self.is_tensor, self.others, strict=True)
        ]

    def value(self) -> Any:
        """Read the stored value, and rebuild its nested structure."""
        return pytree.tree_unflatten(self.leaves(), self.spec)


def _write(tensors: list[torch.Tensor], path: Path) -> None:
    try:
        torch.save(tensors, path)
    except (OSError, RuntimeError) as error:
        raise ReadWriteError(
            f"{path.parent}: values of modules cannot be written: {first_line(error)}; the "
            "folder is in TMPDIR"
        ) from error


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy on the CPU with its own storage, because torch.save() writes whole storages."""
    plain = tensor.detach().cpu()
    if plain.untyped_storage().nbytes() > plain.numel() * plain.itemsize:
        plain = plain.clone()
    return plain


def _kept(leaf: Any) -> Any:
    """Return a leaf that is not a tensor; return a copy if the module could change it."""
    if leaf is None or isinstance(leaf, (int, float, bool, str, type)):
        return leaf
    try:
        return copy.deepcopy(leaf)
    except Exception:  # objects that cannot be copied are shared
        return leaf


@dataclass
class StoredCall:
    """One recorded call of a module."""

    inputs: Stored
    """The arguments of the call: (args, kwargs)."""
    result: Stored
    changed: dict[int, Stored]
    """The new contents of arguments that the call changed in place, such as caches, by position."""

    @property
    def call(self) -> Call:
        """The arguments of the call, read from the disk again."""
        args, kwargs = self.inputs.value()
        return args, kwargs


@dataclass
class Captured(ModuleRecord):
    """A module and its recorded calls."""

    method: str = "forward"
    """The method of the module that is recorded and exported; empty if the module is not traced."""
    calls: dict[int, StoredCall] = field(default_factory=dict)
    """The first call of the module in each input set."""

    @property
    def called(self) -> bool:
        """True if a call was recorded with which the module can be exported."""
        return bool(self.calls)


def exchanged(value: Any) -> list[Any]:
    """Return the arguments that a module may change in place, as one list."""
    args, kwargs = value
    return [*args, *kwargs.values()]


def _state(value: Any) -> Any:
    """Return a value by which a later in-place change of an argument can be detected."""
    leaves, spec = pytree.tree_flatten(value)
    return spec, [(id(e), e._version) if isinstance(e, torch.Tensor) else None for e in leaves]


def method_of(module: Any, name: str, traced: Mapping[Any, str]) -> str:
    """Return the name of the method of a module that is recorded.

    Args:
        module: the module.
        name: the name of the module in the model.
        traced: names of methods, by module name, class or class name.
    """
    method = "forward"
    for key in (name, type(module), type(module).__name__):
        if key in traced:
            method = traced[key]
            break
    if method and not callable(getattr(module, method, None)):
        raise InvalidArgumentError(
            f"traced_method: {name or 'the model'} ({type(module).__name__}) has no method "
            f"{method!r}"
        )
    return method


class _Recorder(Recorder):
    """Records the calls of modules by replacing their methods."""

    def __init__(self, modules: Sequence[Captured], folder: Path) -> None:
        super().__init__(folder)
        self._modules = modules

    def _wrapped(self, place: int, found: Captured) -> Any:
        method = getattr(found.module, found.method)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            first = self.number not in found.calls and found.counts.get(self.number, 0) == 0
            found.counts[self.number] = found.counts.get(self.number, 0) + 1
            if not first:
                return method(*args, **kwargs)
            path = self.folder / f"{place}.{self.number}"
            inputs = Stored((args, kwargs), path.with_suffix(f"{path.suffix}.inputs"))
            found.note(self.number, "input", named_arguments(method, args, kwargs))
            before = [_state(each) for each in exchanged((args, kwargs))]
            result = method(*args, **kwargs)
            changed = {
                i: Stored(each, path.with_suffix(f"{path.suffix}.changed.{i}"))
                for i, each in enumerate(exchanged((args, kwargs)))
                if _state(each) != before[i]
            }
            stored = Stored(result, path.with_suffix(f"{path.suffix}.result"))
            found.note(self.number, "output", result)
            found.calls[self.number] = StoredCall(inputs, stored, changed)
            self.returned(found)
            return result

        return call

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for place, each in enumerate(self._modules):
                if each.method:
                    stack.enter_context(
                        replaced(each.module, each.method, self._wrapped(place, each))
                    )
            yield


@contextlib.contextmanager
def replaced(module: Any, name: str, by: Any) -> Iterator[None]:
    """Replace a method or attribute of a module, but not of the module's class."""
    own = vars(module)
    before = own.get(name, replaced)  # "replaced" itself marks a missing entry
    own[name] = by
    try:
        yield
    finally:
        if before is replaced:
            own.pop(name, None)
        else:
            own[name] = before


@contextlib.contextmanager
def buffers_kept(module: Any) -> Iterator[None]:
    """Restore a module's buffers at the end, because modules with state change them."""
    from .._control_flow import memory_kept

    with memory_kept(module.buffers()):
        yield


def capture(
    module: Any, calls: Sequence[Call], folder: Path, traced: Mapping[Any, str]
) -> list[Captured]:
    """Run a model on each input set, and record the arguments and results of every module.

    Args:
        module: the model.
        calls: the arguments of each run, as (args, kwargs).
        folder: the folder for the values; only those of unfinished calls are in memory.
        traced: as for method_of().
    """
    found = [
        Captured(name, each, method=method_of(each, name, traced))
        for name, each in module.named_modules()
    ]
    name = found[0].method or "forward"
    method = getattr(module, name)

    def run(*args: Any, **kwargs: Any) -> None:
        inspect.signature(method).bind(*args, **kwargs)
        with buffers_kept(module):
            (module if name == "forward" else getattr(module, name))(*args, **kwargs)

    recorder = _Recorder(found, folder)
    with padding_is_zero(), recorder.on():
        recorder.run(type(module).__name__, run, calls)
    return found
