"""Fixes dimensions that a trace calls dynamic although its assumptions fix them.

torch.export records its assumptions about dimensions ("a quarter of the height is 8"), and its own
programs check them. An ONNX graph does not: it would accept any size, and fail later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from ..torch._dimension_names import SYMBOL, change_dimensions

if TYPE_CHECKING:
    import onnx_ir


@dataclass(frozen=True)
class _Input:
    """An input of a program, as seen by guards."""

    name: str
    dims: tuple[Any, ...]
    """For each dimension, a number or an expression in torch's symbols."""
    sizes: dict[Any, int]
    """The values that torch's symbols have in the example."""

    def sized(self, sizes: Mapping[Any, int]) -> dict[str, Any]:
        """Return the names that guards use, for the given values of the symbols."""
        dims = tuple(dim if isinstance(dim, int) else int(dim.subs(sizes)) for dim in self.dims)
        return {"L": {self.name: SimpleNamespace(size=lambda: dims)}, "math": math}


def _inputs(exported: torch.export.ExportedProgram) -> Iterator[_Input]:
    names = set(exported.graph_signature.user_inputs)
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if node.name not in names or not isinstance(value, torch.Tensor):
            continue
        vary = [dim.node for dim in value.shape if isinstance(dim, torch.SymInt)]
        sizes = {dim.expr: int(dim.hint) for dim in vary if dim.expr.is_Symbol and dim.has_hint()}
        dims = (dim.node.expr if isinstance(dim, torch.SymInt) else dim for dim in value.shape)
        yield _Input(node.name, tuple(dims), sizes)


def _holds(guard: str, given: _Input, sizes: Mapping[Any, int]) -> bool:
    """Return whether a guard, as written by torch, is true, or cannot be evaluated."""
    try:
        return bool(eval(guard, {"__builtins__": {}, "max": max, "min": min}, given.sized(sizes)))
    except Exception:  # whatever a later torch writes is not a reason to reject a graph
        return True


def _bound(exported: torch.export.ExportedProgram) -> dict[str, int]:
    """Return the dimensions whose guards hold for no multiple of the example's size."""
    bound: dict[str, int] = {}
    guards = [str(guard) for guard in getattr(exported, "_guards_code", None) or ()]
    for given in _inputs(exported):
        mine = f"L['{given.name}'].size()"
        own = [guard for guard in guards if guard.count("L[") == guard.count(mine) > 0]
        for symbol, size in given.sizes.items():
            sizes = [given.sizes | {symbol: other} for other in (2 * size, 3 * size, size // 2)]
            if not any(all(_holds(guard, given, one) for guard in own) for one in sizes):
                bound[str(symbol)] = size
    return bound


def fix_bound_dimensions(model: onnx_ir.Model, exported: torch.export.ExportedProgram) -> None:
    """Fix dimensions to the example's size if any other size would break the graph.

    The fixed dimensions occur in inputs, and in values that are computed from inputs.
    """
    bound = {symbol: str(size) for symbol, size in _bound(exported).items()}
    if bound:

        def numbered(text: str) -> str:
            return _evaluated(SYMBOL.sub(lambda found: bound.get(found[0], found[0]), text))

        change_dimensions(model, numbered)


def _evaluated(text: str) -> str:
    """Return the value of an expression without symbols, or the unchanged text."""
    if SYMBOL.search(text):
        return text
    try:
        value = eval(text, {"__builtins__": {}, "Max": max, "Min": min}, {})
    except Exception:  # whatever torch writes is a name
        return text
    return str(value) if isinstance(value, int) else text
