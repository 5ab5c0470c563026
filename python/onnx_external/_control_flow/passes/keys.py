"""Identifies conditions and loops by keys: "file.py:line:column" in the user's source.

The key of a statement is the place where it starts. Expressions may start at the same place (such
as `not a` and `not a and b`). Therefore the key of an expression is the place of a part of it by
which no other expression is identified.
"""

from __future__ import annotations

import ast
import os
from typing import TypeGuard

DISPATCHED = frozenset(
    "bool int float max min any all range enumerate zip reversed len round sum".split()
)
"""The builtins that rewritten code calls through the runtime."""
_MATH = frozenset(
    "sqrt exp log log2 log10 pow fabs sin cos tan tanh floor ceil trunc hypot isnan isinf "
    "isfinite".split()
)
"""Functions of math that accept tensors; functions of other modules may have the same names."""
_COUNTING = frozenset({"linspace"})
"""Functions of torch that take a number of items, which may depend on a tensor."""
_WHOLE = frozenset({"int", "floor", "ceil", "trunc"})


def is_called_through(node: ast.Call) -> bool:
    """Return whether the runtime makes the call, because the function may belong to math."""
    if isinstance(node.func, ast.Name):
        return node.func.id in _MATH
    if not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
        return False
    return node.func.attr in (_MATH if node.func.value.id == "math" else _COUNTING)


def is_whole_quotient(node: ast.Call) -> bool:
    """Return whether a call is int(a / b), or the same with another rounding function."""
    word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if word not in _WHOLE or len(node.args) != 1 or node.keywords:
        return False
    return isinstance(node.args[0], ast.BinOp) and isinstance(node.args[0].op, ast.Div)


_ROWS = frozenset({"range", "zip", "enumerate", "reversed"})
_KEPT = "rewriting_kept"


def keep_rows(node: ast.expr) -> None:
    """Keep the zip() or similar call that provides the items of a loop that is not rewritten."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ROWS:
        setattr(node, _KEPT, True)
        for each in node.args:
            keep_rows(each)


def kept(node: ast.Call) -> bool:
    """Return whether a call is left unchanged, so that Python evaluates it."""
    return hasattr(node, _KEPT)


def key_of(path: str, node: ast.AST) -> str:
    """Return the key of a condition, a loop, an expression, or a generator of a comprehension."""
    return _key(path, _named_by(node))


def call_key(path: str, node: ast.Call) -> str:
    """Return the key of a call, with its end, because chained calls start at the same place."""
    return f"{_key(path, node)}-{node.end_col_offset}"


def condition_key(path: str, condition: ast.expr) -> str:
    """Return the key of a condition in a comprehension."""
    return _key(path, condition)


def _key(path: str, place: ast.AST) -> str:
    line, column = getattr(place, "lineno", 0), getattr(place, "col_offset", 0)
    return f"{os.path.basename(path)}:{line}:{column}"


def _named_by(node: ast.AST) -> ast.AST:
    if isinstance(node, ast.BoolOp):
        return node.values[-1]
    if isinstance(node, ast.IfExp):
        return node.test
    if isinstance(node, ast.UnaryOp):
        return node.operand
    if isinstance(node, ast.Compare):
        return node.comparators[-1]
    if isinstance(node, ast.comprehension):
        return node.target
    if isinstance(node, ast.Call) and node.args:
        return node.args[-1]
    if is_lookup(node) or is_indexed(node):
        return node.slice  # type: ignore[attr-defined,no-any-return]
    return node


def _is_read(node: ast.AST) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)


def is_lookup(node: ast.AST) -> bool:
    """Return whether the key in a subscript is a string made there: `a[f"b_{c}"]`."""
    return (
        _is_read(node)
        and isinstance(node.slice, ast.JoinedStr)
        and all(
            isinstance(each, ast.Constant)
            or (
                isinstance(each, ast.FormattedValue)
                and each.conversion == -1
                and each.format_spec is None
            )
            for each in node.slice.values
        )
    )


def is_indexed(node: ast.AST) -> bool:
    """Return whether the index in a subscript is computed: `layers[index]`."""
    kinds = (ast.Name, ast.Call, ast.Attribute, ast.BinOp, ast.Subscript)
    return _is_read(node) and isinstance(node.slice, kinds)


def keyed(node: ast.AST) -> bool:
    """Return whether a node has its own key, because it may have to be rewritten."""
    if is_lookup(node) or is_indexed(node):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Compare):
        return len(node.ops) > 1 or isinstance(node.ops[0], ast.In | ast.NotIn)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in DISPATCHED:
            return True
        return is_called_through(node)
    kinds = (ast.If, ast.While, ast.For, ast.IfExp, ast.Assert, ast.BoolOp, ast.comprehension)
    return isinstance(node, kinds)
