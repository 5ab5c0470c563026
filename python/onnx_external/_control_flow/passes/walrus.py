"""Translates `:=` to statements in expressions that depend on a tensor.

If a part of an expression that may not be evaluated binds a name, it cannot become a lambda, which
cannot bind names of the function. In a statement of a branch, the name can be bound as usual.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from onnx_external._control_flow.passes.building import at, name, statement
from onnx_external._control_flow.passes.choice import Choice, force
from onnx_external._control_flow.passes.names import SCOPES, own_nodes
from onnx_external._control_flow.passes.returns import inner_blocks

_SIMPLE = (ast.Name, ast.Constant)


def expanded(choice: Choice, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements without `:=` in the parts of expressions that depend on a tensor."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, SCOPES):
            found.append(node)
            continue
        if isinstance(node, ast.While) and _binds(node.test) and choice.must(node):
            _test_within(choice, node)
        for block in inner_blocks(node):
            block[:] = expanded(choice, block)
        field = "test" if isinstance(node, ast.If | ast.Assert) else "value"
        value = getattr(node, field, None)
        if isinstance(value, ast.expr) and not isinstance(node, ast.AugAssign):
            front, value = _taken_out(choice, value)
            setattr(node, field, value)
            found += front
        found.append(node)
    return found


def _binds(node: ast.AST) -> bool:
    return any(isinstance(each, ast.NamedExpr) for each in own_nodes(node))


def _decided(choice: Choice, node: ast.AST) -> bool:
    """Return whether a node is an expression that depends on a tensor and contains `:=`."""
    return isinstance(node, ast.BoolOp | ast.IfExp) and choice.has(node) and _binds(node)


def _test_within(choice: Choice, node: ast.While) -> None:
    """Turn `while (n := f(n)) > 0:` into `while True:`, with the condition as first statement."""
    key = choice.key(node)
    test = at(ast.UnaryOp(ast.Not(), node.test), node)
    force(test, key)
    leave = at(ast.If(test, [at(ast.Break(), node)], []), node)
    force(leave, key)
    force(node, key)
    node.test = at(ast.Constant(True), node)
    node.body = [leave, *node.body]


def _taken_out(choice: Choice, node: ast.expr) -> tuple[list[ast.stmt], ast.expr]:
    """Return the statements that evaluate an expression, and the remaining expression."""
    if not any(_decided(choice, each) for each in own_nodes(node)):
        return [], node
    if isinstance(node, ast.BoolOp | ast.IfExp) and _decided(choice, node):
        word = choice.fresh()("value")
        return _statements(choice, node, word), name(node, word)
    found: list[ast.stmt] = []
    for field, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else [value]
        for place, part in enumerate(parts):
            if not isinstance(part, ast.expr):
                continue
            if any(_decided(choice, each) for each in own_nodes(part)):
                if isinstance(node, ast.Lambda | ast.BoolOp | ast.IfExp) or hasattr(
                    node, "generators"
                ):
                    raise _refused(choice, part)
                front, part = _taken_out(choice, part)
                found += front
                if isinstance(value, list):
                    value[place] = part
                else:
                    setattr(node, field, part)
            elif not isinstance(part, _SIMPLE) and _later(choice, node, part):
                raise _refused(choice, part)
    return found, node


def _later(choice: Choice, node: ast.expr, part: ast.expr) -> bool:
    """Return whether any part that becomes a statement is evaluated after this part."""
    parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    return any(
        _decided(choice, each)
        for later in parts[parts.index(part) + 1 :]
        for each in own_nodes(later)
    )


def _refused(choice: Choice, node: ast.expr) -> Exception:
    return choice.refused(
        node,
        "`:=` is in the middle of an expression that depends on a tensor: bind the name in a "
        "statement before the expression",
    )


def _statements(choice: Choice, node: ast.BoolOp | ast.IfExp, word: str) -> list[ast.stmt]:
    """Return statements that bind `word` to the value of an expression."""
    key = choice.key(node)
    if isinstance(node, ast.IfExp):
        front, test = _taken_out(choice, node.test)
        made = at(ast.If(test, _bound(choice, node.body, word), []), node)
        made.orelse = _bound(choice, node.orelse, word)
        force(made, key)
        return [*front, made]
    first, *rest = node.values
    start = _bound(choice, first, word)
    if not rest:
        return start
    left: ast.expr = first
    if len(rest) > 1:
        left = at(ast.BoolOp(node.op, rest), node)
        force(left, key)
    else:
        left = rest[0]
    again = _bound(choice, left, word)
    skip: list[ast.stmt] = [at(ast.Pass(), node)]
    branches = (again, []) if isinstance(node.op, ast.And) else (skip, again)
    made = at(ast.If(name(node, word), *branches), node)
    force(made, key)
    return [*start, made]


def _bound(choice: Choice, node: ast.expr, word: str) -> list[ast.stmt]:
    """Return statements that bind `word` to an expression; for `(n := x)`, they bind both names."""
    if isinstance(node, ast.BoolOp | ast.IfExp) and _decided(choice, node):
        return _statements(choice, node, word)
    front, value = _taken_out(choice, node)
    return [*front, statement(node, f"{word} = __value", __value=value)]
