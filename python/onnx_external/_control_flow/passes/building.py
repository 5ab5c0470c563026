"""Builds syntax nodes that have the source location of the node they replace."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)


def at(node: _Node, place: ast.AST) -> _Node:
    """Set the location of a node, and of all nodes in it without a location, to that of another."""
    for each in ast.walk(node):
        if not hasattr(each, "lineno"):
            ast.copy_location(each, place)
    return node


def statement(place: ast.AST, text: str, **parts: ast.expr) -> ast.stmt:
    """Return a statement built from text, in which the names in `parts` are replaced with nodes."""
    made = ast.parse(text).body[0]
    for each in ast.walk(made):
        for field in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            if hasattr(each, field):
                delattr(each, field)
    made = _Fill(parts).visit(made)
    assert isinstance(made, ast.stmt)
    return at(made, place)


def expression(place: ast.AST, text: str, **parts: ast.expr) -> ast.expr:
    """Return an expression built from text, in the same way as `statement`."""
    made = statement(place, text, **parts)
    assert isinstance(made, ast.Expr)
    return made.value


class _Fill(ast.NodeTransformer):
    def __init__(self, parts: dict[str, ast.expr]) -> None:
        self.parts = parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.parts.get(node.id, node)


def name(place: ast.AST, word: str) -> ast.expr:
    """Return a syntax node that reads the variable of the given name."""
    return at(ast.Name(word, ast.Load()), place)


def get(word: str, bound: Iterable[str]) -> str:
    """Return the source text that reads a name, even if the name may be unbound."""
    return word if word in bound else f"__oe_rt__.get(lambda: {word})"


def tuple_of(texts: Sequence[str]) -> str:
    """Return the source text of a tuple of expressions."""
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def function(
    place: ast.AST, word: str, params: Sequence[str], body: Sequence[ast.stmt]
) -> ast.stmt:
    """Return a function definition; each parameter is source text, perhaps with a default value."""
    made = statement(place, f"def {word}({', '.join(params)}): pass")
    assert isinstance(made, ast.FunctionDef)
    made.body = list(body) or [at(ast.Pass(), place)]
    return made


def first_line(node: ast.AST) -> int:
    """Return the line of a statement, or of its first decorator."""
    lines: list[int] = [each.lineno for each in getattr(node, "decorator_list", ())]
    return min([*lines, getattr(node, "lineno", 0)])


def copied(block: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return independent copies of statements."""
    return [copy_of(each) for each in block]


def copy_of(node: _Node) -> _Node:
    """Return a copy of a node and everything in it; `copy.deepcopy` takes ten times as long."""
    if not node._fields:
        return node  # Load, Add, ...: they have no state
    made = type(node).__new__(type(node))  # __init__ would want arguments in Python 3.15
    for field, value in vars(node).items():
        if isinstance(value, ast.AST):
            value = copy_of(value)
        elif isinstance(value, list):
            value = [copy_of(each) if isinstance(each, ast.AST) else each for each in value]
        setattr(made, field, value)
    return made
