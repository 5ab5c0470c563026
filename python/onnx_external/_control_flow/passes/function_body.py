"""The interface that the passes over parts of a function share."""

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
        """Names that functions made of parts of this one bind in it."""
        self.handlers: list[ast.Try] = []
        """The `try` statements with handlers around the current statement."""
        self.grown: frozenset[str] = frozenset()
        """The texts of the lists to which a rewritten loop adds items."""

    @abstractmethod
    def body(self, body: list[ast.stmt], bound: Iterable[str]) -> list[ast.stmt]:
        """Rewrite a body that ends with returns: of a function, or of a loop made a function."""

    @abstractmethod
    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Rewrite statements of a block."""

    @abstractmethod
    def expr(self, node: ast.expr) -> ast.expr:
        """Rewrite an expression."""

    def shared(self, names: Iterable[str]) -> set[str]:
        """Return the names that other functions see while a branch runs, which it must share."""
        return set(names) & ({*self.declared, *self.captured} | self.flow.rescued)

    def shared_by_ends(self, names: Iterable[str], blocks: Sequence[ast.stmt]) -> list[str]:
        """Return the same for blocks that end the function, which own names that only they see."""
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
        """Return a part of the function as an inner function.

        Args:
            place: The statement that it was.
            word: Its name.
            params: The texts of its parameters.
            body: Its statements.
            shared: Names that it binds in the function around it, each with its value at the start
                as a parameter, which is the same for every run.
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
        """Return the parameters that take the values of names when the function is made."""
        return [
            f"{self.choice.other(each + '_') if each in shared else each}={get(each, bound)}"
            for each in names
        ]
