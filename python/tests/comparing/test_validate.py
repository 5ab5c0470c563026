"""Tests of comparing models on ONNX Runtime with expected results."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest

import onnx_external as oe
from onnx_external._comparing.comparing import compare

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
ml_dtypes = pytest.importorskip("ml_dtypes")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def scaled(
    path: Path, factor: float, bias: float = 0.0, dtype: int = TensorProto.FLOAT, **more: Any
) -> str:
    """Return a model that computes y = factor * x + bias, and z = -y."""
    of = helper.tensor_dtype_to_np_dtype(dtype)
    values = [
        numpy_helper.from_array(np.array(value).astype(of), name)
        for name, value in (("factor", factor), ("bias", bias))
    ]
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["y"]),
        helper.make_node("Neg", ["y"], ["z"]),
    ]
    forms = [helper.make_tensor_value_info(name, dtype, ["rows", 3]) for name in "xyz"]
    graph = helper.make_graph(nodes, "g", forms[:1], forms[1:], values)
    return written(path, graph)


def written(path: Path, graph: Any) -> str:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return str(path)


def identity(path: Path, dtype: int, shape: list[Any]) -> str:
    forms = [helper.make_tensor_value_info(name, dtype, shape) for name in "xy"]
    node = helper.make_node("Identity", ["x"], ["y"])
    return written(path, helper.make_graph([node], "g", forms[:1], forms[1:]))


X = np.arange(12, dtype=np.float32).reshape(4, 3)


def command(*arguments: Any) -> Any:
    return commands.run("validate", *arguments)


def test_a_planted_difference_is_found_with_its_place_and_size() -> None:
    want = np.ones((2, 3, 4), np.float32)
    got = want.copy()
    got[1, 2, 0] += 0.5
    got[0, 1, 1] += 5e-5  # within the tolerance
    found = compare("y", got, want)
    assert not found.ok and found.beyond == 1 and found.share == 1 / 24
    assert found.max_abs == found.max_rel == 0.5
    assert found.max_abs_at == found.max_rel_at == found.first_at == [1, 2, 0]
    assert (found.actual, found.expected) == (1.5, 1.0)
    assert compare("y", got, want, atol=1.0).ok and compare("y", got, want, rtol=1.0).ok


def test_nan_and_infinity_are_counted_on_both_sides() -> None:
    nan, inf = np.nan, np.inf
    got = np.array([nan, nan, inf, inf, 1, -inf], np.float32)
    want = np.array([nan, 1, inf, -inf, nan, 2], np.float32)
    found = compare("y", got, want)
    assert (found.nan, found.expected_nan, found.inf, found.expected_inf) == (2, 2, 3, 2)
    assert found.beyond == 4 and found.first_at == [1]
    assert compare("y", want, want).ok
    assert compare("y", want[[0]], want[[0]]).max_abs is None


def test_the_default_tolerance_grows_with_the_values() -> None:
    small = np.array([0.0, 0.5], np.float32)
    large = np.array([0.0, 5000.0], np.float32)
    off = np.array([0.01, 0.0], np.float32)
    assert not compare("y", small + off, small).ok
    assert compare("y", large + off, large).ok
    assert not compare("y", large + off, large, atol=1e-4).ok
    assert compare("y", small + off, small, others=["float16"]).ok


def test_a_relative_difference_is_to_the_expected_size_or_to_atol() -> None:
    found = compare("y", np.array([1e-9, 11.0]), np.array([0.0, 10.0]), atol=1e-6, rtol=1.0)
    assert found.ok and found.max_rel == pytest.approx(0.1) and found.max_rel_at == [1]


def test_shapes_and_kinds_of_types_that_differ_are_reported() -> None:
    assert "shapes differ: [2], expected [1, 2]" == compare("y", X[0, :2], X[:1, :2]).problem
    told = compare("y", X, X.astype(np.int32)).problem
    assert told == "types differ: float32, expected int32"
    told = compare("y", np.ones(2, np.int8), np.ones(2, np.uint8)).problem
    assert told == "types differ: int8, expected uint8"
    assert compare("y", None, X).problem == "the model does not return it"
    assert compare("y", X, None).problem == "the reference does not return it"


def test_types_are_compared_each_in_its_way() -> None:
    large = np.array([2**63 - 1, -(2**63)], np.int64)
    assert compare("y", large, large).ok
    assert compare("y", large, large[::-1]).max_abs == 2.0**64
    found = compare("y", large, large - np.array([1, 0]))
    assert found.beyond == 1 and found.max_abs == 1 and found.atol == 0
    wide = large.astype(np.uint64)
    assert compare("y", wide, wide + np.array([1, 0], np.uint64)).beyond == 1
    assert compare("y", np.array([True]), np.array([False])).beyond == 1
    words = np.array([["a", "b"]], object)
    found = compare("y", words, np.array([["a", "c"]], object))
    assert found.first_at == [0, 1] and (found.actual, found.expected) == ("b", "c")
    assert compare("y", np.array([1 + 1j]), np.array([1 - 1j])).max_abs == 2
    for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        narrow = np.ones(4).astype(getattr(ml_dtypes, name, np.float16))
        found = compare("y", narrow, narrow * narrow.dtype.type(4))
        assert found.beyond == 4 and found.max_abs == 3 and found.dtype == name


def test_a_large_output_is_compared_block_by_block() -> None:
    want = np.zeros(1 << 22, np.float32)
    got = want.copy()
    got[-2] = 1
    tracemalloc.start()
    found = compare("y", got, want)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.beyond == 1 and found.max_abs_at == [(1 << 22) - 2]
    assert peak < want.nbytes


def test_two_models_are_compared_on_inputs_that_are_made(tmp_path: Path) -> None:
    first = scaled(tmp_path / "first.onnx", 2)
    same, other = scaled(tmp_path / "same.onnx", 2), scaled(tmp_path / "other.onnx", 2.1)
    report = oe.validate(first, same, dims={"rows": [2, 5]}, latency=2, memory=True)
    assert report.ok and report and [each.shape for each in report.outputs[::2]] == [[2, 3], [5, 3]]
    graph = report.graphs[0]
    assert graph.latency is not None and graph.latency.runs == 2
    assert graph.reference_latency is not None and (graph.load_memory or 0) >= 0
    assert graph.inputs[0].origin == "made: standard normal"
    report = oe.validate(first, same, dims={"rows": 2}, ranges={"x": (3, 4)})
    assert report.ok and "3 .. 4" in report.graphs[0].inputs[0].origin
    report = oe.validate(first, other, dims={"rows": 2})
    assert not report.ok and {each.output for each in report.outputs} == {"y", "z"}
    again = oe.validate(first, other, dims={"rows": 2})
    assert again.outputs == report.outputs
    assert oe.validate(first, other, dims={"rows": 2}, seed=1).outputs != report.outputs


def test_float32_is_compared_with_float16(tmp_path: Path) -> None:
    wide = scaled(tmp_path / "wide.onnx", 2.0001)
    narrow = scaled(tmp_path / "narrow.onnx", 2.0001, dtype=TensorProto.FLOAT16)
    report = oe.validate(narrow, wide, inputs={"x": X})
    assert report.ok and report.outputs[0].rtol == 2e-2
    assert (report.outputs[0].dtype, report.outputs[0].expected_dtype) == ("float16", "float32")
    assert not oe.validate(narrow, wide, X, atol=1e-7, rtol=1e-7).ok


def test_recorded_sets_are_read_and_dumps_are_such_sets(tmp_path: Path) -> None:
    model = scaled(tmp_path / "m/model.onnx", 2)
    expected = {"y": 2 * X, "z": -2 * X}
    report = oe.validate(model, expected, {"x": X}, dump=tmp_path / "m")
    assert report.ok and report.outputs[0].set == "given_0"
    names = {path.name for path in (tmp_path / "m/test_data_set_0").iterdir()}
    assert names == {"input_0.pb", "output_0.pb", "output_1.pb", "actual_0.pb", "actual_1.pb"}
    assert json.loads((tmp_path / "m/report.json").read_text())["ok"] is True
    report = oe.validate(model)  # uses the recorded set next to the model
    assert report.ok and report.outputs[0].set == "test_data_set_0"
    assert report.graphs[0].inputs[0].origin == "recorded"
    assert not oe.validate(scaled(tmp_path / "other.onnx", 3), tmp_path / "m").ok
    with pytest.raises(oe.ExistsError, match="test_data_set_0"):
        oe.validate(model, expected, {"x": X}, dump=tmp_path / "m")
    oe.validate(model, expected, {"x": X}, dump=tmp_path / "m", overwrite=True)


def test_npz_files_hold_inputs_and_outputs_by_name(tmp_path: Path) -> None:
    model = scaled(tmp_path / "model.onnx", 2)
    np.savez(tmp_path / "right.npz", x=X, y=2 * X, z=-2 * X)
    assert oe.validate(model, tmp_path / "right.npz").ok
    np.savez(tmp_path / "part.npz", x=X, y=2 * X)
    report = oe.validate(model, tmp_path / "part.npz")
    assert [each.problem for each in report.outputs] == [None, "the reference does not return it"]
    np.savez(tmp_path / "inputs.npz", x=X)
    with pytest.raises(oe.InvalidArgumentError, match="no outputs"):
        oe.validate(model, tmp_path / "inputs.npz")
    assert oe.validate(model, model, tmp_path / "inputs.npz").ok
    np.savez(tmp_path / "wrong.npz", x=X, w=X)
    with pytest.raises(oe.FormatError, match=r"w: the model has no input or output"):
        oe.validate(model, tmp_path / "wrong.npz")


def test_an_output_that_one_side_lacks_is_reported(tmp_path: Path) -> None:
    model = scaled(tmp_path / "model.onnx", 2)
    report = oe.validate(model, {"y": 2 * X, "more": X}, X)
    told = {each.output: each.problem for each in report.outputs}
    assert told == {
        "y": None,
        "z": "the reference does not return it",
        "more": "the model does not return it",
    }
    with pytest.raises(oe.MismatchError, match="cannot be paired"):
        oe.validate(model, {"a": X, "b": X, "c": X}, X)


def test_damaged_sets_are_refused(tmp_path: Path) -> None:
    model = scaled(tmp_path / "model.onnx", 2)
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    tensor = numpy_helper.from_array(X, "x")
    for data in (b"\xff" * 40, tensor.SerializeToString()[:-8], b""):
        (folder / "input_0.pb").write_bytes(data)
        with pytest.raises(oe.FormatError, match=r"input_0\.pb"):
            oe.validate(model, model, tmp_path)
    outside = TensorProto(name="x", data_type=1, dims=[1], data_location=1)
    outside.external_data.add(key="location", value="/etc/hostname")
    (folder / "input_0.pb").write_bytes(outside.SerializeToString())
    with pytest.raises(oe.FormatError, match="another file"):
        oe.validate(model, model, tmp_path)
    (folder / "input_1.pb").write_bytes(tensor.SerializeToString())
    (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    with pytest.raises(oe.FormatError, match="only 1 inputs"):
        oe.validate(model, model, tmp_path)
    (tmp_path / "bad.npz").write_bytes(b"PK")
    with pytest.raises(oe.FormatError, match=r"bad\.npz"):
        oe.validate(model, tmp_path / "bad.npz")
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], object))
    with pytest.raises(oe.FormatError, match=r"pickled\.npz"):
        oe.validate(model, tmp_path / "pickled.npz")


def test_bfloat16_float8_bool_and_strings_go_through_the_runtime(tmp_path: Path) -> None:
    values = {
        TensorProto.BFLOAT16: np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16),
        TensorProto.FLOAT8E4M3FN: np.ones((2, 3), ml_dtypes.float8_e4m3fn),
        TensorProto.FLOAT8E5M2: np.ones((2, 3), ml_dtypes.float8_e5m2),
        TensorProto.FLOAT16: np.ones((2, 3), np.float16),
        TensorProto.BOOL: np.eye(2, 3, dtype=bool),
        TensorProto.INT64: np.arange(6).reshape(2, 3),
        TensorProto.STRING: np.array([["a", "b", "ß"], ["", "e", "f"]], object),
        TensorProto.DOUBLE: np.ones((2, 1)),
    }
    for number, (dtype, value) in enumerate(values.items()):
        model = identity(tmp_path / f"{number}/model.onnx", dtype, ["rows", "columns"])
        report = oe.validate(model, {"y": value}, {"x": value}, dump=tmp_path / str(number))
        assert report.ok and report.outputs[0].shape == list(value.shape)
        assert oe.validate(model).ok  # reads the files that were dumped
    made = oe.validate(model, model, dims={"rows": 2, "columns": 3})
    assert made.ok and made.outputs[0].dtype == "float64"
    assert json.loads(json.dumps(made.to_dict())) == made.to_dict()


def test_sequences_are_compared_element_by_element(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])
    y = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    twice = helper.make_node("SequenceConstruct", ["x", "x"], ["y"])
    model = written(tmp_path / "model.onnx", helper.make_graph([twice], "g", [x], [y]))
    assert oe.validate(model, {"y": [X, X]}, X, dump=tmp_path).ok
    report = oe.validate(model)
    assert report.ok and [each.output for each in report.outputs] == ["y[0]", "y[1]"]
    report = oe.validate(model, {"y": [X, X + 1, X]}, X)
    assert [each.ok for each in report.outputs] == [True, False, False]
    assert report.outputs[2].problem == "the model does not return it"


def test_what_cannot_run_says_why(tmp_path: Path) -> None:
    model = scaled(tmp_path / "model.onnx", 2)
    with pytest.raises(oe.NotFoundError, match=r"none\.onnx"):
        oe.validate(tmp_path / "none.onnx")
    with pytest.raises(oe.InvalidArgumentError, match="nothing to compare with"):
        oe.validate(model)
    with pytest.raises(oe.InvalidArgumentError, match=r"give sizes for rows: dims=\{NAME: SIZE\}$"):
        oe.validate(model, model)
    with pytest.raises(oe.InvalidArgumentError, match="'columns'; available: rows"):
        oe.validate(model, model, dims={"rows": 1, "columns": 2})
    with pytest.raises(oe.InvalidArgumentError, match="no input has the name 'w'"):
        oe.validate(model, model, dims={"rows": 1}, ranges={"w": (0, 1)})
    with pytest.raises(oe.InvalidArgumentError, match=r"no 'abacus'; it has .*CPUExecution"):
        oe.validate(model, model, providers="abacus")
    with pytest.raises(oe.MismatchError, match=r"x has the shape \[4, 2\].*\[rows, 3\]"):
        oe.validate(model, model, X[:, :2])
    with pytest.raises(oe.MismatchError, match=r"x is int64; the model takes tensor\(float\)"):
        oe.validate(model, model, {"x": X.astype(np.int64)})
    with pytest.raises(oe.MismatchError, match="no value for x"):
        oe.validate(model, model, {})
    with pytest.raises(oe.InvalidArgumentError, match="task: only for a transformers folder"):
        oe.validate(model, model, X, task="text-generation")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(oe.RunError, match=r"bad\.onnx: ONNX Runtime cannot load"):
        oe.validate(tmp_path / "bad.onnx", model)


def test_sizes_that_torch_derives_from_others_are_computed(tmp_path: Path) -> None:
    forms = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [size])
        for name, size in (("x", "past"), ("m", "past + 2*new"), ("y", None), ("z", None))
    ]
    nodes = [helper.make_node("Identity", [name], [other]) for name, other in ("xy", "mz")]
    model = written(tmp_path / "model.onnx", helper.make_graph(nodes, "g", forms[:2], forms[2:]))
    report = oe.validate(model, model, dims={"past": 3, "new": 2}, ranges={"x": (5, 9)})
    assert [each.shape for each in report.outputs] == [[3], [7]]
    assert [each.origin for each in report.graphs[0].inputs] == ["made: 5 .. 9", "made: 0 .. 1"]
    with pytest.raises(oe.InvalidArgumentError, match=r"past, past \+ 2\*new"):
        oe.validate(model, model, dims={"past": 3})


def test_the_command_s_exit_code_says_what_it_found(tmp_path: Path) -> None:
    model, other = scaled(tmp_path / "model.onnx", 2), scaled(tmp_path / "other.onnx", 2.5)
    done = command(model, "-a", model, "--dim", "rows=2,3", "--latency", 1, "--memory")
    assert done.returncode == 0, done.stderr
    assert "all 4 outputs agree" in done.stdout and "latency: median" in done.stdout
    done = command(model, "-a", other, "--dim", "rows=2", "--json", "--dump", tmp_path / "dump")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is False and len(document["graphs"][0]["outputs"]) == 2
    done = command(model, "-a", other, "-i", tmp_path / "dump", "-q")
    assert done.returncode == 1 and "2 of 2 outputs do not agree" in done.stdout
    done = command(model, "-a", other)
    assert done.returncode == 1 and "validate: error:" in done.stderr and not done.stdout
    assert command(model, "-a", model, "--dim", "rows=2", "-q").stdout == ""
    assert command(model, "--dim", "rows").returncode == 2


def test_products_are_not_rounded_on_cuda_unless_options_of_the_provider_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    class OnCuda(runtime.InferenceSession):  # type: ignore[misc]
        """A session that claims to run on CUDA."""

        def __init__(self, model: Any, options: Any, providers: list[Any]) -> None:
            asked.append(providers)
            super().__init__(model, options, providers=["CPUExecutionProvider"])

        def get_providers(self) -> list[str]:
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    known = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(runtime, "get_available_providers", lambda: known)
    monkeypatch.setattr(runtime, "InferenceSession", OnCuda)
    model, cuda = scaled(tmp_path / "model.onnx", 2), "CUDAExecutionProvider"
    (graph,) = oe.validate(model, model, X, providers=["cuda", "cpu"]).graphs
    assert asked == [[(cuda, {"use_tf32": "0"}), "CPUExecutionProvider"]] * 2 and not graph.notes
    given = {"use_tf32": 1, "device_id": 0}
    (graph,) = oe.validate(model, model, X, providers=[("cuda", given)]).graphs
    assert asked[2:] == [[(cuda, given)]] * 2
    assert len(graph.notes) == 1 and "rounds the inputs of float32 products" in graph.notes[0]


def test_the_package_is_imported_without_a_runtime() -> None:
    program = (
        "import sys, onnx_external as oe; oe.validate;"
        "assert not {'onnxruntime', 'torch', 'onnx', 'ml_dtypes'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
