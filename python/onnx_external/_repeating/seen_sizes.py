"""Sizes that report how they are used.

A condition on a size decides what a trace does, without an operator that would show it. While a
model is recorded, its sizes are numbers that record their comparisons, and their conversions to
plain numbers, which are not observed. For a comparison of other numbers, only the outcome counts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_note: list[Callable[[str, Any], None]] = []
"""The callback of the innermost SizesSeen for a comparison."""


def _told(name: str, *values: Any) -> None:
    if _note:
        _note[-1](name, tuple(map(_plain, values)))


def _plain(value: Any) -> str:
    kind = int if isinstance(value, int) else float
    return str(kind.__repr__(value))


def _wrapped(value: Any) -> Any:
    if type(value) is int:
        return _Size(value)
    if type(value) is float:
        return _Ratio(value)
    return tuple(map(_wrapped, value)) if type(value) is tuple else value


def _done(kind: type, name: str, given: Any, *other: Any) -> Any:
    """Return the result for plain numbers; an int defers to a float on its other side."""
    found = getattr(kind, name)(given, *other)
    if found is NotImplemented and kind is int and isinstance(other[0], float):
        return getattr(float, name)(int.__float__(given), *other)
    return found


def _comparing(kind: type, name: str) -> Any:
    def compared(self: Any, *other: Any) -> Any:
        found = _done(kind, name, self, *other)
        if found is NotImplemented:
            return found
        if any(map(_is_of_size, (self, *other))):
            _told(name, self, *other)
        else:  # such a condition is the same for all sizes
            _told(f"{name} of numbers", int(found))
        return found

    return compared


def _computing(kind: type, name: str) -> Any:
    def computed(self: Any, *other: Any) -> Any:
        found = _done(kind, name, self, *other)
        if any(map(_is_of_size, (self, *other))):
            return _wrapped(found)
        return telling_float(found) if type(found) is float else found

    return computed


def _made_plain(kind: type, name: str) -> Any:
    def made(self: Any) -> Any:
        if _is_of_size(self):
            _told(name, self)
        return getattr(kind, name)(self)

    return made


def _is_of_size(value: Any) -> bool:
    """Return whether a number is a size, or computed from one."""
    return isinstance(value, (_Size, _Ratio))


_COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__")
_MADE_PLAIN = ("__int__", "__float__")
_COMPUTED = (
    "add", "sub", "mul", "floordiv", "mod", "divmod", "truediv", "pow",
    "radd", "rsub", "rmul", "rfloordiv", "rmod", "rdivmod", "rtruediv", "rpow",
    "neg", "pos", "abs", "floor", "ceil", "round", "trunc",
)  # fmt: skip


def _methods(kind: type) -> dict[str, Any]:
    computed = [f"__{name}__" for name in _COMPUTED if hasattr(kind, f"__{name}__")]
    return {
        **{name: _comparing(kind, name) for name in _COMPARED},
        **{name: _computing(kind, name) for name in computed},
        **{name: _made_plain(kind, name) for name in _MADE_PLAIN},
        "__hash__": kind.__hash__,
    }


_Size: Any = type("_Size", (int,), _methods(int))
_Ratio: Any = type("_Ratio", (float,), _methods(float))
_Fixed: Any = type("_Fixed", (float,), _methods(float))


def telling_float(value: float) -> float:
    """Return a float of the same value that records its comparisons with sizes."""
    return _Fixed(value)  # type: ignore[no-any-return]


_SIZES = {
    torch.Tensor.shape.__get__,
    torch.Tensor.size,
    torch.Tensor.numel,
    torch.Tensor.nelement,
    torch.numel,
}


class SizesSeen(TorchFunctionMode):  # type: ignore[misc]
    """A mode in which code that asks for a tensor's size gets one that reports its uses."""

    def __init__(
        self, note: Callable[[str, Any], None], asked: Callable[[torch.Tensor], None]
    ) -> None:
        """Make the mode.

        Args:
            note: a callback with the name of a comparison and its values.
            asked: a callback with each tensor whose size is asked for.
        """
        super().__init__()
        self._compared, self._asked = note, asked
        self._quiet = 0

    def __enter__(self) -> Any:
        """Start reporting."""
        _note.append(self._compared)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """Stop reporting."""
        _note.pop()
        super().__exit__(*error)

    @contextmanager
    def without(self) -> Any:
        """Pause reporting inside the context, for torch's own code."""
        self._quiet += 1
        _note.append(lambda name, values: None)
        try:
            yield
        finally:
            _note.pop()
            self._quiet -= 1

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, and turn numbers that are sizes into reporting ones."""
        found = func(*args, **(kwargs or {}))
        if self._quiet or func not in _SIZES:
            return found
        self._asked(args[0])
        if isinstance(found, torch.Size):
            return torch.Size([_wrapped(each) for each in found])
        return _wrapped(found)
