"""Tests that each public function reports arguments of the wrong kind by name."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
from wrong_kinds import faults, reach

import onnx_external as oe

onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return arguments for functions, by parameter name."""
    folder = tmp_path_factory.mktemp("kinds")
    model = graphs.open_graph({"x": ("float32", (2, 3))}, as_inputs=True)
    onnx.save(model, folder / "model.onnx")
    weights = {"x": np.ones((2, 3), np.float32)}
    path = folder / "model.onnx"
    return {
        "model": path,
        "path": folder / "out/model.onnx",
        "weights": weights,
        "checkpoint": weights,
        "against": path,
        "out": folder / "cut.onnx",
        "outputs": ["out.x"],
        "graph": path,
        "inputs": None,
        "name": "x",
        "cls": "a.b",
        "flatten": ["x"],
        "tensor": weights["x"],
    }


CALLS = [
    "cut",
    "cut_bytes",
    "diagnose",
    "inspect",
    "open_checkpoint",
    "plan",
    "save",
    "validate",
    "verify",
    "Layout",
    "Mapping",
    "generate",
    "register_class",
    "unregister_class",
]


def required(call: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    names = inspect.signature(call).parameters
    return {
        name: given.get(name, given["model"])
        for name, each in names.items()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }


@pytest.mark.parametrize("name", CALLS)
def test_a_value_of_the_wrong_kind_gives_no_other_exception(
    name: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = getattr(oe, name)
    try:
        found = faults(call, required(call, given))
    finally:
        for registered in (dict, "a.b"):
            oe.unregister_class(registered)
    assert not found, "\n".join(found)


def test_a_writer_refuses_values_of_the_wrong_kind(given: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"

    def make(**keywords: Any) -> None:
        oe.Writer(**keywords).close()

    def add(name: str, tensor: Any) -> None:
        with oe.Writer(path) as writer:
            writer.add(name, tensor)
            reach()

    def finish(model: Any, progress: Any = None) -> None:
        with oe.Writer(path) as writer:
            writer.add("x", given["tensor"])
            writer.finish(model, progress=progress)

    make.__signature__ = inspect.signature(oe.Writer)  # type: ignore[attr-defined]
    found = [
        *faults(make, {"path": path}, {"threads": {"a number"}}),
        *faults(add, given_for(add, given), {"name": {"a text"}}),
        *faults(finish, given_for(finish, given), {}),
    ]
    assert not found, "\n".join(found)


def given_for(call: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in inspect.signature(call).parameters if name in given}


@pytest.mark.parametrize("model", ["nowhere.onnx", "."])
def test_a_writer_refuses_a_graph_that_cannot_be_read(model: str, tmp_path: Path) -> None:
    with pytest.raises(oe.Error, match=model), oe.Writer(tmp_path / "model.onnx") as writer:
        writer.finish(model)


def test_a_value_of_the_wrong_kind_is_also_a_type_error(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="overwrite") as info:
        oe.save(given["model"], given["path"], given["weights"], overwrite="yes")  # type: ignore[call-overload]
    assert isinstance(info.value, oe.WrongTypeError)
