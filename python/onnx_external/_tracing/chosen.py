"""Defines the sizes that a condition chooses in terms of the sizes of the inputs.

After `if n % 4: n = n + 4 - n % 4`, the size n has one of two values. In the graph, torch
represents it by a symbol without a value, on which no decision can be based. However, n is equal to
Where(n % 4 != 0, n + 4 - n % 4, n). Therefore n has a value for the example, and decisions based on
this value become guards on the sizes of the inputs.
"""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx import Interpreter
from torch.fx.experimental.symbolic_shapes import ShapeEnv, ShapeGuard
from torch.utils._sympy.functions import FloorDiv, Where

from onnx_external._base.swapping import exchanged, set_within

_MOST = 400
"""The maximum number of operations in a definition; larger sizes are known only in the graph."""
_VALUES = "real_tensor_prop_unbacked_vals"
"""The attribute of a ShapeEnv with the values on which torch bases decisions about symbols without
a value."""
_BY_VALUES = "propagate_real_tensors"
"""The start of the message of the assertion that torch adds for such a decision."""

_tests: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("tests", default=())
_guards: weakref.WeakKeyDictionary[ShapeEnv, list[ShapeGuard]] = weakref.WeakKeyDictionary()


def is_size(value: Any) -> bool:
    """Return whether the value is an int or a symbolic int, and not a bool."""
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def guards_on_chosen(environment: ShapeEnv) -> list[ShapeGuard]:
    """Return the list of guards on sizes that conditions choose; new guards are appended to it."""
    return _guards.setdefault(environment, [])


def choosing(test: Any) -> AbstractContextManager[None]:
    """Return the context in which a torch.cond with this condition is evaluated."""
    return set_within(_tests, (*_tests.get(), test))


def definition_by_outer_test(one: Any, other: Any) -> Any:
    """Return the definition of a size chosen by the torch.cond that is being evaluated."""
    tests = _tests.get()
    return definition(tests[-1], one, other) if tests else None


def definition(test: Any, one: Any, other: Any) -> Any:
    """Return an expression that is `one` where the condition holds, and otherwise `other`.

    Returns:
        A sympy expression in the sizes of the inputs; None if it depends on tensor values.
    """
    sizes = [each for each in (one, other) if isinstance(each, torch.SymInt)]
    if not all(map(is_size, (one, other))) or not (sizes or isinstance(test, torch.SymBool)):
        return None
    environment = (sizes or [test])[0].node.shape_env
    values = [expanded(environment, expression_of(each)) for each in (one, other)]
    if values[0] == values[1]:
        found = values[0]
    elif isinstance(test, torch.SymBool):
        found = Where(expanded(environment, test.node.expr), *values)
    else:
        return None
    if not found.free_symbols <= environment.backed_var_to_val.keys():
        return None
    return found if found.count_ops() <= _MOST else None


def define(size: Any, expression: Any) -> None:
    """Set the definition of a size that is computed in the graph."""
    if expression is None or not isinstance(size, torch.SymInt) or not size.node.expr.is_symbol:
        return
    values = getattr(size.node.shape_env, _VALUES, None)
    if values is not None:
        values[size.node.expr] = expression


def expanded(environment: Any, expression: Any) -> Any:
    """Return an expression in which sizes chosen by conditions are replaced with definitions."""
    return expression.xreplace(getattr(environment, _VALUES, {}))


def expression_of(value: Any) -> Any:
    """Return the sympy expression of a size."""
    return sympy.Integer(value) if isinstance(value, int) else value.node.expr


@contextlib.contextmanager
def decided_by_definitions() -> Iterator[None]:
    """Turn decisions about sizes that conditions choose into guards inside the context.

    Outside this context, torch would add an assertion to the graph, which ONNX cannot represent.
    """
    plain = ShapeEnv.guard_or_defer_runtime_assert

    def guard(self: Any, expression: Any, message: str, *more: Any, **rest: Any) -> Any:
        if not message.startswith(_BY_VALUES):
            return plain(self, expression, message, *more, **rest)
        found = expanded(self, expression)
        if not found.free_symbols <= self.backed_var_to_val.keys():
            return plain(self, expression, message, *more, **rest)
        if found == sympy.true or self._suppress_guards_tls():
            return True
        guards_on_chosen(self).append(ShapeGuard(found, self._get_sloc(), False))
        if not expression.atoms(FloorDiv):  # which torch simplifies again and again
            self.axioms.update(dict(self.get_implications(self.simplify(expression))))
        return True

    with contextlib.ExitStack() as stack:
        if hasattr(ShapeEnv, "_log_real_tensor_propagation"):
            unsaid = exchanged(ShapeEnv, "_log_real_tensor_propagation", lambda *_: None)
            stack.enter_context(unsaid)
            stack.enter_context(exchanged(ShapeEnv, "guard_or_defer_runtime_assert", guard))
            stack.enter_context(exchanged(Interpreter, "run_node", _defining(Interpreter.run_node)))
        yield


def _defining(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs a node, and keeps the definitions of its sizes from the trace."""

    def run_node(self: Any, node: Any) -> Any:
        traced = node.meta.get("val")
        found = plain(self, node)
        if isinstance(traced, torch.SymInt):
            values = getattr(traced.node.shape_env, _VALUES, {})
            define(found, values.get(traced.node.expr))
        return found

    return run_node
