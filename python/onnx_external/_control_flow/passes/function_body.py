"""The interface shared by the passes that rewrite parts of a function."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from onnx_external._control_flow.passes.building import function, get, statement
from onnx_external._control_flow.passes.choice import Choice
from onnx_external._control_flow.passes.keys import DISPATCHED
from onnx_external._control_flow.passes.names import Flow, captured, declared, parameters, stored


class FunctionBody(ABC):
    """The body of one function while it is rewritten."""

    def __init__(self, choice: Choice, tree: ast.FunctionDef, has_statements: bool = True) -> None:
        self.choice = choice
        self.tree = tree
        self.has_statements = has_statements
        args = tree.args
        self.params = parameters(args)
        first = [*args.posonlyargs, *args.args]
        self.first = first[0].arg if first else None
        self.declared = declared(tree.body)
        self.captured = captured(tree.body)
        local = {*self.params, *stored(tree.body)}
        self.builtins = frozenset(DISPATCHED - local - set(choice.shadowed))
        self.flow = Flow([], ())
        self.rounds = 0
        """The number of rewritten loops around the current statement."""
        self.outside: set[str] = set()
        """Names that functions made from parts of this function bind in it."""
        self.handlers: list[ast.Try] = []
        """The `try` statements with handlers around the current statement."""
        self.grown: frozenset[str] = frozenset()
        """The source texts of the lists to which a rewritten loop adds items."""

    @abstractmethod
    def body(self, body: list[ast.stmt], bound: Iterable[str]) -> list[ast.stmt]:
        """Rewrite the body of a function or a loop, which ends in return statements."""

    @abstractmethod
    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Rewrite the statements of a block."""

    @abstractmethod
    def expr(self, node: ast.expr) -> ast.expr:
        """Rewrite an expression."""

    def shared(self, names: Iterable[str]) -> set[str]:
        """Return the given names that code outside a branch also sees while the branch runs."""
        return set(names) & ({*self.declared, *self.captured} | self.flow.rescued)

    def shared_by_ends(self, names: Iterable[str], blocks: Sequence[ast.stmt]) -> list[str]:
        """Return those names that code outside the blocks at the function's end also sees."""
        inside = {} if self.rounds else captured(blocks)
        return [
            each
            for each in names
            if each in self.declared
            or each in self.flow.rescued
            or self.captured.get(each, set()) - inside.get(each, set())
        ]

    def inner(
        self,
        place: ast.stmt,
        word: str,
        params: Sequence[str],
        body: list[ast.stmt],
        shared: Iterable[str] = (),
    ) -> ast.stmt:
        """Turn a part of the function into an inner function, and return it.

        Args:
            place: the statement that the part was.
            word: the name of the inner function.
            params: the source texts of the parameters.
            body: the statements of the part.
            shared: names that the inner function binds in the function around it. For each, a
                parameter has the value at the start, so that every run starts with the same value.
        """
        self.choice.movable(body)
        front: list[ast.stmt] = []
        for each in shared:
            how = "global" if self.declared.get(each) == "global" else "nonlocal"
            self.outside.add(each)
            front.append(statement(place, f"{how} {each}"))
            front.append(statement(place, f"{each} = {self.choice.other(each + '_')}"))
        return function(place, word, params, [*front, *body])

    def given(self, names: Iterable[str], bound: Iterable[str], shared: Iterable[str]) -> list[str]:
        """Return parameters whose default values are the values of names at the definition."""
        return [
            f"{self.choice.other(each + '_') if each in shared else each}={get(each, bound)}"
            for each in names
        ]
