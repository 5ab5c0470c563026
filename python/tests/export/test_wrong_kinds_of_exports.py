"""Tests that wrong arguments of exports are errors before anything is traced or loaded."""

from pathlib import Path
from typing import Any

import pytest
from wrong_kinds import faults, reach

import onnx_external as oe

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

FITS = {
    "args": {"a number", "a float", "an object"},
    "inputs": {"a number", "a float", "an object", "a list of numbers", "a dict of None"},
    "atol": {"a number", "a float"},
    "rtol": {"a number", "a float"},
    "max_iterations": {"a number"},
    "threads": {"a number"},
    "keep": {"a dict of None"},  # a dict of its names
}
"""Values that may be right, or of which only the module can say that they are wrong."""


@pytest.fixture(autouse=True)
def no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_external.torch._exporting.captured", reach)
    monkeypatch.setattr("onnx_external._diagnosis.export_diagnosing.capture", reach)


def test_exports_of_modules_refuse_values_of_the_wrong_kind(tmp_path: Path) -> None:
    net, x = torch.nn.Linear(2, 2).eval(), torch.ones(1, 2)
    exported = {"target": net, "args": (x,), "path": tmp_path / "model.onnx"}
    found = [
        *faults(oe.torch.export, exported, FITS),
        *faults(oe.torch.skeleton, {"target": net, "args": (x,)}, FITS),
        *faults(oe.diagnose_export, {"module": net, "inputs": [(x,)]}, FITS),
        *faults(oe.torch.build, {"make": lambda: net}, {"make": {"a class"}}),
    ]
    assert not found, "\n".join(found)


def test_patches_refuse_values_of_the_wrong_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def entered(**keywords: Any) -> None:
        with oe.torch.patches(**keywords):
            pass

    from inspect import signature

    entered.__signature__ = signature(oe.torch.patches)  # type: ignore[attr-defined]
    fits = {"input_sets": {"a list of numbers"}}
    found = faults(entered, {"torch": False, "transformers": False, "caches": False}, fits)
    assert not found, "\n".join(found)


def test_a_skeleton_refuses_values_of_the_wrong_kind(tmp_path: Path) -> None:
    made = oe.torch.Skeleton(None, {})  # type: ignore[arg-type]
    found = faults(made.save, {"path": tmp_path / "graph.onnx"}, {})
    assert not found, "\n".join(found)


def test_exports_of_folders_refuse_values_of_the_wrong_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr("onnx_external.transformers._exporting.load", reach)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text('{"model_type": "bert"}')
    fits = FITS | {"task": {"a text"}, "variant": {"a text"}, "inputs": {"a dict of None"}}
    fits |= {"opset_version": {"a number"}}
    given = {"folder": tmp_path / "bert", "path": tmp_path / "out"}
    found = faults(oe.transformers.export, given, fits)
    assert not found, "\n".join(found)


def test_weights_are_opened_before_the_trace(tmp_path: Path) -> None:
    net, x = torch.nn.Linear(2, 2).eval(), torch.ones(1, 2)
    for weights in (tmp_path / "nowhere.pt", [{}, str(tmp_path / "nowhere.safetensors")]):
        with pytest.raises(oe.NotFoundError, match="nowhere"):
            oe.torch.export(net, (x,), tmp_path / "model.onnx", weights=weights)


def test_options_of_the_exporter_are_known_before_the_trace(tmp_path: Path) -> None:
    net, x = torch.nn.Linear(2, 2).eval(), torch.ones(1, 2)
    wrong: list[dict[str, Any]] = [
        {"opset": 18},
        {"input_names": "x"},
        {"output_names": [1]},
        {"opset_version": "18"},
        {"custom_translation_table": [len]},
    ]
    for options in wrong:
        with pytest.raises(oe.InvalidArgumentError, match=next(iter(options))):
            oe.torch.export(net, (x,), tmp_path / "model.onnx", onnx_options=options)


def test_a_set_has_tensors_where_the_example_has_them() -> None:
    net, x = torch.nn.Linear(2, 2).eval(), torch.ones(1, 2)
    with pytest.raises(oe.InvalidArgumentError, match=r"input_sets: input is a value of type int"):
        oe.torch.skeleton(net, (x,), input_sets=[(7,)])
