"""Attributes trace errors and guards to conditions in the user's code."""

from __future__ import annotations

import ast
import linecache
import os
import re
import traceback
from collections.abc import Iterable, Iterator
from types import TracebackType

from onnx_external._base.errors import chain
from onnx_external._control_flow.finding.functions import Function, functions_with, source_of
from onnx_external._control_flow.finding.observing import Observation
from onnx_external._control_flow.passes.building import first_line
from onnx_external._control_flow.passes.keys import (
    call_key,
    condition_key,
    is_indexed,
    is_lookup,
    key_of,
    keyed,
)
from onnx_external._tracing.frames import Place, place_of

_DATA = frozenset(
    {
        "ConstraintViolationError",
        "DataDependentOutputException",
        "GuardOnDataDependentSymNode",
        "PendingUnbackedSymbolNotFound",
        "Unsupported",
        "UserError",
    }
)
"""torch's errors raised because Python asked for the value of a tensor."""

_LOST_SIZE = "is not tracked with proxy"
"""torch's message about a size that is used in a branch or a loop, where it became a constant."""

_without_operator = re.compile(r"No ONNX function found for <built-in .*?, at (.+?\.py):(\d+), in ")


def asks_for_value(error: BaseException) -> bool:
    """Return whether a trace failed because Python asked for the value of a tensor or size."""
    return any(type(each).__name__ in _DATA for each in chain(error))


def add_running(error: BaseException, observed: Observation) -> bool:
    """Observe the functions of a failed trace that no input set ran; return whether there are any.

    A branch that no input set takes may call such functions.
    """
    if not asks_for_value(error):
        return False
    frames = {
        id(frame.f_code): frame.f_code
        for each in chain(error)
        for frame, _ in traceback.walk_tb(each.__traceback__)
    }
    new = [
        each
        for each in frames.values()
        if _function_at(each.co_filename, each.co_firstlineno, observed) is None
    ]
    found = [source_of(each) for each in functions_with(new)] if new else []
    functions = [each for each in found if isinstance(each, Function)]
    observed.functions += functions
    return bool(functions)


def blamed(error: BaseException, observed: Observation) -> set[str]:
    """Return the keys of the innermost condition at which a trace failed; empty if none."""
    errors = list(chain(error))
    paths = {each.path for each in observed.functions}
    for path, line in _without_operator.findall(str(error)):
        if path in paths:  # e.g. round() of a value, which traces support and ONNX does not
            return _tests_at(path, (int(line), None, None, None))
    if _LOST_SIZE in str(errors[-1]):  # a branch or a loop was traced with a size as a number
        return _fixing_sizes(errors, paths, observed)
    for each in errors:
        if _is_of_lookup(each):
            return _lookups_at(each, paths)
    if not asks_for_value(error):
        return set()
    for each in reversed(errors):
        for path, place in reversed(list(_frames(each.__traceback__))):
            if path in paths:
                found = _tests_at(path, place)
                if found:
                    return found
    return _indexed_at(errors, paths) or _fixing_sizes(errors, paths, observed)


def _indexed_at(errors: Iterable[BaseException], paths: set[str]) -> set[str]:
    """Return the keys of the subscripts at which Python asked for the value of the index."""
    for each in errors:
        for path, place in _frames(each.__traceback__):
            nodes = filter(is_indexed, ast.walk(_tree(path))) if path in paths else ()
            found = {key_of(path, node) for node in nodes if _meets(place, node)}
            if found:
                return found
    return set()


def is_key_of_tensor(error: BaseException) -> bool:
    """Return whether a dict lookup failed because the key contained the text of a tensor."""
    return isinstance(error, KeyError) and "FakeTensor(" in str(error)


def _is_of_lookup(error: BaseException) -> bool:
    """Return whether a lookup failed for a key that is a tensor, its text, or computed from it."""
    if is_key_of_tensor(error):
        return True
    return isinstance(error, TypeError) and "unhashable type: non-nested SymInt" in str(error)


def _lookups_at(error: BaseException, paths: set[str]) -> set[str]:
    """Return the places of failed lookups that used a tensor, or its text, as the key."""
    places = [each for each in _frames(error.__traceback__) if each[0] in paths]
    for path, place in reversed(places):
        nodes = (e for e in ast.walk(_tree(path)) if is_lookup(e) or is_indexed(e))
        return {key_of(path, each) for each in nodes if _meets(place, each)}
    return set()


def _meets(place: Place, node: ast.AST) -> bool:
    """Return whether a lookup is at this place; on Python 3.10, only the line is compared."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return place == _extent(node) if place[2] is not None else first <= place[0] <= last  # type: ignore[arg-type]


def _fixing_sizes(
    errors: Iterable[BaseException], paths: set[str], observed: Observation
) -> set[str]:
    """Return the keys of code that fixed the value of a size, such as a loop over a batch."""
    for each in errors:
        for path, place in reversed(getattr(each, "fixed_sizes", [])):
            found = _tests_at(path, place) if path in paths else set()
            if found - observed.chosen:
                return found
    return set()


def line_of(error: BaseException, observed: Observation) -> str:
    """Return the innermost line of the user's code in an error's traceback, or ""."""
    paths = {each.path for each in observed.functions}
    found = [(path, place[0]) for path, place in _frames(error.__traceback__) if path in paths]
    return f"{os.path.basename(found[-1][0])}:{found[-1][1]}" if found else ""


def caller_of(error: BaseException, key: str, observed: Observation) -> str:
    """Return the key of the call that ran the function with a condition; "" if unknown.

    Args:
        error: the exception raised at the condition.
        key: the key of the condition.
        observed: the functions that ran.
    """
    name, line, _ = key.rsplit(":", 2)
    frames = [
        (function, path, place)
        for path, place in _frames(error.__traceback__)
        if (function := _function_at(path, place[0], observed)) is not None
    ]
    own = next(
        (
            each
            for each, path, _ in reversed(frames)
            if os.path.basename(path) == name and _holds_line(each, int(line))
        ),
        None,
    )
    outer = [each for each, _, _ in frames]
    first = outer.index(own) if own is not None else 0
    if not first:
        return ""
    _, path, place = frames[first - 1]
    return _call_at(path, place)


def _function_at(path: str, line: int, observed: Observation) -> Function | None:
    """Return the innermost function that ran and contains a line; None if there is none."""
    found = [each for each in observed.functions if each.path == path and _holds_line(each, line)]
    return max(found, key=lambda each: each.node.lineno, default=None)


def _holds_line(function: Function, line: int) -> bool:
    return first_line(function.node) <= line <= (function.node.end_lineno or line)


def _call_at(path: str, place: Place) -> str:
    """Return the key of the call at a place, or an empty string if the call is not certain.

    Python 3.10 has no columns: the call must be the only one that starts on its line.
    """
    calls = [
        each
        for each in ast.walk(_tree(path))
        if isinstance(each, ast.Call)
        and (place == _extent(each) or (place[2] is None and each.lineno == place[0]))
    ]
    return call_key(path, calls[0]) if len(calls) == 1 else ""


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, Place]]:
    while trace is not None:
        code = trace.tb_frame.f_code
        yield code.co_filename, place_of(code, trace.tb_lasti, trace.tb_lineno)
        trace = trace.tb_next


def blamed_by_guard(
    observed: Observation, stack: Iterable[tuple[str, int]] = (), guard: str = ""
) -> set[str]:
    """Return the keys of the conditions and loops that a guard on sizes may come from.

    Args:
        observed: the functions that ran.
        stack: the files and lines at which torch made the guard, from the outside in. If a
            condition is at one of these lines, only that condition is returned; otherwise all
            conditions that compare numbers are returned.
        guard: the text of the guard, such as "L['x'].size()[1] > 6". A guard that fixes a size ("==
            3") may come from an unrolled loop with that many iterations.
    """
    paths = {each.path for each in observed.functions}
    for path, line in reversed(list(stack)):
        found = _tests_at(path, (line, None, None, None)) if path in paths else set()
        if found:
            return found
    rounds = {int(each) for each in re.findall(r"== (\d+)", guard)}
    found = set()
    for function in observed.functions:
        for node in ast.walk(function.node):
            seen = observed.seen.get(key_of(function.path, node)) if keyed(node) else None
            if seen is None:
                continue
            if isinstance(node, ast.If | ast.IfExp | ast.While) and _compares_numbers(node.test):
                found.add(seen.key)
            if isinstance(node, ast.For | ast.comprehension) and rounds & set().union(
                *seen.outcomes
            ):
                found.add(seen.key)
    return found


def _compares_numbers(test: ast.expr) -> bool:
    """Return whether a condition may compare sizes, but not with None or a string."""
    order = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
    for each in ast.walk(test):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod):
            return True
        if isinstance(each, ast.Compare) and any(isinstance(op, order) for op in each.ops):
            sides = [each.left, *each.comparators]
            texts = [one for one in sides if isinstance(one, ast.Constant)]
            return all(isinstance(one.value, int | float) for one in texts)
    return False


_trees: dict[str, ast.Module] = {}


def _tree(path: str) -> ast.Module:
    text = "".join(linecache.getlines(path))
    if text not in _trees:
        try:
            _trees[text] = ast.parse(text)
        except SyntaxError:
            return ast.Module([], [])
    return _trees[text]


def _tests_at(path: str, place: Place) -> set[str]:
    """Return the keys of all control-flow nodes whose condition contains this place."""
    found = set()
    for node in ast.walk(_tree(path)):
        if keyed(node) and (_asks(place, node) or any(_within(place, e) for e in _deciding(node))):
            found.add(key_of(path, node))
        if isinstance(node, ast.comprehension):
            found |= {condition_key(path, each) for each in node.ifs if _within(place, each)}
        if isinstance(node, _COMPREHENSIONS) and place == _extent(node):
            found.add(key_of(path, node.generators[0]))  # its iterable decides
    return found


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _deciding(node: ast.AST) -> list[ast.expr]:
    """Return the parts of a node that decide which code runs."""
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        return [node.test]
    if isinstance(node, ast.For | ast.comprehension):
        return [node.iter]
    if isinstance(node, ast.BoolOp):
        return node.values
    return [node] if isinstance(node, ast.UnaryOp | ast.Compare | ast.Call) else []


def _asks(place: Place, node: ast.AST) -> bool:
    """Return whether the place is the whole condition of a node.

    Python 3.11 gives this place to the jump after a condition, and to the start of a loop
    iteration.
    """
    kinds = (ast.If, ast.While, ast.For, ast.IfExp, ast.Assert, ast.BoolOp, ast.UnaryOp)
    return isinstance(node, kinds) and place == _extent(node)


def _extent(node: ast.expr | ast.stmt) -> Place:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _within(place: Place, node: ast.expr) -> bool:
    line, last, column, last_column = place
    first_line, end_line = node.lineno, node.end_lineno or node.lineno
    if column is None or last is None or last_column is None:
        return first_line <= line <= end_line
    start, end = (first_line, node.col_offset), (end_line, node.end_col_offset or 0)
    return start <= (line, column) and (last, last_column) <= end
