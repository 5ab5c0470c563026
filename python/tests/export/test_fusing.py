"""Tests that several nodes are fused into one operator exactly if the results are the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx_ir = pytest.importorskip("onnx_ir")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

sys.path.insert(0, str(Path(__file__).parent))

from fusing_graphs import (  # noqa: E402
    CENTERED,
    PLAIN,
    RMS,
    ROTARY,
    SKIP,
    TURNED,
    attention,
    kinds,
    of_attention,
    of_turned,
    parsed,
    run,
    values,
)

import onnx_external as oe  # noqa: E402
from onnx_external._fusing.attention_layout import lay_flat  # noqa: E402
from onnx_external._fusing.inner_rotary import rotate_inside  # noqa: E402
from onnx_external._fusing.norms import fuse_norms  # noqa: E402
from onnx_external._fusing.packing import pack_products  # noqa: E402
from onnx_external._fusing.rotary import fuse_rotary  # noqa: E402
from onnx_external._fusing.skip_norms import fuse_skip_norms  # noqa: E402


def compare(text: str, fuse: Any, opset: int = 20, feeds: Any = None, rtol: float = 1e-5) -> Any:
    """Apply a rule to a graph, and compare its results before and after."""
    model = parsed(text, opset)
    given = [values(model), *(feeds or [])]
    before = [run(model, each) for each in given]
    count = fuse(model.graph)
    model.opset_imports[""] = max(opset, 23)
    names = [value.name for value in model.graph.outputs]
    assert names == [value.name for value in parsed(text, opset).graph.outputs]
    for each, wanted in zip(given, before, strict=True):
        for one, other in zip(run(model, each), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-5)
    return count, kinds(model)


def unchanged(text: str, fuse: Any, opset: int = 20) -> None:
    """Check that a rule does not change a graph."""
    model = parsed(text, opset)
    before = kinds(model)
    assert fuse(model.graph) == 0 and kinds(model) == before


def rms(graph: Any) -> int:
    return fuse_norms(graph, 23)


ROOTS = [
    PLAIN["root"],
    "root = Sqrt (shifted)\n    over = Div (one, root)",
    "over = Pow (shifted, half)",
]


@pytest.mark.parametrize("root", ROOTS)
def test_a_root_mean_square_norm_is_one_node_however_its_root_is_written(root: str) -> None:
    count, found = compare(RMS.format(**{**PLAIN, "root": root}), rms)
    assert count == 1 and found["RMSNormalization"] == 1 and found.total() == 2  # and Identity


def test_a_norm_of_zeros_and_of_elements_whose_squares_overflow_stays_the_same() -> None:
    scale = np.ones(8, np.float32)
    large = np.full((1, 3, 8), 1e30, np.float32)
    feeds = [{"x": each, "scale": scale} for each in (np.zeros_like(large), large, large * np.nan)]
    assert compare(RMS.format(**PLAIN), rms, feeds=feeds)[0] == 1


def test_casts_around_the_norm_of_a_half_are_part_of_the_operator() -> None:
    halves = {
        "x": "float16[rows, 3, 8]",
        "y": "float16[rows, 3, 8]",
        "before": "wide = Cast <to: int = 1> (x)",
        "after": "narrow = Cast <to: int = 10> (normal)\n    short = Cast <to: int = 10> (scale)\n"
        "    y = Mul (short, narrow)",
    }
    feed = {"x": np.full((1, 3, 8), 2000, np.float16), "scale": np.full(8, 3, np.float32)}
    count, found = compare(RMS.format(**{**PLAIN, **halves}), rms, feeds=[feed], rtol=2e-3)
    assert count == 1 and found == {"RMSNormalization": 1, "Cast": 1}


def test_a_cast_behind_the_scale_stays_where_the_scale_is_a_float() -> None:
    gemma = {
        "x": "float16[rows, 3, 8]",
        "y": "float16[rows, 3, 8]",
        "before": "wide = Cast <to: int = 1> (x)",
        "after": "more = Add (scale, one)\n    scaled = Mul (normal, more)\n"
        "    y = Cast <to: int = 10> (scaled)",
    }
    count, found = compare(RMS.format(**{**PLAIN, **gemma}), rms, rtol=2e-3)
    assert count == 1 and found == {"RMSNormalization": 1, "Cast": 2, "Add": 1}


NO_NORMS = [
    ("last = {-1}", "last = {1}"),
    ("keepdims: int = 1> (squares", "keepdims: int = 1> (x"),
    ("two = {2}", "two = {3}"),
    ("Pow (wide, two)", "Pow (scale, two)"),
    ("epsilon = {1e-6}", "epsilon = {-1e-6}"),
    ("Mul (wide, over)", "Mul (scale, over)"),
    ("float[8] scale", "float[3, 8] scale"),
    ("float[8] scale", "float[1] scale"),
    ("over = Reciprocal (root)", "over = Identity (root)"),
    ("y = Mul (scale, normal)", "y = Add (scale, normal)"),
]


@pytest.mark.parametrize(("old", "new"), NO_NORMS)
def test_what_differs_from_a_norm_in_one_place_stays(old: str, new: str) -> None:
    text = RMS.format(**PLAIN)
    assert old in text
    unchanged(text.replace(old, new), rms)


def test_doubles_are_not_normalized_in_float32() -> None:
    unchanged(RMS.format(**PLAIN).replace("float[", "double[").replace("float ", "double "), rms)


def test_an_older_opset_keeps_the_nodes_of_a_root_mean_square_norm() -> None:
    unchanged(RMS.format(**PLAIN), lambda graph: fuse_norms(graph, 22))


def test_a_norm_that_subtracts_the_mean_is_a_layer_normalization_in_any_opset() -> None:
    count, found = compare(CENTERED, lambda graph: fuse_norms(graph, 18), rtol=1e-4)
    assert count == 1 and found == {"LayerNormalization": 1}


def test_a_mean_of_something_else_is_not_taken_for_that_of_the_value() -> None:
    text = CENTERED.replace("ReduceMean (x, last)", "ReduceMean (scale, last)")
    model = parsed(text)
    rms(model.graph)
    assert "LayerNormalization" not in kinds(model)


@pytest.mark.parametrize("form", ROTARY)
def test_a_rotation_is_one_node_and_its_tables_have_each_angle_once(form: str) -> None:
    count, found = compare(ROTARY[form], fuse_rotary)
    assert count == 1 and found["RotaryEmbedding"] == 1
    gone = ("Neg", "Slice", "Split", "Tile", "Concat", "Add", "Sub", "Unsqueeze", "Reshape")
    assert not any(found[kind] for kind in gone)


NO_ROTATIONS = [
    ("halves", "minus = Neg (high)", "minus = Neg (low)"),
    ("halves", "(minus, low)", "(low, minus)"),
    ("halves", "int64[1] half = {4}", "int64[1] half = {3}"),
    ("halves", "(angles, angles)", "(angles, squares)\n    "),
    ("halves", "y = Add (plain, crossed)", "y = Sub (plain, crossed)"),
    ("halves", "plain = Mul (x, cos)", "plain = Mul (turned, cos)"),
    ("halves", "sine = Mul (sines, factor)", "sine = Mul (sines, cosine)"),
    ("halves", "float[rows, length, 1] places", "float[1, length, 1] places"),
    ("neighbours", "stacked = Concat <axis: int = -1> (first, second)",
     "stacked = Concat <axis: int = -1> (second, first)"),
    ("neighbours", "(x, one, end, last, two)", "(x, zero, end, last, two)"),
    ("one by one", "d = Mul (low, sin)", "d = Mul (low, cos)"),
    ("one by one", "left = Sub (a, b)", "left = Sub (b, a)"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "old", "new"), NO_ROTATIONS)
def test_what_differs_from_a_rotation_in_one_place_stays(form: str, old: str, new: str) -> None:
    assert old in ROTARY[form]
    text = ROTARY[form].replace(old, new)
    if "squares" in new:
        text = text.replace("twice =", "squares = Mul (angles, angles)\n    twice =")
    unchanged(text, fuse_rotary)


def test_halves_that_are_doubled_beside_each_other_are_not_rotated_as_neighbours() -> None:
    doubled = ROTARY["halves"].partition("angles = ")[2].partition("cosines")[0]
    other = ROTARY["neighbours"].partition("angles = ")[2].partition("cosines")[0]
    unchanged(ROTARY["neighbours"].replace(other, doubled), fuse_rotary)
    unchanged(ROTARY["halves"].replace(doubled, other), fuse_rotary)


def test_a_rest_that_is_not_what_follows_keeps_its_node() -> None:
    text = ROTARY["partial"].replace("rest = Slice (x, half, end", "rest = Slice (x, zero, half")
    count, found = compare(text, fuse_rotary)
    assert count == 1 and found["Concat"] == 1 and found["Slice"] == 2


def test_a_norm_of_a_sum_gives_the_sum_as_well() -> None:
    large = np.full((1, 3, 8), 1e18, np.float32)
    feeds = [{"x": large, "more": large}, {"x": large, "more": -large}]
    count, found = compare(SKIP, fuse_skip_norms, 23, feeds)
    assert count == 1 and found == {"SkipSimplifiedLayerNormalization": 1}


NO_SKIPS = [
    ("float[rows, 3, 8] more", "float[1, 3, 8] more"),
    ("float[rows, 3, 8] more", "float[8] more"),
    ("axis: int = -1", "axis: int = 1"),
    ("total = Add", "total = Sub"),
]


@pytest.mark.parametrize(("old", "new"), NO_SKIPS)
def test_what_differs_from_the_norm_of_a_sum_stays(old: str, new: str) -> None:
    assert old in SKIP
    unchanged(SKIP.replace(old, new), fuse_skip_norms, 23)


def test_a_sum_that_only_its_norm_takes_stays() -> None:
    unchanged(SKIP.replace(", float[rows, 3, 8] total)", ")"), fuse_skip_norms, 23)


def test_rotated_heads_go_into_attention_side_by_side() -> None:
    model, feed = attention(), of_attention(rows=1)
    wanted = run(model, feed)
    assert lay_flat(model.graph) == 3
    for one, other in zip(run(model, feed), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    found = kinds(model)
    assert not found["Reshape"] and found["Transpose"] == 3  # the Transpose nodes of the weights


def test_heads_are_normalized_before_their_dimension_is_moved_as_well_as_behind_it() -> None:
    model, feed = attention(), of_attention(rows=1)
    turned = next(node for node in model.graph if node.op_type == "RotaryEmbedding")
    scale = onnx_ir.val("scale", const_value=onnx_ir.tensor(np.arange(8, dtype=np.float32)))
    model.graph.initializers.add(scale)
    heads = turned.inputs[0]
    norm = onnx_ir.node("RMSNormalization", [heads, scale])
    assert heads is not None
    norm.outputs[0].type, norm.outputs[0].shape = heads.type, heads.shape
    model.graph.insert_before(turned, norm)
    turned.replace_input_with(0, norm.outputs[0])
    wanted = run(model, feed)
    assert lay_flat(model.graph) == 3
    for one, other in zip(run(model, feed), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert kinds(model)["Transpose"] == 3 and kinds(model)["RMSNormalization"] == 1


@pytest.mark.parametrize("interleaved", [0, 1])
def test_attention_rotates_by_tables_of_all_positions(interleaved: int) -> None:
    more = f"RotaryEmbedding <interleaved: int = {interleaved}, num_heads"
    model = parsed(TURNED.replace("RotaryEmbedding <num_heads", more), 23)
    feeds = [of_turned(2, 5, 0), of_turned(3, 1, 6), of_turned(1, 4, 3)]
    wanted = [run(model, feed) for feed in feeds]
    assert rotate_inside(model.graph, 9) == 1
    assert not kinds(model)["RotaryEmbedding"] and not model.graph.inputs[5].uses()
    for feed, results in zip(feeds, wanted, strict=True):
        for one, other in zip(run(model, feed), results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


NOT_INSIDE = [
    ("(k, cos, sin)", "(k, sin, cos)"),
    ("4> (q, cos, sin)", "4, interleaved: int = 1> (q, cos, sin)"),
    ("position_ids", "places"),
    ("Mul (wide, rates)", "Add (wide, rates)"),
    ("last,\n        total)", "last,\n        total, , , , bias)"),
]


@pytest.mark.parametrize(("old", "new"), NOT_INSIDE)
def test_what_differs_from_a_rotation_by_positions_is_not_left_to_attention(
    old: str, new: str
) -> None:
    assert old in TURNED
    text = TURNED.replace(old, new)
    if "bias" in new:
        text = text.replace("int32 total)", "int32 total, float[rows, 1, length, all] bias)")
    unchanged(text, lambda graph: rotate_inside(graph, 9), 23)


def test_heads_that_are_not_moved_back_keep_their_nodes() -> None:
    model = attention()
    for node in model.graph:
        if node.outputs[0].name == "k_back":
            node.attributes["perm"] = onnx_ir.AttrInt64s("perm", [0, 2, 3, 1])
    assert lay_flat(model.graph) == 2


def with_slots(model: onnx_ir.Model) -> dict[str, Any]:
    """Remove the values of weights from a model, and return them."""
    taken = {}
    for name, value in model.graph.initializers.items():
        if name.endswith("weight") and value.const_value is not None:
            taken[name], value.const_value = value.const_value.numpy(), None
    return taken


def test_three_products_of_one_value_are_one_and_their_weights_lie_in_one_slot() -> None:
    model, feed = attention(), of_attention(rows=1)
    wanted = run(model, feed)
    values = with_slots(model)
    (pack,) = pack_products(model)
    assert pack.name == "layer.q_proj_k_proj_v_proj.weight"
    assert pack.parts == ("layer.q_proj.weight", "layer.k_proj.weight", "layer.v_proj.weight")
    assert not set(pack.parts) & set(model.graph.initializers)
    joined = np.concatenate([values[each] for each in pack.parts])
    model.graph.initializers[pack.name].const_value = onnx_ir.tensor(joined)
    for one, other in zip(run(model, feed), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert kinds(model)["MatMul"] == kinds(model)["Split"] == 1


def test_attention_takes_a_packed_product_whole_though_a_number_is_added_to_values() -> None:
    model, feed = attention(), of_attention(rows=1)
    node = model.graph[-4]
    for place, name in enumerate("qkv"):
        (product,) = (each for each in model.graph if each.outputs[0].name == name)
        node.replace_input_with(place, product.outputs[0])
    nothing = onnx_ir.val("nothing", const_value=onnx_ir.tensor(np.float32(0)))
    nothing.shape = onnx_ir.Shape([])
    model.graph.initializers.add(nothing)
    added = onnx_ir.node("Add", [node.inputs[2], nothing])
    model.graph.insert_before(node, added)
    node.replace_input_with(2, added.outputs[0])
    wanted = run(model, feed)
    values = with_slots(model)
    (pack,) = pack_products(model)
    joined = np.concatenate([values[each] for each in pack.parts])
    model.graph.initializers[pack.name].const_value = onnx_ir.tensor(joined)
    assert node.inputs[1] is None and node.inputs[2] is None
    for one, other in zip(run(model, feed), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert kinds(model)["MatMul"] == 1


@pytest.mark.parametrize("which", ["value", "tied", "output", "constant", "sum"])
def test_products_that_cannot_share_a_slot_stay(which: str) -> None:
    model = attention()
    values = with_slots(model)
    named = {value.name: value for node in model.graph for value in node.outputs}
    product = named["k"].producer()
    assert product is not None
    if which == "value":
        product.replace_input_with(0, named["q"])
    elif which == "tied":
        model.graph.append(onnx_ir.node("Identity", [named["k_matrix"]]))
    elif which == "output":
        model.graph.outputs.append(named["k"])
    elif which == "sum":
        added = onnx_ir.node("Add", [named["k"], named["v"]])
        model.graph.insert_after(named["v"].producer(), added)
        named["k4"].producer().replace_input_with(0, added.outputs[0])
    else:
        name = "layer.k_proj.weight"
        model.graph.initializers[name].const_value = onnx_ir.tensor(values[name])
    assert not pack_products(model) and kinds(model)["MatMul"] == 3


class Block(torch.nn.Module):  # type: ignore[misc]
    """A layer that begins with a norm. The next layer normalizes its sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x))


def test_a_node_that_adds_for_one_layer_and_normalizes_for_the_next_is_judged_with_both(
    tmp_path: Path,
) -> None:
    import onnx_ir

    torch.manual_seed(0)
    net = torch.nn.Sequential(Block(), Block(), Block()).eval()
    path, given = tmp_path / "model.onnx", (torch.randn(2, 3, 8),)
    oe.torch.export(net, given, path, progress=False)
    model = onnx_ir.load(path)
    assert fuse_skip_norms(model.graph) == 2
    model.opset_imports["com.microsoft"] = 1
    onnx_ir.save(model, path)
    report = oe.diagnose(path, net, [given])
    assert {each.name: each.status for each in report.modules if each.name.endswith("norm")} == {
        f"{layer}.norm": oe.Status.OK for layer in range(3)
    }
    assert report.ok
    with torch.no_grad():
        net[1].norm.weight *= 3
    assert [each.name for each in oe.diagnose(path, net, [given]).wrong] == ["1.norm"]


class Normed(torch.nn.Module):  # type: ignore[misc]
    """A norm like that of Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


@pytest.mark.parametrize(("version", "expected"), [(None, False), (22, False), (23, True)])
def test_a_module_gets_the_operators_of_the_opset_that_was_asked_for(
    tmp_path: Path, version: int | None, expected: bool
) -> None:
    import onnx

    options = {} if version is None else {"opset_version": version}
    path = tmp_path / "model.onnx"
    report = oe.torch.export(
        Normed().eval(), (torch.randn(2, 8),), path, onnx_options=options, progress=False
    )
    assert report.checked
    nodes = [node.op_type for node in onnx.load(path).graph.node]
    assert (nodes == ["RMSNormalization"]) is expected
