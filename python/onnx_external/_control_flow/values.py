"""The kinds of values in rewritten code: Python values, tensors with data, traced tensors."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor


class Undefined:
    """The type of `UNDEFINED`, its only instance; copies of it are the same object."""

    _only: Undefined | None = None

    def __new__(cls) -> Undefined:
        """Return the only instance."""
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        """Return the text for messages."""
        return "<undefined>"

    def __reduce__(self) -> str:
        """Return the name by which the instance is copied and pickled."""
        return "UNDEFINED"


UNDEFINED = Undefined()
"""The value that rewritten code uses for a name that is not bound."""

_SYMBOLIC = (torch.SymBool, torch.SymInt, torch.SymFloat)


def is_fake(value: Any) -> bool:
    """Return whether the value is a tensor without data, as in a trace."""
    return isinstance(value, (FakeTensor, FunctionalTensor))


def is_symbolic(value: Any) -> bool:
    """Return whether a value is a tensor or size that is known only when the graph runs."""
    return is_fake(value) or isinstance(value, _SYMBOLIC)


def is_number(value: Any) -> bool:
    """Return whether the value is a Python or symbolic number or bool."""
    return isinstance(value, (bool, int, float, *_SYMBOLIC))


def element_type(value: Any) -> torch.dtype:
    """Return the element type of a tensor, or of the tensor to which a number is converted."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    return torch.int64 if isinstance(value, (int, torch.SymInt)) else torch.get_default_dtype()


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values are surely equal: identical, or equal and of the same type."""
    if one is other:
        return True
    if type(one) is not type(other) or isinstance(one, torch.Tensor):
        return False
    if isinstance(one, _SYMBOLIC):
        return bool(one.node.expr == other.node.expr)
    if isinstance(one, float):
        return repr(one) == repr(other)  # also for NaN and signed zeros
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same_value(one[key], other[key]) for key in one)
    try:
        return bool(one == other)
    except Exception:  # the user's __eq__ may do anything
        return False


def described(value: Any) -> str:
    """Return a description of the value for use in a message."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}"
    if value is UNDEFINED:
        return "not set"
    if isinstance(value, _SYMBOLIC):
        return f"the size {value}" if isinstance(value, torch.SymInt) else str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _promotions() -> dict[tuple[torch.dtype, torch.dtype], torch.dtype]:
    every = {each for each in vars(torch).values() if isinstance(each, torch.dtype)}
    found = {}
    for one in every:
        for other in every:
            with contextlib.suppress(RuntimeError):  # some have no type in common
                found[one, other] = torch.promote_types(one, other)
    return found


_PROMOTED = _promotions()
"""Promoted types, computed in advance, because a trace would record the query as an operator."""


def promoted(*kinds: torch.dtype) -> torch.dtype:
    """Return the type to which torch promotes these types."""
    return functools.reduce(lambda one, other: _PROMOTED[one, other], kinds)


def version_of(tensor: torch.Tensor) -> int:
    """Return the counter of writes to a tensor; 0 for inference tensors, which have none."""
    return 0 if tensor.is_inference() else int(tensor._version)
