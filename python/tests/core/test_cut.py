"""Tests of pieces of models: their results, and the cuts that are errors."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)


@pytest.fixture
def saved(tiny: Path, tmp_path: Path) -> Path:
    oe.save(tiny / "graph.onnx", tmp_path / "out/model.onnx", tiny / "checkpoint.pt")
    return tmp_path / "out/model.onnx"


def test_a_piece_lies_beside_its_model(saved: Path) -> None:
    report = oe.cut(saved, "piece.onnx", module="h.0.mlp")
    assert (saved.parent / "piece.onnx").stat().st_size == report.model_bytes
    assert report.data_files == ["model.onnx.data"]
    assert len(report.inputs) == len(report.outputs) == 1
    assert report.to_dict()["nodes"] == report.nodes
    assert oe.verify(saved.parent / "piece.onnx").ok
    with pytest.raises(oe.ExistsError, match="overwrite"):
        oe.cut(saved, saved.parent / "piece.onnx", module="ln_f")
    again = oe.cut(saved, saved.parent / "piece.onnx", module="ln_f", overwrite=True)
    assert again.nodes < report.nodes


def test_a_piece_is_the_same_in_memory(saved: Path) -> None:
    onnx = pytest.importorskip("onnx")
    oe.cut(saved, "piece.onnx", module="ln_f")
    data, report = oe.cut_bytes(saved, module="ln_f")
    model = onnx.load(saved.parent / "piece.onnx", load_external_data=False)
    del model.metadata_props[:]
    assert onnx.load_from_string(data) == model
    assert report.model_bytes == len(data)


def test_a_piece_begins_at_the_inputs_of_the_model_if_none_are_named(saved: Path) -> None:
    report = oe.cut(saved, "piece.onnx", outputs=["/h.0/Add_2_output_0"])
    assert report.inputs == ["input_ids"] and report.outputs == ["/h.0/Add_2_output_0"]


def test_what_cannot_be_cut_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(oe.NotFoundError, match=r"did you mean 'h\.0'"):
        oe.cut(saved, "piece.onnx", module="h.1")
    with pytest.raises(oe.MismatchError, match="input_ids"):
        oe.cut(saved, "piece.onnx", inputs=["/h.0/ln_2/Add_1_output_0"], outputs=["logits"])
    with pytest.raises(oe.InvalidArgumentError, match="in the folder of its model"):
        oe.cut(saved, tmp_path / "piece.onnx", module="h.0")
    with pytest.raises(TypeError, match="a list of names"):
        oe.cut(saved, "piece.onnx", inputs="input_ids", outputs=["logits"])
    assert not (saved.parent / "piece.onnx").exists()


def test_the_command_runs_as_a_module(saved: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "onnx_external", "cut"], capture_output=True, text=True
    )
    # The exit code is 1 if this installation has no commands, as in a source tree.
    assert run.returncode in (1, 2)
    assert "cut-external" in run.stderr


def exported(kind: str, folder: Path) -> tuple[Path, dict[str, np.ndarray[Any, Any]]]:
    """Return a small transformers model, exported with external data, and inputs for it."""
    torch = pytest.importorskip("torch", minversion="2.11")
    transformers = pytest.importorskip("transformers", minversion="5")
    pytest.importorskip("onnxscript")
    torch.manual_seed(3)
    if kind == "ViT":
        config = transformers.ViTConfig(image_size=16, patch_size=8, **SIZES)
        model, example = transformers.ViTModel(config), torch.randn(2, 3, 16, 16)
    else:
        made = getattr(transformers, f"{kind}Config")(vocab_size=96, use_cache=False, **SIZES)
        model = getattr(transformers, f"{kind}Model")(made)
        example = torch.randint(0, 96, (2, 5))
    with torch.no_grad():
        program = torch.onnx.export(model.eval(), (example,), dynamo=True, verbose=False)
    oe.save(program, folder / "model.onnx")
    (name,) = [each.name for each in program.model_proto.graph.input]
    return folder / "model.onnx", {name: example.numpy()}


def values_of(
    path: Path, names: list[str], given: dict[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Return these values as computed by the whole model."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = onnx.load(path, load_external_data=False)
    forms = {each.name: each for each in [*model.graph.value_info, *model.graph.output]}
    del model.graph.output[:]
    model.graph.output.extend(forms[name] for name in names)
    exposed = path.parent / "exposed.onnx"
    onnx.save(model, exposed)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(exposed, options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, given), strict=True))


@pytest.mark.parametrize(
    ("kind", "modules"),
    [
        ("Llama", ["layers.1", "layers.0.self_attn", "layers.0.mlp", "layers", "norm"]),
        ("Bert", ["encoder.layer.0", "encoder.layer.1.attention", "embeddings", "pooler"]),
        ("ViT", ["embeddings", "layers.0", "layers.1.mlp", "layernorm"]),
    ],
)
def test_pieces_compute_what_the_whole_model_computes(
    kind: str, modules: list[str], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    path, given = exported(kind, tmp_path)
    graph = onnx.load(path, load_external_data=False).graph
    for module in modules:
        piece = tmp_path / f"{module}.onnx"
        report = oe.cut(path, piece, module=module, fsync=False)
        onnx.checker.check_model(piece)
        session = runtime.InferenceSession(piece, providers=["CPUExecutionProvider"])
        inner = [name for name in report.inputs if name not in given]
        whole = given | values_of(path, [*inner, *report.outputs], given)
        found = session.run(report.outputs, {name: whole[name] for name in report.inputs})
        for name, value in zip(report.outputs, found, strict=True):
            np.testing.assert_allclose(value, whole[name], rtol=1e-4, atol=1e-5, err_msg=name)
        # onnx extracts the same nodes, but copies the weights.
        onnx.utils.extract_model(
            path, tmp_path / "peer.onnx", report.inputs, report.outputs, infer_shapes=False
        )
        peer = onnx.load(tmp_path / "peer.onnx", load_external_data=False).graph
        own = onnx.load(piece, load_external_data=False).graph
        assert {each.name for each in peer.node} <= {each.name for each in own.node}
        assert len(own.node) < len(graph.node)
        between = oe.cut(path, piece, inputs=report.inputs, outputs=report.outputs, overwrite=True)
        assert between.nodes == len(peer.node)
