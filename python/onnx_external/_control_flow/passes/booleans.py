"""Rewrites boolean operators and comparisons (such as a < b < c) as calls to the runtime."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from onnx_external._control_flow.passes.building import expression

if TYPE_CHECKING:
    from onnx_external._control_flow.passes.choice import Choice

_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


def boolean(choice: Choice, node: ast.BoolOp) -> ast.expr:
    """Rewrite `a and b and c`, or the same with `or`, as a call of the runtime."""
    choice.note(choice.key(node))
    how = "and_" if isinstance(node.op, ast.And) else "or_"
    parts = {f"__part{place}": each for place, each in enumerate(node.values)}
    inside = ", ".join(f"lambda: {each}" for each in parts)
    return expression(node, f"__oe_rt__.{how}({inside})", **parts)


def negation(choice: Choice, node: ast.UnaryOp) -> ast.expr:
    """Rewrite an expression `not a` as a call of the runtime."""
    choice.note(choice.key(node))
    return expression(node, "__oe_rt__.not_(__value)", __value=node.operand)


def comparison(choice: Choice, node: ast.Compare) -> ast.expr:
    """Rewrite `a in b` or `a < b < c`; a chain with `in` or `is` is left to Python."""
    if len(node.ops) == 1:
        choice.note(choice.key(node))
        text = "__oe_rt__.in_(__value, __items)"
        if isinstance(node.ops[0], ast.NotIn):
            text = f"__oe_rt__.not_({text})"
        return expression(node, text, __value=node.left, __items=node.comparators[0])
    if not all(isinstance(each, _COMPARISONS) for each in node.ops):
        return node
    choice.note(choice.key(node))
    parts = {f"__part{place}": each for place, each in enumerate([node.left, *node.comparators])}
    inside = ["lambda: __part0"]
    for place, each in enumerate(node.ops, 1):
        inside += [repr(type(each).__name__), f"lambda: __part{place}"]
    return expression(node, f"__oe_rt__.chain({', '.join(inside)})", **parts)
