"""Tests of saves and exports that quantize matrices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")


class Layers(torch.nn.Module):
    """An embedding, a layer, and a head that is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 64)
        self.layer = torch.nn.Linear(64, 192)
        self.back = torch.nn.Linear(192, 64, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        x = x + self.back(torch.tanh(self.layer(x)))
        return x @ self.table.weight.T


@pytest.fixture(scope="module")
def module() -> Any:
    torch.manual_seed(0)
    return Layers().eval()


IDS = np.arange(12, dtype=np.int64).reshape(2, 6)


def run(path: Path) -> Any:
    session = ort.InferenceSession(path / "model.onnx", providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: IDS})[0]


def relative(found: Any, wanted: Any) -> float:
    return float(np.sqrt(np.square(found - wanted).mean() / np.square(wanted).mean()))


@pytest.mark.parametrize(
    ("quantize", "least", "most"),
    [("int8", 1e-4, 0.03), (oe.Quantize("int4/16", accuracy_level=0), 1e-3, 0.1)],
)
def test_an_export_is_quantized_after_its_check(
    module: Any, tmp_path: Path, quantize: Any, least: float, most: float
) -> None:
    ids = torch.from_numpy(IDS)
    report = oe.torch.export(module, (ids,), tmp_path, quantize=quantize)
    assert report.checked and report.verified
    assert [matrix["role"] for matrix in report.save.quantized] == ["head", "linear", "linear"]
    assert {weight["weight"] for weight in report.save.floats} == {"layer.bias"}
    wanted = module(ids).detach().numpy()
    assert least < relative(run(tmp_path), wanted) < most


def test_the_weights_that_a_model_holds_become_the_same_codes(module: Any, tmp_path: Path) -> None:
    ids = torch.from_numpy(IDS)
    oe.torch.export(module, (ids,), tmp_path / "float")
    oe.save(tmp_path / "float/model.onnx", tmp_path / "held", quantize="int4")
    oe.torch.export(module, (ids,), tmp_path / "made", quantize="int4")
    assert np.array_equal(run(tmp_path / "held"), run(tmp_path / "made"))


def test_codes_are_derived_again_from_the_weights(module: Any, tmp_path: Path) -> None:
    oe.torch.export(module, (torch.from_numpy(IDS),), tmp_path, quantize="int4")
    state = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    assert oe.verify(tmp_path / "model.onnx", against=state).ok
    state["back.weight"] = state["back.weight"].clone()
    state["back.weight"][3, 5] *= 2
    report = oe.verify(tmp_path / "model.onnx", against=state)
    found = {finding.tensor for finding in report.findings}
    assert {"back.weight.codes", "back.weight.scales"} <= found
    assert all(name.startswith("back.weight.") for name in found)


def test_a_plan_measures_errors_on_a_few_rows(module: Any, tmp_path: Path) -> None:
    oe.torch.export(module, (torch.from_numpy(IDS),), tmp_path)
    model = tmp_path / "model.onnx"
    plan = oe.plan(model, path=tmp_path / "out", quantize=oe.Quantize("int4/32", head="float"))
    assert {matrix["scheme"] for matrix in plan.quantized} == {"int4/32, zero points, 5 steps"}
    assert all(0.05 < matrix["error"] < 0.1 for matrix in plan.quantized)
    assert all(matrix["bytes"] < matrix["bytes_before"] / 5 for matrix in plan.quantized)
    assert not (tmp_path / "out").exists()
    saved = plan.save()
    assert [matrix["bytes"] for matrix in saved.quantized] == [
        matrix["bytes"] for matrix in plan.quantized
    ]


def test_single_weights_have_their_own_schemes_by_patterns(module: Any, tmp_path: Path) -> None:
    weights = {"*": "int4/32", "back.*": "int8/16"}
    how = oe.Quantize("int4", weights=weights)
    report = oe.torch.export(module, (torch.from_numpy(IDS),), tmp_path / "made", quantize=how)
    found = {matrix["weight"]: matrix["scheme"] for matrix in report.save.quantized}
    own = [scheme for name, scheme in found.items() if name.startswith("back.")]
    assert own == ["int8/16, symmetric, nearest"]
    assert set(found.values()) == {*own, "int4/32, zero points, 5 steps"}
    state = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    assert oe.verify(tmp_path / "made" / "model.onnx", against=state).ok
    oe.torch.export(module, (torch.from_numpy(IDS),), tmp_path / "float")
    texts = [f"{pattern}={scheme}" for pattern, scheme in weights.items()]
    how = oe.Quantize("int4", weights=texts)
    plan = oe.plan(tmp_path / "float" / "model.onnx", quantize=how)
    assert [matrix["scheme"] for matrix in plan.quantized] == [*found.values()]


def test_a_pattern_for_a_scheme_that_decides_nothing_is_an_error(
    module: Any, tmp_path: Path
) -> None:
    oe.torch.export(module, (torch.from_numpy(IDS),), tmp_path)
    for weights in ({"bakc.*": "int8"}, {"back.*": "int4/32", "*": "int8"}):
        how = oe.Quantize("int4", weights=weights)
        with pytest.raises(oe.NotFoundError, match=r"any quantized weight: 'ba(kc|ck)\.\*'; "):
            oe.save(tmp_path / "model.onnx", tmp_path / "out", quantize=how)
    with pytest.raises(oe.InvalidArgumentError, match="the weights 'back': 'int3' is not a"):
        oe.plan(tmp_path / "model.onnx", quantize=oe.Quantize("int4", weights={"back": "int3"}))


@pytest.mark.parametrize("scheme", ["int5", "int4/48", "int4, 2 steps", ""])
def test_an_unknown_scheme_is_refused_before_anything_is_traced(
    tmp_path: Path, scheme: str
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("traced")

    with pytest.raises(oe.InvalidArgumentError, match="quantize"):
        oe.torch.export(never, (1,), tmp_path, quantize=scheme)
    with pytest.raises(oe.InvalidArgumentError, match="quantize"):
        oe.transformers.export(tmp_path / "nothing", tmp_path, quantize=scheme)


def test_linked_weights_cannot_be_quantized(module: Any, tmp_path: Path) -> None:
    with pytest.raises(oe.InvalidArgumentError, match="cannot be linked"):
        oe.torch.export(module, (torch.from_numpy(IDS),), tmp_path, layout="link", quantize="int4")
