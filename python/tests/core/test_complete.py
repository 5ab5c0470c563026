"""Tests of models that lack weights, which are completed, rejected, or saved as incomplete."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import helper, numpy_helper, onnx, value

import onnx_external as oe

FORM = ("float32", (16, 16))
LAYOUTS = ("single", "per-tensor", "shards", "inline")
PARTIAL = oe.Mapping(partial=True)


def half(lacking: str = "name") -> Any:
    """Return a model with one of its two weights. The other one is missing, or has no data."""
    nodes = [
        helper.make_node("MatMul", ["x", "a.weight"], ["t"]),
        helper.make_node("MatMul", ["t", "b.weight"], ["y"]),
    ]
    held = numpy_helper.from_array(np.ones((16, 16), np.float32), "a.weight")
    inputs, outputs = [value("x", *FORM)], [value("y", *FORM)]
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [held], value_info=[value("b.weight", *FORM)]
    )
    if lacking == "data":
        graph.initializer.add(name="b.weight", data_type=1, dims=[16, 16])
    if lacking == "input":
        graph.input.append(value("b.weight", *FORM))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("lacking", ["name", "data", "input"])
def test_a_model_that_lacks_a_weight_is_refused_in_every_form_and_layout(
    lacking: str, tmp_path: Path
) -> None:
    model = half(lacking)
    onnx.save(model, tmp_path / "half.onnx")
    for form in (model, model.SerializeToString(), tmp_path / "half.onnx"):
        for layout in LAYOUTS:
            with pytest.raises(oe.MappingError, match=r"b\.weight") as caught:
                oe.save(form, tmp_path / "out", layout=layout)
            assert any(remedy.option == "partial" for remedy in caught.value.remedies)
        with pytest.raises(oe.MappingError, match=r"b\.weight"):
            oe.plan(form)
        with pytest.raises(oe.MappingError, match=r"b\.onnx: .*b\.weight"):
            oe.save({"b.onnx": form, "c.onnx": form}, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.onnx"))


@pytest.mark.parametrize("lacking", ["name", "data"])
def test_a_partial_save_is_reported_as_incomplete(lacking: str, tmp_path: Path) -> None:
    report = oe.save(half(lacking), tmp_path / "one", mapping=PARTIAL)
    assert not report.complete and report.slots_left == ["b.weight"]
    assert report.to_dict()["complete"] is False
    assert not oe.plan(half(lacking), mapping=PARTIAL).complete
    found = oe.verify(tmp_path / "one")
    assert not found.ok and not found.complete
    assert [(each.code, each.tensor) for each in found.findings] == [("open-slot", "b.weight")]
    shared = oe.save({"a.onnx": half(lacking)}, tmp_path / "set", mapping=PARTIAL)
    assert not shared.complete and not shared.models[0].complete


def test_a_checkpoint_completes_it(tmp_path: Path) -> None:
    weights = {name: np.ones((16, 16), np.float32) for name in ("a.weight", "b.weight")}
    report = oe.save(half(), tmp_path / "out", weights)
    assert report.complete and report.verified
    assert oe.verify(tmp_path / "out", weights).complete
    extra = oe.save(half(), tmp_path / "extra", extra={"b.weight": weights["b.weight"]})
    assert extra.complete and extra.kept_by_option == []


def test_inputs_that_the_caller_names_are_not_weights(tmp_path: Path) -> None:
    report = oe.save(half("input"), tmp_path / "out", mapping=oe.Mapping(inputs=["x", "b.weight"]))
    assert report.complete and report.inputs_left == ["x", "b.weight"]


def test_what_was_kept_ignored_and_left_out_is_in_the_report(tmp_path: Path) -> None:
    ones = np.ones((16, 16), np.float32)
    weights = {name: ones * i for i, name in enumerate(("a.weight", "b.weight", "c.weight"))}
    model = half("data")
    how = oe.Mapping(inputs="x", keep="a.weight", ignore=["^c"])
    report = oe.save(model, tmp_path / "kept", weights, mapping=how)
    assert report.complete
    assert report.kept_by_option == ["a.weight"]
    assert report.ignored_keys == ["c.weight"]
    del weights["a.weight"], weights["c.weight"]
    how = oe.Mapping(inputs="x", partial=True)
    partial = oe.save(model, tmp_path / "partial", weights, mapping=how)
    assert not partial.complete and partial.left_old == ["a.weight"]
    assert partial.slots_left == []


def test_keys_that_a_learned_map_accounts_for_are_not_called_ignored(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    old = {
        "a.weight": rng.random((16, 16), np.float32),
        "b.weight": rng.random((16, 8), np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "val_1"], ["t"]),
        helper.make_node("MatMul", ["t", "val_2"], ["y"]),
    ]
    held = {"val_1": old["a.weight"].T.copy(), "val_2": 2 * old["b.weight"]}
    inside = [numpy_helper.from_array(array, name) for name, array in held.items()]
    outputs = [value("y", "float32", (16, 8))]
    graph = helper.make_graph(nodes, "g", [value("x", *FORM)], outputs, inside)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    tuned = {**old, "a.weight": rng.random((16, 16), np.float32)}
    report = oe.save(model, tmp_path, tuned, mapping=oe.Mapping(learn_map=old, inputs="x"))
    assert report.complete and report.baked_keys == ["b.weight"]
    assert report.ignored_keys == [] and report.kept_by_option == []


def test_an_ir_value_without_data_is_refused(tmp_path: Path) -> None:
    ir = pytest.importorskip("onnx_ir")
    model = ir.from_proto(half("data"))
    model.graph.initializers["b.weight"].const_value = None
    with pytest.raises(oe.MappingError, match=r"b\.weight"):
        oe.save(model, tmp_path / "out")
    assert not oe.save(model, tmp_path / "out", mapping=PARTIAL).complete


def test_a_writer_refuses_a_graph_that_lacks_what_was_not_added(tmp_path: Path) -> None:
    with pytest.raises(oe.MappingError, match=r"b\.weight"), oe.Writer(tmp_path / "out") as writer:
        writer.add("a.weight", np.ones((16, 16), np.float32))
        writer.finish(half())
    assert not list((tmp_path / "out").glob("*.onnx"))
    with oe.Writer(tmp_path / "out", mapping=PARTIAL) as writer:
        writer.add("a.weight", np.ones((16, 16), np.float32))
        writer.finish(half())
    assert not oe.verify(tmp_path / "out").complete


def test_an_export_without_weights_takes_those_of_the_module(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", minversion="2.9")
    pytest.importorskip("onnxscript")
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)).eval()
    module.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
    module[0].weight.data.mul_(3)
    args = (torch.ones(2, 8),)
    report = oe.torch.export(module, args, tmp_path / "own")
    assert report.save.complete and report.save.verified
    assert report.sources["0.weight"].origin == "module"
    assert oe.verify(tmp_path / "own", module.state_dict(), mapping=oe.Mapping(unmatched="skip")).ok
    other = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)).eval()
    oe.torch.export(module, args, tmp_path / "other", weights=other)
    assert oe.verify(tmp_path / "other", other.state_dict()).ok
    program = torch.export.export(other, args)
    assert oe.torch.export(program, (), tmp_path / "program").save.complete
    with pytest.raises(oe.MappingError, match=r"0\.weight"):
        oe.torch.export(lambda: torch.nn.Sequential(torch.nn.Linear(8, 8)), args, tmp_path / "no")
    skeleton = oe.torch.skeleton(other, args)
    with pytest.raises(oe.MappingError, match=r"0\.bias"):
        oe.save(skeleton, tmp_path / "no")
    assert not list((tmp_path / "no").glob("*.onnx"))
