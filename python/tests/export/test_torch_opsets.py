"""The opset version that a caller asks for."""

from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
nn = torch.nn

X = torch.randn(3, 8)


def small() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4)).eval()


def opset_of(path: Path) -> int:
    return int(onnx.load(path, load_external_data=False).opset_import[0].version)


@pytest.mark.parametrize("version", [16, 17, 18, 19, 22, 23])
def test_a_version_that_is_asked_for_is_given(tmp_path: Path, version: int) -> None:
    path, module = tmp_path / "model.onnx", small()
    report = oe.torch.export(module, (X,), path, onnx_options={"opset_version": version})
    assert opset_of(path) == version and report.checked
    assert not any("opset" in note for note in report.notes)
    assert {source.origin for source in report.sources.values()} == {"module"}
    marks = [prop.key for node in onnx.load(path).graph.node for prop in node.metadata_props]
    assert marks  # which diagnose and cut go by


def test_a_version_that_onnx_cannot_convert_to_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    report = oe.torch.export(small(), (X,), path, onnx_options={"opset_version": 11})
    assert opset_of(path) == 18 and report.checked
    assert report.notes[0].startswith(
        "opset_version=11: the graph has opset 18, because onnx cannot"
    )
    with pytest.raises(oe.InvalidArgumentError, match="opset_version=11: the graph has opset 18"):
        oe.torch.skeleton(small(), (X,), onnx_options={"opset_version": 11})


@pytest.mark.parametrize("version", [6, 99, "18", True])
def test_a_version_that_no_graph_can_have_is_an_error(tmp_path: Path, version: Any) -> None:
    options = {"opset_version": version}
    with pytest.raises(oe.InvalidArgumentError, match=r"opset_version=.*torch.onnx exports opset"):
        oe.torch.export(small(), (X,), tmp_path / "model.onnx", onnx_options=options)
    assert not list(tmp_path.iterdir())


def test_an_older_skeleton_takes_a_checkpoint(tmp_path: Path) -> None:
    module, target = small(), tmp_path / "model.onnx"
    skeleton = oe.torch.skeleton(small, (X,), onnx_options={"opset_version": 17})
    assert set(skeleton.slots) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    oe.save(skeleton, target, module.state_dict())
    assert opset_of(target) == 17
    (result,) = onnxruntime.InferenceSession(target).run(None, {"input": X.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), module(X).detach())


def test_a_program_of_torch_onnx_is_converted(tmp_path: Path) -> None:
    path, module = tmp_path / "model.onnx", small()
    program = torch.onnx.export(module, (X,), dynamo=True, optimize=False, opset_version=18)
    oe.torch.export(program, (X,), path, onnx_options={"opset_version": 21})
    assert opset_of(path) == 21
