"""Replaces the user's functions temporarily with rewritten functions.

Only the code of a function (`function.__code__`) is replaced, so decorators, closures, bound
methods and other references to the function still work. One lock serves all threads, so that
replacements are undone in reverse order.
"""

from __future__ import annotations
import __future__

import ast
import copy
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType
from typing import Any

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.finding.functions import Function, FunctionNode

RUNTIME = "__oe_rt__"
"""The global name by which rewritten code finds the runtime."""

one_thread = threading.RLock()
"""The lock that is held while functions are replaced, and while a module is traced. torch's changes
for a trace affect the whole process, so no other thread may trace or run a module meanwhile."""
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag
_NO_CLASS = "_"
"""A class name that consists only of underscores, which leaves private names unchanged."""


def compiled(function: Function, tree: FunctionNode) -> CodeType:
    """Return the code object of a function's rewritten definition.

    The definition is compiled inside functions and a class like the original's, so that its free
    variables, `super()` and private names have the same meaning. Nothing is executed.
    """
    code = function.code
    module = ast.fix_missing_locations(_surrounded(function, tree))
    flags = code.co_flags & _FUTURE
    whole = compile(module, code.co_filename, "exec", flags=flags, dont_inherit=True)
    made = _code_of(whole, code.co_name)
    if made is None or made.co_freevars != code.co_freevars:
        names = made.co_freevars if made is not None else ()
        raise RewriteError(
            f"{function.name} cannot be rewritten: its rewritten code would use the outer names "
            f"{names}, not {code.co_freevars}",
            function.where,
        )
    changes = {"co_name": code.co_name}
    if hasattr(code, "co_qualname"):  # since Python 3.11
        changes["co_qualname"] = code.co_qualname
    return made.replace(**changes)  # type: ignore[arg-type]


def _surrounded(function: Function, tree: FunctionNode) -> ast.Module:
    free = [name for name in function.code.co_freevars if name != "__class__"]
    inner: ast.stmt
    if isinstance(tree, ast.Lambda):
        args = copy.copy(tree.args)
        args.defaults = [ast.Constant(None) for _ in args.defaults]
        args.kw_defaults = [each and ast.Constant(None) for each in args.kw_defaults]
        inner = ast.Expr(ast.copy_location(ast.Lambda(args, tree.body), tree))
    else:
        inner = _keeping_free(tree, function.code.co_freevars)
    name = function.class_name or _NO_CLASS
    # The class must not hide a global that has its name from the function.
    lines = [] if name in free else [f"    global {name}"]
    text = "\n".join([f"def outer({', '.join(free)}):", *lines, f"    class {name}:", "        0"])
    module = ast.parse(text)
    outer = module.body[0]
    assert isinstance(outer, ast.FunctionDef)
    owner = outer.body[-1]
    assert isinstance(owner, ast.ClassDef)
    owner.body = [inner]
    return module


def _keeping_free(tree: ast.FunctionDef, free: tuple[str, ...]) -> ast.FunctionDef:
    """Return a definition that names all its free variables, even those used only in dead code."""
    made = copy.copy(tree)
    if free:
        dead = ast.parse("if False:\n    " + "; ".join(free)).body[0]
        for each in ast.walk(dead):
            ast.copy_location(each, tree)
        made.body = [*tree.body, dead]
    return made


def _code_of(code: CodeType, name: str) -> CodeType | None:
    """Return the code of the function, which is nested in the outer function and the class."""
    for _ in range(2):
        code = next(each for each in code.co_consts if isinstance(each, CodeType))
    inside = [each for each in code.co_consts if isinstance(each, CodeType)]
    while inside:
        for each in inside:
            if each.co_name == name:
                return each
        # Type parameters (Python 3.12) put one more function around it.
        inside = [one for each in inside for one in each.co_consts if isinstance(one, CodeType)]
    return None


@contextmanager
def applied(codes: Mapping[FunctionType, CodeType], runtime: Any) -> Iterator[None]:
    """Inside the context, make the functions run the given code objects, which use `runtime`.

    Other threads that want to replace code wait until the context ends. Contexts may be nested,
    even for the same functions. At the end, even after an error, every function gets its code back;
    if the code of a function was meanwhile replaced by others, it is kept, with a warning.
    """
    with one_thread, ExitStack() as undone:
        spaces = {id(each.__globals__): each.__globals__ for each in codes}
        for space in spaces.values():
            undone.callback(_restore_name, space, space.get(RUNTIME, _MISSING))
            space[RUNTIME] = runtime
        for function, code in codes.items():
            undone.callback(_restore_code, function, function.__code__, code)
            function.__code__ = code
        yield


_MISSING = object()


def _restore_name(space: dict[str, Any], before: Any) -> None:
    if before is _MISSING:
        space.pop(RUNTIME, None)
    else:
        space[RUNTIME] = before


def _restore_code(function: FunctionType, before: CodeType, ours: CodeType) -> None:
    if function.__code__ is ours:
        function.__code__ = before
    elif function.__code__ is not before:
        warnings.warn(
            f"the code of {function.__module__}.{function.__qualname__} was replaced by other code "
            "while it was rewritten, and is not restored",
            RuntimeWarning,
            stacklevel=2,
        )
