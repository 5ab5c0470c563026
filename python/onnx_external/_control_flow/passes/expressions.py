"""Replaces chosen expressions with calls to the runtime."""

from __future__ import annotations

import ast

from onnx_external._control_flow.passes import booleans, comprehensions, ifs
from onnx_external._control_flow.passes.building import at, expression
from onnx_external._control_flow.passes.function_body import FunctionBody
from onnx_external._control_flow.passes.keys import (
    is_called_through,
    is_indexed,
    is_lookup,
    is_whole_quotient,
    kept,
)
from onnx_external._control_flow.passes.names import own_nodes

_METHODS = frozenset("count index insert pop remove reverse sort".split())
"""Methods of lists that find or move single items."""


class Expressions(comprehensions.Comprehensions):
    """Rewrites an expression, from the inside out."""

    def __init__(self, rewriter: FunctionBody) -> None:
        self.rewriter = rewriter
        self.choice = rewriter.choice

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """Rewrite `a if test else b`, if it is chosen."""
        chosen = self.choice.has(node)
        if chosen:
            self._movable(node, node.body, node.orelse)
        self.generic_visit(node)
        return ifs.ifexp(self.rewriter, node) if chosen else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Rewrite `and` or `or`, if it is chosen."""
        chosen = self.choice.has(node)
        if chosen:
            self._movable(node, *node.values)
        self.generic_visit(node)
        return booleans.boolean(self.choice, node) if chosen else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Rewrite `not`, if it is chosen."""
        chosen = isinstance(node.op, ast.Not) and self.choice.has(node)
        self.generic_visit(node)
        return booleans.negation(self.choice, node) if chosen else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Rewrite `in` or a chain of comparisons, if it is chosen."""
        chosen = self.choice.itself(node)
        if chosen:
            self._movable(node, node.left, *node.comparators)
        self.generic_visit(node)
        return booleans.comparison(self.choice, node) if chosen else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Let the runtime call a builtin or a math function that may receive a tensor."""
        chosen = self.choice.itself(node)
        comprehensions.consumed(node)
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and self._has_grown(node.func.value):
            return _method_through_runtime(node, node.func)
        builtin = isinstance(node.func, ast.Name) and node.func.id in self.rewriter.builtins
        if not builtin and not is_called_through(node):
            return node
        if chosen:
            self.choice.note(self.choice.key(node))
        fixed = kept(node) or all(isinstance(each, ast.Constant) for each in node.args)
        if chosen or not (fixed or (isinstance(node.func, ast.Name) and not builtin)):
            return _through_runtime(node, builtin)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Let the runtime evaluate a subscript whose key or index depends on a tensor.

        Subscripts of lists that grow in a rewritten loop are also evaluated by the runtime.
        """
        chosen = (is_lookup(node) or is_indexed(node)) and self.choice.itself(node)
        key = self.choice.key(node) if chosen else ""
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and self._has_grown(node.value):
            at_ = _as_value(node.slice)
            return expression(node, "__oe_rt__.item(__l, __at)", __l=node.value, __at=at_)
        if not chosen:
            return node
        self.choice.note(key)
        if not isinstance(node.slice, ast.JoinedStr):
            text = f"__oe_rt__.chosen(__items, __at, {key!r})"
            return expression(node, text, __items=node.value, __at=node.slice)
        parts = [
            each.value if isinstance(each, ast.FormattedValue) else each
            for each in node.slice.values
        ]
        text = f"__oe_rt__.looked_up(__items, __parts, {key!r})"
        whole = at(ast.Tuple(parts, ast.Load()), node)
        return expression(node, text, __items=node.value, __parts=whole)

    def _has_grown(self, node: ast.expr) -> bool:
        return bool(self.rewriter.grown) and ast.unparse(node) in self.rewriter.grown

    def _movable(self, node: ast.expr, *parts: ast.expr) -> None:
        self.choice.movable(parts)
        for part in parts:
            if any(isinstance(each, ast.NamedExpr) for each in own_nodes(part)):
                raise self.choice.refused(
                    node,
                    "`:=` is used in an expression that depends on a tensor: bind the name in a "
                    "statement before the expression",
                )


def _method_through_runtime(node: ast.Call, function: ast.Attribute) -> ast.expr:
    """Let the runtime call a method of a growing list, except append(), by which it grows."""
    if function.attr not in _METHODS:
        return node
    node.args[:0] = [function.value, at(ast.Constant(function.attr), node)]
    runtime = ast.Name("__oe_rt__", ast.Load())
    node.func = at(ast.Attribute(runtime, "method", ast.Load()), function)
    return node


def _as_value(node: ast.expr) -> ast.expr:
    """Return an index as an expression, in which slices are calls of slice()."""
    if isinstance(node, ast.Tuple):
        node.elts = [_as_value(each) for each in node.elts]
    if not isinstance(node, ast.Slice):
        return node
    bounds = [each or at(ast.Constant(None), node) for each in (node.lower, node.upper, node.step)]
    return at(ast.Call(ast.Name("slice", ast.Load()), bounds, []), node)


def _through_runtime(node: ast.Call, builtin: bool) -> ast.expr:
    """Let the runtime call a builtin, or a function that may belong to math."""
    if is_whole_quotient(node):
        sides = node.args[0]
        assert isinstance(sides, ast.BinOp)
        parts = {"__function": node.func, "__one": sides.left, "__other": sides.right}
        return expression(node, "__oe_rt__.quotient(__function, __one, __other)", **parts)
    if not builtin:
        node.args.insert(0, node.func)
    name = node.func.id if builtin and isinstance(node.func, ast.Name) else "call"
    runtime = ast.Name("__oe_rt__", ast.Load())
    node.func = at(ast.Attribute(runtime, name, ast.Load()), node.func)
    return node
