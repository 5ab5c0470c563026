"""Translates a function's syntax tree: chosen conditions and loops become runtime calls.

The passes are, in this order: `matches` (cases become conditions), `calls` (calls that are made for
both outcomes of a condition inside them), `ternaries` (`a if test else b` that absorbs the code
after it), `walrus` (names bound in expressions), and `returns` (exits of a block). Then, from the
outermost statements inwards, `ifs`, `loops` and `assertions` are applied and, in their expressions,
`booleans` and `comprehensions`. `names` finds the names that are stored and read, and `keys` makes
the keys of conditions.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from onnx_external._control_flow.passes.choice import Choice
from onnx_external._control_flow.passes.function_rewriter import FunctionRewriter
from onnx_external._control_flow.passes.matches import as_tests
from onnx_external._control_flow.passes.names import all_names

__all__ = ["Rewritten", "rewrite"]


@dataclass(frozen=True)
class Rewritten:
    """A function definition in which the selected conditions and loops are rewritten."""

    tree: ast.FunctionDef | ast.Lambda
    count: int
    """The number of rewritten conditions and loops; if it is 0, the tree can be ignored."""
    keys: tuple[str, ...]
    """The keys of the rewritten conditions and loops, in order."""


def rewrite(
    tree: ast.FunctionDef | ast.Lambda,
    chosen: Collection[str],
    absorbed: Collection[str] = (),
    *,
    path: str = "",
    shadowed: Collection[str] = (),
) -> Rewritten:
    """Rewrite the chosen conditions and loops in a function and in its inner functions.

    Args:
        tree: the definition, whose nodes are changed.
        chosen: the keys of the nodes to rewrite.
        absorbed: the keys of conditions whose branches have to absorb the code after them, because
            their results cannot be merged into one value.
        path: the path of the file, whose name is part of the keys.
        shadowed: the names of builtins that the module has bound to something else.

    Raises:
        RewriteError: a chosen node cannot be rewritten; the message states why.
    """
    choice = Choice(path, chosen, absorbed, shadowed, all_names(tree))
    as_tests(tree, lambda made: any(map(choice.has, made)))
    if not choice.anything(tree):
        return Rewritten(tree, 0, ())
    if isinstance(tree, ast.Lambda):
        place = ast.copy_location(ast.Return(tree.body), tree.body)
        around = ast.FunctionDef("lambda_", tree.args, [place], [])
        FunctionRewriter(choice, ast.copy_location(around, tree), has_statements=False).run()
        last = around.body[-1]
        assert isinstance(last, ast.Return) and last.value is not None
        if len(around.body) > 1:
            raise choice.refused(
                tree, "a lambda with `:=` depends on a tensor: define a named function instead"
            )
        tree.body = last.value
    else:
        FunctionRewriter(choice, tree).run()
    return Rewritten(tree, len(choice.done), tuple(choice.done))
