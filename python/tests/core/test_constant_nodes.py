"""Tests of weights that a graph stores in nodes instead of initializers."""

from pathlib import Path

import numpy as np
import pytest

import onnx_external as oe

onnx = pytest.importorskip("onnx")
save_file = pytest.importorskip("safetensors.numpy").save_file

WEIGHTS = {name: np.full((16, 16), k, np.float32) for k, name in enumerate(("a", "b"))}


def value(name: str, shape: list[int]) -> "onnx.ValueInfoProto":
    return onnx.helper.make_tensor_value_info(name, 1, shape)


def constant(name: str) -> "onnx.NodeProto":
    tensor = onnx.numpy_helper.from_array(WEIGHTS[name], name)
    return onnx.helper.make_node("Constant", [], [name], value=tensor)


def written(path: Path, nodes: list["onnx.NodeProto"], functions: tuple = ()) -> Path:
    """Write a model that adds `w`, which `nodes` compute, to its input."""
    add = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph(
        [*nodes, add], "g", [value("x", [16, 16])], [value("y", [16, 16])]
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)
    onnx.save(model, path)
    return path


def added(path: Path) -> Path:
    """Write a model with two Constant nodes, `a` and `b`."""
    nodes = [constant("a"), constant("b"), onnx.helper.make_node("MatMul", ["a", "b"], ["w"])]
    return written(path, nodes)


def test_inspect_lists_what_nodes_hold_the_largest_first(tmp_path: Path) -> None:
    floats = onnx.helper.make_node("Constant", [], ["f"], value_floats=[0.5] * 100)
    small = onnx.helper.make_node("Constant", [], ["s"], value_ints=[1, 2])
    body = onnx.helper.make_graph([constant("b")], "t", [], [value("b", [16, 16])])
    test = onnx.helper.make_node(
        "Constant", [], ["c"], value=onnx.helper.make_tensor("c", 9, [], [1])
    )
    other = onnx.helper.make_node("If", ["c"], ["w"], then_branch=body, else_branch=body)
    inside = onnx.helper.make_function(
        "own", "F", [], ["a"], [constant("a")], [onnx.helper.make_opsetid("", 17)]
    )
    model = written(tmp_path / "m.onnx", [floats, small, test, other], (inside,))
    found = oe.inspect(model).node_tensors
    assert [each["name"] for each in found] == ["b", "b", "a", "f"]
    assert found[0]["nbytes"] == 1024
    assert found[3] == {"name": "f", "dtype": "float32", "shape": [100], "nbytes": 400}


def test_a_save_that_moves_nothing_names_them_and_the_option(tmp_path: Path) -> None:
    model = added(tmp_path / "m.onnx")
    with pytest.raises(
        oe.NotFoundError, match=r"no weights to move except values in nodes: 'a', 'b'"
    ) as e:
        oe.save(model, tmp_path / "out.onnx")
    assert [remedy.option for remedy in e.value.remedies] == ["attributes"]
    assert len(oe.save(model, tmp_path / "out.onnx", files=oe.Layout(attributes=True)).tensors) == 2


def test_a_checkpoint_with_their_names_is_refused_with_the_cause(tmp_path: Path) -> None:
    model = added(tmp_path / "m.onnx")
    save_file(WEIGHTS, tmp_path / "c.safetensors")
    with pytest.raises(
        oe.Error, match=r"2 keys are values of Constant nodes in the graph: 'a', 'b'"
    ):
        oe.save(model, tmp_path / "out.onnx", tmp_path / "c.safetensors")


def test_a_fill_with_the_name_of_a_key_is_named(tmp_path: Path) -> None:
    shape = onnx.helper.make_node("Constant", [], ["s"], value_ints=[16, 16])
    fill = onnx.helper.make_node("ConstantOfShape", ["s"], ["w"])
    model = written(tmp_path / "m.onnx", [shape, fill])
    save_file({"w": WEIGHTS["a"]}, tmp_path / "c.safetensors")
    with pytest.raises(oe.Error, match=r"nodes of the graph compute the values of 'w'"):
        oe.save(model, tmp_path / "out.onnx", tmp_path / "c.safetensors")


def test_a_quantized_graph_is_distinguished_from_its_float_checkpoint(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("DequantizeLinear", ["q", "scale"], ["w"])]
    model = onnx.load(written(tmp_path / "m.onnx", nodes))
    model.graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(np.zeros((16, 16), np.uint8), "q"),
            onnx.numpy_helper.from_array(np.ones((), np.float32), "scale"),
        ]
    )
    onnx.save(model, tmp_path / "m.onnx")
    save_file({"w": WEIGHTS["a"]}, tmp_path / "c.safetensors")
    with pytest.raises(
        oe.Error, match=r"the graph is quantized \('q' is read by Dequant"
    ) as caught:
        oe.save(tmp_path / "m.onnx", tmp_path / "out.onnx", tmp_path / "c.safetensors")
    assert not caught.value.remedies
