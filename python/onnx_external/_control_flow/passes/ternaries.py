"""Translates `a if test else b` to an `if` statement if its values cannot be merged.

The `if` then absorbs the code after it. Parts of the statement that are evaluated before the
expression are bound to names before the `if`, so that the order of evaluation does not change. An
expression that may not be evaluated at all (in a lambda, in a comprehension, after `and`) is not
changed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from onnx_external._control_flow.passes.building import at, copy_of, name, statement
from onnx_external._control_flow.passes.choice import Choice, force
from onnx_external._control_flow.passes.names import SCOPES, own_nodes
from onnx_external._control_flow.passes.returns import inner_blocks

_FIELDS: dict[type[ast.stmt], str] = {
    ast.AnnAssign: "value",
    ast.Assert: "test",
    ast.Assign: "value",
    ast.AugAssign: "value",
    ast.Expr: "value",
    ast.For: "iter",
    ast.If: "test",
    ast.Return: "value",
}
"""The field that each kind of statement evaluates first."""
_BINDING = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


def expanded(choice: Choice, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements in which the absorbed conditional expressions are `if` statements."""
    if not choice.absorbed:
        return list(body)
    found: list[ast.stmt] = []
    for node in body:
        if not isinstance(node, SCOPES):
            for block in inner_blocks(node):
                block[:] = expanded(choice, block)
        found += _statements(choice, node)
    return found


def _statements(choice: Choice, node: ast.stmt) -> list[ast.stmt]:
    field = _FIELDS.get(type(node), "")
    value = getattr(node, field, None)
    if value is None or not _holds(choice, value):
        return [node]
    first = [node.target] if isinstance(node, ast.AugAssign) else []
    if any(isinstance(each, _BINDING) for each in own_nodes(value)) or any(map(_calls, first)):
        return [node]
    if isinstance(value, ast.IfExp) and isinstance(node, ast.Assign | ast.Return):

        def given(result: ast.expr) -> list[ast.stmt]:
            made = copy_of(node)
            setattr(made, field, result)
            return _statements(choice, made)

        return _as_if(choice, value, given)
    if isinstance(node, ast.If | ast.For) and choice.has(node):
        force(node, choice.key(node))
    front, value = _taken_out(choice, value)
    setattr(node, field, value)
    return [*front, node]


def _calls(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Call) for each in own_nodes(node))


def _as_if(
    choice: Choice, node: ast.IfExp, given: Callable[[ast.expr], list[ast.stmt]]
) -> list[ast.stmt]:
    """Return an `if` whose branches each use one of the two values."""
    front, test = _taken_out(choice, node.test)
    made = at(ast.If(test, given(node.body), given(node.orelse)), node)
    if choice.has(node):
        force(made, choice.key(node))
    return [*front, made]


def _taken_out(choice: Choice, node: ast.expr) -> tuple[list[ast.stmt], ast.expr]:
    """Return the statements to run before an expression, and the remaining expression."""
    if not _holds(choice, node):
        return [], node
    if isinstance(node, ast.IfExp) and not _holds_in_test_alone(choice, node):
        word = choice.fresh()("value")
        return _as_if(choice, node, lambda each: _bound(choice, word, each)), name(node, word)
    parts = list(_parts(node))
    last = max(n for n, each in enumerate(parts) if _holds(choice, each.node))
    front: list[ast.stmt] = []
    for each in parts[: last + 1]:
        if _holds(choice, each.node):
            more, left = _taken_out(choice, each.node)
        elif isinstance(each.node, ast.Constant | ast.Name):
            continue
        else:
            word = choice.fresh()("value")
            more, left = _bound(choice, word, each.node), name(node, word)
        front += more
        each.put(left)
    return front, node


def _bound(choice: Choice, word: str, value: ast.expr) -> list[ast.stmt]:
    return _statements(choice, statement(value, f"{word} = __value", __value=value))


def _holds(choice: Choice, node: ast.expr) -> bool:
    """Return whether evaluating an expression always evaluates an absorbed condition."""
    if isinstance(node, ast.IfExp):
        if choice.has(node) and choice.key(node) in choice.absorbed:
            return True
        return any(_holds(choice, each) for each in (node.test, node.body, node.orelse))
    return any(_holds(choice, each.node) for each in _parts(node))


def _holds_in_test_alone(choice: Choice, node: ast.IfExp) -> bool:
    if choice.has(node) and choice.key(node) in choice.absorbed:
        return False
    return not (_holds(choice, node.body) or _holds(choice, node.orelse))


class _Part(NamedTuple):
    """A part of an expression that can be replaced with another expression."""

    node: ast.expr
    owner: ast.AST
    field: str
    place: int | None

    def put(self, other: ast.expr) -> None:
        if self.place is None:
            setattr(self.owner, self.field, other)
        else:
            getattr(self.owner, self.field)[self.place] = other


def _parts(node: ast.expr) -> Iterator[_Part]:
    """Yield the parts of an expression that are always evaluated, in their order."""
    if isinstance(node, ast.IfExp):
        yield _Part(node.test, node, "test", None)
    elif isinstance(node, ast.BoolOp):
        yield _Part(node.values[0], node, "values", 0)
    elif isinstance(node, ast.Compare):
        yield _Part(node.left, node, "left", None)
        yield _Part(node.comparators[0], node, "comparators", 0)
    elif isinstance(node, ast.Dict):
        for place, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            if key is not None:
                yield _Part(key, node, "keys", place)
            yield _Part(value, node, "values", place)
    elif isinstance(node, ast.Call):
        yield from _parts(node.func) if isinstance(node.func, ast.Attribute) else ()
        yield from _children(node, "args")
        for each in node.keywords:
            yield _Part(each.value, each, "value", None)
    elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Subscript | ast.Slice):
        for field in node._fields:
            yield from _children(node, field)
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        yield from _children(node, "elts")
    elif isinstance(node, ast.Starred):
        yield _Part(node.value, node, "value", None)


def _children(node: ast.AST, field: str) -> Iterator[_Part]:
    value: Any = getattr(node, field)
    single = not isinstance(value, list)
    for place, each in enumerate([value] if single else value):
        if isinstance(each, ast.Slice | ast.Starred | ast.Tuple):
            yield from _parts(each)  # they are not values, or may contain non-values
        elif isinstance(each, ast.expr):
            yield _Part(each, node, field, None if single else place)
