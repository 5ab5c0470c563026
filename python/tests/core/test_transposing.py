"""Tests of weights that are stored transposed: which weights of a graph, and how they are saved."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

ir = pytest.importorskip("onnx_ir")
np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402

WIDTH = 4
AS_IT_IS = oe.Layout(transpose_weights=False)


def matrix(seed: int, rows: int = WIDTH, columns: int = WIDTH) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def graph(weights: dict[str, Any], gathered: str = "", prefix: str = "", perm: Any = (1, 0)) -> Any:
    """Return a graph of x @ w.T for each weight in turn; a Gather also reads one of the weights."""
    nodes, last = [], "x"
    for number, name in enumerate(weights):
        more = {} if perm is None else {"perm": list(perm)}
        nodes.append(helper.make_node("Transpose", [prefix + name], [f"t{number}"], **more))
        nodes.append(helper.make_node("MatMul", [last, f"t{number}"], [f"y{number}"]))
        last = f"y{number}"
    outputs = [helper.make_tensor_value_info(last, 1, ["rows", WIDTH])]
    if gathered:
        zero = helper.make_tensor("zero", 7, [1], [0])
        nodes.append(helper.make_node("Constant", [], ["zero"], value=zero))
        nodes.append(helper.make_node("Gather", [prefix + gathered, "zero"], ["z"]))
        outputs.append(helper.make_tensor_value_info("z", 1, [1, WIDTH]))
    held = [numpy_helper.from_array(0 * value, prefix + name) for name, value in weights.items()]
    x = helper.make_tensor_value_info("x", 1, ["rows", WIDTH])
    made = helper.make_graph(nodes, "g", [x], outputs, held)
    opset = [helper.make_opsetid("", 18)]
    return ir.from_proto(helper.make_model(made, opset_imports=opset, ir_version=10))


WEIGHTS = {"a.weight": matrix(1), "b.weight": matrix(2)}
X = matrix(9, 3)


def run(path: Path) -> Any:
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0]


def expected(weights: Any = None) -> Any:
    value = X
    for weight in (weights or WEIGHTS).values():
        value = value @ weight.T
    return value


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]


@pytest.mark.parametrize("layout", ["single", "per-tensor", "shards", "inline"])
@pytest.mark.parametrize("perm", [(1, 0), None])
def test_weights_behind_a_transpose_are_stored_transposed(
    layout: str, perm: Any, tmp_path: Path
) -> None:
    model = graph(WEIGHTS, perm=perm)
    before = ir.to_proto(model).SerializeToString()
    path = tmp_path / "model.onnx"
    report = oe.save(model, path, WEIGHTS, layout=layout, fsync=False)
    assert operators(path) == ["MatMul", "MatMul"]
    np.testing.assert_allclose(run(path), expected(), rtol=1e-5)
    assert [(tensor.slot, tensor.recipe) for tensor in report.tensors] == [
        ("a.weight.transposed", ["transpose"]),
        ("b.weight.transposed", ["transpose"]),
    ]
    assert oe.verify(path, WEIGHTS).ok
    assert ir.to_proto(model).SerializeToString() == before


def test_a_plan_says_what_the_save_does(tmp_path: Path) -> None:
    plan = oe.plan(graph(WEIGHTS), path=tmp_path / "model.onnx", weights=WEIGHTS)
    assert [pair.slot for pair in plan.pairs] == ["a.weight.transposed", "b.weight.transposed"]
    assert plan.save(progress=False).bytes == 2 * 4 * WIDTH**2


def test_it_is_left_out_on_request_and_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    oe.save(graph(WEIGHTS), path, WEIGHTS, files=AS_IT_IS, fsync=False)
    assert operators(path).count("Transpose") == 2
    oe.save(graph(WEIGHTS), path, fsync=False, overwrite=True)
    assert operators(path).count("Transpose") == 2


def test_where_it_cannot_be_done_it_is_refused_if_asked_for(tmp_path: Path) -> None:
    path, asked = (
        tmp_path / "model.onnx",
        {"files": oe.Layout(transpose_weights=True), "fsync": False},
    )
    proto = ir.to_proto(graph(WEIGHTS))
    onnx.save(proto, tmp_path / "graph.onnx")
    with pytest.raises(oe.InvalidArgumentError, match=r"layout='link'.*'single'"):
        oe.save(graph(WEIGHTS), path, WEIGHTS, layout="link", **asked)
    with pytest.raises(oe.InvalidArgumentError, match=r"weights=module\.state_dict"):
        oe.save(graph(WEIGHTS), path, **asked)
    for model in (proto, tmp_path / "graph.onnx", proto.SerializeToString()):
        with pytest.raises(oe.InvalidArgumentError, match=r"onnx_ir\.load"):
            oe.save(model, path, WEIGHTS, **asked)
        oe.save(model, path, WEIGHTS, fsync=False, overwrite=True)
        assert operators(path).count("Transpose") == 2
        np.testing.assert_allclose(run(path), expected(), rtol=1e-5)


def test_a_weight_that_is_read_in_both_forms_stays_and_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    report = oe.save(graph(WEIGHTS, gathered="b.weight"), path, WEIGHTS, fsync=False)
    assert [tensor.slot for tensor in report.tensors] == ["b.weight", "a.weight.transposed"]
    assert report.bytes == 2 * 4 * WIDTH**2
    np.testing.assert_allclose(run(path), expected(), rtol=1e-5)


def test_so_does_one_whose_tied_twin_is_read_in_the_other_form(tmp_path: Path) -> None:
    tied = {**WEIGHTS, "c.weight": WEIGHTS["a.weight"]}
    path = tmp_path / "model.onnx"
    report = oe.save(graph(tied, gathered="c.weight"), path, tied, fsync=False)
    assert {tensor.slot for tensor in report.tensors} == {
        "a.weight",
        "b.weight.transposed",
        "c.weight",
    }
    assert report.bytes == 2 * 4 * WIDTH**2
    np.testing.assert_allclose(run(path), expected(tied), rtol=1e-5)


def test_graphs_over_one_store_agree(tmp_path: Path) -> None:
    graphs = {"one.onnx": graph(WEIGHTS), "two.onnx": graph(WEIGHTS, gathered="a.weight")}
    report = oe.save(graphs, tmp_path / "both", WEIGHTS, fsync=False)
    assert report.bytes == 2 * 4 * WIDTH**2
    for model in report.models:
        slots = {tensor.slot for tensor in model.tensors}
        assert slots == {"a.weight", "b.weight.transposed"}
        np.testing.assert_allclose(run(tmp_path / "both" / model.model), expected(), rtol=1e-5)
    assert oe.verify(tmp_path / "both", WEIGHTS).ok


def test_pairs_of_the_caller_are_said_of_the_transposed_slots(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    keys = {"p": WEIGHTS["a.weight"].T.copy(), "q": WEIGHTS["b.weight"].astype(np.float16)}
    want = {"a.weight": keys["p"].T, "b.weight": keys["q"].astype(np.float32)}
    pairs = {
        "a.weight": {"key": "p", "recipe": ["transpose"]},
        "b.weight": {"key": "q", "recipe": ["cast"]},
    }
    (tmp_path / "map.json").write_text(json.dumps(pairs))
    for given in (pairs, {"map": pairs}, tmp_path / "map.json"):
        report = oe.save(
            graph(WEIGHTS), path, keys, mapping=oe.Mapping(map=given), fsync=False, overwrite=True
        )
        assert [tensor.recipe for tensor in report.tensors] == [
            ["transpose", "transpose"],
            ["transpose", "cast"],
        ]
        np.testing.assert_allclose(run(path), expected(want), rtol=1e-5)
    joined = {
        "derived": {"ab": {"concat": ["p", "p2"], "dim": 0}},
        "map": {"a.weight": {"key": "ab", "recipe": [{"slice": [0, 0, WIDTH]}]}},
    }
    parts = {"p": WEIGHTS["a.weight"][:2], "p2": WEIGHTS["a.weight"], "b.weight": matrix(2)}
    oe.save(
        graph(WEIGHTS), path, parts, mapping=oe.Mapping(map=joined), fsync=False, overwrite=True
    )
    first = np.concatenate([parts["p"], parts["p2"]])[:WIDTH]
    want = {"a.weight": first, "b.weight": matrix(2)}
    np.testing.assert_allclose(run(path), expected(want), rtol=1e-5)


def test_so_are_ties_and_the_map_of_several_graphs(tmp_path: Path) -> None:
    only = {"a.weight": WEIGHTS["a.weight"]}
    path, twice = tmp_path / "model.onnx", {name: WEIGHTS["a.weight"] for name in WEIGHTS}
    oe.save(
        graph(WEIGHTS), path, only, mapping=oe.Mapping(map={"b.weight": "a.weight"}), fsync=False
    )
    assert operators(path) == ["MatMul", "MatMul"]
    np.testing.assert_allclose(run(path), expected(twice), rtol=1e-5)
    graphs = {"one.onnx": graph(WEIGHTS), "two.onnx": graph(WEIGHTS, prefix="m.")}
    pairs = {"models": {"two.onnx": {f"m.{name}": name for name in WEIGHTS}}}
    report = oe.save(graphs, tmp_path / "both", WEIGHTS, mapping=oe.Mapping(map=pairs), fsync=False)
    assert report.bytes == 2 * 4 * WIDTH**2
    for name in graphs:
        assert operators(tmp_path / "both" / name) == ["MatMul", "MatMul"]
        np.testing.assert_allclose(run(tmp_path / "both" / name), expected(), rtol=1e-5)


def test_a_slot_that_stays_unchanged_in_another_graph_keeps_its_pair(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["a.weight"], ["z"])
    half = np.zeros((WIDTH, WIDTH), np.float16)
    made = helper.make_graph(
        [node],
        "g",
        [],
        [helper.make_tensor_value_info("z", 10, [WIDTH, WIDTH])],
        [numpy_helper.from_array(half, "a.weight")],
    )
    opset = [helper.make_opsetid("", 18)]
    other = ir.from_proto(helper.make_model(made, opset_imports=opset, ir_version=10))
    keys = {"p": WEIGHTS["a.weight"].astype(np.float64)}
    how = oe.Mapping(map={"a.weight": {"key": "p", "recipe": ["cast"]}})
    graphs = {"one.onnx": graph({"a.weight": half.astype(np.float32)}), "two.onnx": other}
    report = oe.save(graphs, tmp_path, keys, mapping=how, fsync=False)
    slots = [[tensor.slot for tensor in model.tensors] for model in report.models]
    assert slots == [["a.weight.transposed"], ["a.weight"]]
    stored = onnx.load(tmp_path / "two.onnx").graph.initializer[0]
    np.testing.assert_array_equal(numpy_helper.to_array(stored), keys["p"].astype(np.float16))


def test_data_that_no_key_replaces_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    only = {"a.weight": WEIGHTS["a.weight"]}
    report = oe.save(graph(WEIGHTS), path, only, mapping=oe.Mapping(keep="b.weight"), fsync=False)
    assert operators(path) == ["MatMul", "Transpose", "MatMul"]
    assert report.initializers_kept == ["b.weight"]


def test_weights_may_be_read_from_a_stream_and_be_extra(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    stream, path = io.BytesIO(), tmp_path / "model.onnx"
    torch.save({name: torch.from_numpy(value) for name, value in WEIGHTS.items()}, stream)
    stream.seek(0)
    other = matrix(5)
    oe.save(graph(WEIGHTS), path, stream, extra={"b.weight": other}, fsync=False)
    assert operators(path) == ["MatMul", "MatMul"]
    np.testing.assert_allclose(run(path), expected({**WEIGHTS, "b.weight": other}), rtol=1e-5)


def test_lazy_weights_are_made_once_more_at_most(tmp_path: Path) -> None:
    path, made = tmp_path / "model.onnx", []

    def lazy(name: str) -> Any:
        def make() -> Any:
            made.append(name)
            return ir.tensor(WEIGHTS[name])

        return ir.LazyTensor(make, ir.DataType.FLOAT, ir.Shape([WIDTH, WIDTH]), name=name)

    oe.save(graph(WEIGHTS), path, {name: lazy(name) for name in WEIGHTS}, fsync=False)
    assert operators(path) == ["MatMul", "MatMul"] and len(made) <= 4
    np.testing.assert_allclose(run(path), expected(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["separate", "tied", "in one buffer", "in a file", "with a map"])
def test_only_weights_that_may_share_data_need_a_plan(
    kind: str, tmp_path: Path, jobs: list[bool]
) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    given: Any = {name: value.copy() for name, value in WEIGHTS.items()}
    used, mapping, (first, second) = dict(given), None, WEIGHTS
    if kind == "tied":
        given[second] = used[second] = given[first]
    elif kind == "in one buffer":
        buffer = matrix(3, 2 * WIDTH)
        given[first], given[second] = buffer[:WIDTH], buffer[1 : WIDTH + 1]
        used = dict(given)
    elif kind == "in a file":
        safetensors.save_file(given, tmp_path / "weights.safetensors")
        given = tmp_path / "weights.safetensors"
    elif kind == "with a map":
        mapping, used = oe.Mapping(map={first: second, second: first}), dict(given)
        used[first], used[second] = given[second], given[first]
    path = tmp_path / "model.onnx"
    oe.save(graph(WEIGHTS), path, given, mapping=mapping, fsync=False)
    assert jobs == ([False] if kind in ("separate", "with a map") else [True, False])
    assert operators(path) == ["MatMul", "MatMul"]
    np.testing.assert_allclose(run(path), expected(used), rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "planned", "left"),
    [
        ("keys of their own", False, 1),
        ("one key", False, 2),
        ("views of one storage", False, 2),
        ("views with a recipe", True, 2),
        ("a key in two forms", True, 1),
    ],
)
def test_a_map_of_an_open_checkpoint_says_which_weights_share_data(
    kind: str, planned: bool, left: int, tmp_path: Path, jobs: list[bool]
) -> None:
    torch = pytest.importorskip("torch")
    given = {name: torch.from_numpy(value.copy()) for name, value in WEIGHTS.items()}
    pairs: dict[str, Any] = {name: name for name in WEIGHTS}
    if kind in ("one key", "a key in two forms"):
        pairs = dict.fromkeys(WEIGHTS, "a.weight")
    if kind.startswith("views"):
        given["b.weight"] = given["a.weight"].view(WIDTH, WIDTH)
    if kind == "views with a recipe":
        whole = {"reshape": [WIDTH, WIDTH]}
        pairs = {name: {"key": name, "recipe": [whole]} for name in WEIGHTS}
    if kind == "a key in two forms":
        pairs["b.weight"] = {"key": "a.weight", "recipe": ["transpose"]}
    torch.save(given, tmp_path / "weights.pt")
    path, mapping = tmp_path / "model.onnx", oe.Mapping(map=pairs, unmatched="skip")
    with oe.open_checkpoint(tmp_path / "weights.pt") as weights:
        oe.save(graph(WEIGHTS, gathered="b.weight"), path, weights, mapping=mapping, fsync=False)
    assert jobs == ([True, False] if planned else [False])
    assert operators(path).count("Transpose") == left
    keys = {name: pair if isinstance(pair, str) else pair["key"] for name, pair in pairs.items()}
    used = {name: given[key].numpy() for name, key in keys.items()}
    if kind == "a key in two forms":
        used["b.weight"] = used["b.weight"].T
    np.testing.assert_allclose(run(path), expected(used), rtol=1e-5)


def test_an_error_names_a_weight_as_the_graph_does(tmp_path: Path) -> None:
    half = {**WEIGHTS, "a.weight": WEIGHTS["a.weight"].astype(np.float16)}
    with pytest.raises(oe.MappingError, match=r"a\.weight") as caught:
        oe.save(graph(WEIGHTS), tmp_path / "model.onnx", half)
    assert ".transposed" not in str(caught.value)


def test_a_second_save_of_the_same_models_uses_the_plan_of_the_first(
    tmp_path: Path, jobs: list[bool]
) -> None:
    from onnx_external._saving.save import save_again
    from onnx_external._saving.transposing import Learned

    model, tied = graph(WEIGHTS, gathered="b.weight"), dict.fromkeys(WEIGHTS, matrix(1))
    learned = Learned()
    for number in range(2):
        path = tmp_path / str(number) / "model.onnx"
        save_again(learned, model, path, tied, fsync=False)
        assert operators(path).count("Transpose") == 2  # for one matrix, which is stored once
        np.testing.assert_allclose(run(path), expected(tied), rtol=1e-5)
    assert jobs == [True, False, False]
    save_again(learned, graph(WEIGHTS), tmp_path / "other", tied, fsync=False)
    assert jobs[3:] == [True, False]
