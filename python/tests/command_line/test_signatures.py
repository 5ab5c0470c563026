"""Tests of the signatures and docstrings of the public functions."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

import onnx_external as oe
from onnx_external._base.argument_types import checks_types
from onnx_external._base.keywords import keywords_of
from onnx_external._base.options import SaveKeywords, Writing

if TYPE_CHECKING:
    from typing_extensions import Unpack

MADE_BY_US = ("Checkpoint", "Error", "RewriteError", "Tensor", "UnmergeableError")
"""Classes that callers do not make."""


def public(module: Any) -> dict[str, Any]:
    """Return the public functions of a module, and the constructors and methods of its classes."""
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


def parameters(function: Any) -> list[str]:
    """Return the names of all arguments, including those that many functions share."""
    signature = inspect.signature(function).parameters.values()
    named = [each.name for each in signature if each.kind is not each.VAR_KEYWORD]
    return [name for name in (*named, *keywords_of(function)) if name != "self"]


def is_made(function: Any) -> bool:
    """Return whether @dataclass generated the function."""
    return "__create_fn__" in function.__qualname__ or function.__code__.co_filename == "<string>"


def test_no_public_function_has_many_arguments_of_its_own() -> None:
    assert len(inspect.signature(oe.save).parameters) <= 5
    for name, function in all_public().items():
        if not is_made(function) and name not in ("validate", "diagnose_export"):
            assert len(inspect.signature(function).parameters) <= 14, name


def test_keywords_of_several_functions_are_named_where_they_are_taken() -> None:
    for name, function in all_public().items():
        kinds = {each.kind for each in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds or keywords_of(function), name


class _OnnxOptions(TypedDict, total=False):
    opset_version: int


def test_an_unknown_keyword_is_refused_with_the_most_similar_one() -> None:
    call: Any = oe.save
    with pytest.raises(
        oe.WrongTypeError, match=r"^layot: save\(\) has no .*; did you mean layout\?$"
    ):
        call("graph.onnx", "out", layot="single")
    with pytest.raises(oe.WrongTypeError, match=r"^how: save\(\) has no argument of this name$"):
        call("graph.onnx", "out", how={})

    @checks_types
    def exported(onnx_options: _OnnxOptions | None = None) -> None:
        del onnx_options

    call = exported
    with pytest.raises(
        oe.WrongTypeError, match=r"mean onnx_options=\{'opset_version': \.\.\.\}\?$"
    ):
        call(opset_version=17)


def test_defaults_of_keywords_are_those_that_the_functions_get() -> None:
    given: list[Any] = []

    @checks_types
    def saved(**how: Unpack[SaveKeywords]) -> None:
        given.append(how)

    saved(overwrite=True)
    assert given == [{n: k.default for n, k in keywords_of(oe.save).items()} | {"overwrite": True}]
    assert given[0]["layout"] == "single" and given[0]["fsync"] is True


def test_every_argument_of_every_public_function_is_explained() -> None:
    for name, function in all_public().items():
        if is_made(function):
            continue
        text = inspect.getdoc(function) or ""
        if not name.endswith("__init__"):
            assert text and "**how" not in text, name
        for each in parameters(function):
            assert re.search(rf"^\s+{each}: \S", text, re.MULTILINE), f"{name}: {each}"


def undocumented(kind: type) -> list[str]:
    """Return the fields of a dataclass that are not followed by a docstring."""
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
    assert parameters(oe.save) == [*order, "dry_run", *SaveKeywords.__annotations__]
    assert parameters(oe.plan) == [*order, *SaveKeywords.__annotations__]
    if "torch.export" in all_public():
        exports = oe.torch.export, oe.transformers.export
        assert all({*Writing.__annotations__} < {*parameters(each)} for each in exports)
    for function in (oe.verify, oe.validate, oe.diagnose):
        assert parameters(function)[:2] == ["model", "against"]
    for function in (oe.verify, oe.inspect, oe.validate, oe.diagnose, oe.diagnose_export):
        assert "progress" in parameters(function)
    assert parameters(oe.cut)[:2] == ["model", "path"]
    assert {"fsync", "overwrite"} <= set(parameters(oe.cut))


def test_a_dict_in_the_place_of_the_options_is_refused_with_their_class() -> None:
    call: Any = oe.save
    with pytest.raises(TypeError, match=r"expected oe\.Mapping\(\.\.\.\), not dict.*map=\.\.\."):
        call("graph.onnx", "out", "a.pt", mapping={"slot": "key"})


def test_remedies_are_spelled_as_python_takes_them(tiny: Path, tmp_path: Path) -> None:
    names = tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt"
    with pytest.raises(oe.MappingError) as caught:
        oe.save(*names, mapping=oe.Mapping(rename="s/ln_1/ln_9/"))
    lines = str(caught.value).splitlines()[1:]
    assert lines and all(line.startswith("  mapping=oe.Mapping(") for line in lines)
    for line in lines:  # each line is Python
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
