"""Rewrites exits of a block (return, break, continue) that depend on a chosen condition.

After this pass, a chosen `if` that returns is the last statement in its block, and both its
branches end with a return, because the statements after it have been moved into them. Statements
cannot be moved into `with`, `try` and loops. For these statements, flags are used: `done_1 = True`
inside, and `if done_1: return result_1` after the statement.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence

from onnx_external._control_flow.passes.building import at, copied, name, statement
from onnx_external._control_flow.passes.choice import Choice, Exit, exits, force
from onnx_external._control_flow.passes.names import SCOPES, stored

_Blocks = (ast.With, ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))
_Lead = dict[Exit, Callable[[ast.stmt], list[ast.stmt]]]
"""For each kind of exit, a function that returns the statements that replace it and set flags."""


def always_leaves(block: Sequence[ast.stmt]) -> bool:
    """Return whether the end of a block is never reached."""
    return any(map(_leaves, block))


def _leaves(node: ast.stmt) -> bool:
    if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue):
        return True
    if isinstance(node, ast.If):
        return bool(node.orelse) and always_leaves(node.body) and always_leaves(node.orelse)
    if isinstance(node, ast.Match):
        whole = any(_takes_all(each) for each in node.cases)
        return whole and all(always_leaves(each.body) for each in node.cases)
    return False


def _takes_all(case: ast.match_case) -> bool:
    pattern = case.pattern
    return case.guard is None and isinstance(pattern, ast.MatchAs) and pattern.pattern is None


# --- moving what follows into branches


def normalised(choice: Choice, body: list[ast.stmt], tail: bool = True) -> list[ast.stmt]:
    """Return a block in which chosen conditions that leave it are the last statements.

    Args:
        choice: the chosen nodes.
        body: the block, whose nodes are changed.
        tail: True if the block is the body of a function, which ends with a return.
    """
    found: list[ast.stmt] = []
    for place, node in enumerate(body):
        rest = body[place + 1 :]
        leaves = tail and choice.decides_exit([node], (ast.Return,))
        if isinstance(node, ast.If | ast.Match) and (leaves or choice.absorbs([node])):
            _take(node, rest, functools.partial(_ended, choice, tail, node))
            return [*found, node]
        if leaves and isinstance(node, (*_Blocks, ast.For, ast.While)):
            made = _out_of(choice, node, found)
            if made:
                return [*found, node, *normalised(choice, [*made, *rest], tail)]
        elif choice.absorbs([node]):
            for block in inner_blocks(node):
                block[:] = normalised(choice, block, False)
        found.append(node)
    return found


def _ended(choice: Choice, tail: bool, place: ast.AST, block: list[ast.stmt]) -> list[ast.stmt]:
    """Return a branch with the code after it, cut at its first exit, or ended with a return."""
    cut: list[ast.stmt] = []
    for each in block:
        cut.append(each)
        if _leaves(each):
            break
    made = normalised(choice, cut, tail)
    if tail and not always_leaves(made):
        made.append(at(ast.Return(at(ast.Constant(None), place)), place))
    return made


def _take(
    node: ast.If | ast.Match,
    rest: list[ast.stmt],
    ended: Callable[[list[ast.stmt]], list[ast.stmt]],
) -> None:
    """Move the statements that follow a conditional statement into all its branches."""
    if isinstance(node, ast.If):
        node.body = ended([*node.body, *copied(rest)])
        node.orelse = ended([*node.orelse, *copied(rest)])
        return
    if not any(map(_takes_all, node.cases)):
        node.cases.append(ast.match_case(at(ast.MatchAs(), node), None, []))
    for case in node.cases:
        case.body = ended([*case.body, *copied(rest)]) or [at(ast.Pass(), node)]


def inner_blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """Return the blocks of statements in a statement; none for functions and classes."""
    if isinstance(node, SCOPES):
        return []
    parts = [node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())]
    found = [
        getattr(each, field, []) for each in parts for field in ("body", "orelse", "finalbody")
    ]
    return [each for each in found if each]


# --- flags that lead out


def _out_of(choice: Choice, node: ast.stmt, before: list[ast.stmt]) -> list[ast.stmt]:
    """Replace the returns in a statement with flags; return the code that has to follow it."""
    if isinstance(node, ast.With) and always_leaves(node.body):
        node.body = normalised(choice, node.body)
        return []
    if isinstance(node, ast.For | ast.While) and not choice.must(node):
        outer = choice.decides_exit(node.orelse, (ast.Return,))
        inner = choice.decides_exit(node.body, (ast.Return,))
        if outer and not inner and not exits(node.body, (ast.Break,)):
            # the end of the loop without a break leads to what follows it
            made, node.orelse = node.orelse, []
            return made
    key = choice.key(node)
    named = choice.fresh()
    done, result = named("done"), named("result")

    def lead(way: ast.stmt) -> list[ast.stmt]:
        value = way.value if isinstance(way, ast.Return) and way.value else ast.Constant(None)
        made = [statement(way, f"{done} = True")]
        if not (isinstance(value, ast.Name) and value.id == result):
            made.insert(0, statement(way, f"{result} = __value", __value=at(value, way)))
        return made

    _lead_statement(choice, node, {ast.Return: lead}, done)
    before.append(statement(node, f"{done} = False"))
    give = at(ast.Return(name(node, result)), node)
    return [_if(node, done, [give], key)]


def _if(place: ast.AST, flag: str, body: list[ast.stmt], key: str) -> ast.If:
    made = at(ast.If(name(place, flag), body, []), place)
    force(made, key)
    return made


def lifted_from_blocks(choice: Choice, body: list[ast.stmt]) -> list[ast.stmt]:
    """Replace break and continue in `with` and `try` in the body of a rewritten loop.

    The exits are replaced only if a chosen condition decides whether they run, or if `finally`
    binds names, because the results of an iteration are read last.
    """
    found: list[ast.stmt] = []
    kinds: tuple[Exit, ...] = (ast.Break, ast.Continue)
    for node in body:
        if isinstance(node, _Blocks) and exits([node], kinds):
            last = stored(getattr(node, "finalbody", ()))
            if last or choice.decides_exit([node], kinds):
                found += _flagged(choice, node)
                continue
        if isinstance(node, ast.If):
            node.body = lifted_from_blocks(choice, node.body)
            node.orelse = lifted_from_blocks(choice, node.orelse)
        found.append(node)
    return found


def _flagged(choice: Choice, node: ast.stmt) -> list[ast.stmt]:
    key, named = choice.key(node), choice.fresh()
    left, stop, skip = named("done"), named("stop"), named("skip")

    def lead(flag: str) -> Callable[[ast.stmt], list[ast.stmt]]:
        return lambda way: [statement(way, f"{flag} = {left} = True")]

    _lead_statement(choice, node, {ast.Break: lead(stop), ast.Continue: lead(skip)}, left)
    start = statement(node, f"{left} = {stop} = {skip} = False")
    ends: list[ast.stmt] = [at(ast.Break(), node)]
    skips: list[ast.stmt] = [at(ast.Continue(), node)]
    return [start, node, _if(node, stop, ends, key), _if(node, skip, skips, key)]


def _led(choice: Choice, body: list[ast.stmt], lead: _Lead, flag: str) -> list[ast.stmt]:
    """Return a block whose exits set flags; the flags skip the rest of the block."""
    found: list[ast.stmt] = []
    for place, node in enumerate(body):
        rest = body[place + 1 :]
        how = lead.get(type(node))  # type: ignore[arg-type]
        if how is not None:
            return [*found, *how(node)]
        if isinstance(node, ast.Raise):
            return [*found, node]
        if not exits([node], list(lead)):
            found.append(node)
            continue
        if isinstance(node, ast.If | ast.Match):
            _take(node, rest, lambda block: _led(choice, block, lead, flag))
            if isinstance(node, ast.If):
                node.body = node.body or [at(ast.Pass(), node)]
            return [*found, node]
        _lead_statement(choice, node, lead, flag)
        return [*found, node, *_unless(choice, node, flag, _led(choice, rest, lead, flag))]
    return found


def _unless(choice: Choice, node: ast.stmt, flag: str, body: list[ast.stmt]) -> list[ast.stmt]:
    if not body:
        return []
    made = _if(node, flag, [at(ast.Pass(), node)], choice.key(node))
    made.orelse = body
    return [made]


def _lead_statement(choice: Choice, node: ast.stmt, lead: _Lead, flag: str) -> None:
    """Replace the exits inside `with`, `try` or a loop."""
    if isinstance(node, ast.For | ast.While):
        _lead_loop(choice, node, lead, flag)
        return
    if isinstance(node, ast.With):
        node.body = _led(choice, node.body, lead, flag)
        return
    if not isinstance(node, ast.Try):
        raise choice.refused(node, f"a {type(node).__name__} contains a conditional return")
    if exits(node.finalbody, list(lead)):
        raise choice.refused(
            node,
            "`finally` contains return, break or continue, and the `try` a condition on a tensor: "
            "move the exit out of `finally`, to after the `try`",
        )
    leaves = exits(node.body, list(lead))
    node.body = _led(choice, node.body, lead, flag)
    for each in node.handlers:
        each.body = _led(choice, each.body, lead, flag)
    node.orelse = _led(choice, node.orelse, lead, flag)
    if leaves:  # `else` follows the body, and is skipped after an exit
        node.orelse = _unless(choice, node, flag, node.orelse)


def _lead_loop(choice: Choice, node: ast.For | ast.While, lead: _Lead, flag: str) -> None:
    """Replace the returns from a loop, and from loops inside it, with flags and a break."""
    if ast.Return in lead:
        node.body = _Returns(choice, lead[ast.Return], flag).block(node.body)
    node.orelse = _led(choice, node.orelse, lead, flag)


class _Returns:
    """Replaces the returns in a loop with flags and a break."""

    def __init__(
        self, choice: Choice, lead: Callable[[ast.stmt], list[ast.stmt]], flag: str
    ) -> None:
        self.choice, self.lead, self.flag = choice, lead, flag

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Return):
                return [*found, *self.lead(node), at(ast.Break(), node)]
            inner = isinstance(node, ast.For | ast.While) and exits(node.body, (ast.Return,))
            for block in inner_blocks(node):
                block[:] = self.block(block)
            found.append(node)
            if inner:
                ends: list[ast.stmt] = [at(ast.Break(), node)]
                found.append(_if(node, self.flag, ends, self.choice.key(node)))
        return found
