"""Rewrites functions for tests, with any choice of constructs."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onnx_external._control_flow.applying import applied, compiled
from onnx_external._control_flow.finding.functions import Function, source_of
from onnx_external._control_flow.passes import Rewritten, rewrite
from onnx_external._control_flow.passes.keys import condition_key, key_of, keyed
from onnx_external._control_flow.passes.matches import as_tests
from onnx_external._control_flow.runtime import Runtime


def source(function: Any) -> Function:
    found = source_of(getattr(function, "__func__", function))
    assert isinstance(found, Function), found
    return found


def all_keys(function: Any, guards: bool = False) -> list[str]:
    """Return the keys of all decisions in a function."""
    found = source(function)
    keys: dict[str, None] = {}
    tree = found.tree()
    as_tests(tree)
    for each in ast.walk(tree):
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
def rewritten(function: Any, chosen: Any, absorbed: Any = ()) -> Iterator[Runtime]:
    """Run the rewritten form of a function inside the context."""
    found, runtime = source(function), Runtime()
    code = compiled(found, changed(function, chosen, absorbed).tree)
    with applied({found.function: code}, runtime):
        yield runtime
