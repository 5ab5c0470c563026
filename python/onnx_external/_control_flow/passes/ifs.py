"""Rewrites `if`, both as a statement and as an expression."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from onnx_external._control_flow.passes import assertions
from onnx_external._control_flow.passes.building import expression, get, name, statement, tuple_of
from onnx_external._control_flow.passes.choice import exits
from onnx_external._control_flow.passes.function_body import FunctionBody
from onnx_external._control_flow.passes.names import deleted, own_nodes, stored


def if_(rewriter: FunctionBody, node: ast.If) -> list[ast.stmt]:
    """Rewrite an `if`, if it is chosen."""
    choice = rewriter.choice
    if not choice.has(node):
        node.test = rewriter.expr(node.test)
        node.body, node.orelse = rewriter.block(node.body), rewriter.block(node.orelse)
        return [node]
    if assertions.only_raises(node.body) or assertions.only_raises(node.orelse):
        return assertions.raise_(rewriter, node)
    key = choice.note(choice.key(node))
    if exits([node], (ast.Break, ast.Continue)):
        raise choice.refused(node, "a condition on a tensor leaves a loop in an unsupported way")
    if exits([node], (ast.Return,)):
        return _returning(rewriter, node, key)
    return _binding(rewriter, node, key)


def _returning(rewriter: FunctionBody, node: ast.If, key: str) -> list[ast.stmt]:
    """Rewrite an `if` whose branches both return: return the result of the branch taken."""
    named = rewriter.choice.fresh()
    made, test = _tested(rewriter, node, named("test"))
    blocks = [*node.body, *node.orelse]
    shared = rewriter.shared_by_ends(stored(blocks), blocks)
    outside = [each for each in shared if each in rewriter.declared]
    branches = []
    for word, block in ((named("then"), node.body), (named("else"), node.orelse)):
        if outside:
            _give_also(block, outside)
        if not shared and len(block) == 1 and _plain(block[0]):
            assert isinstance(block[0], ast.Return)
            rewriter.choice.movable(block)
            value = block[0].value or ast.copy_location(ast.Constant(None), block[0])
            branches.append(expression(node, "lambda: __value", __value=rewriter.expr(value)))
            continue
        made.append(_branch(rewriter, node, word, block, frozenset(), (), shared))
        branches.append(name(node, word))
    parts = {"__test": test, "__then": branches[0], "__other": branches[1]}
    if not outside:
        text = f"return __oe_rt__.if_(__test, __then, __other, (), {key!r})"
        return [*made, statement(node, text, **parts)]
    left = (named("result"), *outside)
    text = f"{tuple_of(left)} = __oe_rt__.if_(__test, __then, __other, {left!r}, {key!r})"
    give = statement(node, f"return {left[0]}")
    return [*made, statement(node, text, **parts), give]


def _give_also(block: Sequence[ast.stmt], names: Sequence[str]) -> None:
    """Add the values of the global and nonlocal names in `names` to each return statement."""
    for each in [one for node in block for one in own_nodes(node)]:
        if isinstance(each, ast.Return):
            value = each.value or ast.copy_location(ast.Constant(None), each)
            each.value = expression(each, f"(__value, {', '.join(names)})", __value=value)


def _binding(rewriter: FunctionBody, node: ast.If, key: str) -> list[ast.stmt]:
    """Rewrite an `if` whose branches bind names; each branch returns those that are read later."""
    named, flow = rewriter.choice.fresh(), rewriter.flow
    after = flow.after[id(node)]
    names = stored([*node.body, *node.orelse])
    shared = [each for each in names if each in rewriter.shared(names)]
    live = [each for each in names if each in after or each in shared]
    made, test = _tested(rewriter, node, named("test"))
    branches = []
    for word, block in ((named("then"), node.body), (named("else"), node.orelse)):
        if shared or not all(isinstance(each, ast.Pass) for each in block):
            made.append(_branch(rewriter, node, word, block, after, live, shared))
            branches.append(name(node, word))
        else:
            give = tuple_of([get(each, flow.bound_inside[id(node)]) for each in live])
            give = give if live else "None"  # like a function without a return
            branches.append(expression(node, f"lambda: {give}"))
    target = f"{tuple_of(live)} = " if live else ""
    text = f"{target}__oe_rt__.if_(__test, __then, __other, {tuple(live)!r}, {key!r})"
    call = statement(node, text, __test=test, __then=branches[0], __other=branches[1])
    return [*made, call]


def _tested(rewriter: FunctionBody, node: ast.If, word: str) -> tuple[list[ast.stmt], ast.expr]:
    """Rewrite the condition; evaluate it first if it may change names that the branches use."""
    test = rewriter.expr(node.test)
    binds = any(isinstance(each, ast.NamedExpr) for each in own_nodes(test))
    calls = any(isinstance(each, ast.Call) for each in own_nodes(node.test))
    if binds or (calls and rewriter.shared(stored([*node.body, *node.orelse]))):
        return [statement(node, f"{word} = __test", __test=test)], name(node, word)
    return [], test


def _plain(node: ast.stmt) -> bool:
    """Return whether a statement returns an expression that can be the body of a lambda."""
    if not isinstance(node, ast.Return):
        return False
    value = node.value
    return value is None or not any(isinstance(each, ast.NamedExpr) for each in own_nodes(value))


def _branch(
    rewriter: FunctionBody,
    node: ast.If,
    word: str,
    block: list[ast.stmt],
    after: frozenset[str],
    live: Sequence[str],
    shared: Sequence[str],
) -> ast.stmt:
    """Turn a branch into a function that returns the names in `live`, or the branch's result.

    Every branch starts with the values that the shared names had before the condition, whether it
    binds or only reads them. If both branches are traced, neither must see the effects of the
    other.
    """
    flow, names = rewriter.flow, stored(block)
    read = flow.live_in(block, after)
    taken = [*shared, *(each for each in names if each in read and each not in shared)]
    bound = flow.bound_inside[id(node)]
    params = rewriter.given(taken, bound, shared)
    ends = flow.bound_at_end(block, bound)
    # Parameters are bound, even if to "undefined", unless the branch deletes them.
    ends |= set(taken) - set().union(*map(deleted, block))
    gone = [each for each in live if each in _dropped(block) and each not in ends]
    if gone:
        raise rewriter.choice.refused(
            node,
            f"{gone[0]} is deleted in a branch that depends on a tensor, and read later: "
            "set it to None instead",
        )
    body = rewriter.block(block)
    if live:
        body.append(statement(node, f"return {tuple_of([get(each, ends) for each in live])}"))
    return rewriter.inner(node, word, params, body, shared)


def _dropped(block: Sequence[ast.stmt]) -> set[str]:
    """Return the names that `del` deletes in a block."""
    parts = [part for each in block for part in own_nodes(each) if isinstance(part, ast.Delete)]
    return set(stored(parts))


def ifexp(rewriter: FunctionBody, node: ast.IfExp) -> ast.expr:
    """Rewrite `a if test else b`, whose parts have already been rewritten."""
    key = rewriter.choice.note(rewriter.choice.key(node))
    text = f"__oe_rt__.ifexp(__test, lambda: __then, lambda: __other, {key!r})"
    return expression(node, text, __test=node.test, __then=node.body, __other=node.orelse)
