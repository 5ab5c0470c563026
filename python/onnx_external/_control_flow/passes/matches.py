"""Translates `match` to conditions: `case 1 | 2:` becomes `if n == 1 or n == 2:`.

Everything that is supported for an `if` on a tensor or a size is then also supported for a `case`.
A `match` with other patterns (class, sequence or mapping patterns) is not changed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from onnx_external._control_flow.passes.building import at, name


def as_tests(
    tree: ast.AST, is_wanted: Callable[[Sequence[ast.If]], bool] = lambda made: True
) -> None:
    """Replace each `match` with plain patterns in a function and its inner functions.

    Args:
        tree: the definition, whose nodes are changed.
        is_wanted: a function that receives the conditions that a `match` would become; if it
            returns False, the `match` is kept.
    """
    _Matches(is_wanted).visit(tree)


class _Matches(ast.NodeTransformer):
    def __init__(self, is_wanted: Callable[[Sequence[ast.If]], bool]) -> None:
        self.is_wanted = is_wanted

    def visit_Match(self, node: ast.Match) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if not all(map(_is_plain_case, node.cases)):
            return node
        tests: list[ast.If] = []
        if isinstance(node.subject, ast.Name) and node.subject.id not in _bound(node):
            made = _chain(node.subject.id, node.cases, tests)
        else:
            word = f"__oe_match_{node.lineno}_{node.col_offset}__"
            kept = at(ast.Assign([ast.Name(word, ast.Store())], node.subject), node)
            made = [kept, *_chain(word, node.cases, tests)]
        return made if self.is_wanted(tests) else node


def _bound(node: ast.Match) -> set[str]:
    """Return the names that patterns and guards bind."""
    parts = [part for case in node.cases for part in (case.pattern, case.guard) if part is not None]
    nodes = [each for part in parts for each in ast.walk(part)]
    names = {each.name for each in nodes if isinstance(each, ast.MatchAs) and each.name}
    return names | {each.target.id for each in nodes if isinstance(each, ast.NamedExpr)}


def _is_plain_case(case: ast.match_case) -> bool:
    pattern = case.pattern
    if isinstance(pattern, ast.MatchAs):  # `n`, `_`, or `1 as n`
        inner = pattern.pattern
        return inner is None or (case.guard is None and _is_plain(inner))
    return _is_plain(pattern)


def _is_plain(pattern: ast.pattern) -> bool:
    """Return whether a pattern is a value, or one of several values."""
    if isinstance(pattern, ast.MatchOr):
        return all(map(_is_plain, pattern.patterns))
    return isinstance(pattern, ast.MatchValue | ast.MatchSingleton)


def _chain(word: str, cases: Sequence[ast.match_case], tests: list[ast.If]) -> list[ast.stmt]:
    """Return nested `if` statements for cases, each in the `else` branch of the previous one."""
    if not cases:
        return []
    case, others = cases[0], _chain(word, cases[1:], tests)
    pattern, test, body = case.pattern, case.guard, case.body
    front: list[ast.stmt] = []
    if isinstance(pattern, ast.MatchAs):
        front = _binding(word, pattern)
        if pattern.pattern is None and test is None:
            return front + body
        if pattern.pattern is not None:
            pattern, body, front = pattern.pattern, front + body, []
    if not isinstance(pattern, ast.MatchAs):
        fits = _fits(word, pattern)
        test = at(ast.BoolOp(ast.And(), [fits, test]), pattern) if test else fits
    assert test is not None
    tests.append(at(ast.If(test, body, others), pattern))
    return [*front, tests[-1]]


def _binding(word: str, pattern: ast.MatchAs) -> list[ast.stmt]:
    if not pattern.name:
        return []
    assigned = ast.Assign([ast.Name(pattern.name, ast.Store())], name(pattern, word))
    return [at(assigned, pattern)]


def _fits(word: str, pattern: ast.pattern) -> ast.expr:
    """Return the expression that compares a value with a pattern."""
    if isinstance(pattern, ast.MatchOr):
        tests: list[ast.expr] = [_fits(word, each) for each in pattern.patterns]
        return at(ast.BoolOp(ast.Or(), tests), pattern)
    value = name(pattern, word)
    if isinstance(pattern, ast.MatchSingleton):
        return at(ast.Compare(value, [ast.Is()], [ast.Constant(pattern.value)]), pattern)
    assert isinstance(pattern, ast.MatchValue)
    return at(ast.Compare(value, [ast.Eq()], [pattern.value]), pattern)
