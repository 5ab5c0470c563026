"""Tests of a folder, weights or a program given instead of a model or a reference."""

from __future__ import annotations

import shutil
from pathlib import Path

import commands
import graphs
import numpy as np
import pytest

import onnx_external as oe

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that contains one folder with a model and one with two."""
    model = graphs.open_graph({"x": ("float32", (2, 3))}, as_inputs=True)
    for name in ("one/model.onnx", "two/a.onnx", "two/b.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        onnx.save(model, tmp_path / name)
    return tmp_path


def test_a_folder_means_the_only_model_in_it(folder: Path) -> None:
    one, two = folder / "one", folder / "two"
    report = oe.validate(one, two / "a.onnx")
    assert report.ok and report.graphs[0].model == str(one / "model.onnx")
    assert report.sentence == "the output agrees"
    assert oe.validate(two / "a.onnx", one).ok
    wanted = {"out.x": np.ones((2, 3), np.float32)}
    assert oe.validate(one, wanted, np.ones((2, 3))).ok
    report = oe.validate(one, wanted, np.zeros((2, 3)))
    assert report.sentence == "the output does not agree: out.x, by 1 at most"
    shaped = oe.validate(one, {"out.x": np.ones((2, 4))}, np.zeros((2, 3)))
    assert shaped.sentence.endswith("out.x (shapes differ: [2, 3], expected [2, 4])")
    assert report.outputs[0].difference == "6 of 6 elements of out.x do not agree, by 1 at most"
    recorded = oe.validate(one, two / "a.onnx", dump=one).dump
    assert recorded and oe.validate(two / "a.onnx", one).graphs[0].against == "recorded outputs"


def test_a_folder_without_a_checkpoint_is_inspected_as_its_model(folder: Path) -> None:
    assert oe.inspect(folder / "one").to_dict() == oe.inspect(folder / "one/model.onnx").to_dict()
    with pytest.raises(oe.Error, match=r"several models \('a\.onnx', 'b\.onnx'\); choose one"):
        oe.inspect(folder / "two")
    with pytest.raises(oe.NotFoundError, match="no checkpoint file in this folder"):
        oe.inspect(folder)


def test_of_a_folder_with_several_models_one_is_to_be_given(folder: Path) -> None:
    two = folder / "two"
    for call in ("validate", "diagnose"):
        with pytest.raises(oe.InvalidArgumentError, match=r"several models: a\.onnx, b") as told:
            getattr(oe, call)(two, folder / "one")
        assert f"oe.{call}({str(two / 'a.onnx')!r}, ...)" in str(told.value)
    done = commands.run("validate", two, "-a", folder / "one")
    assert done.returncode == 1
    assert f"give one of them: onnx-external validate {two}/a.onnx ...\n" in done.stderr
    done = commands.run("validate", folder / "one", "-a", two)
    assert f"onnx-external validate ... --against {two}/a.onnx\n" in done.stderr
    for call in (oe.validate, oe.diagnose):
        with pytest.raises(oe.NotFoundError, match=r"has no model \(\.onnx\), and no config"):
            call(folder, folder / "one")


def test_a_graph_without_its_reference_gets_the_call_to_use(folder: Path) -> None:
    for given in (folder / "one", folder / "one/model.onnx"):
        done = commands.run("diagnose", given)
        assert done.returncode == 2
        assert f"onnx-external diagnose {given} --against FOLDER" in done.stderr


@pytest.mark.parametrize("call", ["validate", "diagnose"])
def test_weights_are_not_a_reference_and_the_error_has_working_calls(
    call: str, folder: Path, tiny: Path
) -> None:
    model, weights = folder / "one/model.onnx", folder / "trained.pt"
    shutil.copy(tiny / "checkpoint.pt", weights)
    done = commands.run(call, model, "-a", weights)
    assert done.returncode == 1 and f"{weights}: is a checkpoint of 17 tensors" in done.stderr
    assert f" onnx-external verify {model} --against {weights} compares" in done.stderr
    with pytest.raises(
        oe.InvalidArgumentError, match=r"expected a (torch module|module of torch)"
    ) as told:
        getattr(oe, call)(model, weights)
    assert f"oe.verify({str(model)!r}, {str(weights)!r}) compares" in str(told.value)
    assert f"oe.{call}({str(model)!r}, module.eval(), x)" in str(told.value)
    (folder / "net.py").write_text("")
    done = commands.run(call, "--against", folder / "net.py", model)  # in any order
    assert done.returncode == 1 and "is a Python program" in done.stderr
    assert "from net import Module" in done.stderr


def test_other_values_are_not_a_reference(folder: Path) -> None:
    model = folder / "one/model.onnx"
    done = commands.run("validate", folder / "one")
    assert f"onnx-external validate {model} --against other.onnx, " in done.stderr
    with pytest.raises(oe.InvalidArgumentError, match=r"oe\.validate\(model, module\.eval\(\), x"):
        oe.validate(model.read_bytes())
    with pytest.raises(oe.InvalidArgumentError, match=r"model\.onnx', module\.eval\(\), x\)"):
        oe.diagnose(model, 5)
    with pytest.raises(TypeError, match=r"Path is a class.*oe\.validate\(model, Path\(\)\.eval"):
        oe.validate(model, Path)
    with pytest.raises(
        oe.InvalidArgumentError, match=r"expected outputs \(out\.x\).*instead: oe\.val"
    ):
        oe.validate(model, {"weight": np.ones(3)})
    with pytest.raises(oe.NotFoundError, match=r"numpy\.savez\('inputs\.npz'"):
        oe.validate(model, folder / "two/a.onnx", folder / "one")


def test_the_graphs_of_an_export_are_not_compared_with_themselves(folder: Path) -> None:
    one = folder / "one"
    (one / "config.json").write_text('{"model_type": "bert"}')
    done = commands.run("validate", one)
    assert done.returncode == 1
    assert f"onnx-external validate {one} --against FOLDER" in done.stderr
    with pytest.raises(oe.InvalidArgumentError, match="contains graphs, but not the weights"):
        oe.validate(one)
