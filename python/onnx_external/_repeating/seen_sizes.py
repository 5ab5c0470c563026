"""Replaces sizes with numbers that report their uses.

A condition on a size decides what a trace does, but no operator shows the condition. While a model
is recorded, its sizes are numbers that record their comparisons. These numbers also record
conversions to plain numbers, which do not report further uses. For comparisons of other numbers,
only the outcome is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_note: list[Callable[[str, Any], None]] = []
"""The callbacks for comparisons; the last belongs to the innermost SizesSeen."""


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
    """Return an operation's result for plain numbers; an int lets a float operand compute it."""
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
    """Return whether a number is a size, or computed from a size."""
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
    """Return a float with the same value that records its comparisons with sizes."""
    return _Fixed(value)  # type: ignore[no-any-return]


_SIZES = {
    torch.Tensor.shape.__get__,
    torch.Tensor.size,
    torch.Tensor.numel,
    torch.Tensor.nelement,
    torch.numel,
}


class SizesSeen(TorchFunctionMode):  # type: ignore[misc]
    """A mode in which the sizes of tensors are numbers that report their uses."""

    def __init__(
        self, note: Callable[[str, Any], None], asked: Callable[[torch.Tensor], None]
    ) -> None:
        """Make the mode.

        Args:
            note: a callback that receives the name and the values of each comparison.
            asked: a callback that receives each tensor whose size is requested.
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
        """Call the function, and replace sizes that it returns with reporting numbers."""
        found = func(*args, **(kwargs or {}))
        if self._quiet or func not in _SIZES:
            return found
        self._asked(args[0])
        if isinstance(found, torch.Size):
            return torch.Size([_wrapped(each) for each in found])
        return _wrapped(found)
