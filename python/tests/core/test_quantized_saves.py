"""Tests of saves from quantized checkpoints, as floats or as the parts that a graph reads."""

import json
from pathlib import Path

import numpy as np
import pytest

import onnx_external as oe

pytest.importorskip("ml_dtypes")
onnx = pytest.importorskip("onnx")

from graphs import open_graph, saved_bytes  # noqa: E402
from quantized_folders import MAKERS, Made, gptq, mxfp4_experts, packed_ct, safetensors, write  # noqa: E402


def graph_of(checkpoint: oe.Checkpoint, path: Path) -> Path:
    """Write a graph with a slot for each key."""
    onnx.save(
        open_graph({key: (checkpoint[key].dtype, checkpoint[key].shape) for key in checkpoint}),
        path,
    )
    return path


@pytest.mark.parametrize("name", ["gptq act-order", "awq gemm", "bnb nested", "mxfp4 experts"])
def test_a_quantized_folder_fills_a_float_graph_and_verifies(name: str, tmp_path: Path) -> None:
    made = MAKERS[name](np.random.default_rng(2))
    folder = write(tmp_path / "c", made)
    with oe.open_checkpoint(folder) as checkpoint:
        graph = graph_of(checkpoint, tmp_path / "g.onnx")
    out = tmp_path / "out" / "model.onnx"
    oe.save(graph, out, folder)
    saved = saved_bytes(out)
    for key, want in made.floats.items():
        assert saved[key] == np.ascontiguousarray(want).tobytes()
    assert oe.verify(out, folder).ok


def test_a_transposed_slot_takes_the_floats_of_a_quantized_weight(tmp_path: Path) -> None:
    made = packed_ct(np.random.default_rng(2), rows=64, columns=96)
    want = made.floats["a.weight"].T
    onnx.save(open_graph({"a.weight": ("float32", want.shape)}), tmp_path / "g.onnx")
    how = oe.Mapping(map={"a.weight": {"key": "a.weight", "recipe": ["transpose"]}})
    folder = write(tmp_path / "c", made)
    oe.save(tmp_path / "g.onnx", tmp_path / "model.onnx", folder, mapping=how)
    assert saved_bytes(tmp_path / "model.onnx")["a.weight"] == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("name", ["gptq 4 bits", "awq gemm", "fp8 ragged blocks", "bnb nf4"])
def test_an_adapter_is_merged_into_the_floats_of_a_quantized_base(
    name: str, tmp_path: Path
) -> None:
    made = MAKERS[name](np.random.default_rng(2))
    base, want = write(tmp_path / "base", made), made.floats["a.weight"]
    first, second = (
        np.full(shape, 0.25, np.float32) for shape in ((4, want.shape[1]), (want.shape[0], 4))
    )
    prefix = "base_model.model.a.lora"
    parts = {f"{prefix}_A.weight": first, f"{prefix}_B.weight": second}
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(safetensors(parts))
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["a"]}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(settings))
    onnx.save(open_graph({"a.weight": ("float32", want.shape)}), tmp_path / "g.onnx")
    weights = [base, tmp_path / "adapter"]
    oe.save(tmp_path / "g.onnx", tmp_path / "model.onnx", weights, mapping=oe.Mapping(partial=True))
    saved = np.frombuffer(saved_bytes(tmp_path / "model.onnx")["a.weight"], np.float32)
    np.testing.assert_allclose(saved.reshape(want.shape), want + 0.5, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["gptq 4 bits", "fp8 ragged blocks", "bnb int8", "mlx 4 bits"])
def test_a_graph_that_reads_the_parts_of_a_quantized_weight_gets_them(
    name: str, tmp_path: Path
) -> None:
    made = MAKERS[name](np.random.default_rng(2))
    folder = write(tmp_path / "c", made)
    slots = {key: (value.dtype.name, value.shape) for key, value in made.tensors.items()}
    onnx.save(open_graph(slots), tmp_path / "g.onnx")
    out = tmp_path / "out" / "model.onnx"
    oe.save(tmp_path / "g.onnx", out, folder)
    saved = saved_bytes(out)
    for key, value in made.tensors.items():
        assert saved[key] == np.ascontiguousarray(value).tobytes()
    assert oe.verify(out, folder).ok


def test_inspect_lists_floats_and_the_parts_if_raw_is_given(tmp_path: Path) -> None:
    made = mxfp4_experts(np.random.default_rng(2))
    folder = write(tmp_path / "c", made)
    floats = {tensor.name: tensor for tensor in oe.inspect(folder).tensors}
    assert set(floats) == {"m.gate_up_proj", "m.gate_up_proj_bias"}
    assert floats["m.gate_up_proj"].dtype == "float32"
    assert {tensor.name for tensor in oe.inspect(folder, raw=True).tensors} == set(made.tensors)


def test_a_file_whose_settings_are_not_known_is_refused_with_what_to_give(tmp_path: Path) -> None:
    made = gptq(np.random.default_rng(2))
    path = tmp_path / "alone.safetensors"
    path.write_bytes(safetensors(made.tensors))
    onnx.save(open_graph({"a.weight": ("float32", (32, 96))}), tmp_path / "g.onnx")
    with pytest.raises(oe.Error, match=r"quantized by GPTQ .*pass the folder with its settings"):
        oe.save(tmp_path / "g.onnx", tmp_path / "out" / "model.onnx", path)


def test_codes_of_one_matrix_of_a_stack_can_be_linked(tmp_path: Path) -> None:
    made = [packed_ct(np.random.default_rng(seed)) for seed in range(2)]
    tensors = {
        f"e.{number}.{name.removeprefix('a.')}": value
        for number, each in enumerate(made)
        for name, value in each.tensors.items()
    }
    folder = write(tmp_path / "c", Made(tensors, made[0].config, {}))
    graph = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        agraph (float[m, 96] x, float[48, 96] w) => (float[m, 48] y)
        { t = Transpose <perm = [1, 0]> (w)  y = MatMul(x, t) }"""
    )
    onnx.save(graph, tmp_path / "g.onnx")
    stack = {"stack": ["e.0.weight", "e.1.weight"], "dim": 0}
    second = {"key": "stack", "recipe": [{"slice": [0, 1, 2]}, {"reshape": [48, 96]}]}
    how = oe.Mapping(map={"derived": {"stack": stack}, "map": {"w": second}})
    report = oe.save(
        tmp_path / "g.onnx", folder, folder, mapping=how, quantize="keep", layout="link"
    )
    assert report.linked_bytes == 48 * 96 // 2
    saved = saved_bytes(folder / "model.onnx")
    assert saved["w.codes"] == made[1].tensors["a.weight_packed"].tobytes()
