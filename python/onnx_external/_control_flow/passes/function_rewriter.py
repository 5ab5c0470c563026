"""Rewrites a function's body by all passes, in order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from onnx_external._control_flow.passes import (
    assertions,
    calls,
    ifs,
    lists,
    loops,
    ternaries,
    walrus,
)
from onnx_external._control_flow.passes.building import name, statement
from onnx_external._control_flow.passes.choice import Choice
from onnx_external._control_flow.passes.expressions import Expressions
from onnx_external._control_flow.passes.function_body import FunctionBody
from onnx_external._control_flow.passes.names import (
    SCOPES,
    Flow,
    own_nodes,
    stored,
)
from onnx_external._control_flow.passes.returns import inner_blocks, normalised


class FunctionRewriter(FunctionBody):
    """Rewrites the body of one function; inner functions have their own rewriters."""

    def __init__(self, choice: Choice, tree: ast.FunctionDef, has_statements: bool = True) -> None:
        super().__init__(choice, tree, has_statements)
        self.expressions = Expressions(self)

    def run(self) -> None:
        """Rewrite the function in place."""
        tree, before = self.tree, len(self.choice.done)
        tree.decorator_list = [self.expr(each) for each in tree.decorator_list]
        tree.args.defaults = [self.expr(each) for each in tree.args.defaults]
        tree.args.kw_defaults = [each and self.expr(each) for each in tree.args.kw_defaults]
        if self.choice.anything(tree):
            self._name_super()
            tree.body = _undeclared(tree.body, 0)
        tree.body = calls.split(self.choice, tree.body)
        if self.has_statements:
            tree.body = ternaries.expanded(self.choice, tree.body)
        body = lists.only_added_to(self.choice, loops.without_else(self.choice, tree.body))
        self.grown = frozenset(lists.grown(self.choice, body))
        tree.body = self.body(walrus.expanded(self.choice, body), self.params)
        if len(self.choice.done) > before:
            self._declare_first()

    def body(self, body: list[ast.stmt], bound: Iterable[str]) -> list[ast.stmt]:
        """Rewrite the body of a function or a loop, which ends in return statements."""
        made = normalised(self.choice, body)
        outer, self.flow = self.flow, Flow(made, bound)
        self.flow.rescued |= outer.rescued
        try:
            return self.block(made)
        finally:
            self.flow = outer

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Rewrite the statements of a block."""
        return [made for each in body for made in self.statement(each)]

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Rewrite a statement; the result may be several statements."""
        if isinstance(node, ast.If):
            return ifs.if_(self, node)
        if isinstance(node, ast.For):
            return loops.for_(self, node)
        if isinstance(node, ast.While):
            return loops.while_(self, node)
        if isinstance(node, ast.Assert):
            return [assertions.assert_(self, node)]
        if isinstance(node, ast.FunctionDef):
            FunctionRewriter(self.choice, node).run()
            return [node]
        if isinstance(node, ast.ClassDef):
            self._class(node)
            return [node]
        if isinstance(node, ast.Match):
            return [self._match(node)]
        if isinstance(node, ast.Try) and node.handlers:
            self._try(node)
            return [node]
        if not isinstance(node, SCOPES):
            self._parts(node)
        return [node]

    def expr(self, node: ast.expr) -> ast.expr:
        """Rewrite an expression."""
        made = self.expressions.visit(node)
        assert isinstance(made, ast.expr)
        return made

    def _parts(self, node: ast.stmt) -> None:
        """Rewrite the blocks and expressions in a statement that itself is kept."""
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, field, self.expr(value))
            elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, field, self.block(value))
            elif isinstance(value, list):
                setattr(node, field, [self._part(each) for each in value])

    def _part(self, node: object) -> object:
        if isinstance(node, ast.expr):
            return self.expr(node)
        if isinstance(node, ast.withitem):
            node.context_expr = self.expr(node.context_expr)
        return node

    def _try(self, node: ast.Try) -> None:
        self.handlers.append(node)
        node.body = self.block(node.body)
        self.handlers.pop()
        for each in node.handlers:
            each.body = self.block(each.body)
        node.orelse, node.finalbody = self.block(node.orelse), self.block(node.finalbody)

    def _match(self, node: ast.Match) -> ast.stmt:
        node.subject = self.expr(node.subject)
        for case in node.cases:
            if case.guard is not None and self.choice.condition(case.guard):
                raise self.choice.refused(
                    case.guard, "the guard of a `case` depends on a tensor: use an `if` instead"
                )
            case.body = self.block(case.body)
        return node

    def _class(self, node: ast.ClassDef) -> None:
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                FunctionRewriter(self.choice, each).run()
            elif any(map(self.choice.itself, own_nodes(each))):
                raise self.choice.refused(
                    each,
                    "a condition in a class body depends on a tensor: move it out of the class",
                )

    def _name_super(self) -> None:
        """Write out the arguments of super(), which cannot find them in the frame of a branch."""
        own = [each for one in self.tree.body for each in own_nodes(one)]
        if self.first is None or not any(map(self.choice.itself, own)):
            return
        for each in own:
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
                if each.func.id == "super" and not each.args and not each.keywords:
                    each.args = [name(each, "__class__"), name(each, self.first)]

    def _declare_first(self) -> None:
        """Declare globals and nonlocals at the start of the function, because branches drop them.

        A name that only inner functions bind, and that others can see, is declared as a local name.
        """
        body = self.tree.body
        bound = {*self.params, *self.declared, *stored(body)}
        start = 1 if ast.get_docstring(self.tree) is not None else 0
        for word in ("nonlocal", "global"):
            there = {
                one
                for each in body
                if type(each).__name__.lower() == word
                for one in each.names  # type: ignore[attr-defined]
            }
            names = [each for each, how in self.declared.items() if how == word]
            missing = [each for each in names if each not in there]
            if missing:
                body.insert(start, statement(self.tree, f"{word} {', '.join(missing)}"))
        for each in sorted(self.outside - bound):
            body.insert(start, statement(self.tree, f"{each}: object"))


def _undeclared(body: Sequence[ast.stmt], depth: int) -> list[ast.stmt]:
    """Return statements whose blocks contain no declarations of globals and nonlocals."""
    found: list[ast.stmt] = []
    for node in body:
        for block in inner_blocks(node):
            block[:] = _undeclared(block, depth + 1)
        if depth and isinstance(node, ast.Global | ast.Nonlocal):
            found += [statement(node, "pass")] if len(body) == 1 else []
            continue
        found.append(node)
    return found
