"""Tests of the signatures and docstrings of the public functions."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe
from onnx_external._base.options import SaveKeywords

MADE_BY_US = ("Checkpoint", "Error", "RewriteError", "Tensor", "UnmergeableError")
"""Classes that callers do not make."""


def public(module: Any) -> dict[str, Any]:
    """Return the functions, and the constructors and methods of classes, that a module offers."""
    found = {}
    for name in module.__all__:
        each = getattr(module, name)
        if inspect.isclass(each):
            methods = vars(each).items()
            found |= {
                f"{name}.{key}": value
                for key, value in methods
                if inspect.isfunction(value)
                and (key[0] != "_" or (key == "__init__" and name not in MADE_BY_US))
            }
        elif inspect.isfunction(each):
            found[name] = each
    return found


def all_public() -> dict[str, Any]:
    found = public(oe)
    try:
        found |= {f"torch.{name}": each for name, each in public(oe.torch).items()}
        found |= {f"transformers.{name}": each for name, each in public(oe.transformers).items()}
    except ImportError:
        pass
    return found


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(function).parameters)
    found.pop("self", None)
    return found


def is_made(function: Any) -> bool:
    """Return whether dataclass made it."""
    return "__create_fn__" in function.__qualname__ or function.__code__.co_filename == "<string>"


def test_save_has_a_dozen_arguments_and_no_public_function_has_any_others() -> None:
    assert len(parameters(oe.save)) <= 15
    for name, function in all_public().items():
        kinds = {each.kind for each in parameters(function).values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, name


def test_every_argument_of_every_public_function_is_explained() -> None:
    for name, function in all_public().items():
        if is_made(function):
            continue
        text = inspect.getdoc(function) or ""
        if not name.endswith("__init__"):
            assert text, name
        for each in parameters(function):
            assert re.search(rf"^\s+{each}: \S", text, re.MULTILINE), f"{name}: {each}"


def undocumented(kind: type) -> list[str]:
    """Return the fields of a dataclass that no docstring follows."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    explained = inspect.getdoc(kind) or ""
    found = []
    for each, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            name = each.target.id
            has = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if name[0] != "_" and not has and f"    {name}: " not in explained:
                found.append(f"{kind.__name__}.{name}")
    return found


def test_every_field_of_every_public_dataclass_is_explained() -> None:
    modules = [oe]
    try:
        modules += [oe.torch, oe.transformers]
    except ImportError:
        pass
    kinds = {
        getattr(module, name)
        for module in modules
        for name in module.__all__
        if is_dataclass(getattr(module, name))
    }
    assert oe.SaveReport in kinds and oe.Mapping in kinds
    assert [name for kind in kinds for name in undocumented(kind)] == []


def test_every_option_is_explained_by_help() -> None:
    for kind in (oe.Mapping, oe.Layout):
        text = inspect.getdoc(kind) or ""
        for field in fields(kind):
            assert re.search(rf"^    {field.name}: \S", text, re.MULTILINE), field.name
            assert f"{field.name}=" in (inspect.getdoc(oe.save) or "")


def test_what_several_functions_take_is_called_the_same() -> None:
    order = ["model", "path", "weights"]
    assert list(parameters(oe.save))[:3] == list(parameters(oe.plan))[:3] == order
    keywords = set(SaveKeywords.__annotations__)
    assert keywords == set(parameters(oe.save)) - {*order, "dry_run"}
    assert keywords == set(parameters(oe.plan)) - set(order)
    for function in (oe.verify, oe.validate, oe.diagnose):
        assert list(parameters(function))[:2] == ["model", "against"]
    for function in (oe.verify, oe.inspect, oe.validate, oe.diagnose, oe.diagnose_export):
        assert "progress" in parameters(function)
    assert list(parameters(oe.cut))[:2] == ["model", "path"]
    assert {"fsync", "overwrite"} <= set(parameters(oe.cut))


def test_a_dict_in_the_place_of_the_options_is_refused_with_their_class() -> None:
    call: Any = oe.save
    with pytest.raises(TypeError, match=r"expected oe\.Mapping\(\.\.\.\), not dict.*map=\.\.\."):
        call("graph.onnx", "out", "a.pt", mapping={"slot": "key"})


def test_ways_out_are_spelled_as_python_takes_them(tiny: Path, tmp_path: Path) -> None:
    names = tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt"
    with pytest.raises(oe.MappingError) as caught:
        oe.save(*names, mapping=oe.Mapping(rename="s/ln_1/ln_9/"))
    lines = str(caught.value).splitlines()[1:]
    assert lines and all(line.startswith("  mapping=oe.Mapping(") for line in lines)
    for line in lines:  # each is Python
        ast.parse(f"f({line.strip().split(': ')[0]})")


def test_the_state_dict_of_a_module_is_what_it_is_as_weights(tiny: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with oe.open_checkpoint(tiny / "checkpoint.pt") as checkpoint:
        tensors = checkpoint.state_dict()

    class Holder(torch.nn.Module):  # type: ignore[misc]
        def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return {**tensors, "_extra_state": {"step": 3}}

    given = tiny / "graph.onnx", tmp_path / "out", Holder()
    assert oe.save(*given, fsync=False).complete
    assert oe.verify(tmp_path / "out", tiny / "checkpoint.pt").ok
    assert oe.verify(tmp_path / "out", Holder()).ok
