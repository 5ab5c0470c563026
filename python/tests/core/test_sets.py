"""Tests of several graphs that share data: each byte is stored once, and every model is right."""

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import helper, numpy_helper, onnx, open_graph, places, saved_bytes

import onnx_external as oe

COMMANDS = Path(sysconfig.get_path("scripts"))
SHAPE = (30, 40)
Weights = dict[str, np.ndarray[Any, Any]]


@pytest.fixture
def weights() -> Weights:
    random = np.random.default_rng(3)
    return {name: random.random(SHAPE, np.float32) for name in ("a", "shared", "b")}


def graph_of(names: list[str]) -> Any:
    return open_graph(dict.fromkeys(names, ("float32", SHAPE)))


def model_of(values: Weights) -> Any:
    """Return a model that contains its weights and computes their sum."""
    tensors = [numpy_helper.from_array(value, name) for name, value in values.items()]
    node = helper.make_node("Sum", list(values), ["y"])
    output = helper.make_tensor_value_info("y", 1, SHAPE)
    graph = helper.make_graph([node], "g", [], [output], tensors)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, ir_version=8, opset_imports=[opset])


def graphs() -> dict[str, Any]:
    return {
        "encoder.onnx": graph_of(["a", "shared"]),
        "decoder.onnx": graph_of(["shared", "b"]).SerializeToString(),
    }


@pytest.mark.parametrize("layout", ["single", "per-tensor", "shards"])
def test_graphs_share_the_data_of_a_state_dict(
    layout: str, weights: Weights, tmp_path: Path
) -> None:
    report = oe.save(graphs(), tmp_path, weights, layout=layout)
    assert report.verified and report.folder == str(tmp_path)
    assert [Path(model.model).name for model in report.models] == ["encoder.onnx", "decoder.onnx"]
    assert [model.bytes for model in report.models] == [2 * 4800, 2 * 4800]
    assert 3 * 4800 <= report.bytes < 4 * 4800
    encoder, decoder = tmp_path / "encoder.onnx", tmp_path / "decoder.onnx"
    assert saved_bytes(encoder) == {name: weights[name].tobytes() for name in ("a", "shared")}
    assert saved_bytes(decoder) == {name: weights[name].tobytes() for name in ("shared", "b")}
    assert places(encoder)["shared"] == places(decoder)["shared"]
    for model in (encoder, decoder):
        assert oe.verify(model).ok
        assert oe.verify(model, against=weights).ok


def test_a_folder_of_a_set_is_verified_whole(weights: Weights, tmp_path: Path) -> None:
    oe.save(graphs(), tmp_path, weights)
    report = oe.verify(tmp_path)
    assert report.ok and [Path(name).name for name in report.models] == [
        "decoder.onnx",
        "encoder.onnx",
    ]
    assert report.tensors == sum(one.tensors for one in report.models.values()) == 4
    assert oe.verify(tmp_path, against=weights).compared == 4
    assert report.to_dict()["models"][0]["ok"]
    (data,) = tmp_path.glob("*.data")
    with open(data, "r+b") as file:
        file.seek(3 * 4800 - 8)
        file.write(b"\xff" * 4)
    report = oe.verify(tmp_path)
    assert not report
    wrong = [Path(name).name for name, one in report.models.items() if not one]
    assert wrong and {finding.code for finding in report.findings} == {"crc-differs"}


def test_models_that_hold_their_weights_share_a_tensor_that_both_have(
    weights: Weights, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    values = {
        "one.onnx": {"a": weights["a"], "w": weights["shared"]},
        "two.onnx": {"v": weights["shared"].copy(), "b": weights["b"]},
    }
    report = oe.save({name: model_of(each) for name, each in values.items()}, tmp_path)
    assert 3 * 4800 <= report.bytes < 4 * 4800
    for name, each in values.items():
        assert saved_bytes(tmp_path / name) == {key: value.tobytes() for key, value in each.items()}
        session = runtime.InferenceSession(str(tmp_path / name))
        np.testing.assert_array_equal(session.run(None, {})[0], sum(each.values()))


def test_an_object_of_two_models_is_made_once(weights: Weights, tmp_path: Path) -> None:
    ir = pytest.importorskip("onnx_ir")
    calls = []

    def make() -> Any:
        calls.append(1)
        return ir.tensor(weights["shared"])

    shared = ir.LazyTensor(make, dtype=ir.DataType.FLOAT, shape=ir.Shape(SHAPE), name="w")
    models = {}
    for name in ("one.onnx", "two.onnx"):
        model = ir.from_proto(model_of({"w": weights["a"]}))
        model.graph.initializers["w"].const_value = shared
        models[name] = model
    report = oe.save(models, tmp_path)
    assert report.bytes == 4800 and len(calls) == 1
    assert saved_bytes(tmp_path / "two.onnx") == {"w": weights["shared"].tobytes()}


def test_a_report_of_a_set_is_the_command_s_document(tiny: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.onnx").write_bytes((tiny / "graph.onnx").read_bytes())
    paths = {name: tmp_path / name for name in ("one.onnx", "two.onnx")}
    checkpoint, out = tiny / "checkpoint.pt", tmp_path / "out"
    report = oe.save(paths, out, checkpoint, layout="per-tensor")
    command = [COMMANDS / "save-external", *paths.values(), checkpoint, "-o", out]
    printed = json.loads(
        subprocess.run(
            [*command, "--overwrite", "--dry-run", "--json"], check=True, capture_output=True
        ).stdout
    )
    document = report.to_dict()
    assert document.keys() == printed.keys()
    assert [model.keys() for model in document["models"]] == [
        model.keys() for model in printed["models"]
    ]
    assert report.models[1].tensors[0].slot == printed["models"][1]["tensors"][0]["slot"]
    assert report.models[0].inputs_left == ["input_ids"]


def test_a_plan_of_a_set_shows_pairs_and_files_and_can_be_carried_out(
    weights: Weights, tmp_path: Path
) -> None:
    plan = oe.plan(graphs(), path=tmp_path, weights=weights, layout="per-tensor")
    assert plan.dry_run
    assert [[pair.key for pair in model.pairs] for model in plan.models] == [
        ["a", "shared"],
        ["shared", "b"],
    ]
    with pytest.raises(AttributeError, match="2 models: see its `models`"):
        _ = plan.pairs
    assert plan.files == dict.fromkeys(
        ["initializers/a", "initializers/shared", "initializers/b"], 4800
    )
    assert list(tmp_path.iterdir()) == []
    assert plan.save().verified
    assert (tmp_path / "decoder.onnx").is_file()


def test_tensors_beside_the_weights_fill_slots_of_all_graphs(
    weights: Weights, tmp_path: Path
) -> None:
    shared = weights.pop("shared")
    report = oe.save(graphs(), tmp_path, weights, extra={"shared": shared})
    assert 3 * 4800 <= report.bytes < 4 * 4800
    assert saved_bytes(tmp_path / "decoder.onnx")["shared"] == shared.tobytes()


def test_each_graph_has_the_folder_of_its_own_data(weights: Weights, tmp_path: Path) -> None:
    ir = pytest.importorskip("onnx_ir")
    models: dict[str, Any] = {}
    for name in ("a", "b"):
        oe.save(model_of({name: weights[name]}), tmp_path / name / "model.onnx")
        models[f"{name}.onnx"] = ir.load(tmp_path / name / "model.onnx")
    models["file.onnx"] = tmp_path / "a" / "model.onnx"
    oe.save(models, tmp_path / "out")
    for name, key in (("a", "a"), ("b", "b"), ("file", "a")):
        assert saved_bytes(tmp_path / "out" / f"{name}.onnx") == {key: weights[key].tobytes()}


def test_keys_that_no_graph_uses_and_weights_without_keys_are_reported(
    weights: Weights, tmp_path: Path
) -> None:
    extra = weights | {"more": np.ones(SHAPE, np.float32)}
    with pytest.raises(oe.MappingError) as caught:
        oe.save(graphs(), tmp_path / "out", extra)
    assert caught.value.kind == "unused" and caught.value.unexpected == ["more"]
    del weights["b"]
    with pytest.raises(oe.MappingError) as caught:
        oe.save(graphs(), tmp_path / "out", weights)
    assert caught.value.kind == "missing" and caught.value.missing == ["b"]
    assert [each.owner for each in caught.value.lists["missing"]] == ["decoder.onnx"]
    assert not (tmp_path / "out").exists()


def test_what_is_for_one_graph_is_refused(weights: Weights, tmp_path: Path) -> None:
    refusals: list[tuple[str, dict[str, Any]]] = [
        ("a layout other than inline", {"layout": "inline"}),
        ("initializers only if a single model is saved", {"mapping": oe.Mapping(unmatched="keep")}),
        ("recorded inputs", {"files": oe.Layout(test_data=tmp_path / "inputs.pt")}),
        ("a single graph", {"mapping": oe.Mapping(learn_map=weights)}),
    ]
    for words, options in refusals:
        with pytest.raises(oe.InvalidArgumentError, match=words):
            oe.save(graphs(), tmp_path / "out", weights, **options)
    bad: list[tuple[type[Exception], str, Any]] = [
        (oe.InvalidArgumentError, "must end with .onnx", {**graphs(), "c": graph_of(["a"])}),
        (oe.InvalidArgumentError, "no graph", {}),
        (TypeError, "is not a str", {1: graph_of(["a"])}),
        (TypeError, "expected a path", {"a.onnx": object()}),
    ]
    for error, words, models in bad:
        with pytest.raises(error, match=words):
            oe.save(models, tmp_path / "out", weights)
    with pytest.raises(TypeError, match="dry run"):
        oe.save(graphs(), None, weights)
    assert not (tmp_path / "out").exists()


def test_a_set_replaces_a_set(weights: Weights, tmp_path: Path) -> None:
    oe.save(graphs(), tmp_path, weights)
    with pytest.raises(oe.ExistsError):
        oe.save(graphs(), tmp_path, weights)
    other = {name: value + 1 for name, value in weights.items()}
    oe.save(graphs(), tmp_path, other, overwrite=True)
    assert saved_bytes(tmp_path / "encoder.onnx")["a"] == other["a"].tobytes()
    data = [path.name for path in tmp_path.iterdir() if path.suffix == ".data"]
    assert data == ["initializers.1.data"]
    assert onnx.load(str(tmp_path / "decoder.onnx")).graph.initializer
