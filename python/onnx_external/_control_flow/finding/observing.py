"""Observes conditions and loops in a running module, and chooses those to rewrite.

The module runs on every input set twice: once to find its functions, and once with every condition
and loop in them wrapped in a call that records the value and returns it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType, GeneratorType
from typing import Any

import torch

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.applying import RUNTIME, applied, compiled
from onnx_external._control_flow.finding.functions import Function, Missing, called, source_of
from onnx_external._control_flow.passes.keys import condition_key, key_of, keyed
from onnx_external._control_flow.passes.matches import as_tests
from onnx_external._control_flow.runtime.compiling import answered_as_in_eager
from onnx_external._control_flow.runtime.outer import state_kept

InputSet = tuple[Sequence[Any], dict[str, Any]]
"""The positional and keyword arguments of one run."""

_ROWS = frozenset({"zip", "enumerate", "reversed"})
"""Builtins whose results yield the rows of a tensor without being tensors."""
_DECIDING = frozenset({"bool", "max", "min", "any", "all"})
"""Builtins that use the truth value of their arguments, or of a comparison of them."""
_PLAIN = (bool, int, float, str, bytes, list, tuple, dict, set, type(None), torch.Tensor)
"""Types whose truth value can be computed without side effects."""


@dataclass
class _Outcomes:
    """The outcomes for one input set: a running hash of their order, and the set of values."""

    order: int = 0
    values: set[Any] = field(default_factory=set)

    def add(self, value: Any) -> None:
        self.order = hash((self.order, value))
        self.values.add(value)


@dataclass
class Seen:
    """The observations at one condition or loop."""

    key: str
    kind: str
    """The kind of the node: if, while, for, and, or, not, ..."""
    function: str
    path: str
    """The full path of the file that contains the condition or loop."""
    tensor: bool = False
    sets: dict[int, _Outcomes] = field(default_factory=dict)

    @property
    def outcomes(self) -> list[set[Any]]:
        """The values of the condition, or iteration counts of the loop, by input set."""
        return [self.sets[each].values for each in sorted(self.sets)]

    @property
    def differs(self) -> bool:
        """True if outcomes differ between the input sets that reached the condition or loop."""
        values = set().union(*self.outcomes)
        return len({each.order for each in self.sets.values()}) > 1 and len(values) > 1

    @property
    def untaken(self) -> list[Any]:
        """Outcomes that no input set had: True or False for a condition; 0, 1 or 2 for a loop."""
        values = set().union(*self.outcomes)
        if self.kind in ("for", "comprehension"):
            rounds = {min(each, 2) for each in values}
            return [each for each in (0, 1, 2) if each not in rounds]
        return [each for each in (True, False) if each not in values]

    def note(self, current: int, outcome: Any) -> None:
        """Record an outcome that was observed with an input set."""
        self.sets.setdefault(current, _Outcomes()).add(outcome)


@dataclass
class Observation:
    """The functions that ran, what was observed in them, and what is chosen for rewriting."""

    functions: list[Function] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    """Functions that ran, but whose source is missing."""
    seen: dict[str, Seen] = field(default_factory=dict)
    more: set[str] = field(default_factory=set)
    """Keys that were chosen because a trace failed there."""
    asks: bool = False
    """True if the code checks whether it is being exported, and may behave differently then."""

    @property
    def chosen(self) -> set[str]:
        """The keys of nodes that saw a tensor or differ between sets, and of those added later."""
        found = {key for key, each in self.seen.items() if each.tensor or each.differs}
        return found | self.more

    def choose(self, keys: set[str]) -> set[str]:
        """Choose more keys; return those that were not chosen before."""
        new = keys - self.chosen
        self.more |= new
        return new


def observe(module: Callable[..., Any], input_sets: Sequence[InputSet]) -> Observation:
    """Run a module on every input set, and return what was observed.

    Args:
        module: a torch module, or any other callable.
        input_sets: the positional and keyword arguments of each run, which are copied for the run.
    """

    def run(one: InputSet) -> Any:
        args, kwargs = copy.deepcopy(one)
        with torch.no_grad(), state_kept(module):
            return module(*args, **kwargs)

    found = Observation()
    codes: dict[FunctionType, CodeType] = {}
    for function in called(lambda: [run(each) for each in input_sets]):
        source = source_of(function)
        if isinstance(source, Function):
            _prepare(source, found, codes)
        elif source is not None:
            found.missing.append(source)
    notes = _Notes(found.seen)
    with applied(codes, notes), answered_as_in_eager() as asked:
        for notes.current, one in enumerate(input_sets):
            run(one)
    found.asks = asked.ever
    found.seen = {key: each for key, each in found.seen.items() if each.sets or each.tensor}
    return found


def _prepare(source: Function, found: Observation, codes: dict[FunctionType, CodeType]) -> None:
    instrument = _Instrument(source, found.seen)
    tree = source.tree()
    as_tests(tree)
    try:
        if isinstance(tree, ast.Lambda):
            tree.body = instrument.visit(tree.body)
        else:
            tree.body = [instrument.visit(each) for each in tree.body]
        codes[source.function] = compiled(source, tree)
    except (RewriteError, SyntaxError) as error:
        found.missing.append(Missing(source.name, source.where, str(error)))
    else:
        found.functions.append(source)


class _Notes:
    """The functions that instrumented code calls to record values."""

    def __init__(self, seen: dict[str, Seen]) -> None:
        self.seen = seen
        self.current = 0

    def test(self, key: str, value: Any) -> Any:
        """Record the value of a condition, and return the value."""
        seen = self.seen[key]
        seen.tensor = seen.tensor or isinstance(value, torch.Tensor)
        if isinstance(value, _PLAIN):
            try:
                seen.note(self.current, bool(value))
            except RuntimeError:  # a tensor of several elements: the test itself will say so
                pass
        return value

    def operand(self, key: str, value: Any) -> Any:
        """Record whether the operand of a comparison or builtin is a tensor; return the operand."""
        if isinstance(value, torch.Tensor):
            self.seen[key].tensor = True
        return value

    def operands(self, key: str, value: Any) -> Any:
        """Record whether the operand of a builtin is a tensor or yields tensors; return it."""
        if isinstance(value, GeneratorType):
            return (self.operand(key, each) for each in value)
        for each in value if type(value) in (list, tuple) else (value,):
            self.operand(key, each)
        return value

    def rounds(self, key: str, values: Any) -> Any:
        """Record the number of iterations of a loop; return the values to iterate over."""
        seen = self.seen[key]
        if isinstance(values, torch.Tensor):
            seen.tensor = True
        if isinstance(values, list | tuple | range | dict | str | set) or (
            isinstance(values, torch.Tensor) and values.dim()
        ):
            seen.note(self.current, len(values))
            return values
        return self._counted(seen, iter(values))

    def _counted(self, seen: Seen, values: Iterator[Any]) -> Iterator[Any]:
        count, current = 0, self.current
        try:
            for each in values:
                count += 1
                yield each
        finally:
            seen.note(current, count)


class _Instrument(ast.NodeTransformer):
    """Wraps conditions and loops, including those in inner functions, in calls of `_Notes`."""

    def __init__(self, function: Function, seen: dict[str, Seen]) -> None:
        self.function = function
        self.seen = seen

    def _key(self, node: ast.AST) -> str:
        return self._known(key_of(self.function.path, node), _word(node))

    def _known(self, key: str, kind: str) -> str:
        if key not in self.seen:
            self.seen[key] = Seen(key, kind, self.function.name, self.function.path)
        return key

    def _call(self, how: str, key: str, value: ast.expr) -> ast.expr:
        function = ast.Attribute(ast.Name(RUNTIME, ast.Load()), how, ast.Load())
        made = ast.Call(function, [ast.Constant(key), value], [])
        for each in (made, function, function.value, made.args[0]):
            ast.copy_location(each, value)
        return made

    def _test(self, node: Any) -> Any:
        key = self._key(node)
        self.generic_visit(node)
        node.test = self._call("test", key, node.test)
        return node

    visit_If = visit_While = visit_IfExp = visit_Assert = _test

    def visit_For(self, node: ast.For) -> Any:
        key = self._key(node)
        self.generic_visit(node)
        node.iter = self._rounds(key, node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        key = self._key(node)
        path = self.function.path
        keys = [self._known(condition_key(path, each), "condition") for each in node.ifs]
        self.generic_visit(node)
        if not node.is_async:
            node.iter = self._rounds(key, node.iter)
        node.ifs = [self._call("test", key, each) for key, each in zip(keys, node.ifs, strict=True)]
        return node

    def _rounds(self, key: str, node: ast.expr) -> ast.expr:
        self._rows(key, node)
        return self._call("rounds", key, node)

    def _rows(self, key: str, node: ast.expr) -> None:
        """Observe x in zip(x, y), enumerate(x) or reversed(x), because the loop iterates over x."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ROWS:
            for place, each in enumerate(node.args):
                self._rows(key, each)
                if not isinstance(each, ast.Starred):
                    node.args[place] = self._call("operand", key, each)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        key = self._key(node)
        self.generic_visit(node)
        node.values = [self._call("test", key, each) for each in node.values]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        key = self._key(node) if keyed(node) else ""
        self.generic_visit(node)
        if key:
            node.operand = self._call("test", key, node.operand)
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        key = self._key(node) if keyed(node) else ""
        self.generic_visit(node)
        if key:
            node.left = self._call("operand", key, node.left)
            node.comparators = [self._call("operand", key, each) for each in node.comparators]
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        how = "operands" if name in _DECIDING else "operand"
        key = self._key(node) if name in _DECIDING | _ROWS else ""
        self.generic_visit(node)
        if key:
            node.args = [
                each if isinstance(each, ast.Starred) else self._call(how, key, each)
                for each in node.args
            ]
        return node

    def visit_match_case(self, node: Any) -> Any:
        guard, path = node.guard, self.function.path
        key = self._known(condition_key(path, guard), "case") if guard else ""
        self.generic_visit(node)
        if guard:
            node.guard = self._call("test", key, node.guard)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return node


def _word(node: ast.AST) -> str:
    """Return the keyword of a node: if, for, and, ..."""
    if isinstance(node, ast.BoolOp):
        return "and" if isinstance(node.op, ast.And) else "or"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    words: dict[type[ast.AST], str] = {
        ast.IfExp: "if else",
        ast.UnaryOp: "not",
        ast.Compare: "comparison",
    }
    return words.get(type(node), type(node).__name__.lower())
