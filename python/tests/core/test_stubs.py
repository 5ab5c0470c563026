"""Tests that _core.pyi matches the extension in all names, parameters and results."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import onnx_external
import onnx_external._core as core

STUB = ast.parse((Path(onnx_external.__file__).parent / "_core.pyi").read_text())

Form = tuple[list[tuple[str, bool]], str]
"""Parameters: names, and whether they have a default; what is returned, without its own types."""


def form_of(node: ast.FunctionDef) -> Form:
    arguments = node.args
    assert not arguments.vararg and not arguments.kwarg and not arguments.kwonlyargs
    names = [each.arg for each in arguments.posonlyargs + arguments.args]
    first_default = len(names) - len(arguments.defaults)
    assert node.returns is not None
    returned = re.sub(r"\[.*\]", "", ast.unparse(node.returns)).removeprefix("onnx_external._core.")
    return [(name, index >= first_default) for index, name in enumerate(names)], returned


def declared(body: list[ast.stmt]) -> dict[str, Form | None]:
    """Return the public names of a module or a class; callables with their signatures."""
    found: dict[str, Form | None] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            is_property = any(ast.unparse(each) == "property" for each in node.decorator_list)
            found[node.name] = None if is_property else form_of(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = None
        elif isinstance(node, ast.ClassDef):
            found[node.name] = None
    return {name: value for name, value in found.items() if not name.startswith("_")}


def real_form(function: Any) -> Form:
    """Return the signature of a nanobind function, written as in Python except for types."""
    (signature,) = function.__nb_signature__  # only one, because there are no overloads
    text, _, defaults = signature
    # "def f(a: x.Y, b: int = \\0) -> str": \\N stands for the N-th default.
    text = re.sub(r"\\(\d+)", "None", text)
    assert len(defaults or ()) == text.count(" = None")
    (node,) = ast.parse(text + ": ...").body
    assert isinstance(node, ast.FunctionDef)
    return form_of(node)


def real(scope: Any) -> dict[str, Form | None]:
    names = [name for name in vars(scope) if not name.startswith("_")]
    members = {name: getattr(scope, name) for name in names}
    return {
        name: real_form(member) if hasattr(member, "__nb_signature__") else None
        for name, member in members.items()
        if not isinstance(member, type(ast))
    }


def differing(stub: dict[str, Form | None], actual: dict[str, Form | None]) -> list[str]:
    """Return the names whose signatures differ; "object" stands for types unknown to C++."""

    def is_same(name: str) -> bool:
        ours, theirs = stub[name], actual[name]
        if ours and theirs and theirs[1] == "object":
            return ours[0] == theirs[0]
        return ours == theirs

    assert stub.keys() == actual.keys()
    return [name for name in stub if not is_same(name)]


def classes() -> list[ast.ClassDef]:
    return [node for node in STUB.body if isinstance(node, ast.ClassDef)]


def test_the_stub_declares_what_the_extension_has() -> None:
    functions = declared(STUB.body)
    assert differing(functions, real(core)) == []
    assert any(functions.values())


def test_the_stub_declares_what_its_classes_have() -> None:
    assert classes()
    for node in classes():
        assert differing(declared(node.body), real(getattr(core, node.name))) == [], node.name


def test_every_public_name_is_listed_and_exists() -> None:
    pytest.importorskip("torch")
    for name in onnx_external.__all__:
        assert getattr(onnx_external, name) is not None
    assert sorted(set(onnx_external.__all__)) == sorted(onnx_external.__all__)
