"""Merges the values computed by two branches into one value."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from onnx_external._base.errors import UnmergeableError
from onnx_external._control_flow.runtime.collected import Collected, Rows
from onnx_external._control_flow.runtime.sizes import is_free, is_simple, number_of, size_of
from onnx_external._control_flow.runtime.state import State, quietly
from onnx_external._control_flow.values import (
    UNDEFINED,
    described,
    element_type,
    is_number,
    promoted,
    same_value,
)
from onnx_external._tracing.chosen import define, definition


@dataclass
class Part:
    """The common form of two values: a Python value, the type of a tensor, or parts."""

    constant: tuple[Any, ...] = ()
    """If both values are the same constant, a tuple that contains it; otherwise empty."""
    dtype: torch.dtype | None = None
    """The element type, if the values are tensors or numbers."""
    like: torch.Tensor | None = None
    """The tensor in one branch, if the other branch does not set the value."""
    shapes: tuple[torch.Size, ...] = ()
    """The shapes of the tensors in both branches."""
    front: tuple[int, ...] = ()
    """The dimensions whose sizes torch.cond accepts only at the front."""
    test: Any = None
    """The condition that chooses between the values."""
    size: Any = None
    """The definition of the value, if it is a number that a condition on sizes chooses."""
    parts: list[Part] = field(default_factory=list)
    spec: Any = None
    """How to build a value from the parts: a function, or a pytree spec."""

    def leaves(self, value: Any) -> Iterator[torch.Tensor]:
        """Yield the tensors of a value that become results of the operator."""
        if self.constant:
            return
        if self.dtype is not None:
            yield from self._results(value)
            return
        for part, each in zip(self.parts, self._inside(value), strict=True):
            yield from part.leaves(each)

    def rebuilt(self, results: Iterator[torch.Tensor], state: State) -> Any:
        """Return the value, rebuilt from the operator's results."""
        if self.constant:
            return self.constant[0]
        if self.size is not None:
            found = number_of(next(results))
            define(found, self.size)
            return found
        if self.dtype is not None:
            made = self._value(results)
            if self.shapes:
                state.choose(made.shape, *self.shapes)
            return made
        made = [each.rebuilt(results, state) for each in self.parts]
        return self.spec(made) if callable(self.spec) else pytree.tree_unflatten(made, self.spec)

    def _inside(self, value: Any) -> list[Any]:
        """Return the values inside a value, one for each of the parts."""
        if value is UNDEFINED:
            return [UNDEFINED] * len(self.parts)
        if isinstance(value, Rows):
            return [value.item]
        if self.spec is _joined:
            return _opened(_several(value), self.parts[1].dtype is not None)
        return children(value)[0]

    def _results(self, value: Any) -> Iterator[torch.Tensor]:
        made = as_tensor(value if value is not UNDEFINED else self._zeros(), self.dtype)
        if self.front:
            made = made.movedim(self.front, tuple(range(len(self.front))))
        if len(self.front) > 1:
            # Only one of them can be at the front: they become one dimension, with sizes beside it.
            yield from (torch.scalar_tensor(made.shape[n], dtype=torch.int64) for n in self._fronts)
            made = made.flatten(0, len(self.front) - 1)
        # Results may alias neither operands nor each other, and have the same strides.
        yield made.clone(memory_format=torch.contiguous_format)

    def _value(self, results: Iterator[torch.Tensor]) -> torch.Tensor:
        if not self.front:
            return next(results)
        sizes = [size_of(next(results)) for _ in self._fronts] if len(self.front) > 1 else []
        made = next(results)
        if self.shapes:
            sizes = [self._known(dim, size) for dim, size in zip(self.front, sizes, strict=False)]
        if sizes:
            torch._check(made.shape[0] == math.prod(sizes))
            made = made.reshape([*sizes, *made.shape[1:]])
        return made.movedim(tuple(range(len(self.front))), self.front)

    def _known(self, dim: int, size: Any) -> Any:
        """Return the size as both branches compute it, if the inputs determine it; else `size`."""
        one, other = (shape[dim] for shape in self.shapes)
        same = isinstance(one, torch.SymInt) and same_value(one, other)
        if same and not is_free(one):
            return one
        define(size, definition(self.test, one, other))
        return size

    @property
    def _fronts(self) -> range:
        return range(len(self.front))

    def _zeros(self) -> torch.Tensor:
        """Return a placeholder for a name that one branch does not set."""
        sizes = self.like.shape if self.like is not None else ()
        return torch.zeros([0 if is_free(each) else each for each in sizes], dtype=self.dtype)


def as_tensor(value: Any, kind: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor unchanged, or a number as a 0-d tensor."""
    if isinstance(value, torch.Tensor):
        return value if kind is None or value.dtype == kind else value.to(kind)
    kind = kind or element_type(value)
    if isinstance(value, torch.SymBool):
        return torch.scalar_tensor(torch.sym_ite(value, 1, 0), dtype=torch.int64).to(kind)
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return torch.scalar_tensor(value, dtype=kind)
    return torch.full((), value, dtype=kind)


def children(value: Any) -> tuple[list[Any], Any]:
    """Return the content of a pytree container and its spec; for a leaf, the leaf itself."""
    leaves, spec = pytree.tree_flatten(value, is_leaf=lambda each: each is not value)
    return leaves, spec


def part_of(
    one: Any, other: Any, key: str, name: str, *, unset: bool = True, test: Any = None
) -> Part:
    """Return the common form of two values.

    Args:
        one: the value in the branch that is taken if the condition is true.
        other: the value in the other branch.
        key: the key of the condition.
        name: the name of the value, for messages.
        unset: True if a value that one branch does not set may be zeros there. (Python would raise
            an exception if the value was read.)
        test: the condition that chooses between the values.
    """
    if same_value(one, other) and not _mutable(one, other):
        return Part(constant=(one,))
    if one is UNDEFINED or other is UNDEFINED:
        return _set_once(other if one is UNDEFINED else one, key, name, unset)
    if _is_leaf(one) and _is_leaf(other):
        return _leaf(one, other, key, name, test)
    if isinstance(one, Collected) or isinstance(other, Collected):
        one, other = quietly(lambda: [_several(each) for each in (one, other)])
    if type(one) is type(other) and isinstance(one, (Collected, Rows)):
        return _collected(one, other, key, name)
    inside, spec = children(one)
    inside_other, spec_other = children(other)
    if type(one) is not type(other) or _is_leaf(one) or spec != spec_other:
        raise UnmergeableError(
            f"{name} is {_structure(one)} in one branch and {_structure(other)} in the other", key
        )
    if len(inside) == 1 and inside[0] is one:
        words, others = described(one), described(other)
        if words == others:
            raise UnmergeableError(
                f"{name} is a different {type(one).__name__} in each branch; set the attributes "
                "of one object instead, or use a different name for each",
                key,
            )
        raise UnmergeableError(f"{name} is {words} in one branch and {others} in the other", key)
    labels = _labels(one, name)
    parts = [
        part_of(a, b, key, label, unset=unset, test=test)
        for a, b, label in zip(inside, inside_other, labels, strict=False)
    ]
    return Part(parts=parts, spec=spec)


def _collected(one: Any, other: Any, key: str, name: str) -> Part:
    """Return the common form of two lists whose lengths are known only in the graph."""
    if isinstance(one, Rows):
        return Part(parts=[_collected(one.item, other.item, key, name)], spec=_rows)
    if (one.lengths is None) != (other.lengths is None):
        raise UnmergeableError(
            f"the items of {name} have different lengths in one branch and one length in the other",
            key,
        )
    masked = one.kept is not None or other.kept is not None
    inside = quietly(lambda: [_opened(each, masked) for each in (one, other)])
    parts = [part_of(a, b, key, f"an item of {name}") for a, b in zip(*inside, strict=True)]
    return Part(parts=parts, spec=_joined)


def _several(value: Any) -> Any:
    """Return an item of a list as a collection of one item."""
    return Collected(value.unsqueeze(0)) if isinstance(value, torch.Tensor) else value


def _opened(item: Collected, masked: bool) -> list[torch.Tensor | None]:
    """Return the tensors of a list whose length is known only in the graph."""
    kept = item.kept
    if masked and kept is None:
        kept = torch.ones(item.values.shape[0], dtype=torch.bool)
    return [item.values, kept, item.lengths]


def _joined(parts: list[Any]) -> Collected:
    values, *more = parts
    for each in more:
        if each is not None:  # torch does not know that a branch returns equally many of each
            torch._check(each.shape[0] == values.shape[0])
    return Collected(values, *more)


def _rows(parts: list[Any]) -> Rows:
    return Rows(parts[0])


def _mutable(one: Any, other: Any) -> bool:
    """Return whether two equal values may be distinct mutable objects."""
    return one is not other and isinstance(one, (list, dict, tuple))


def _is_leaf(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or is_number(value) or value is None


def _set_once(value: Any, key: str, name: str, unset: bool) -> Part:
    if not unset:
        raise UnmergeableError(f"{name} exists only after one branch", key)
    if isinstance(value, torch.Tensor):
        return Part(dtype=value.dtype, like=value, front=_front(value))
    if is_number(value):
        return Part(dtype=element_type(value))
    if isinstance(value, _WITHOUT_TENSORS):
        return Part(constant=(value,))
    if isinstance(value, Rows):
        return Part(parts=[_set_once(value.item, key, name, unset)], spec=_rows)
    inside, spec = children(value)
    if isinstance(value, Collected):
        inside, spec = quietly(lambda: _opened(value, True)), _joined
    if len(inside) == 1 and inside[0] is value:
        raise UnmergeableError(
            f"{name} is {described(value)} in one branch and not set in the other", key
        )
    parts = [_set_once(each, key, name, unset) for each in inside]
    return Part(parts=parts, spec=spec)


_WITHOUT_TENSORS = (str, bytes, enum.Enum, torch.dtype, torch.device, type(None))
"""Types of values that may also be used where nothing is set, because nothing reads them there."""


def _leaf(one: Any, other: Any, key: str, name: str, test: Any) -> Part:
    if one is None or other is None:
        raise UnmergeableError(
            f"{name} is {described(one)} in one branch and {described(other)} in the other; use a "
            "tensor in both, for instance of zeros, or put the condition in the calling function",
            key,
        )
    size = definition(test, one, other)
    if size is not None:
        return Part(dtype=torch.int64, size=size)
    both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    kinds = [element_type(each) for each in (one, other)]
    ranks = [e.dim() if isinstance(e, torch.Tensor) else 0 for e in (one, other)]
    if ranks[0] != ranks[1]:
        raise UnmergeableError(
            f"{name} has {ranks[0]} dimensions in one branch and {ranks[1]} in the other", key
        )
    if kinds[0] != kinds[1] and (ranks[0] or both):
        first, second = (str(each).removeprefix("torch.") for each in kinds)
        raise UnmergeableError(
            f"{name} is {first} in one branch and {second} in the other; use one type in both "
            "branches, for instance with .to()",
            key,
        )
    shapes = (one.shape, other.shape) if both else ()
    kind, front = _promoted(one, other, kinds), _front(one, other)
    return Part(dtype=kind, shapes=shapes, front=front, test=test)


def _front(*values: Any) -> tuple[int, ...]:
    """Return the dimensions to move to the front; () if only the first has a computed size."""
    shapes = [each.shape for each in values if isinstance(each, torch.Tensor)]
    found = [dim for shape in shapes for dim, size in enumerate(shape) if not is_simple(size)]
    for dim, sizes in enumerate(zip(*shapes, strict=True)):
        # Equal values here may be computed in two ways after the program is decomposed.
        if any(isinstance(e, torch.SymInt) and not e.node.expr.is_symbol for e in sizes):
            found.append(dim)
    order = tuple(sorted(set(found)))
    return () if order == (0,) else order


def _promoted(one: Any, other: Any, kinds: list[torch.dtype]) -> torch.dtype:
    """Promote as torch.where does: a tensor keeps its type unless a number is of a higher kind."""
    for tensor, number, kind in ((one, other, kinds[1]), (other, one, kinds[0])):
        if isinstance(tensor, torch.Tensor) and not isinstance(number, torch.Tensor):
            ranks = [_category(tensor.dtype), _category(kind)]
            return tensor.dtype if ranks[0] >= ranks[1] else kind
    return promoted(*kinds)


def _category(kind: torch.dtype) -> int:
    if kind == torch.bool:
        return 0
    return 3 if kind.is_complex else 2 if kind.is_floating_point else 1


def _structure(value: Any) -> str:
    if isinstance(value, (Collected, Rows)):
        return "a list whose length depends on a tensor"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)} items"
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, value)) or 'nothing'}"
    return described(value)


def _labels(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, dict):
        return iter([f"{name}[{key!r}]" for key in value])
    return (f"{name}[{number}]" for number in itertools.count())
