"""Watches a trace for dynamic sizes that become static, or equal to another size."""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ..._base.errors import ExportError
from ..._base.swapping import exchanged
from ..._tracing.frames import is_users, outside


class StaticDimensionError(ExportError):
    """Raised if a dimension meant to be dynamic became static while a module was traced."""


@dataclass(frozen=True)
class SizeConstraint:
    """An assumption of a trace about a size."""

    size: str
    """The size of an input, such as "x.shape[1]"."""
    equals: str
    """The number or the other size to which the size is equal."""
    where: str
    """The line of the module's code that caused it, such as "model.py:12"; empty if unknown."""
    line: str
    """The text of the line."""

    @property
    def is_static(self) -> bool:
        """True if the size is now a constant."""
        return self.equals.isdigit()

    def __str__(self) -> str:
        """Return the constraint as a sentence."""
        one, other = self.size, self.equals
        what = f"{one} became {other}" if self.is_static else f"{one} and {other} became one size"
        return f"{self.where}: {what}: {self.line}" if self.where else what


def _users_line() -> tuple[str, str]:
    """Return the innermost line that belongs neither to torch nor to Python nor to this package."""
    frame = outside(sys._getframe(1), lambda path: not is_users(path))
    if frame is None:
        return "", ""
    path = frame.f_code.co_filename
    text = linecache.getline(path, frame.f_lineno).strip()
    return f"{Path(path).name}:{frame.f_lineno}", text


def _size_name(env: Any, symbol: Any) -> str | None:
    """Return the size as a user would write it; None if it is not a size of an input."""
    sources = env.var_to_sources.get(symbol)
    if not sources:
        return None
    name: str = sources[0].name() if callable(sources[0].name) else sources[0].name
    name = name.replace(".size()[", ".shape[")
    return name.removeprefix("L['").replace("']", "", 1) if name.startswith("L['") else name


def _constraint(env: Any, symbol: Any, target: Any) -> SizeConstraint | None:
    size = _size_name(env, symbol)
    if size is None:
        return None
    if isinstance(target, sympy.Integer):
        equals: str | None = str(target)
    else:
        equals = _size_name(env, target) if isinstance(target, sympy.Symbol) else str(target)
    return None if equals is None else SizeConstraint(size, equals, *_users_line())


@contextlib.contextmanager
def sizes_watched(stop: bool, found: list[SizeConstraint]) -> Iterator[None]:
    """Collect the assumptions that traces make about sizes inside the context.

    Args:
        stop: raise a StaticDimensionError when a dynamic size becomes a constant.
        found: the list to which constraints are appended.
    """
    replace = ShapeEnv._set_replacement

    def watched(self: Any, symbol: Any, target: Any, message: str) -> None:
        known = self.replacements.get(symbol)
        replace(self, symbol, target, message)
        if known is not None or symbol not in self.replacements:
            return
        constraint = _constraint(self, symbol, target)
        if constraint is None:
            return
        found.append(constraint)
        if stop and constraint.is_static:
            raise StaticDimensionError(
                f"{constraint}; the graph would be valid for this size only: change the line so "
                f"that it works for any size, or leave {constraint.size} out of dynamic_shapes"
            )

    with exchanged(ShapeEnv, "_set_replacement", watched):
        yield
