"""Rewrites `for` and `while`; the body becomes a function of the state between iterations."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx_external._control_flow.passes.building import at, get, name, statement, tuple_of
from onnx_external._control_flow.passes.choice import exits, force
from onnx_external._control_flow.passes.keys import keep_rows
from onnx_external._control_flow.passes.names import Flow, stored
from onnx_external._control_flow.passes.returns import inner_blocks, lifted_from_blocks

if TYPE_CHECKING:
    from onnx_external._control_flow.passes.choice import Choice
    from onnx_external._control_flow.passes.function_body import FunctionBody


def without_else(choice: Choice, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements whose rewritten loops use a flag instead of `else`."""
    found: list[ast.stmt] = []
    for node in body:
        for block in inner_blocks(node):
            block[:] = without_else(choice, block)
        found.append(node)
        if isinstance(node, ast.For | ast.While) and node.orelse and choice.must(node):
            rest, node.orelse = node.orelse, []
            if not exits(node.body, (ast.Break,)):
                found += rest
                continue
            broken = choice.fresh()("stopped")
            node.body = _flagged_breaks(node.body, broken)
            found.insert(-1, statement(node, f"{broken} = False"))
            test = at(ast.If(name(node, broken), [at(ast.Pass(), node)], rest), node)
            force(test, choice.key(node))
            found.append(test)
    return found


def _flagged_breaks(body: Sequence[ast.stmt], flag: str) -> list[ast.stmt]:
    """Return statements that set a flag before each break of a loop."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.Break):
            found.append(statement(node, f"{flag} = True"))
        if isinstance(node, ast.For | ast.While | ast.AsyncFor):
            node.orelse = _flagged_breaks(node.orelse, flag)
        else:
            for block in inner_blocks(node):
                block[:] = _flagged_breaks(block, flag)
        found.append(node)
    return found


def for_(rewriter: FunctionBody, node: ast.For) -> list[ast.stmt]:
    """Rewrite a `for` loop, if it or a condition that leaves it is chosen."""
    if not rewriter.choice.must(node):
        keep_rows(node.iter)
        node.iter = rewriter.expr(node.iter)
        return _kept(rewriter, node)
    loop = _Loop(rewriter, node)
    targets = stored([node.target])
    loop.carry([*stored(node.body), *targets], [*targets])
    item = loop.named("item")
    front: list[ast.stmt] = []
    if isinstance(node.target, ast.Name) and node.target.id not in loop.carried:
        item = node.target.id
    else:
        made = statement(node, f"_ = {item}")
        assert isinstance(made, ast.Assign)
        made.targets = [node.target]
        front = [made]
    body = loop.body(front, [item])
    call = loop.call("for_", f"__iter, {loop.named('body')}", __iter=rewriter.expr(node.iter))
    return [body, call]


def while_(rewriter: FunctionBody, node: ast.While) -> list[ast.stmt]:
    """Rewrite a `while` loop, if it or a condition that leaves it is chosen."""
    choice = rewriter.choice
    if not choice.must(node):
        node.test = rewriter.expr(node.test)
        return _kept(rewriter, node)
    loop = _Loop(rewriter, node)
    loop.carry(stored(node.body), [])
    test = rewriter.expr(node.test)
    word = loop.named("test")
    going = rewriter.inner(
        node,
        word,
        loop.params([]),
        [at(ast.Return(test), node)],
        loop.shared,
    )
    body = loop.body([], [])
    return [going, body, loop.call("while_", f"{word}, {loop.named('body')}")]


def _kept(rewriter: FunctionBody, node: ast.For | ast.While) -> list[ast.stmt]:
    node.body, node.orelse = rewriter.block(node.body), rewriter.block(node.orelse)
    return [node]


class _Loop:
    """A loop to rewrite, with the names that its iterations pass on."""

    def __init__(self, rewriter: FunctionBody, node: ast.For | ast.While) -> None:
        choice = rewriter.choice
        self.rewriter, self.node = rewriter, node
        self.key = choice.note(choice.key(node))
        self.named = choice.fresh()
        self.breaks = exits(node.body, (ast.Break,))
        self.carried: list[str] = []
        self.shared: list[str] = []
        self.bound = rewriter.flow.bound[id(node)]

    def carry(self, names: Sequence[str], targets: Sequence[str]) -> None:
        """Find the names that an iteration passes to the next one, or to code after the loop."""
        flow, node = self.rewriter.flow, self.node
        later = flow.after[id(node)]
        again = flow.live_in(node.body, frozenset()) - set(targets)
        if isinstance(node, ast.While):
            again |= flow.head[id(node)]
        self.shared = [each for each in dict.fromkeys(names) if each in self.rewriter.shared(names)]
        self.carried = [
            each
            for each in dict.fromkeys(names)
            if each in later or each in again or each in self.shared
        ]

    def params(self, first: Sequence[str]) -> list[str]:
        """Return the parameters of the function for the body or the condition."""
        flag = [self.named("broken")] if self.breaks else []
        names = [
            self.rewriter.choice.other(f"{each}_") if each in self.shared else each
            for each in self.carried
        ]
        return [*first, *flag, *names]

    def body(self, front: list[ast.stmt], first: list[str]) -> ast.stmt:
        """Return the body as a function, which returns the state at every exit."""
        node, rewriter = self.node, self.rewriter
        block = [*front, *lifted_from_blocks(rewriter.choice, node.body)]
        ends = at(ast.Continue(), node)
        block.append(ends)
        bound = {*self.bound, *self.carried, *first}
        # The bound names at each exit, where the state is read.
        flow = Flow([at(ast.While(ast.Constant(True), block, []), node)], bound)
        block = _Ends(self, flow).block(block)
        rewriter.rounds += 1
        made = rewriter.body(block, bound)
        rewriter.rounds -= 1
        params = self.params(first)
        return rewriter.inner(node, self.named("body"), params, made, self.shared)

    def give(self, place: ast.stmt, broken: bool, bound: frozenset[str]) -> ast.stmt:
        """Return a `return` statement that returns the state of the loop."""
        flag = [str(broken)] if self.breaks else []
        texts = [*flag, *(get(each, bound) for each in self.carried)]
        return statement(place, f"return {tuple_of(texts)}")

    def call(self, how: str, front: str, **parts: ast.expr) -> ast.stmt:
        """Return the call of the runtime that runs the loop."""
        flag = ["broken"] if self.breaks else []
        init = ["False"] if self.breaks else []
        init += [get(each, self.bound) for each in self.carried]
        left = [*([self.named("broken")] if self.breaks else []), *self.carried]
        target = f"{tuple_of(left)} = " if left else ""
        names = (*flag, *self.carried)
        arguments = f"{front}, {names!r}, {tuple_of(init)}, {self.breaks}, {self.key!r}"
        return statement(self.node, f"{target}__oe_rt__.{how}({arguments})", **parts)


class _Ends:
    """Replaces break and continue with returns of the state."""

    def __init__(self, loop: _Loop, flow: Flow) -> None:
        self.loop, self.flow = loop, flow

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [self.one(each) for each in body]

    def one(self, node: ast.stmt) -> ast.stmt:
        if isinstance(node, ast.Break | ast.Continue):
            bound = self.flow.bound[id(node)]
            return self.loop.give(node, isinstance(node, ast.Break), bound)
        if isinstance(node, ast.For | ast.While | ast.AsyncFor):  # its body has exits of its own
            node.orelse = self.block(node.orelse)
        else:
            for block in inner_blocks(node):
                block[:] = self.block(block)
        return node
