"""Evaluates conditions: bools known to Python, or values computed in the graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_false, statically_known_true

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.branches import Function, branched
from onnx_external._control_flow.runtime.collected import is_collected
from onnx_external._control_flow.runtime.lifting import probe
from onnx_external._control_flow.runtime.merging import as_tensor
from onnx_external._control_flow.runtime.places import Places
from onnx_external._control_flow.runtime.rows import length
from onnx_external._control_flow.runtime.state import State
from onnx_external._control_flow.values import described, is_fake, is_number, promoted
from onnx_external._tracing.empty_sizes import compares_for_users, decided_by_graph

compares_for_users(__file__)

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda one, other: one in other,
    "NotIn": lambda one, other: one not in other,
}


def truth(value: Any) -> Any:
    """Return a condition that Python or torch can evaluate: a bool, a tensor, or a SymBool."""
    if is_collected(value):
        value = length(value)  # a list is true if it has items
    if is_fake(value):
        return _one(value)
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        value = value != 0
    if isinstance(value, torch.SymBool):
        compared = decided_by_graph(value)
        if compared is not None:
            return compared
        if statically_known_true(value):
            return True
        return False if statically_known_false(value) else value
    return bool(value)


def _one(value: torch.Tensor) -> torch.Tensor:
    if value.dim() == 0:
        return value
    if all(isinstance(each, int) for each in value.shape) and value.numel() == 1:
        return value.reshape(())
    shape = ", ".join(map(str, value.shape))
    raise RewriteError(
        f"a tensor of shape ({shape}) is used as a condition, which Python allows only for "
        "tensors with one element; use .any() or .all()"
    )


def as_bool(value: Any) -> torch.Tensor:
    """Return a condition as a bool tensor."""
    if isinstance(value, torch.Tensor):
        return value if value.dtype == torch.bool else value != 0
    return as_tensor(value if isinstance(value, (bool, torch.SymBool)) else value != 0)


def negated(value: Any) -> Any:
    """Return `not value`, as a traced condition if the value is traced."""
    test = truth(value)
    if isinstance(test, bool):
        return not test
    return (
        torch.sym_not(test) if isinstance(test, torch.SymBool) else torch.logical_not(as_bool(test))
    )


def both(state: State, parts: tuple[Function, ...]) -> Any:
    """Return `a and b and ...`, as a traced condition if a part is traced."""
    return _folded(state, parts, True)


def either(state: State, parts: tuple[Function, ...]) -> Any:
    """Return `a or b or ...`, as a traced condition if a part is traced."""
    return _folded(state, parts, False)


def _folded(state: State, parts: tuple[Function, ...], conjunction: bool) -> Any:
    value = parts[0]()
    for part in parts[1:]:
        test = truth(value)
        if isinstance(test, bool):
            # Python's own rule, and the condition of the next part.
            if test is not conjunction:
                return value
            value = part()
        else:
            value = _symbolic(state, value, test, part, conjunction)
    return value


def _symbolic(state: State, value: Any, test: Any, part: Function, conjunction: bool) -> Any:
    if probe(state, part, Places([part])).indexes:
        return _guarded(state, test, part, conjunction)
    other = part()
    if _is_value(value) or _is_value(other):
        return _chosen(value, other, test, conjunction)
    known = truth(other)
    if isinstance(known, bool):
        return test if known is conjunction else known
    if isinstance(test, torch.SymBool) and isinstance(known, torch.SymBool):
        return test & known if conjunction else test | known
    how = torch.logical_and if conjunction else torch.logical_or
    return how(as_bool(test), as_bool(known))


def _guarded(state: State, test: Any, part: Function, conjunction: bool) -> Any:
    """Evaluate a part only if the condition holds, because only then its index may be valid."""

    def taken() -> Any:
        return as_bool(truth(part()))

    def constant() -> Any:
        return torch.full((), not conjunction, dtype=torch.bool)

    branches = (taken, constant) if conjunction else (constant, taken)
    return branched(state, test, branches, "", ())


def _is_value(value: Any) -> bool:
    """Return whether a value is a number, not a bool: `and` and `or` return it unchanged."""
    if isinstance(value, torch.Tensor):
        return bool(value.dtype != torch.bool and value.dim() == 0)
    return is_number(value) and not isinstance(value, (bool, torch.SymBool))


def _chosen(value: Any, other: Any, test: Any, conjunction: bool) -> Any:
    for each in (value, other):
        if not is_number(each) and not (isinstance(each, torch.Tensor) and each.dim() == 0):
            raise RewriteError(
                f"`{'and' if conjunction else 'or'}` combines a number and {described(each)}: "
                "write `a if test else b` instead"
            )
    one, two = as_tensor(value), as_tensor(other)
    kind = promoted(one.dtype, two.dtype)
    one, two = one.to(kind), two.to(kind)
    return (
        torch.where(as_bool(test), two, one)
        if conjunction
        else torch.where(as_bool(test), one, two)
    )
