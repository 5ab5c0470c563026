"""Arguments of the wrong kind: each public function names the argument, whatever it is given."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest

import onnx_external as oe

onnx = pytest.importorskip("onnx")

WRONG: dict[str, Any] = {
    "a number": 7,
    "a float": 2.5,
    "a set": {1, 2},
    "bytes": b"\xff",
    "an object": object(),
    "a class": dict,
    "a function": len,
    "a list of numbers": [1, 2],
    "a dict of numbers": {1: 2},
    "a dict of None": {"x": None},
    "an array of objects": np.array([object()]),
    "a text": "no\x00where",
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What functions are called with, by the names of their arguments."""
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
    }


NAMED = {
    "cut": ("inputs", "outputs", "path", "without"),
    "cut_bytes": ("inputs", "outputs", "without"),
    "inspect": ("filter", "key", "max_expand", "overlay", "sha256", "threads", "variant"),
    "open_checkpoint": ("key", "max_expand", "overlay", "threads", "variant"),
    "plan": ("dtype", "layout", "mapping", "path"),
    "save": ("dtype", "layout", "mapping", "path"),
    "verify": ("cold", "mapping", "max_expand", "threads"),
}
"""Arguments that a TypeError names; others are named by an oe.Error, or by what they are."""

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
]


def required(call: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    names = inspect.signature(call).parameters
    return {
        name: given.get(name, given["model"])
        for name, each in names.items()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }


def wrongly(call: Callable[..., Any], given: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    base = required(call, given)
    for name, each in inspect.signature(call).parameters.items():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        for what, value in WRONG.items():
            yield name, what, {**base, name: value}


@pytest.mark.parametrize("name", CALLS)
def test_a_value_of_the_wrong_kind_gives_no_other_exception(
    name: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = getattr(oe, name)
    found = []
    for argument, what, keywords in wrongly(call, given):
        try:
            call(**keywords)
        except oe.Error:
            continue
        except TypeError as error:
            if argument not in str(error) and argument in NAMED.get(name, ()):
                found.append(f"{argument}={what}: not named: {str(error)[:100]}")
        except Exception as error:
            found.append(f"{argument}={what}: {type(error).__name__}: {str(error)[:100]}")
    assert not found, "\n".join(found)
