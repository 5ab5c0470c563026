"""Rewrites calls whose results cannot be merged as `a if test else b`, with the callee's test.

A function that returns None in one branch and a tensor in the other has no single result in a
graph. Therefore the rewritten caller asks for the condition, calls the function in both branches
with the condition decided, and continues separately in both.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from onnx_external._control_flow.passes.building import at, copy_of, expression
from onnx_external._control_flow.passes.choice import Choice, force
from onnx_external._control_flow.passes.keys import call_key
from onnx_external._control_flow.passes.names import SCOPES, own_nodes


def split(choice: Choice, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements in which the calls to split are conditional expressions."""
    found = list(body)
    if any(map(choice.splits, (each for node in body for each in own_nodes(node)))):
        splitting = _Splitting(choice)
        for each in found:
            splitting.visit(each)
    return found


class _Splitting(ast.NodeTransformer):
    def __init__(self, choice: Choice) -> None:
        self.choice = choice

    def visit(self, node: ast.AST) -> ast.AST:
        made: ast.AST = node if isinstance(node, SCOPES) else super().visit(node)
        return made

    def visit_Call(self, node: ast.Call) -> ast.AST:
        chosen, key = self.choice.splits(node), call_key(self.choice.path, node)
        self.generic_visit(node)
        if not chosen:
            return node
        self.choice.movable([node])
        if any(isinstance(each, ast.NamedExpr) for each in own_nodes(node)):
            raise self.choice.refused(
                node,
                "`:=` is used in a call whose result depends on a tensor: bind the name in a "
                "statement before the call",
            )
        test, then, other = (
            expression(node, text.format(key=key), __call=copy_of(node))
            for text in (
                "__oe_rt__.decided(lambda: __call, {key!r})",
                "__oe_rt__.taken(lambda: __call, {key!r}, True)",
                "__oe_rt__.taken(lambda: __call, {key!r}, False)",
            )
        )
        made = at(ast.IfExp(test, then, other), node)
        force(made, key)
        return made
