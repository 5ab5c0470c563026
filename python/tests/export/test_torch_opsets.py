"""Tests of exports with a requested opset version."""

from functools import partial
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


@pytest.mark.parametrize("version", range(7, 26))
def test_a_version_that_is_asked_for_is_given(tmp_path: Path, version: int) -> None:
    path, module = tmp_path / "model.onnx", small()
    report = oe.torch.export(module, (X,), path, onnx_options={"opset_version": version})
    assert opset_of(path) == version and report.checked
    assert not any("opset" in note for note in report.notes)
    assert {source.origin for source in report.sources.values()} == {"module"}
    marks = [prop.key for node in onnx.load(path).graph.node for prop in node.metadata_props]
    assert marks  # diagnose and cut rely on these


class Encoder(nn.Module):  # type: ignore[misc, name-defined]
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, ids: Any, mask: Any) -> Any:
        places = torch.arange(ids.shape[1], device=ids.device)[:, None]
        x = self.words(ids) + 0.01 * places
        query, key, value = self.project(self.norm(x)).view(*ids.shape, 3, 4, 4).unbind(2)
        keep = mask[:, None, None, :] > 0
        given = (each.transpose(1, 2) for each in (query, key, value))
        mixed = nn.functional.scaled_dot_product_attention(*given, attn_mask=keep)
        return nn.functional.gelu(self.out(mixed.transpose(1, 2).flatten(2))) + x


class Recurrent(nn.Module):  # type: ignore[misc, name-defined]
    """A bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(5, 6, batch_first=True, bidirectional=True)

    def forward(self, x: Any) -> Any:
        return torch.log_softmax(self.cells(x)[0], 1)


def image(rows: int) -> tuple[Any]:
    return (torch.randn(rows, 3, 12, 12),)


def words(rows: int, length: int) -> tuple[Any, Any]:
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[0, -1] = 0
    return torch.randint(0, 20, (rows, length)), mask


CONVOLUTIONS = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU6(),
    nn.MaxPool2d(2),
    nn.GroupNorm(2, 8),
    nn.Hardswish(),
    nn.Upsample(scale_factor=2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Softmax(1),
)
MODELS = {
    "convolutions": (CONVOLUTIONS, image(2), image(3), 7),
    "encoder": (Encoder(), words(2, 7), words(3, 9), 9),
    "recurrent": (Recurrent(), (torch.randn(2, 7, 5),), (torch.randn(3, 7, 5),), 7),
}
"""Modules with two input sets, and the oldest opset that can express them."""


@pytest.mark.parametrize("version", range(7, 18))
@pytest.mark.parametrize("name", MODELS)
def test_older_versions_are_given_or_refused(tmp_path: Path, name: str, version: int) -> None:
    module, example, other, oldest = MODELS[name]
    path, options = tmp_path / "model.onnx", {"opset_version": version}
    if version < oldest:
        with pytest.raises(
            oe.InvalidArgumentError, match=rf"cannot express.*opset_version={oldest}"
        ):
            oe.torch.export(module.eval(), example, path, input_sets=[other], onnx_options=options)
        assert not list(tmp_path.iterdir())
        return
    report = oe.torch.export(module.eval(), example, path, input_sets=[other], onnx_options=options)
    assert opset_of(path) == version and report.checked == 2
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert model.ir_version == {7: 4, 8: 4, 9: 4, 10: 5, 11: 6}.get(
        version, 7 if version < 15 else 8
    )
    assert all(prop for node in model.graph.node for prop in node.metadata_props)


def test_a_refused_version_names_the_operator_and_its_module(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(8, 4), nn.GELU()).eval()
    said = r"^opset_version=8: opset 8 cannot express this model: Erf in 1, which needs opset 9"
    for call in (oe.torch.skeleton, partial(oe.torch.export, path=tmp_path / "model.onnx")):
        with pytest.raises(oe.InvalidArgumentError, match=f"{said}.*; opset_version=9 can$"):
            call(module, (X,), onnx_options={"opset_version": 8})


@pytest.mark.parametrize("version", [6, 99, "18", True])
def test_a_version_that_no_graph_can_have_is_an_error(tmp_path: Path, version: Any) -> None:
    options = {"opset_version": version}
    with pytest.raises(
        oe.InvalidArgumentError, match=r"opset_version=.*a graph can have opset 7 to"
    ):
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
