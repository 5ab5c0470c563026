"""Discoveries of a trace about sizes: dynamic ones that become static, or equal to another."""

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
    """A dimension meant to be dynamic became static while the module was traced."""


@dataclass(frozen=True)
class SizeConstraint:
    """An assumption of the trace about a size."""

    size: str
    """The size of an input, e.g. "x.shape[1]"."""
    equals: str
    """A number, or another size."""
    where: str
    """The line of the module's code that is to blame, e.g. "model.py:12"; empty if unknown."""
    line: str
    """The text of the line."""

    @property
    def is_static(self) -> bool:
        """True if the size is now a constant."""
        return self.equals.isdigit()

    def __str__(self) -> str:
        """Return it as a sentence."""
        one, other = self.size, self.equals
        what = f"{one} became {other}" if self.is_static else f"{one} and {other} became one size"
        return f"{self.where}: {what}: {self.line}" if self.where else what


def _users_line() -> tuple[str, str]:
    """Return the innermost line that belongs neither to torch, to Python, nor to us."""
    frame = outside(sys._getframe(1), lambda path: not is_users(path))
    if frame is None:
        return "", ""
    path = frame.f_code.co_filename
    text = linecache.getline(path, frame.f_lineno).strip()
    return f"{Path(path).name}:{frame.f_lineno}", text


def _size_name(env: Any, symbol: Any) -> str | None:
    """Return the size as a user would write it; None if it does not belong to an input."""
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
    """Collect the assumptions of traces about sizes.

    Args:
        stop: raise a StaticDimensionError where a dynamic size becomes a number.
        found: a list for the constraints, in the order in which they arise.
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
                f"{constraint}; the graph would hold for this size alone: change the line so that "
                f"it works for any size, or leave {constraint.size} out of dynamic_shapes"
            )

    with exchanged(ShapeEnv, "_set_replacement", watched):
        yield
