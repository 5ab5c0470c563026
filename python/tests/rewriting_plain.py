"""A runtime with Python's semantics, and functions compiled with everything rewritten."""

import ast
import builtins
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from onnx_external.rewriting.applying import applied, compiled
from onnx_external.rewriting.finding.functions import Function, source_of
from onnx_external.rewriting.passes import Rewritten, rewrite
from onnx_external.rewriting.passes.keys import condition_key, key_of, keyed


class Undefined:
    def __repr__(self) -> str:
        return "<undefined>"


UNDEFINED = Undefined()
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
}


class PlainRuntime:
    """What rewritten code calls, as Python does it."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        for name in ("bool", "int", "float", "max", "min", "any", "all", "range", "enumerate"):
            setattr(self, name, getattr(builtins, name))
        for name in ("zip", "reversed", "len", "sum"):
            setattr(self, name, getattr(builtins, name))

    def get(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except NameError:
            return UNDEFINED

    def if_(self, test: Any, then: Any, other: Any, names: Any, key: str) -> Any:
        self.keys.append(key)
        found = then() if test else other()
        assert not names or (type(found) is tuple and len(found) == len(names))
        return found

    def ifexp(self, test: Any, then: Any, other: Any, key: str) -> Any:
        self.keys.append(key)
        return then() if test else other()

    def and_(self, *parts: Any) -> Any:
        for part in parts:
            value = part()
            if not value:
                break
        return value

    def or_(self, *parts: Any) -> Any:
        for part in parts:
            value = part()
            if value:
                break
        return value

    def not_(self, value: Any) -> Any:
        return not value

    def chain(self, first: Any, *rest: Any) -> Any:
        left, found = first(), True
        for word, right in zip(rest[::2], rest[1::2], strict=True):
            value = right()
            found = OPERATORS[word](left, value)
            if not found:
                break
            left = value
        return found

    def assert_(self, test: Any, key: str, message: Any) -> None:
        if not test:
            raise AssertionError(message()) if message is not None else AssertionError

    def raise_(self, test: Any, fail: Any, key: str) -> None:
        if test:
            fail()

    def for_(self, values: Any, body: Any, names: Any, init: Any, breaks: bool, key: str) -> Any:
        self.keys.append(key)
        state = init
        assert len(names) == len(init)
        for each in values:
            state = body(each, *state)
            assert len(state) == len(init)
            if breaks and state[0]:
                break
        return state

    def while_(self, cond: Any, body: Any, names: Any, init: Any, breaks: bool, key: str) -> Any:
        self.keys.append(key)
        state = init
        while cond(*state):
            state = body(*state)
            if breaks and state[0]:
                break
        return state

    def comprehend(self, values: Any, make: Any, key: str) -> Any:
        self.keys.append(key)
        return [make(each) for each in values]

    def comprehend_if(self, values: Any, make: Any, test: Any, key: str) -> Any:
        self.keys.append(key)
        return [make(each) for each in values if test(each)]


def source(function: Any) -> Function:
    found = source_of(getattr(function, "__func__", function))
    assert isinstance(found, Function), found
    return found


def all_keys(function: Any, guards: bool = False) -> list[str]:
    """The keys of everything in a function that decides something."""
    found = source(function)
    keys: dict[str, None] = {}
    for each in ast.walk(found.node):
        if keyed(each):
            keys[key_of(found.path, each)] = None
        if guards and isinstance(each, ast.match_case) and each.guard is not None:
            keys[condition_key(found.path, each.guard)] = None
        if isinstance(each, ast.comprehension):
            keys.update(dict.fromkeys(condition_key(found.path, one) for one in each.ifs))
    return list(keys)


def changed(function: Any, chosen: Any, absorbed: Any = ()) -> Rewritten:
    found = source(function)
    made = rewrite(found.tree(), set(chosen), set(absorbed), path=found.path)
    ast.fix_missing_locations(made.tree)
    return made


@contextmanager
def rewritten(function: Any, chosen: Any, absorbed: Any = ()) -> Iterator[PlainRuntime]:
    """Within this context, a function runs as it is rewritten."""
    found, runtime = source(function), PlainRuntime()
    code = compiled(found, changed(function, chosen, absorbed).tree)
    with applied({found.function: code}, runtime):
        yield runtime
