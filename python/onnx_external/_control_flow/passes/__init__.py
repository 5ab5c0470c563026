"""Translation of a function's tree to one whose chosen conditions and loops call the runtime.

The passes, in order: `matches` (cases become conditions), `calls` (those made for both outcomes of
a condition inside them), `ternaries` (`a if test else b` that absorbs what follows), `walrus`
(names bound in expressions), `returns` (exits of a block), then from the outside in `ifs`, `loops`,
`assertions`, and in their expressions `booleans` and `comprehensions`. `names` finds the names that
are stored and read, and `keys` makes the keys of conditions.
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
    """A definition whose chosen conditions and loops are rewritten."""

    tree: ast.FunctionDef | ast.Lambda
    count: int
    """The number of rewritten conditions and loops; if 0, the tree can be ignored."""
    keys: tuple[str, ...]
    """Their keys, in order."""


def rewrite(
    tree: ast.FunctionDef | ast.Lambda,
    chosen: Collection[str],
    absorbed: Collection[str] = (),
    *,
    path: str = "",
    shadowed: Collection[str] = (),
) -> Rewritten:
    """Rewrite the chosen conditions and loops of a function, and of the functions inside it.

    Args:
        tree: The definition; its nodes are changed.
        chosen: The keys of the nodes to rewrite.
        absorbed: The keys of conditions whose branches have to absorb what follows them, since
            their results cannot be merged into one value.
        path: The file, whose name is in the keys.
        shadowed: Names of builtins that the module has bound to something else.

    Raises:
        RewriteError: A chosen node cannot be rewritten; the message says why.
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
                tree, "`:=` in a lambda that depends on a tensor: write a function"
            )
        tree.body = last.value
    else:
        FunctionRewriter(choice, tree).run()
    return Rewritten(tree, len(choice.done), tuple(choice.done))
