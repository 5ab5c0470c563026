"""Graphs as torch traces them, which the fusing rules simplify, and their comparison."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime

RMS = """
({x} x, float[8] scale) => ({y} y) <float two = {{2}}, int64[1] last = {{-1}},
    float epsilon = {{1e-6}}, float one = {{1}}, float half = {{-0.5}}> {{
    {before}
    squares = Pow (wide, two)
    mean = ReduceMean <keepdims: int = 1> (squares, last)
    shifted = Add (mean, epsilon)
    {root}
    normal = Mul (wide, over)
    {after}
}}
"""
PLAIN = {
    "x": "float[rows, 3, 8]",
    "y": "float[rows, 3, 8]",
    "before": "wide = Identity (x)",
    "root": "root = Sqrt (shifted)\n    over = Reciprocal (root)",
    "after": "y = Mul (scale, normal)",
}

CENTERED = """
(float[rows, 3, 8] x, float[8] scale) => (float[rows, 3, 8] y) <float two = {2},
    int64[1] last = {-1}, float epsilon = {1e-5}> {
    middle = ReduceMean (x, last)
    apart = Sub (x, middle)
    squares = Pow (apart, two)
    mean = ReduceMean (squares, last)
    shifted = Add (mean, epsilon)
    root = Sqrt (shifted)
    over = Reciprocal (root)
    normal = Mul (apart, over)
    y = Mul (scale, normal)
}
"""

_TABLES = """
    angles = Mul (places, frequencies)
    {doubled}
    cosines = Cos (twice)
    sines = Sin (twice)
    cosine = Mul (cosines, factor)
    sine = Mul (sines, factor)
    cos = Unsqueeze (cosine, one)
    sin = Unsqueeze (sine, one)
"""
_HEAD = """
(float[rows, 2, length, 8] x, float[rows, length, 1] places, float[{count}] frequencies)
    => (float[rows, 2, length, 8] y) <int64[1] zero = {{0}}, int64[1] one = {{1}},
    int64[1] two = {{2}}, int64[1] last = {{3}}, int64[1] behind = {{-1}}, int64[1] half = {{4}},
    int64[1] quarter = {{2}}, int64[1] end = {{9223372036854775807}}, float factor = {{0.5}},
    int64[4] reps = {{1, 1, 1, 2}}, int64[4] whole = {{0, 0, 0, 8}}, int64[3] table = {{0, 0, 8}},
    float[rows, length, {width}] twice>
{{
"""
_HALVES = """
    low = Slice (x, zero, half, last, one)
    high = Slice (x, half, end, last, one)
    minus = Neg (high)
    turned = Concat <axis: int = -1> (minus, low)
    plain = Mul (x, cos)
    crossed = Mul (turned, sin)
    y = Add (plain, crossed)
}
"""
ROTARY = {
    "halves": (
        _HEAD.format(count=4, width=8)
        + _TABLES.format(doubled="twice = Concat <axis: int = -1> (angles, angles)")
        + _HALVES
    ),
    "neighbours": (
        _HEAD.format(count=4, width=8)
        + _TABLES.format(
            doubled="longer = Unsqueeze (angles, last)\n    tiled = Tile (longer, reps)\n"
            "    twice = Reshape (tiled, table)"
        )
        + """
    even = Slice (x, zero, end, last, two)
    odd = Slice (x, one, end, last, two)
    minus = Neg (odd)
    first = Unsqueeze (minus, behind)
    second = Unsqueeze (even, behind)
    stacked = Concat <axis: int = -1> (first, second)
    turned = Reshape (stacked, whole)
    plain = Mul (x, cos)
    crossed = Mul (turned, sin)
    y = Add (crossed, plain)
}
"""
    ),
    "partial": (
        _HEAD.format(count=2, width=4)
        + _TABLES.format(doubled="twice = Concat <axis: int = -1> (angles, angles)")
        + """
    part = Slice (x, zero, half, last, one)
    rest = Slice (x, half, end, last, one)
    low = Slice (part, zero, quarter, last, one)
    high = Slice (part, quarter, end, last, one)
    minus = Neg (high)
    turned = Concat <axis: int = -1> (minus, low)
    plain = Mul (part, cos)
    crossed = Mul (turned, sin)
    rotated = Add (plain, crossed)
    y = Concat <axis: int = -1> (rotated, rest)
}
"""
    ),
    "one by one": (
        _HEAD.format(count=4, width=4)
        + _TABLES.format(doubled="twice = Identity (angles)")
        + """
    low, high = Split <axis: int = 3, num_outputs: int = 2> (x)
    a = Mul (low, cos)
    b = Mul (high, sin)
    left = Sub (a, b)
    c = Mul (high, cos)
    d = Mul (low, sin)
    right = Add (c, d)
    y = Concat <axis: int = -1> (left, right)
}
"""
    ),
}

SKIP = """
(float[rows, 3, 8] x, float[rows, 3, 8] more) => (float[rows, 3, 8] y, float[rows, 3, 8] total)
    <float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}> {
    total = Add (x, more)
    y = RMSNormalization <axis: int = -1, epsilon: float = 1e-6> (total, scale)
}
"""


ATTENTION = """
(float[rows, length, 32] x, float[rows, 2, past, 8] keys, float[rows, 2, past, 8] values,
    float[rows, length, 4] cos, float[rows, length, 4] sin, int32[rows] last, int32 total)
    => (float[rows, length, 32] y, float[rows, 2, all, 8] longer_keys,
    float[rows, 2, all, 8] longer_values) <int64[3] wide = {0, 0, 32}, int64[3] narrow = {0, 0, 16},
    int64[4] heads = {0, 0, -1, 8}, float[rows, length, 4, 8] apart, float[rows, length, 2, 8] k4,
    float[rows, length, 2, 8] v4, float[rows, length, 32] flat_q, float[rows, length, 16] flat_k,
    float[rows, length, 16] flat_v, float[rows, length, 32] attended,
    float[rows, length, 4, 8] by_head, float[rows, length, 32] joined,
    float[rows, 4, length, 8] q_turned, float[rows, 2, length, 8] k_turned> {
    q_matrix = Transpose <perm: ints = [1, 0]> (q_weight)
    k_matrix = Transpose <perm: ints = [1, 0]> (k_weight)
    v_matrix = Transpose <perm: ints = [1, 0]> (v_weight)
    q = MatMul (x, q_matrix)
    k = MatMul (x, k_matrix)
    v = MatMul (x, v_matrix)
    apart = Reshape (q, heads)
    k4 = Reshape (k, heads)
    v4 = Reshape (v, heads)
    q_heads = Transpose <perm: ints = [0, 2, 1, 3]> (apart)
    k_heads = Transpose <perm: ints = [0, 2, 1, 3]> (k4)
    v_heads = Transpose <perm: ints = [0, 2, 1, 3]> (v4)
    q_turned = RotaryEmbedding (q_heads, cos, sin)
    k_turned = RotaryEmbedding (k_heads, cos, sin)
    q_back = Transpose <perm: ints = [0, 2, 1, 3]> (q_turned)
    k_back = Transpose <perm: ints = [0, 2, 1, 3]> (k_turned)
    v_back = Transpose <perm: ints = [0, 2, 1, 3]> (v_heads)
    flat_q = Reshape (q_back, wide)
    flat_k = Reshape (k_back, narrow)
    flat_v = Reshape (v_back, narrow)
    attended, longer_keys, longer_values = com.microsoft.GroupQueryAttention <num_heads: int = 4,
        kv_num_heads: int = 2, scale: float = 0.3> (flat_q, flat_k, flat_v, keys, values, last,
        total)
    by_head = Reshape (attended, heads)
    joined = Reshape (by_head, wide)
    y = Identity (joined)
}
"""


TURNED = """
(float[rows, length, 64] q, float[rows, length, 32] k, float[rows, length, 32] v,
    float[rows, 2, past, 16] keys, float[rows, 2, past, 16] values,
    int64[rows, length] position_ids, int32[rows] last, int32 total)
    => (float[rows, length, 64] y, float[rows, 2, all, 16] longer_keys,
    float[rows, 2, all, 16] longer_values) <int64[1] behind = {2}, float large = {1.5},
    float[8] rates = {1, 0.5, 0.25, 0.12, 0.06, 0.03, 0.015, 0.01},
    float[rows, length, 8] cos, float[rows, length, 8] sin,
    float[rows, length, 64] q_turned, float[rows, length, 32] k_turned> {
    apart = Unsqueeze (position_ids, behind)
    wide = Cast <to: int = 1> (apart)
    angles = Mul (wide, rates)
    cosines = Cos (angles)
    sines = Sin (angles)
    cos = Mul (cosines, large)
    sin = Mul (sines, large)
    q_turned = RotaryEmbedding <num_heads: int = 4> (q, cos, sin)
    k_turned = RotaryEmbedding <num_heads: int = 2> (k, cos, sin)
    y, longer_keys, longer_values = com.microsoft.GroupQueryAttention <num_heads: int = 4,
        kv_num_heads: int = 2, scale: float = 0.3> (q_turned, k_turned, v, keys, values, last,
        total)
}
"""


def of_turned(rows: int, length: int, past: int) -> dict[str, Any]:
    """Make the inputs of the graph above."""
    drawn = np.random.default_rng(3)
    widths = {"q": 64, "k": 32, "v": 32}
    made = {name: drawn.normal(size=(rows, length, width)) for name, width in widths.items()}
    made |= {name: drawn.normal(size=(rows, 2, past, 16)) for name in ("keys", "values")}
    return {
        **{name: each.astype(np.float32) for name, each in made.items()},
        "position_ids": np.tile(np.arange(past, past + length), (rows, 1)),
        "last": np.full(rows, past + length - 1, np.int32),
        "total": np.array(past + length, np.int32),
    }


def attention() -> onnx_ir.Model:
    """Return a graph of attention as it is traced, with the values of its weights."""
    head = ATTENTION.replace(
        "int64[3] wide",
        "float[32, 32] q_weight, float[16, 32] k_weight, float[16, 32] v_weight, int64[3] wide",
    )
    model = parsed(head, 23)
    drawn = np.random.default_rng(1)
    for name, rows in (("q", 32), ("k", 16), ("v", 16)):
        value = onnx_ir.val(
            f"layer.{name}_proj.weight",
            const_value=onnx_ir.tensor(drawn.normal(size=(rows, 32)).astype(np.float32) / 6),
        )
        model.graph.initializers.add(value)
        old = next(
            node.inputs[0] for node in model.graph if node.outputs[0].name == f"{name}_matrix"
        )
        assert old is not None
        old.replace_all_uses_with(value)
    return model


def of_attention(rows: int = 2, length: int = 3, past: int = 4) -> dict[str, Any]:
    """Make the inputs of the graph above."""
    drawn = np.random.default_rng(2)
    caches = drawn.normal(size=(2, rows, 2, past, 8)).astype(np.float32)
    angles = drawn.normal(size=(rows, length, 4)).astype(np.float32)
    return {
        "x": drawn.normal(size=(rows, length, 32)).astype(np.float32),
        "keys": caches[0],
        "values": caches[1],
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "last": np.full(rows, past + length - 1, np.int32),
        "total": np.array(past + length, np.int32),
    }


def parsed(text: str, opset: int = 20) -> onnx_ir.Model:
    """Return the model for a graph in ONNX's text format, with the shapes of its values."""
    head = f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]> graph '
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(head + text.strip()))
    return onnx_ir.from_proto(proto)


def kinds(model: onnx_ir.Model) -> Counter[str]:
    """Count the operators of a graph."""
    return Counter(node.op_type for node in model.graph)


def run(model: onnx_ir.Model, feed: dict[str, Any]) -> list[Any]:
    """Run a model on ONNX Runtime without optimization."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    data = onnx_ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def values(model: onnx_ir.Model, rows: int = 2, length: int = 5) -> dict[str, Any]:
    """Make inputs with small and large elements."""
    drawn = np.random.default_rng(0)
    named = {"rows": rows, "length": length}
    feed = {}
    for value in model.graph.inputs:
        assert value.shape is not None and value.dtype is not None
        shape = [dim if isinstance(dim, int) else named[str(dim.value)] for dim in value.shape]
        size = 10.0 ** drawn.integers(-4, 4, (*shape[:-1], 1))
        feed[value.name or ""] = (drawn.normal(size=shape) * size).astype(value.dtype.numpy())
    return feed
