"""Finds the names in a function that are stored, read, read later, or certainly bound."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace

Names = frozenset[str]
_NONE: Names = frozenset()
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants, without the bodies of inner functions and classes."""
    yield node
    if not isinstance(node, SCOPES):
        for each in ast.iter_child_nodes(node):
            yield from own_nodes(each)


def parameters(args: ast.arguments) -> list[str]:
    """Return the names of all parameters."""
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return [each.arg for each in found if each is not None]


def all_names(tree: ast.AST) -> set[str]:
    """Return all names that occur in a tree."""
    found = set()
    for each in ast.walk(tree):
        for name in ("id", "arg", "name", "attr"):
            value = getattr(each, name, None)
            if isinstance(value, str):
                found.add(value)
    return found


def stored(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the names that statements bind or delete, in order, except those in inner scopes."""
    found: dict[str, None] = {}
    for each in nodes:
        _store(each, found, False)
    return list(found)


def _store(node: ast.AST, found: dict[str, None], comprehended: bool) -> None:
    if isinstance(node, ast.Name):
        if not comprehended and not isinstance(node.ctx, ast.Load):
            found[node.id] = None
    elif isinstance(node, ast.NamedExpr):  # binds in the function, also from a comprehension
        found[node.target.id] = None
        _store(node.value, found, comprehended)
    elif isinstance(node, SCOPES):
        if not isinstance(node, ast.Lambda):
            found[node.name] = None
    elif isinstance(node, ast.alias):
        found[node.asname or node.name.split(".")[0]] = None
    else:
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found[node.name] = None
        if isinstance(node, ast.MatchMapping) and node.rest:
            found[node.rest] = None
        inside = comprehended or isinstance(node, _COMPREHENSIONS)
        for each in ast.iter_child_nodes(node):
            _store(each, found, inside)


def loaded(node: ast.AST) -> set[str]:
    """Return the names that are read, including those that inner functions read from outside."""
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Store) else {node.id}
    inside = set().union(*map(loaded, ast.iter_child_nodes(node)))
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return inside | {node.target.id}
    if isinstance(node, ast.Nonlocal | ast.Global):
        return set(node.names)
    if isinstance(node, _COMPREHENSIONS):
        return inside - set(stored(each.target for each in node.generators))
    if isinstance(node, _FUNCTIONS):
        body = node.body if isinstance(node.body, list) else [node.body]
        read = set().union(*map(loaded, body))
        own = {*parameters(node.args), *stored(body)} - set(declared(body))
        around = [*getattr(node, "decorator_list", ()), *node.args.defaults]
        around += [each for each in node.args.kw_defaults if each is not None]
        return (read - own) | set().union(*map(loaded, around))
    return inside


def declared(body: Sequence[ast.AST]) -> dict[str, str]:
    """Return the names declared global or nonlocal, with the keyword for each."""
    found = {}
    for node in body:
        for each in own_nodes(node) if not isinstance(node, SCOPES) else ():
            if isinstance(each, ast.Global | ast.Nonlocal):
                found.update(dict.fromkeys(each.names, type(each).__name__.lower()))
    return found


def captured(body: Sequence[ast.AST]) -> dict[str, set[tuple[int, int]]]:
    """Return the names that functions and generators in a block read or bind, now or later.

    Each name comes with the places of these functions, which are the same in copies of the block.
    """
    found: dict[str, set[tuple[int, int]]] = {}
    for node in body:
        for each in own_nodes(node):
            if isinstance(each, (*SCOPES, ast.GeneratorExp)):
                for word in loaded(each):
                    found.setdefault(word, set()).add((each.lineno, each.col_offset))
    return found


@dataclass(frozen=True)
class _Ways:
    """For each exit from a statement other than its end, the names that are read after it."""

    leave: Names = _NONE
    """The names that `finally` reads after a return."""
    error: Names = _NONE
    broken: Names = _NONE
    again: Names = _NONE


class Flow:
    """For each statement in a function's body, the names read later and those certainly bound.

    A name that an inner function captures is read whenever that function is called; see `captured`.
    """

    def __init__(self, body: list[ast.stmt], bound: Iterable[str]) -> None:
        self.after: dict[int, Names] = {}
        """The names that may be read after a statement, by the id of the statement."""
        self.before: dict[int, Names] = {}
        self.head: dict[int, Names] = {}
        """The names that may be read when the next iteration of a loop starts, or after its last
        iteration."""
        self.bound: dict[int, Names] = {}
        """The names that are certainly bound before a statement."""
        self.bound_inside: dict[int, Names] = {}
        """The names that are certainly bound when the branches of an `if` start."""
        self.bound_after: dict[int, Names] = {}
        self.rescued: set[str] = set()
        """Names that are bound in a `try`, and read after an exception in it."""
        self._block(body, _NONE, _Ways())
        self._bind(body, frozenset(bound))

    def live_in(self, block: list[ast.stmt], after: Names) -> Names:
        """Return the names whose earlier values a block may read."""
        return self.before[id(block[0])] if block else after

    def bound_at_end(self, block: list[ast.stmt], before: Names) -> Names:
        """Return the names that are certainly bound when a block ends."""
        return self.bound_after[id(block[-1])] if block else before

    # --- backwards: names that are read later
    def _block(self, body: list[ast.stmt], after: Names, ways: _Ways) -> Names:
        for each in reversed(body):
            self.after[id(each)] = after
            after = self._statement(each, after, ways)
            self.before[id(each)] = after
        return after

    def _statement(self, node: ast.stmt, after: Names, ways: _Ways) -> Names:
        if isinstance(node, ast.Return):
            return ways.leave | loaded(node)
        if isinstance(node, ast.Raise):
            return ways.error | loaded(node)
        if isinstance(node, ast.Break | ast.Continue):
            return ways.broken if isinstance(node, ast.Break) else ways.again
        if isinstance(node, ast.If):
            branches = self._block(node.body, after, ways) | self._block(node.orelse, after, ways)
            return branches | loaded(node.test)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            return self._loop(node, after, ways)
        if isinstance(node, ast.With | ast.AsyncWith):
            inside = self._block(node.body, after, ways)
            bound = stored(each.optional_vars for each in node.items if each.optional_vars)
            return (inside - set(bound)).union(*map(loaded, node.items))
        if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            return self._try(node, after, ways)  # type: ignore[arg-type]
        if isinstance(node, ast.Match):
            found = after | loaded(node.subject)
            for case in node.cases:
                guard = loaded(case.guard) if case.guard else set()
                inside = self._block(case.body, after, ways) | guard
                found |= (inside - set(stored([case.pattern]))) | loaded(case.pattern)
            return found
        return (after - set(_binds(node))) | loaded(node)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, after: Names, ways: _Ways) -> Names:
        ended = self._block(node.orelse, after, ways)
        test, targets = set(), set()
        if isinstance(node, ast.While):
            test = loaded(node.test)
        else:
            targets = set(stored([node.target]))
        head = ended | test
        for _ in range(2):  # the second time with the names that the next iteration reads
            inner = replace(ways, broken=after, again=head)
            body = self._block(node.body, head, inner)
            head = head | (body - targets)
        self.head[id(node)] = head
        if isinstance(node, ast.While):
            return head
        return head | loaded(node.iter) | loaded(node.target)

    def _try(self, node: ast.Try, after: Names, ways: _Ways) -> Names:
        last, left = after, ways
        if node.finalbody:
            last = self._block(node.finalbody, after, ways)
            left = _Ways(*(each | last for each in astuple(ways)))
        rescue = left.error
        for each in node.handlers:
            inside = self._block(each.body, last, left) - {each.name or ""}
            rescue |= inside | (loaded(each.type) if each.type else set())
        ended = self._block(node.orelse, last, left)
        found = self._block(node.body, ended, replace(left, error=rescue)) | rescue
        self.rescued |= set(stored([*node.body, *node.orelse])) & rescue
        return found

    # --- forwards: names that are certainly bound; None after an endless statement
    def _bind(self, body: list[ast.stmt], bound: Names) -> Names | None:
        now: Names | None = bound
        for each in body:
            before = now if now is not None else bound
            self.bound[id(each)] = before
            after = self._bind_one(each, before)
            now = None if now is None else after
            self.bound_after[id(each)] = before if after is None else after
        return now

    def _bind_one(self, node: ast.stmt, bound: Names) -> Names | None:
        if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue):
            return None
        if isinstance(node, ast.If):
            bound = bound.union(_evaluated(node.test))
            self.bound_inside[id(node)] = bound
            return _both([self._bind(node.body, bound), self._bind(node.orelse, bound)])
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            targets = () if isinstance(node, ast.While) else stored([node.target])
            self._bind(node.body, bound.union(targets) - deleted(node))
            self._bind(node.orelse, bound)
            return bound - deleted(node)
        if isinstance(node, ast.With | ast.AsyncWith):
            targets = stored(each.optional_vars for each in node.items if each.optional_vars)
            self._bind(node.body, bound.union(targets))
            return bound.union(targets) - deleted(node)  # it may have ended by an exception
        if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            return self._bind_try(node, bound)  # type: ignore[arg-type]
        if isinstance(node, ast.Match):
            ways = [
                self._bind(each.body, bound.union(stored([each.pattern]))) for each in node.cases
            ]
            return _both([*ways, bound])
        if isinstance(node, ast.Delete):
            return bound - set(_binds(node))
        return bound.union(_binds(node))

    def _bind_try(self, node: ast.Try, bound: Names) -> Names | None:
        body = self._bind(node.body, bound)
        ways: list[Names | None] = [self._bind(node.orelse, body) if body is not None else None]
        start = bound - deleted(node)
        for each in node.handlers:
            ended = self._bind(each.body, start.union([each.name] if each.name else ()))
            ways.append(ended - {each.name or ""} if ended is not None else None)
        last = self._bind(node.finalbody, start)
        both = _both(ways)
        return None if both is None or last is None else both | last


def _evaluated(node: ast.expr | None) -> list[str]:
    """Return the names that `:=` binds in parts of an expression that are always evaluated."""
    if node is None or isinstance(node, (*_COMPREHENSIONS, ast.Lambda)):
        return []
    if isinstance(node, ast.BoolOp):
        return _evaluated(node.values[0])
    if isinstance(node, ast.IfExp):
        return _evaluated(node.test)
    if isinstance(node, ast.Compare):
        return [*_evaluated(node.left), *_evaluated(node.comparators[0])]
    own = [node.target.id] if isinstance(node, ast.NamedExpr) else []
    parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    return [*own, *(name for each in parts for name in _evaluated(each))]


def _binds(node: ast.stmt) -> list[str]:
    """Return the names that a simple statement certainly binds (or deletes)."""
    if isinstance(node, ast.Delete):
        return stored(node.targets)
    if isinstance(node, ast.Assign):
        return [*stored(node.targets), *_evaluated(node.value)]
    if isinstance(node, ast.AnnAssign):
        return stored([node.target]) if node.value is not None else []
    if isinstance(node, ast.AugAssign):
        return stored([node.target])
    if isinstance(node, ast.Expr):
        return _evaluated(node.value)
    if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
        return stored([node])
    return []


def deleted(node: ast.AST) -> set[str]:
    """Return the names deleted by `del`, or at the end of `except ... as`."""
    found: set[str] = set()
    for each in own_nodes(node):
        if isinstance(each, ast.Delete):
            found.update(stored([each]))
        elif isinstance(each, ast.ExceptHandler) and each.name:
            found.add(each.name)
    return found


def _both(ways: Sequence[Names | None]) -> Names | None:
    ended = [each for each in ways if each is not None]
    return frozenset.intersection(*ended) if ended else None
