"""Evaluates size expressions for given sizes, with Python's numbers.

To find sizes for which a branch is taken, thousands of sizes are tried; sympy takes about a
millisecond to evaluate an expression for each.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy import functions

_Compute: TypeAlias = Callable[[Mapping[Any, Any]], Any]


def evaluated(expression: Any, sizes: Mapping[Any, Any]) -> Any:
    """Return the value of an expression; parts excluded by a condition are not computed.

    Args:
        expression: a sympy expression.
        sizes: the values of the symbols in the expression.

    Raises:
        KeyError: a symbol has no value.
        Exception: an error of sympy for a function that it cannot compute.
    """
    return _compute(expression)(sizes)


@functools.lru_cache(4096)
def _compute(expression: Any) -> _Compute:
    if expression.is_Symbol:
        return lambda sizes: int(sizes[expression])
    if not expression.args:
        value = _number(expression)
        return lambda sizes: value
    parts = [_compute(each) for each in expression.args]
    if isinstance(expression, functions.Where):
        test, one, other = parts
        return lambda sizes: one(sizes) if test(sizes) else other(sizes)
    function = _FUNCTIONS.get(expression.func)
    if function is None:
        return lambda sizes: _number(expression.xreplace(sizes))
    return lambda sizes: function(*(each(sizes) for each in parts))


def _number(value: Any) -> Any:
    if value in (sympy.true, sympy.false):
        return value == sympy.true
    if value.is_Integer:
        return int(value)
    if value.free_symbols:
        raise KeyError(str(value))
    return value


def _of_several(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *values: function(values)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    functions.CleanDiv: operator.floordiv,
    functions.FloorDiv: operator.floordiv,
    functions.Max: max,
    functions.Min: min,
    functions.Mod: operator.mod,
    functions.PythonMod: operator.mod,
    sympy.Add: _of_several(sum),
    sympy.And: _of_several(all),
    sympy.Eq: operator.eq,
    sympy.Ge: operator.ge,
    sympy.Gt: operator.gt,
    sympy.Le: operator.le,
    sympy.Lt: operator.lt,
    sympy.Max: max,
    sympy.Min: min,
    sympy.Mul: _of_several(math.prod),
    sympy.Ne: operator.ne,
    sympy.Not: operator.not_,
    sympy.Or: _of_several(any),
}
