"""Tests that graphs written with the operators of an older opset compute the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnx_ir = pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

sys.path.insert(0, str(Path(__file__).parent))

from fusing_graphs import kinds, parsed, run  # noqa: E402

from onnx_external._lowering.lowering import lower  # noqa: E402

FORMS = [
    (
        """(float[2,3,4] x) => (float[2,4] y) { a = Constant<value_ints=[1]>()
    y = ReduceMax<keepdims=0>(x, a) }""",
        7,
    ),
    ("""(float[2,3] x) => (float[2,3] y) { y = ReduceMin<noop_with_empty_axes=1>(x) }""", 12),
    ("(float[2,3] x) => (float[1,1] y) { y = ReduceL2(x) }", 9),
    (
        """(float[2,3,4] x) => (float[2,1,4] y) { a = Constant<value_ints=[-2]>()
    y = ReduceSum(x, a) }""",
        9,
    ),
    (
        """(float[2,1,4] x) => (float[2,4,1] y) { a = Constant<value_ints=[-2]>()
    b = Constant<value_ints=[-1]>() z = Squeeze(x, a) y = Unsqueeze(z, b) }""",
        7,
    ),
    (
        """(float[2,7] x) => (float[2,3] a, float[2,3] b, float[2,1] c) {
    a, b, c = Split<axis=-1, num_outputs=3>(x) }""",
        9,
    ),
    (
        """(float[2,7] x) => (float[2,3] a, float[2,4] b) { s = Constant<value_ints=[3,4]>()
    a, b = Split<axis=1>(x, s) }""",
        7,
    ),
    (
        """(float[2,3,4] x) => (float[2,3,7] y) { p = Constant<value_ints=[1,2]>()
    v = Constant<value_float=0.5>() a = Constant<value_ints=[-1]>() y = Pad(x, p, v, a) }""",
        7,
    ),
    (
        """(float[2,3] x, float v) => (float[3,3] y) { p = Constant<value_ints=[1,0,0,0]>()
    y = Pad(x, p, v) }""",
        11,
    ),
    (
        """(float[2,3] x) => (float[2,3] y) { a = Constant<value_float=-0.5>()
    b = Constant<value_float=0.5>() y = Clip(x, a, b) }""",
        7,
    ),
    ("(float[2,3] x, float a) => (float[2,3] y) { y = Clip(x, a) }", 8),
    ("(int64[2,3] x, int64 a, int64 b) => (int64[2,3] y) { y = Clip(x, a, b) }", 9),
    (
        """(int32[2,3] x, int32[3] a) => (int32[2,3] y, int32[2,3] z) { y = Max(x, a)
    z = Min(x, a, x) }""",
        9,
    ),
    (
        """(float[4,5] x) => (float[2,3] y) { s = Constant<value_ints=[1,-4]>()
    e = Constant<value_ints=[3,9]>() a = Constant<value_ints=[0,-1]>()
    z = Slice(x, s, e, a) t = Constant<value_ints=[1]>() u = Constant<value_ints=[4]>()
    v = Constant<value_ints=[1]>() y = Slice(z, t, u, v) }""",
        7,
    ),
    ("(float[2,3,4] x) => (int64[2] y) { y = Shape<start=-2>(x) }", 7),
    (
        """(float[2,6] x) => (float[3,4] y) { s = Constant<value_ints=[3,-1]>()
    y = Reshape<allowzero=1>(x, s) }""",
        7,
    ),
    (
        """(float[2,3,4] x) => (float[2,3,4] y, float[2,3,4] z) { y = Softmax<axis=1>(x)
    z = LogSoftmax<axis=-1>(x) }""",
        7,
    ),
    (
        """(float[2,9] x) => (float[2,3] y, int64[2,3] z) { k = Constant<value_ints=[3]>()
    y, z = TopK(x, k) }""",
        7,
    ),
    (
        """(float[1,2,4,4] x) => (float[1,2,8,6] y) { s = Constant<value_floats=[2.0,1.5]>()
    r = Constant<value_floats=[0.0]>() y = Resize<mode="linear", axes=[2,3]>(x, , s) }""",
        11,
    ),
    (
        """(float[1,2,4,4] x) => (float[1,2,8,12] y) {
    s = Constant<value_floats=[1.0,1.0,2.0,3.0]>()
    y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric",
               nearest_mode="floor">(x, , s)
    }""",
        7,
    ),
    ("""(float[2,3] x) => (float[2,3] y) { e = Constant<value_int=3>() y = Pow(x, e) }""", 7),
    ("(float[2,3] x, float[3,4] w) => (float[2,4] y) { y = Gemm(x, w) }", 7),
    (
        """(float[2,3] x) => (float[2,3] y) { r = Constant<value_float=0.5>() y = Dropout(x, r)
    }""",
        7,
    ),
    (
        """(float[2,3] x) => (float[2,6] y, int64[2] z) { y = Concat<axis=-1>(x, x)
    z = ArgMax<axis=-1, keepdims=0>(x) }""",
        7,
    ),
    (
        """(float[1,3,8,8] x) => (float[1,3,4,4] y, float[1,3,4,4] z) {
    y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=0, dilations=[1,1]>(x)
    z = AveragePool<kernel_shape=[2,2], strides=[2,2]>(x) }""",
        7,
    ),
    (
        """(float[2,3] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2,3] y) {
    w = Abs(v) y = BatchNormalization<training_mode=0>(x, s, b, m, w) }""",
        7,
    ),
]
"""Graphs of opset 18 whose operators have other forms in an older opset."""

BODIES = [
    (
        """(float[2,3,8] x, float[8] s, float[8] b) => (float[2,3,8] y) {
    y = LayerNormalization<axis=-1, epsilon=0.01>(x, s, b) }""",
        7,
    ),
    ("""(float16[2,8] x, float16[8] s) => (float16[2,8] y) { y = LayerNormalization(x, s) }""", 9),
    ("""(float[2,4,3] x, float[4] s, float[4] b) => (float[2,4,3] y) { y = HardSwish(x) }""", 7),
    ("(float[2,4] x) => (float[2,4] y) { y = Mish(x) }", 7),
    ("(float[2,4] x) => (float[2,4] y) { y = Celu<alpha=0.7>(x) }", 8),
    ("(int64[2,3] x, float y) => (float[2,3] z) { z = CastLike(x, y) }", 7),
    (
        """(float[2,3] x, float[2,3] y) => (bool[2,3] z, bool[2,3] w) { z = GreaterOrEqual(x, y)
    w = LessOrEqual(x, x) }""",
        9,
    ),
    (
        """(float[2,3] x, float[2,3] y) => (bool[2,3] z, bool[2,3] w) { z = Equal(x, y)
    w = Equal(x, x) }""",
        9,
    ),
    (
        """(float[3,4,5] x) => (float[3,4,5] y, float[3,4,5] z) { k = Constant<value_int=-1>()
    y = Trilu<upper=0>(x, k) z = Trilu(x) }""",
        9,
    ),
    (
        """(int64[2] x, int64[n] m) => (int64[n] y) { a = Constant<value_int=1>() s = Shape(m)
    b = Squeeze(s) z = Constant<value_int=0>() y = Range(z, b, a) }""",
        9,
    ),
    (
        """(float[1,3] x, int64[3] s) => (float[a,b,c] y) { k = Constant<value_ints=[2,5,1]>()
    y = Expand(x, k) }""",
        7,
    ),
    (
        """(int64[2] s) => (int64[2,3] y) { k = Constant<value_ints=[2,3]>()
    y = ConstantOfShape<value=int64[1]{7}>(k) }""",
        7,
    ),
]
BODIES += [
    (
        f"""(float[2,5,3] x) => (float[2,5,3] y) {{
            a = Constant<value_int=-2>() y = CumSum<exclusive={one}, reverse={other}>(x, a) }}""",
        9,
    )
    for one, other in ((0, 0), (1, 0), (0, 1), (1, 1))
]
BODIES += [
    (
        f"""(float[1,2,4,5] x) => (float[1,2,n,m] y) {{
            s = Constant<value_floats=[1.0,1.0,{high},{wide}]>()
            y = Resize<mode="{mode}", coordinate_transformation_mode="{where}",
                       nearest_mode="{rounds}">(x, , s) }}""",
        9,
    )
    for high, wide in ((2.0, 1.5), (0.5, 0.7))
    for where in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    for mode, rounds in (("linear", "floor"), ("nearest", "floor"), ("nearest", "ceil"))
]
BODIES += [
    (
        """(float[1,2,4,5] x) => (float[1,2,n,m] y) {
            s = Constant<value_ints=[1,2,7,3]>()
            y = Resize<mode="linear">(x, , , s) }""",
        9,
    ),
]
"""Graphs of opset 18 with operators that an older opset lacks."""


def fed(model: Any) -> dict[str, Any]:
    """Make inputs with NaN among the floats."""
    drawn, feed = np.random.default_rng(0), {}
    for value in model.graph.inputs:
        shape = [dim if isinstance(dim, int) else 4 for dim in value.shape]
        if value.dtype.name.startswith("INT"):
            feed[value.name] = drawn.integers(-9, 9, shape).astype(value.dtype.numpy())
        else:
            feed[value.name] = drawn.normal(size=shape).astype(value.dtype.numpy())
    return feed


def lowered(text: str, version: int, opset: int = 18) -> Any:
    """Lower a graph, and check that it is valid and computes the same as before."""
    model = parsed(text, opset)
    feed = fed(model)
    wanted = run(model, feed)
    names = [value.name for value in model.graph.outputs]
    assert lower(model, version) == []
    assert model.opset_imports[""] == version
    assert names == [value.name for value in model.graph.outputs]
    onnx.checker.check_model(onnx_ir.to_proto(model), full_check=True)
    for one, other in zip(run(model, feed), wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-3 if one.dtype == np.float16 else 1e-5)
    return model


@pytest.mark.parametrize(("text", "oldest"), FORMS)
def test_the_form_of_an_operator_is_that_of_the_opset(text: str, oldest: int) -> None:
    for version in range(oldest, 18):
        lowered(text, version)


@pytest.mark.parametrize(("text", "oldest"), BODIES)
def test_a_newer_operator_is_expressed_by_older_ones(text: str, oldest: int) -> None:
    for version in range(oldest, 18):
        lowered(text, version)


def test_operators_of_opset_23_are_expressed_by_those_of_18() -> None:
    norm = (
        """(float[2,8] x, float[8] s) => (float[2,8] y) { y = RMSNormalization<axis=-1>(x, s) }"""
    )
    assert "RMSNormalization" not in kinds(lowered(norm, 18, 23))
    gelu = '(float[2,8] x) => (float[2,8] y) { y = Gelu<approximate="tanh">(x) }'
    assert "Gelu" not in kinds(lowered(gelu, 9, 20))


def test_a_comparison_with_nan_stays_false() -> None:
    text = """(float[3] x, float[3] y) => (bool[3] z, bool[3] w) { z = GreaterOrEqual(x, y)
    w = Equal(x, y) }"""
    model = parsed(text, 18)
    assert not lower(model, 9)
    feed = {
        "x": np.array([np.nan, np.inf, 1], np.float32),
        "y": np.array([0, np.inf, np.nan], np.float32),
    }
    assert [list(each) for each in run(model, feed)] == [[False, True, False]] * 2


def test_a_limit_on_one_side_lets_infinity_through() -> None:
    model = parsed(
        "(float[2] x) => (float[2] y) { a = Constant<value_float=0.0>() y = Clip(x, a) }"
    )
    assert not lower(model, 7)
    assert list(run(model, {"x": np.array([np.inf, -np.inf], np.float32)})[0]) == [np.inf, 0]


def test_nodes_in_branches_are_lowered_and_metadata_stays() -> None:
    text = """(float[2,3] x, bool c) => (float[2,3] y) {
        y = If(c) <then_branch = t () => (float[2,3] a) { a = Mish(x) },
                   else_branch = e () => (float[2,3] b) { b = HardSwish(x) }> }"""
    model = parsed(text, 18)
    for node in onnx_ir.traversal.RecursiveGraphIterator(model.graph):
        node.metadata_props["module"] = node.op_type
    feed = {"x": np.ones((2, 3), np.float32), "c": np.array(False)}
    wanted = run(model, feed)
    assert not lower(model, 11)
    nodes = [*onnx_ir.traversal.RecursiveGraphIterator(model.graph)]
    assert len(nodes) > 4 and {n.metadata_props["module"] for n in nodes} == {
        "If",
        "Mish",
        "HardSwish",
    }
    np.testing.assert_allclose(run(model, feed)[0], wanted[0])


REFUSED = [
    ("(float[2,3] x) => (float[2,3] y) { y = Erf(x) }", 8, 9, "ONNX has it since opset 9"),
    (
        "(float[2,3] x, int64[1] a) => (float[n,m] y) { y = ReduceMax(x, a) }",
        17,
        18,
        "its axes are computed",
    ),
    (
        """(float[2,n] x) => (float[2,m] y, float[2,k] z) {
    y, z = Split<axis=1, num_outputs=2>(x) }""",
        17,
        18,
        "divides a dimension that varies",
    ),
    (
        "(int64[2] x, int64[2] y) => (bool[2] z) { z = Greater(x, y) }",
        8,
        9,
        "supports int64 only since",
    ),
    (
        "(bfloat16[2] x) => (float[2] y) { y = Cast<to=1>(x) }",
        12,
        13,
        "supports bfloat16 only since",
    ),
    (
        """(float[1,1,4,4] x, float[1,2,2,2] g) => (float[1,1,2,2] y) { y = GridSample(x, g) }""",
        15,
        16,
        "since opset 16",
    ),
    (
        """(float[2,3] x) => (float[2,1] y, int64[2,1] i) { k = Constant<value_ints=[1]>()
    y, i = TopK<largest=0>(x, k) }""",
        10,
        11,
        "smallest",
    ),
]


@pytest.mark.parametrize(("text", "version", "since", "reason"), REFUSED)
def test_an_operator_that_an_opset_cannot_express_is_named(
    text: str, version: int, since: int, reason: str
) -> None:
    (refusal,) = lower(parsed(text, 18), version)
    assert refusal.since == since and reason in refusal.reason
    assert f"{refusal.operator}(" in text.replace("<", "(")
    assert lower(parsed(text, 18), since) == []
