"""Rewrites assertions, and exceptions that are raised depending on a condition."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from onnx_external._control_flow.passes.building import expression, name, statement
from onnx_external._control_flow.passes.choice import exits
from onnx_external._control_flow.passes.function_body import FunctionBody
from onnx_external._control_flow.passes.names import stored


def assert_(rewriter: FunctionBody, node: ast.Assert) -> ast.stmt:
    """Rewrite an assertion, if it is chosen."""
    choice = rewriter.choice
    chosen = choice.has(node)
    node.test = rewriter.expr(node.test)
    if node.msg is not None:
        node.msg = rewriter.expr(node.msg)
    if not chosen:
        return node
    _refuse_handlers(rewriter, node, {"AssertionError"})
    key = choice.note(choice.key(node))
    message: ast.expr = ast.copy_location(ast.Constant(None), node)
    if node.msg is not None:
        message = expression(node, "lambda: __message", __message=node.msg)
    text = f"__oe_rt__.assert_(__test, {key!r}, __message)"
    return statement(node, text, __test=node.test, __message=message)


def only_raises(block: Sequence[ast.stmt]) -> bool:
    """Return whether a branch always raises an exception and has no other exit."""
    return (
        bool(block)
        and isinstance(block[-1], ast.Raise)
        and not exits(block, (ast.Return, ast.Break, ast.Continue))
    )


def raise_(rewriter: FunctionBody, node: ast.If) -> list[ast.stmt]:
    """Rewrite an `if` with a branch that raises; the other branch continues after the `if`."""
    choice = rewriter.choice
    _refuse_handlers(rewriter, node, set())
    key, word = choice.note(choice.key(node)), choice.fresh()("fail")
    test = rewriter.expr(node.test)
    fails, goes_on = node.body, node.orelse
    made: list[ast.stmt] = []
    if not only_raises(fails):
        fails, goes_on = goes_on, fails
        test = expression(node, "__oe_rt__.not_(__test)", __test=test)
    names = stored(fails)
    bound = rewriter.flow.bound[id(node)]
    shared = [each for each in names if each in rewriter.shared(names)]
    read = rewriter.flow.live_in(fails, frozenset())
    params = rewriter.given([n for n in names if n in read or n in shared], bound, shared)
    made.append(rewriter.inner(node, word, params, fails, shared))
    made.append(
        statement(
            node, f"__oe_rt__.raise_(__test, __fail, {key!r})", __test=test, __fail=name(node, word)
        )
    )
    return [*made, *rewriter.block(goes_on)]


def _refuse_handlers(rewriter: FunctionBody, node: ast.stmt, kinds: set[str]) -> None:
    """Raise an error if the function itself catches an exception that the graph cannot raise."""
    for handler in [one for each in rewriter.handlers for one in each.handlers]:
        names = {each.id for each in ast.walk(handler.type or node) if isinstance(each, ast.Name)}
        if handler.type is None or not kinds or names & {*kinds, "Exception", "BaseException"}:
            raise rewriter.choice.refused(
                node,
                "an exception that depends on a tensor is caught in the same function: use an `if` "
                "with its condition instead",
            )
