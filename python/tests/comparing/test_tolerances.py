"""Tests of the tolerance that a report used, and of the stated reason."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe
from onnx_external._commands import validate as command

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

X = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
WEIGHT = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)


def model(nodes: list[Any], **weights: Any) -> Any:
    """Return a model that computes y from x and weights."""
    forms = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", 16]) for n in "xy"]
    values = [numpy_helper.from_array(np.asarray(each), name) for name, each in weights.items()]
    graph = helper.make_graph(nodes, "g", forms[:1], forms[1:], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def plain() -> Any:
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], w=WEIGHT)


def half() -> Any:
    """Return the model in float16, with inputs and outputs in float32."""
    nodes = [
        helper.make_node("Cast", ["x"], ["short"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["short", "w"], ["product"]),
        helper.make_node("Cast", ["product"], ["y"], to=TensorProto.FLOAT),
    ]
    return model(nodes, w=WEIGHT.astype(np.float16))


def quantized() -> Any:
    """Return the model with an 8-bit weight."""
    scale = np.float32(np.abs(WEIGHT).max() / 127)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["float"]),
        helper.make_node("MatMul", ["x", "float"], ["y"]),
    ]
    return model(nodes, w=np.round(WEIGHT / scale).astype(np.int8), scale=scale)


@pytest.mark.parametrize("as_file", [False, True])
def test_weights_in_float16_are_not_held_to_float32(as_file: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(half(), path)
    report = oe.validate(path if as_file else half(), plain(), X)
    assert report.ok and report.outputs[0].dtype == "float32"
    assert report.outputs[0].precision == "float16"
    (told,) = report.graphs[0].tolerances
    assert told.startswith("tolerance of float16 (weights): atol 0.") and "rtol 0.02" in told
    assert oe.validate(plain(), half(), X).ok  # this also applies to the reference


def test_the_report_says_which_tolerance_was_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(plain(), tmp_path / "model.onnx")
    np.savez(tmp_path / "set.npz", x=X, y=X @ WEIGHT)
    arguments = [str(tmp_path / "model.onnx"), "-a", str(tmp_path / "set.npz")]
    assert command.main(arguments) == 0
    assert "\n  tolerance of float32 (outputs): atol 0.0" in capsys.readouterr().out
    assert command.main([*arguments, "--atol", "0.5"]) == 0
    assert "\n  tolerance as given: atol 0.5, rtol 0.0002\n" in capsys.readouterr().out


def test_a_quantized_model_that_does_not_agree_gets_a_tolerance_to_start_with() -> None:
    report = oe.validate(quantized(), plain(), X)
    assert not report.ok
    start = 0.05 * (report.outputs[0].scale or 0)
    assert (
        "the model is quantized (DequantizeLinear), and was held to the tolerance of float32 "
        "(atol 0.0"
    ) in report.sentence
    assert report.sentence.endswith(f"here atol={start:.2g} (--atol {start:.2g})")
    again = oe.validate(quantized(), plain(), X, atol=start)
    assert again.ok and "quantized" not in again.sentence
    wrong = oe.validate(quantized(), {"y": X @ WEIGHT + 9}, X, atol=start)
    assert not wrong.ok and "start with" not in wrong.sentence
    unquantized = oe.validate(plain(), {"y": X @ WEIGHT + 9}, X)
    assert not unquantized.ok and "quantized" not in unquantized.sentence


def test_diagnose_says_which_tolerance_a_quantized_model_was_held_to(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", minversion="2.9")
    module = torch.nn.Linear(16, 16, bias=False).eval()
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(WEIGHT.T.copy()))
    onnx.save(quantized(), tmp_path / "model.onnx")
    report = oe.diagnose(tmp_path / "model.onnx", module, torch.from_numpy(X))
    assert not report.ok
    (told,) = [each for each in report.notes if each.startswith("The model is quantized")]
    assert "the tolerance of float32 (atol 0.0" in told
    start = float(told.partition("here atol=")[2].partition(" ")[0])
    assert oe.diagnose(tmp_path / "model.onnx", module, torch.from_numpy(X), atol=start).ok


def test_weights_that_were_converted_are_compared_in_the_type_of_the_graph(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", minversion="2.11")
    transformers = pytest.importorskip("transformers", minversion="5.20")
    pytest.importorskip("onnxscript")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    config = transformers.BertConfig(vocab_size=96, num_hidden_layers=1, **sizes)
    folder, out = tmp_path / "bert", tmp_path / "out"
    transformers.BertModel(config).to(torch.bfloat16).save_pretrained(folder)
    options = {"dynamic": False, "check": False, "fsync": False, "progress": False}
    oe.transformers.export(folder, out, dtype="float32", **options)
    report = oe.validate(out, folder)
    assert report.ok and {each.precision for each in report.outputs} == {"float32"}
    assert {each.expected_dtype for each in report.outputs} == {"float32"}
    asked = oe.validate(out, folder, dtype="bfloat16")
    assert asked.ok and {each.precision for each in asked.outputs} == {"bfloat16"}
    assert "tolerance of bfloat16 (outputs of the reference)" in asked.graphs[0].tolerances[0]
