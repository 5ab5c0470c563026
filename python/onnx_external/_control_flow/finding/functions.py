"""Finds the user's functions that ran, and their sources."""

from __future__ import annotations

import ast
import contextlib
import gc
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

from onnx_external._control_flow.passes.building import copy_of, first_line
from onnx_external._tracing.frames import is_users

FunctionNode = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, eq=False)
class Function:
    """A function that ran, and its definition."""

    function: FunctionType
    code: CodeType
    """The function's code object before it is rewritten."""
    node: FunctionNode
    """The definition; it has to be copied before it is changed."""
    class_name: str | None
    """The innermost class around the definition, which decides how private names are mangled."""

    @property
    def path(self) -> str:
        """The path of the file that defines the function."""
        return self.code.co_filename

    @property
    def name(self) -> str:
        """The qualified name of the function."""
        return self.function.__qualname__

    @property
    def where(self) -> str:
        """The file name and line number of the definition."""
        return f"{os.path.basename(self.path)}:{self.code.co_firstlineno}"

    @property
    def shadowed(self) -> set[str]:
        """Names bound in the module or in enclosing functions, which may hide builtins."""
        return {*self.function.__globals__, *self.code.co_freevars}

    def tree(self) -> FunctionNode:
        """Return a copy of the function's syntax tree."""
        return copy_of(self.node)


@dataclass(frozen=True)
class Missing:
    """A function that ran and cannot be rewritten."""

    name: str
    where: str
    why: str

    def __str__(self) -> str:
        """Return the function, its place and the reason in one line."""
        return f"{self.where}: {self.name}: {self.why}"


def called(call: Callable[[], Any]) -> list[FunctionType]:
    """Run a function, and return the user's functions that it calls in this thread.

    Functions that run only as generators or hooks are included. Functions that are created and
    dropped during the run are not included, because their code is a part of the function that
    creates them.
    """
    codes: dict[int, CodeType] = {}  # by identity: hashing code reads all of it

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes[id(frame.f_code)] = frame.f_code

    with _profiled(profile):
        call()
    return functions_with(codes.values())


def functions_with(codes: Iterable[CodeType]) -> list[FunctionType]:
    """Return the user's functions that have one of these code objects."""
    users = [each for each in codes if is_users(each.co_filename)]
    found: dict[int, list[FunctionType]] = {id(each): [] for each in users}
    for each in _referrers(users) if users else ():
        if type(each) is FunctionType and id(each.__code__) in found:
            found[id(each.__code__)].append(each)
    return [function for functions in found.values() for function in functions]


def _referrers(codes: list[CodeType]) -> list[Any]:
    """Return the objects that refer to the code, including those frozen by gc.freeze().

    If any were frozen, objects that were created since then are also frozen afterwards, because it
    is not known which objects were frozen before.
    """
    if not gc.get_freeze_count():
        return gc.get_referrers(*codes)
    gc.unfreeze()
    try:
        return gc.get_referrers(*codes)
    finally:
        gc.freeze()


@contextlib.contextmanager
def _profiled(profile: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        if before is None or callable(before):
            sys.setprofile(before)
        else:  # cProfile up to Python 3.11: an object that Python cannot call, but that can resume
            sys.setprofile(None)
            before.enable()


def source_of(function: FunctionType) -> Function | Missing | None:
    """Return the definition of a function, or why there is none; None if it is irrelevant."""
    code = function.__code__
    where = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        made = code.co_filename == "<string>" and function.__name__.startswith("__")
        return None if made else Missing(function.__qualname__, where, "its source is not found")
    definitions = _definitions("".join(lines))
    at_line = definitions.get((code.co_name, code.co_firstlineno), [])
    fitting = [(node, owner) for node, owner in at_line if _fits(node, code)]
    if code.co_name == "<lambda>" and hasattr(code, "co_positions"):
        fitting = fitting[-1:]  # those before it are lambdas around it
    if not fitting:
        why = "its source differs from the code that runs (has the file changed?)"
        return Missing(function.__qualname__, where, why)
    if len(fitting) > 1:
        return Missing(function.__qualname__, where, "there are several functions in this line")
    node, owner = fitting[0]
    if isinstance(node, ast.AsyncFunctionDef):
        return None
    return Function(function, code, node, owner)


_Definition = tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, str | None]
_texts: dict[str, dict[tuple[str, int], list[_Definition]]] = {}


def _definitions(text: str) -> dict[tuple[str, int], list[_Definition]]:
    """Return the functions in a file by name and first line, each with its enclosing class."""
    if text not in _texts:
        found: dict[tuple[str, int], list[_Definition]] = {}
        with contextlib.suppress(SyntaxError):
            _collect(ast.parse(text), None, found)
        _texts[text] = found
    return _texts[text]


def _collect(
    node: ast.AST, owner: str | None, found: dict[tuple[str, int], list[_Definition]]
) -> None:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found.setdefault((each.name, first_line(each)), []).append((each, owner))
        elif isinstance(each, ast.Lambda):
            found.setdefault(("<lambda>", each.lineno), []).append((each, owner))
        _collect(each, each.name if isinstance(each, ast.ClassDef) else owner, found)


def _fits(node: ast.AST, code: CodeType) -> bool:
    """Return whether a definition has the parameters of the code and, for lambdas, its place."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    args = node.args
    names = [each.arg for each in [*args.posonlyargs, *args.args, *args.kwonlyargs]]
    count = code.co_argcount + code.co_kwonlyargcount
    # A private name of a class carries the name of the class in the code.
    if len(names) != count or not all(
        one == other or (one.startswith("__") and other.endswith(one))
        for one, other in zip(names, code.co_varnames, strict=False)
    ):
        return False
    if isinstance(node, ast.Lambda) and hasattr(code, "co_positions"):
        return _within(node.body, code)
    return True


def _within(node: ast.expr, code: CodeType) -> bool:
    """Return whether all instructions of the code are inside an expression."""
    first = (node.lineno, node.col_offset)
    last = (node.end_lineno or 0, node.end_col_offset or 0)
    for line, end, column, end_column in code.co_positions():
        if line is None or end is None or column is None or end_column in (None, 0):
            continue  # the first instructions of a function have no place
        assert end_column is not None
        if (line, column) < first or (end, end_column) > last:
            return False
    return True
