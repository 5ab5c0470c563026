"""Stores the keys chosen for rewriting in one function, and the state of the rewriting."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.passes.keys import call_key, condition_key, key_of, keyed
from onnx_external._control_flow.passes.names import SCOPES, own_nodes

Exit = type[ast.Return] | type[ast.Break] | type[ast.Continue]
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_KEY = "rewriting_key"


def force(node: ast.AST, key: str) -> None:
    """Choose a node made by a pass, with the key of the node that it was made from."""
    setattr(node, _KEY, key)


def exits(nodes: Iterable[ast.AST], kinds: Collection[Exit]) -> bool:
    """Return whether one of these statements leaves the block that contains it.

    A break in a loop inside the block ends that loop, and does not leave the block.
    """
    for node in nodes:
        if isinstance(node, tuple(kinds)):
            return True
        if isinstance(node, SCOPES):
            continue
        if isinstance(node, _LOOPS):
            inner = {each for each in kinds if each is ast.Return}
            if exits(node.body, inner) or exits(node.orelse, kinds):
                return True
        elif exits(ast.iter_child_nodes(node), kinds):
            return True
    return False


@dataclass
class Choice:
    """The chosen keys, and the state of the rewriting of one definition."""

    path: str
    chosen: Collection[str]
    absorbed: Collection[str]
    shadowed: Collection[str]
    """The names of builtins that the code redefines."""
    taken: set[str]
    """The names that occur in the code, which generated names must not repeat."""
    done: dict[str, None] = field(default_factory=dict)
    """The keys of the rewritten nodes, in order."""
    number: int = 0
    """The number that was appended to the last generated name."""

    def key(self, node: ast.AST) -> str:
        """Return the key that identifies a syntax node in the user's source."""
        made: str | None = getattr(node, _KEY, None)
        return made if made is not None else key_of(self.path, node)

    def itself(self, node: ast.AST) -> bool:
        """Return whether a node itself is chosen."""
        return hasattr(node, _KEY) or (keyed(node) and self.key(node) in self.chosen)

    def condition(self, node: ast.expr) -> bool:
        """Return whether a condition in a comprehension, or the guard of a case, is chosen."""
        return condition_key(self.path, node) in self.chosen or self.within(node)

    def splits(self, node: ast.AST) -> bool:
        """Return whether a condition in the callee requires splitting a call into two branches."""
        return isinstance(node, ast.Call) and call_key(self.path, node) in self.absorbed

    def anything(self, tree: ast.AST) -> bool:
        """Return whether a definition, or a function inside it, contains a chosen node."""
        for node in ast.walk(tree):
            guard = getattr(node, "guard", None)
            conditions = [*getattr(node, "ifs", ()), *([guard] if guard is not None else [])]
            if self.itself(node) or self.splits(node) or any(map(self.condition, conditions)):
                return True
        return False

    def within(self, node: ast.AST) -> bool:
        """Return whether an expression contains a chosen node, so that its result is a tensor."""
        return any(self.itself(each) for each in own_nodes(node))

    def has(self, node: ast.AST) -> bool:
        """Return whether a node is chosen, either itself or by a node in its condition."""
        if self.itself(node):
            return True
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            return self.within(node.test)
        if isinstance(node, ast.For | ast.comprehension):
            return self.within(node.iter)
        if isinstance(node, ast.BoolOp):
            return any(map(self.within, node.values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.within(node.operand)
        return False

    def must(self, loop: ast.stmt) -> bool:
        """Return whether a loop must be rewritten: it, or a condition that leaves it, is chosen."""
        if not isinstance(loop, ast.For | ast.While):
            return False
        return self.has(loop) or self.decides_exit(loop.body, (ast.Break, ast.Continue, ast.Return))

    def decides_exit(self, nodes: Iterable[ast.AST], kinds: Collection[Exit]) -> bool:
        """Return whether a chosen condition in a block decides whether the block is left.

        A condition that absorbs the code after it also counts if that code leaves the block.
        """
        block = list(nodes)
        for place, node in enumerate(block):
            if isinstance(node, SCOPES):
                continue
            if self.absorbed and exits(block[place + 1 :], kinds) and self.absorbs([node]):
                return True
            if isinstance(node, ast.If) and self.has(node) and exits([node], kinds):
                return True
            if isinstance(node, _LOOPS):
                # a rewritten loop passes its returns on by a condition
                if ast.Return in kinds and self.must(node) and exits(node.body, [ast.Return]):
                    return True
                if self.decides_exit(node.orelse, kinds):
                    return True
            elif self.decides_exit(ast.iter_child_nodes(node), kinds):
                return True
        return False

    def absorbs(self, nodes: Iterable[ast.AST]) -> bool:
        """Return whether a block has a chosen condition whose branches absorb the code after it.

        Conditions in a loop that is rewritten do not count, because the body of the loop is a block
        of its own.
        """
        for node in nodes:
            if isinstance(node, SCOPES) or (isinstance(node, _LOOPS) and self.must(node)):
                continue
            if isinstance(node, ast.If) and self.has(node) and self.key(node) in self.absorbed:
                return True
            if self.absorbs(ast.iter_child_nodes(node)):
                return True
        return False

    def note(self, key: str) -> str:
        """Record that the node with this key was rewritten, and return the key."""
        self.done[key] = None
        return key

    def fresh(self) -> Callable[[str], str]:
        """Return a function that makes unused names with one number, e.g. then_1 and else_1."""
        self.number += 1
        while any(each.endswith(f"_{self.number}") for each in self.taken):
            self.number += 1
        number = self.number
        return lambda name: f"{name}_{number}"

    def other(self, name: str) -> str:
        """Return an unused name that is similar to this name."""
        while name in self.taken:
            name += "_"
        return name

    def movable(self, nodes: Iterable[ast.AST]) -> None:
        """Raise an error if the code cannot be moved into an inner function."""
        for each in [one for node in nodes for one in own_nodes(node)]:
            if isinstance(each, ast.Yield | ast.YieldFrom | ast.Await):
                raise self.refused(
                    each,
                    "a yield or await is inside a condition or loop that depends on a tensor: "
                    "compute the value in a function without it, and yield the result",
                )
            if (
                isinstance(each, ast.Call)
                and isinstance(each.func, ast.Name)
                and (
                    each.func.id in ("eval", "exec")
                    or (each.func.id in ("locals", "vars", "dir") and not each.args)
                )
            ):
                raise self.refused(
                    each,
                    f"{each.func.id}() is inside a condition or loop that depends on a tensor, "
                    "where it would see other names: pass it the names that it needs",
                )

    def refused(self, node: ast.AST, why: str) -> RewriteError:
        """Return the error for a node that cannot be rewritten."""
        return RewriteError(why, self.key(node))
