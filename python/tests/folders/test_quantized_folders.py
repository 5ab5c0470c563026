"""Tests of exports of folders with quantized weights."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime", minversion="1.27")
safetensors = pytest.importorskip("safetensors.numpy")
pytest.importorskip("ml_dtypes")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import quantized_folders as layouts  # noqa: E402

Making = Callable[[np.random.Generator, int, int], layouts.Made]

MAKING: dict[str, Making] = {
    "gptq": lambda rng, rows, columns: layouts.gptq(rng, 4, rows, columns, order=True),
    "mlx": lambda rng, rows, columns: layouts.mlx(rng, 4, rows, columns),
    "bnb4": lambda rng, rows, columns: layouts.bnb4(rng, rows, columns),
}


def _model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=96,
        eos_token_id=2,
        pad_token_id=3,
        max_position_embeddings=64,
        dtype="float16",
        architectures=["LlamaForCausalLM"],
    )
    return transformers.LlamaForCausalLM(config).eval()


def _folder(folder: Path, making: Making) -> tuple[Path, Any]:
    """Quantize the layers of a Llama; return the folder, and the model with dequantized weights."""
    model, rng = _model(), np.random.default_rng(0)
    state = {name: value.float() for name, value in model.state_dict().items()}
    stored: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for name, value in state.items():
        if ".layers." not in name or value.dim() != 2:
            stored[name] = value.half().numpy()
            state[name] = value.half().float()
            continue
        made = making(rng, *value.shape)
        config = made.config
        prefix = name.removesuffix(".weight")
        parts = {f"{prefix}{part[1:]}": each for part, each in made.tensors.items()}
        stored |= {part: each for part, each in parts.items() if not part.endswith("bias")}
        state[name] = torch.from_numpy(made.floats["a.weight"])
    model = model.float()
    model.load_state_dict(state)
    settings = {**json.loads(model.config.to_json_string(use_diff=False)), "dtype": "float16"}
    return layouts.write(folder, layouts.Made(stored, {**settings, **config}, {})), model


def _operators(path: Path) -> list[str]:
    graph = onnx.load(path, load_external_data=False).graph
    return [node.op_type for node in graph.node]


def _difference(path: Path, model: Any) -> float:
    tokens = torch.tensor([[1, 5, 9, 70, 33]])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {
        "input_ids": tokens.numpy(),
        "attention_mask": np.ones((1, 5), np.int64),
        "position_ids": np.arange(5)[None],
    }
    for each in session.get_inputs():
        if each.name.startswith("past"):
            feed[each.name] = np.zeros((1, 2, 0, 16), np.float32)
    found = session.run(["logits"], {each.name: feed[each.name] for each in session.get_inputs()})
    wanted = model(tokens).logits.detach().numpy()
    return float(np.abs(found[0] - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("name", ["gptq", "mlx"])
def test_the_export_of_a_quantized_folder_keeps_its_codes(name: str, tmp_path: Path) -> None:
    folder, model = _folder(tmp_path / "in", MAKING[name])
    exact = oe.Quantize("keep", accuracy_level=0)
    report = oe.transformers.export(folder, tmp_path / "out", quantize=exact, progress=False)
    path = tmp_path / "out" / "model.onnx"
    assert _operators(path).count("MatMulNBits") >= 4
    assert _difference(path, model) < 1e-5
    assert any("they are kept" in note for note in report.notes)
    assert oe.verify(path, against=folder).ok


def test_codes_are_kept_unless_floats_are_asked_for(tmp_path: Path) -> None:
    folder, model = _folder(tmp_path / "in", MAKING["gptq"])
    oe.transformers.export(folder, tmp_path / "kept", progress=False, check=False)
    assert "MatMulNBits" in _operators(tmp_path / "kept" / "model.onnx")
    oe.transformers.export(folder, tmp_path / "floats", quantize="float", progress=False)
    assert "MatMulNBits" not in _operators(tmp_path / "floats" / "model.onnx")
    assert _difference(tmp_path / "floats" / "model.onnx", model) < 1e-5


def test_the_config_beside_the_graphs_has_no_quantization_settings(tmp_path: Path) -> None:
    folder, _ = _folder(tmp_path / "in", MAKING["gptq"])
    before = (folder / "config.json").read_bytes()
    (folder / "quantize_config.json").write_text("{}")
    report = oe.transformers.export(folder, tmp_path / "out", progress=False, check=False)
    made = json.loads((tmp_path / "out" / "config.json").read_text())
    settings = json.loads(before)
    assert settings.pop("quantization_config")
    assert made == settings
    assert "quantize_config.json" not in report.copied
    assert (folder / "config.json").read_bytes() == before


def test_an_adapter_makes_floats_only_of_the_weights_that_it_changes(tmp_path: Path) -> None:
    folder, model = _folder(tmp_path / "base", MAKING["gptq"])
    name, adapter = "model.layers.0.self_attn.q_proj", tmp_path / "adapter"
    first, second = (np.full(shape, 0.01, np.float32) for shape in ((4, 64), (64, 4)))
    prefix = f"base_model.model.{name}.lora"
    adapter.mkdir()
    safetensors.save_file(
        {f"{prefix}_A.weight": first, f"{prefix}_B.weight": second},
        adapter / "adapter_model.safetensors",
    )
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    with torch.no_grad():
        model.get_submodule(name).weight += torch.from_numpy(2 * (second @ first))
    exact = oe.Quantize("keep", accuracy_level=0)
    report = oe.transformers.export(
        adapter, tmp_path / "out", base=folder, quantize=exact, progress=False
    )
    assert _operators(tmp_path / "out" / "model.onnx").count("MatMulNBits") == 6
    assert any("1 of them were quantized" in note for note in report.notes)
    assert _difference(tmp_path / "out" / "model.onnx", model) < 1e-5


def test_what_no_node_takes_becomes_floats_and_agrees(tmp_path: Path) -> None:
    folder, model = _folder(tmp_path / "in", MAKING["bnb4"])
    oe.transformers.export(folder, tmp_path / "out", progress=False)
    path = tmp_path / "out" / "model.onnx"
    assert "MatMulNBits" not in _operators(path)
    assert _difference(path, model) < 1e-5


def test_validate_compares_with_the_floats_of_the_codes(tmp_path: Path) -> None:
    folder, _ = _folder(tmp_path / "in", MAKING["gptq"])
    exact = oe.Quantize("keep", accuracy_level=0)
    oe.transformers.export(folder, tmp_path / "out", quantize=exact, progress=False, check=False)
    report = oe.validate(tmp_path / "out", against=folder, progress=False)
    assert report.ok
    # Either GPTQModel is not installed, or its model is compared.
    notes = [note for graph in report.graphs for note in graph.notes]
    assert any("the quantization library (gptq)" in note for note in notes), notes


def test_validate_compares_with_the_model_of_the_quantization_library(tmp_path: Path) -> None:
    def whole(rng: np.random.Generator, rows: int, columns: int) -> layouts.Made:
        return layouts.float8(rng, rows, columns, (rows, columns))

    folder, _ = _folder(tmp_path / "in", whole)
    oe.transformers.export(folder, tmp_path / "out", progress=False, check=False)
    report = oe.validate(tmp_path / "out", against=folder, progress=False)
    assert report.ok
    notes = [note for graph in report.graphs for note in graph.notes]
    assert any("(fp8) differs by" in note for note in notes), notes


def test_a_method_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    model = _model()
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    for name in [name for name in state if name.endswith("_proj.weight")]:
        state[name.replace(".weight", ".codebooks")] = state.pop(name)
    settings = json.loads(model.config.to_json_string(use_diff=False))
    settings["quantization_config"] = {"quant_method": "aqlm"}
    layouts.write(tmp_path / "in", layouts.Made(state, settings, {}))
    with pytest.raises(oe.Error, match=r"(?i)aqlm"):
        oe.transformers.export(tmp_path / "in", tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("dtype", "message"),
    [("float8_e4m3fn", "q_proj.factor' scales "), ("int8", "q_proj.weight' is INT8")],
)
def test_codes_whose_scales_nobody_reads_are_not_exported_as_weights(
    dtype: str, message: str, tmp_path: Path
) -> None:
    model = _model()
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    name = "model.layers.0.self_attn.q_proj.weight"
    state[name] = (state[name] * 64).astype(np.dtype(dtype))
    state[name.replace("weight", "factor")] = np.full(64, 1 / 64, np.float32)
    settings = json.loads(model.config.to_json_string(use_diff=False))
    layouts.write(tmp_path / "in", layouts.Made(state, settings, {}))
    with pytest.raises(oe.Error, match=message):
        oe.transformers.export(tmp_path / "in", tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()
