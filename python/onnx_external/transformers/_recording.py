"""Records transformers' operations on a checkpoint's tensors during loading, without data.

The tensors of a model may differ from those of its checkpoint: the experts of a layer may be one
tensor, or three projections may be one tensor in the file. transformers has a table of such
conversions, and code that applies it to tensors. This module applies this code to tensors without
data, and records its operations: which keys are used, in which order, and how they are sliced,
stacked and transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from ..torch._untouched import untouched

aten = torch.ops.aten


@dataclass(frozen=True)
class Key:
    """A tensor in the checkpoint."""

    name: str


@dataclass(frozen=True)
class Step:
    """A tensor made from another tensor by a step of a recipe (docs/mapping.md)."""

    of: Made
    name: str
    """The kind of step: "permute", "reshape", "slice" or "cast"."""
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Join:
    """A tensor made by concatenating or stacking other tensors."""

    name: str
    """The kind of join: "concat" or "stack"."""
    dim: int
    of: tuple[Made, ...]


@dataclass(frozen=True)
class Unknown:
    """The result of an operation that no recipe describes; an error only if a parameter uses it."""

    operation: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        """Return the operation and the keys of its operands."""
        more = f" and {len(self.keys) - 3} more" if len(self.keys) > 3 else ""
        return f"{self.operation} on {', '.join(self.keys[:3])}{more}"


Made = Key | Step | Join | Unknown
"""The way in which a tensor is made from tensors in the checkpoint."""

_Handler = Callable[..., Any]
_HANDLERS: dict[Any, _Handler] = {}


def keys_of(made: Made) -> list[str]:
    """Return the keys from which a tensor is made."""
    if isinstance(made, Key):
        return [made.name]
    if isinstance(made, Step):
        return keys_of(made.of)
    if isinstance(made, Unknown):
        return list(made.keys)
    return [name for part in made.of for name in keys_of(part)]


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """A mode that records operations on tensors that it has made, without executing them."""

    def __init__(self, equal: Callable[[str, str], bool]) -> None:
        """Create the mode; `equal` returns whether two keys have the same bytes."""
        super().__init__()
        self.equal = equal
        self._known: dict[tuple[Any, ...], Made] = {}
        self.refused: list[str] = []

    @staticmethod
    def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
        """Return the location of a tensor's elements, which identifies the tensor."""
        storage = StorageWeakRef(tensor.untyped_storage())
        return (storage, tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride())

    def key(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Create the tensor that represents a key."""
        return self.note(untouched(torch.Size(shape), dtype), Key(name))

    def note(self, tensor: torch.Tensor, made: Made) -> torch.Tensor:
        """Record how a tensor is made from tensors in the checkpoint."""
        if tensor.numel():
            self._known[self._place(tensor)] = made
        return tensor

    def made(self, tensor: Any) -> Made | None:
        """Return how a tensor is made from keys; None if it is not made from keys."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
            return None
        return self._known.get(self._place(tensor))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record operations on checkpoint tensors, and execute all others."""
        kwargs = kwargs or {}
        given = torch.utils._pytree.tree_leaves((args, kwargs))
        found = [made for made in map(self.made, given) if made is not None]
        if not found or func in _HARMLESS:
            return func(*args, **kwargs)
        handler, made = _HANDLERS.get(func), self._first(args)
        if handler is None or made is None or any(isinstance(one, Unknown) for one in found):
            return self._unknown(func, found, args, kwargs)
        return handler(func, self, args[0], made, args[1:], kwargs)

    def _unknown(self, func: Any, found: list[Made], args: Any, kwargs: Any) -> Any:
        """Return a result without values, which must not become a parameter."""
        if func._schema.is_mutable:
            if isinstance(self._first(args), Unknown) and isinstance(args[0], torch.Tensor):
                return args[0]  # it has no values, and stays unknown
            return self.refuse(str(func), found)

        def on_meta(leaf: Any) -> Any:
            return leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf

        args, kwargs = torch.utils._pytree.tree_map(on_meta, (args, kwargs))
        kwargs = {name: value for name, value in kwargs.items() if name != "device"}
        made = Unknown(str(func), tuple(sorted({name for one in found for name in keys_of(one)})))
        results, shape = torch.utils._pytree.tree_flatten(func(*args, **kwargs))
        if not all(isinstance(result, torch.Tensor) for result in results):
            return self.refuse(str(func), found)
        results = [self.note(untouched(one.shape, one.dtype), made) for one in results]
        return torch.utils._pytree.tree_unflatten(results, shape)

    def _first(self, args: tuple[Any, ...]) -> Made | None:
        first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
        return self.made(first)

    def refuse(self, operation: str, found: list[Made]) -> Any:
        """Raise an error for an operation that no recipe describes, and remember it."""
        names = sorted({name for made in found for name in keys_of(made)})
        self.refused.append(str(Unknown(operation, tuple(names))))
        raise NotImplementedError(self.refused[-1])


_HARMLESS = {
    aten.empty_like.default,
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.sym_size.int,
    aten.sym_stride.int,
    aten.is_pinned.default,
}
"""Operators that do not read any elements."""


def _handles(*functions: Any) -> Callable[[_Handler], _Handler]:
    def register(handler: _Handler) -> _Handler:
        _HANDLERS.update(dict.fromkeys(functions, handler))
        return handler

    return register


def _reshaped(made: Made, before: torch.Size, after: torch.Size) -> Made:
    return made if before == after else Step(made, "reshape", tuple(after))


def _sliced(made: Made, shape: torch.Size, dim: int, start: int, stop: int) -> Made:
    if start == 0 and stop == shape[dim]:
        return made
    return Step(made, "slice", (dim, start, stop))


@_handles(
    aten.detach.default,
    aten.alias.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
)
def _reshape(
    func: Any, mode: Recorder, tensor: Any, made: Made, args: Any, kwargs: Any
) -> torch.Tensor:
    result = func(tensor, *args, **kwargs)
    return mode.note(result, _reshaped(made, tensor.shape, result.shape))


@_handles(aten.transpose.int, aten.t.default, aten.permute.default)
def _permute(
    func: Any, mode: Recorder, tensor: Any, made: Made, args: Any, kwargs: Any
) -> torch.Tensor:
    dims = list(range(tensor.dim()))
    if func is aten.permute.default:
        dims = [dim % tensor.dim() for dim in args[0]]
    elif tensor.dim() > 1:
        first, second = (0, 1) if func is aten.t.default else args
        dims[first], dims[second] = dims[second], dims[first]
    result = func(tensor, *args, **kwargs)
    return mode.note(result, Step(made, "permute", tuple(dims)))


@_handles(aten.slice.Tensor)
def _slice(
    func: Any, mode: Recorder, tensor: Any, made: Made, args: Any, kwargs: Any
) -> torch.Tensor:
    defaults = (0, None, None, 1)
    dim, start, stop, step = tuple(args) + defaults[len(args) :]
    if step != 1:
        return mode.refuse(f"{func} with steps of {step}", [made])
    start, stop, _ = slice(start, stop).indices(tensor.shape[dim])
    result = func(tensor, *args, **kwargs)
    return mode.note(result, _sliced(made, tensor.shape, dim % tensor.dim(), start, stop))


@_handles(aten.select.int)
def _select(
    func: Any, mode: Recorder, tensor: Any, made: Made, args: Any, kwargs: Any
) -> torch.Tensor:
    dim, index = args[0] % tensor.dim(), args[1] % tensor.shape[args[0]]
    result = func(tensor, *args, **kwargs)
    part = _sliced(made, tensor.shape, dim, index, index + 1)
    return mode.note(result, Step(part, "reshape", tuple(result.shape)))


@_handles(aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int)
def _split(func: Any, mode: Recorder, tensor: Any, made: Made, args: Any, kwargs: Any) -> Any:
    results = func(tensor, *args, **kwargs)
    place = 0 if func is aten.unbind.int else 1
    dim = (args[place] if len(args) > place else kwargs.get("dim", 0)) % tensor.dim()
    start = 0
    for result in results:
        length = 1 if func is aten.unbind.int else result.shape[dim]
        part = _sliced(made, tensor.shape, dim, start, start + length)
        if func is aten.unbind.int:
            part = Step(part, "reshape", tuple(result.shape))
        mode.note(result, part)
        start += length
    return results


@_handles(aten.clone.default)
def _clone(
    func: Any, mode: Recorder, tensor: Any, made: Made, args: Any, kwargs: Any
) -> torch.Tensor:
    return mode.note(untouched(tensor.shape, tensor.dtype), made)


@_handles(aten._to_copy.default)
def _convert(
    func: Any, mode: Recorder, tensor: Any, made: Made, args: Any, kwargs: Any
) -> torch.Tensor:
    dtype = kwargs.get("dtype") or tensor.dtype
    if str(kwargs.get("device") or "cpu") != "cpu":
        return mode.refuse(f"{func} to {kwargs['device']}", [made])
    if dtype != tensor.dtype:
        made = Step(made, "cast")
    return mode.note(untouched(tensor.shape, dtype), made)


@_handles(aten.constant_pad_nd.default)
def _pad(
    func: Any, mode: Recorder, tensor: Any, made: Made, args: Any, kwargs: Any
) -> torch.Tensor:
    if any(args[0]):
        return mode.refuse(str(func), [made])
    return mode.note(untouched(tensor.shape, tensor.dtype), made)


@_handles(aten.cat.default, aten.stack.default)
def _join(
    func: Any, mode: Recorder, tensors: Any, made: Made, args: Any, kwargs: Any
) -> torch.Tensor:
    parts = [mode.made(tensor) for tensor in tensors]
    dim = args[0] if args else kwargs.get("dim", 0)
    shape = list(tensors[0].shape)
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or len({tensor.dtype for tensor in tensors}) > 1:
        return mode.refuse(str(func), known)
    if func is aten.stack.default:
        dim %= len(shape) + 1
        shape.insert(dim, len(tensors))
    else:
        dim %= len(shape)
        shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    name = "stack" if func is aten.stack.default else "concat"
    joined = known[0] if name == "concat" and len(known) == 1 else Join(name, dim, tuple(known))
    return mode.note(untouched(tuple(shape), tensors[0].dtype), joined)


def _is_cast(made: Made | None) -> TypeGuard[Step]:
    return isinstance(made, Step) and made.name == "cast"


@_handles(aten.equal.default)
def _equal(func: Any, mode: Recorder, tensor: Any, made: Made, args: Any, kwargs: Any) -> bool:
    other = mode.made(args[0])
    if made == other:
        return True
    if tensor.shape != args[0].shape or tensor.dtype != args[0].dtype:
        return False
    if _is_cast(made) and _is_cast(other):  # to the same type: equal keys stay equal
        made, other = made.of, other.of
    if not isinstance(made, Key) or not isinstance(other, Key):
        return bool(mode.refuse(str(func), [made]))
    return mode.equal(made.name, other.name)
