"""Calls of every module of a model, with their structure, recorded on disk."""

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
    """A nested value whose tensors are in a file; everything else is kept unchanged."""

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
        """Read the leaves; tensors on the CPU are memory-mapped."""
        tensors: list[Any] = []
        if self.forms:
            read = torch.load(self._path, mmap=True, weights_only=True)
            tensors = [each.to(d) for each, d in zip(read, self._devices, strict=True)]
        return self.around(tensors)

    def around(self, tensors: Iterable[Any]) -> list[Any]:
        """Return the leaves, with these tensors in place of its own."""
        rest = iter(tensors)
        return [
            next(rest) if is_tensor else copy.copy(other)
            for is_tensor, other in zip(self.is_tensor, self.others, strict=True)
        ]

    def value(self) -> Any:
        """Read the whole value."""
        return pytree.tree_unflatten(self.leaves(), self.spec)


def _write(tensors: list[torch.Tensor], path: Path) -> None:
    try:
        torch.save(tensors, path)
    except (OSError, RuntimeError) as error:
        raise ReadWriteError(
            f"{path.parent}: values of modules cannot be written: {first_line(error)}; TMPDIR "
            "names another place for them"
        ) from error


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy on the CPU with its own storage, because a file contains all of a storage."""
    plain = tensor.detach().cpu()
    if plain.untyped_storage().nbytes() > plain.numel() * plain.itemsize:
        plain = plain.clone()
    return plain


def _kept(leaf: Any) -> Any:
    """Return a leaf other than a tensor; a copy, if the module could change it."""
    if leaf is None or isinstance(leaf, (int, float, bool, str, type)):
        return leaf
    try:
        return copy.deepcopy(leaf)
    except Exception:  # objects that cannot be copied are shared
        return leaf


@dataclass
class StoredCall:
    """One call of a module."""

    inputs: Stored
    """(args, kwargs)."""
    result: Stored
    changed: dict[int, Stored]
    """The changes of the call to its arguments, by their place: new contents of caches and
    tensors."""

    @property
    def call(self) -> Call:
        """The arguments, read again."""
        args, kwargs = self.inputs.value()
        return args, kwargs


@dataclass
class Captured(ModuleRecord):
    """A module, and its calls in each input set."""

    method: str = "forward"
    """The method of the module that was recorded and is exported; empty if there is none."""
    calls: dict[int, StoredCall] = field(default_factory=dict)
    """The first call, by input set."""

    @property
    def called(self) -> bool:
        """True if there is a call to export it with."""
        return bool(self.calls)


def exchanged(value: Any) -> list[Any]:
    """Return the arguments that a module can change: tensors, and containers of tensors."""
    args, kwargs = value
    return [*args, *kwargs.values()]


def _state(value: Any) -> Any:
    """Return a state that changes when an argument is changed in place."""
    leaves, spec = pytree.tree_flatten(value)
    return spec, [(id(e), e._version) if isinstance(e, torch.Tensor) else None for e in leaves]


def method_of(module: Any, name: str, traced: Mapping[Any, str]) -> str:
    """Return the method of a module that is recorded.

    Args:
        module: the module.
        name: its name in the model.
        traced: methods by names of modules, classes, or names of classes.
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
    """Records calls by replacing methods of modules, among them forward."""

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
    """Replace a method or attribute of a module, and not of its class."""
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
    """Restore a module's buffers at the end, which models with state change."""
    from .._control_flow import memory_kept

    with memory_kept(module.buffers()):
        yield


def capture(
    module: Any, calls: Sequence[Call], folder: Path, traced: Mapping[Any, str]
) -> list[Captured]:
    """Run a module on each input set, and record the arguments and results of each submodule.

    Args:
        module: the model.
        calls: arguments and keywords of each run.
        folder: the folder for the values; memory holds those of unfinished calls.
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
