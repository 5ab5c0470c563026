"""Tests that the graphs of decoders have few nodes, and store each weight once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

LAYERS = 2
PARTS = ("q_proj", "k_proj", "v_proj")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Qwen2, in which queries, keys and values have biases."""
    made = tmp_path_factory.mktemp("qwen2")
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=96, hidden_size=64, intermediate_size=48, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
        max_position_embeddings=32,
    )  # fmt: skip
    transformers.Qwen2ForCausalLM(config).save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def exported(folder: Path) -> Any:
    return oe.transformers.export(folder, folder / "out", attention="lengths", progress=False)


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def test_layers_have_one_product_for_attention_and_no_moves_around_it(
    folder: Path, exported: Any
) -> None:
    found = operators(folder / "out" / "model.onnx")
    assert found["GroupQueryAttention"] == LAYERS and found["MatMul"] == 5 * LAYERS + 1
    assert not {"RotaryEmbedding", "Split", "Transpose", "Reshape", "Pow"} & found.keys()
    assert found["SkipSimplifiedLayerNormalization"] == 2 * LAYERS - 1
    assert found["RMSNormalization"] == 2  # the first and the last one
    assert found.total() == 12 * LAYERS + 13
    assert "position_ids" not in exported.inputs["model"]
    assert any("since 1.23" in note for note in exported.notes)


def test_the_weights_of_a_packed_product_are_those_of_the_checkpoint_stored_once(
    folder: Path, exported: Any
) -> None:
    path = folder / "out" / "model.onnx"
    assert oe.verify(path, against=folder).ok
    packed = "model.layers.0.self_attn.q_proj_k_proj_v_proj"
    names = {tensor.slot for tensor in exported.graphs["model"].tensors}
    assert {f"{packed}.weight.transposed", f"{packed}.bias"} <= names
    assert not any(f".{part}." in name for part in PARTS for name in names)
    weights = transformers.Qwen2ForCausalLM.from_pretrained(folder).state_dict()
    inside = weights[f"model.layers.0.self_attn.{PARTS[1]}.weight"].T
    held = {each.name: each for each in onnx.load(path).graph.initializer}
    stored = onnx.numpy_helper.to_array(held[f"{packed}.weight.transposed"])
    assert stored.shape == (64, 128) and (stored[:, 64:96] == inside.numpy()).all()
    assert exported.save.bytes <= sum(each.nbytes for each in weights.values()) + 4096


def test_every_module_is_judged_alone_though_nodes_work_for_several(
    folder: Path, exported: Any
) -> None:
    report = oe.diagnose(folder / "out" / "model.onnx", folder)
    judged = {each.name: each.status for each in report.modules}
    for part in (*(f"self_attn.{each}" for each in PARTS), "input_layernorm", ""):
        assert judged[f"model.layers.1.{part}".rstrip(".")] == oe.Status.OK
    assert report.ok and exported.checked
    model = transformers.Qwen2ForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight *= 3
    model.save_pretrained(folder / "other")
    report = oe.diagnose(folder / "out" / "model.onnx", folder / "other")
    assert [each.name for each in report.wrong] == ["model.layers.1.self_attn.k_proj"]


def test_a_graph_that_links_to_its_checkpoint_keeps_three_products(folder: Path) -> None:
    report = oe.transformers.export(
        folder, folder, attention="lengths", layout="link", overwrite=True, check=False,
        progress=False,
    )  # fmt: skip
    assert report.save.bytes == 0
    assert operators(folder / "model.onnx")["MatMul"] == 7 * LAYERS + 1


def test_a_graph_by_masks_has_the_weights_by_the_names_of_the_keys(folder: Path) -> None:
    out = folder / "by_masks"
    oe.transformers.export(folder, out, check=False, progress=False)
    found = operators(out / "model.onnx")
    assert found["MatMul"] == 7 * LAYERS + 1 and found["RotaryEmbedding"] == 2 * LAYERS
    assert not found["Transpose"] and not found["Reshape"] and found.total() == 17 * LAYERS + 22
    assert oe.save(out / "model.onnx", out / "again", folder).unmatched_keys == []


def test_a_newer_opset_is_honoured_and_its_cost_is_noted(folder: Path) -> None:
    out = folder / "newer"
    report = oe.transformers.export(folder, out, opset_version=25, check=False, progress=False)
    (opset,) = (each for each in onnx.load(out / "model.onnx").opset_import if not each.domain)
    assert opset.version == 25 and operators(out / "model.onnx")["RotaryEmbedding"]
    assert "runtimes that are older than ONNX opset 25 cannot load the graphs" in report.notes


def test_an_older_opset_keeps_what_it_has_no_operator_for(folder: Path) -> None:
    out = folder / "older"
    report = oe.transformers.export(
        folder, out, attention="traced", opset_version=18, check=False, progress=False
    )
    found = operators(out / "model.onnx")
    assert not {"RMSNormalization", "RotaryEmbedding", "Split"} & found.keys() and found["Pow"]
    (opset,) = onnx.load(out / "model.onnx").opset_import
    assert opset.version == 18
    assert not any("since 1.23" in note for note in report.notes)
    assert any(note.startswith("ONNX opset 18 lacks RMSNorm") for note in report.notes)
    with pytest.raises(oe.InvalidArgumentError, match="attention='standard' is an operator of"):
        oe.transformers.export(folder, out, attention="standard", opset_version=22)
    with pytest.raises(oe.InvalidArgumentError, match="opset_version=6"):
        oe.transformers.export(folder, out, opset_version=6)


def test_a_decoder_with_fused_attention_is_written_for_an_older_opset(folder: Path) -> None:
    out = folder / "oldest"
    report = oe.transformers.export(folder, out, opset_version=11, progress=False)
    (opset,) = (each for each in onnx.load(out / "model.onnx").opset_import if not each.domain)
    assert opset.version == 11 and operators(out / "model.onnx")["GroupQueryAttention"]
    assert report.checked["model"] > 1
    with pytest.raises(oe.InvalidArgumentError, match=r"Where in .*opset_version=9 can$"):
        oe.transformers.export(folder, folder / "none", opset_version=8, progress=False)
    assert not (folder / "none").exists()
