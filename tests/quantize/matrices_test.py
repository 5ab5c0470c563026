"""Tests that nodes that read codes compute the same as the float graph with dequantized weights.

usage: matrices_test.py MATRIX_EDITS WORK_DIR [CASE]
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
MOST = 1e-6  # as a fraction of the largest output
LEVELS = (
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
)
SCHEMES = (
    ("int4/32, zero points, nearest", "int8"),
    ("int4/64, symmetric, nearest", "int4"),
    ("int8/128, symmetric, nearest", "int8"),
    ("int4/16, zero points, nearest", "int4"),
)


class Graph:
    """The graph of a case: nodes, weights, inputs with one value each, outputs."""

    def __init__(self, seed: int = 0):
        self.random = np.random.default_rng(seed)
        self.nodes = []
        self.weights = []
        self.inputs = {}
        self.outputs = []

    def weight(self, name: str, *shape: int, dtype=np.float32) -> str:
        values = self.random.standard_normal(shape).astype(np.float32) * 0.1
        if dtype == "bfloat16":
            self.weights.append(
                helper.make_tensor(
                    name,
                    TensorProto.BFLOAT16,
                    shape,
                    (values.view(np.uint32) >> 16).astype(np.uint16).tobytes(),
                    True,
                )
            )
        else:
            self.weights.append(numpy_helper.from_array(values.astype(dtype), name))
        return name

    def integers(self, name: str, *numbers: int) -> str:
        self.weights.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    def input(self, name: str, *shape: int, dtype=np.float32) -> str:
        self.inputs[name] = self.random.standard_normal(shape).astype(dtype)
        return name

    def ids(self, name: str, end: int, *shape: int) -> str:
        self.inputs[name] = self.random.integers(0, end, shape)
        return name

    def node(self, op: str, inputs: list, *outputs: str, **attributes) -> str:
        self.nodes.append(
            helper.make_node(op, inputs, outputs, name=f"/{op}_{len(self.nodes)}", **attributes)
        )
        return outputs[0]

    def output(self, *names: str) -> None:
        self.outputs += names

    def model(self) -> onnx.ModelProto:
        typed = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in self.inputs.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "g", typed, outputs, self.weights)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10
        )


# --- cases: each fills a graph, and returns the number of matrices that become codes


def matmul(g: Graph) -> int:
    g.output(g.node("MatMul", [g.input("x", 2, 3, 128), g.weight("w", 128, 48)], "y"))
    return 1


def vector(g: Graph) -> int:
    """Multiply a vector instead of a matrix."""
    g.output(g.node("MatMul", [g.input("x", 128), g.weight("w", 128, 48)], "y"))
    return 1


def odd_columns(g: Graph) -> int:
    """Use a K that no block size divides, and odd numbers of blocks and rows."""
    g.output(g.node("MatMul", [g.input("x", 3, 72), g.weight("w", 72, 17)], "y"))
    return 1


def matmul_transposed(g: Graph) -> int:
    g.node("Transpose", [g.weight("w", 48, 128)], "wt", perm=[1, 0])
    g.output(g.node("MatMul", [g.input("x", 5, 128), "wt"], "y"))
    return 1


def gemm_rows(g: Graph) -> int:
    g.output(
        g.node(
            "Gemm", [g.input("x", 5, 128), g.weight("w", 48, 128), g.weight("b", 48)], "y", transB=1
        )
    )
    return 1


def gemm_columns(g: Graph) -> int:
    """Build a Conv1D like that of GPT-2."""
    g.output(g.node("Gemm", [g.input("x", 5, 128), g.weight("w", 128, 48), g.weight("b", 48)], "y"))
    return 1


def gemm_without_bias(g: Graph) -> int:
    g.output(g.node("Gemm", [g.input("x", 5, 128), g.weight("w", 48, 128)], "y", transB=1))
    return 1


def gemm_adds_a_matrix(g: Graph) -> int:
    inputs = [g.input("x", 5, 128), g.weight("w", 48, 128), g.input("c", 5, 48)]
    g.output(g.node("Gemm", inputs, "y", transB=1))
    return 1


def tied(g: Graph) -> int:
    """Tie the head to the embedding."""
    table = g.weight("embed.weight", 96, 128)
    g.node("Gather", [table, g.ids("ids", 96, 2, 5)], "h")
    g.node("Transpose", [table], "head", perm=[1, 0])
    g.output(g.node("MatMul", ["h", "head"], "logits"))
    return 1


def tied_after_a_norm(g: Graph) -> int:
    table = g.weight("embed.weight", 96, 128)
    g.node("Gather", [table, g.ids("ids", 96, 2, 5)], "h")
    g.node("LayerNormalization", ["h", g.weight("norm", 128)], "n")
    g.node("Transpose", [table], "head", perm=[1, 0])
    g.output(g.node("MatMul", ["n", "head"], "logits"))
    return 1


def gathered_from_the_end(g: Graph) -> int:
    g.inputs["ids"] = np.array([[0, -1, 5], [-96, 95, 3]])
    g.output(g.node("Gather", [g.weight("embed.weight", 96, 128), "ids"], "h"))
    return 1


def no_ids(g: Graph) -> int:
    g.inputs["ids"] = np.zeros((2, 0), np.int64)
    g.node("Gather", [g.weight("embed.weight", 96, 128), "ids"], "h")
    g.output(g.node("MatMul", ["h", g.weight("w", 128, 48)], "y"))
    return 2


def mixtral(g: Graph) -> int:
    """Transpose and split experts [E, N, K]."""
    g.node("Transpose", [g.weight("experts", 4, 48, 128)], "t", perm=[0, 2, 1])
    g.node("Split", ["t"], *(f"s{e}" for e in range(4)), axis=0, num_outputs=4)
    g.integers("axes", 0)
    x = g.input("x", 5, 128)
    for e in range(4):
        g.node("Squeeze", [f"s{e}", "axes"], f"w{e}")
        g.output(g.node("MatMul", [x, f"w{e}"], f"y{e}"))
    return 4


def gpt_oss(g: Graph) -> int:
    """Split experts [E, K, N] by sizes."""
    sizes = g.integers("sizes", 1, 1, 1)
    g.node("Split", [g.weight("experts", 3, 128, 48), sizes], *(f"s{e}" for e in range(3)), axis=0)
    g.integers("axes", 0)
    x = g.input("x", 0, 128)  # no tokens for these experts
    for e in range(3):
        g.node("Squeeze", [f"s{e}", "axes"], f"w{e}")
        g.output(g.node("MatMul", [x, f"w{e}"], f"y{e}"))
    return 3


def selected(g: Graph) -> int:
    """Select experts by a scalar index, and take a slice of rows."""
    experts = g.weight("experts", 2, 128, 48)
    x = g.input("x", 3, 128)
    for e in range(2):
        g.weights.append(numpy_helper.from_array(np.array(e, np.int64), f"i{e}"))
        g.node("Gather", [experts, f"i{e}"], f"w{e}", axis=0)
        g.output(g.node("MatMul", [x, f"w{e}"], f"y{e}"))
    both = g.weight("qk", 96, 128)
    for name, start, end in (("q", 0, 48), ("k", 48, 2**62)):
        inputs = [
            both,
            g.integers(f"{name}s", start),
            g.integers(f"{name}e", end),
            g.integers(f"{name}a", 0),
        ]
        g.node("Slice", inputs, f"{name}w")
        g.output(g.node("Gemm", [x, f"{name}w"], f"{name}y", transB=1))
    return 4


def reshaped(g: Graph) -> int:
    """Join axes, as in projections of heads."""
    shape = g.integers("shape", 0, -1)
    g.node("Reshape", [g.weight("w", 128, 4, 16), shape], "flat")
    g.output(g.node("MatMul", [g.input("x", 5, 128), "flat"], "y"))
    return 1


def bfloat16_on_disk(g: Graph) -> int:
    g.node("Cast", [g.weight("w", 48, 128, dtype="bfloat16")], "f", to=TensorProto.FLOAT)
    g.node("Transpose", ["f"], "t", perm=[1, 0])
    g.output(g.node("MatMul", [g.input("x", 5, 128), "t"], "y"))
    return 1


def bfloat16_table_on_disk(g: Graph) -> int:
    """Build a tied embedding whose rows are converted after the Gather."""
    table = g.weight("w", 48, 128, dtype="bfloat16")
    g.node("Gather", [table, g.ids("ids", 48, 2, 5)], "h")
    g.node("Cast", ["h"], "x", to=TensorProto.FLOAT)
    g.node("Cast", [table], "f", to=TensorProto.FLOAT)
    g.node("Transpose", ["f"], "t", perm=[1, 0])
    g.output(g.node("MatMul", [g.node("Softmax", ["x"], "s", axis=-1), "t"], "y"))
    return 1


def float16(g: Graph) -> int:
    g.output(
        g.node(
            "MatMul",
            [g.input("x", 5, 128, dtype=np.float16), g.weight("w", 128, 48, dtype=np.float16)],
            "y",
        )
    )
    return 1


def embedding_of_float16(g: Graph) -> int:
    table = g.weight("embed.weight", 96, 128, dtype=np.float16)
    g.output(g.node("Gather", [table, g.ids("ids", 96, 2, 5)], "h"))
    return 1


def branches(g: Graph) -> int:
    """Build an If whose bodies read weights of the outer graph and a weight of their own."""
    x = g.input("x", 5, 128)
    outer = g.weight("w", 128, 48)
    g.inputs["c"] = np.array(True)
    inner = numpy_helper.from_array(g.random.standard_normal((128, 48)).astype(np.float32), "inner")
    value = [helper.make_empty_tensor_value_info("out")]
    bodies = [
        helper.make_graph([helper.make_node("MatMul", [x, outer], ["out"])], "then", [], value),
        helper.make_graph(
            [helper.make_node("MatMul", [x, "inner"], ["out"])], "else", [], value, [inner]
        ),
    ]
    g.output(g.node("If", ["c"], "y", then_branch=bodies[0], else_branch=bodies[1]))
    return 2


def shared(g: Graph) -> int:
    """Let two nodes read the same weight."""
    w = g.weight("w", 128, 128)
    g.node("MatMul", [g.input("x", 5, 128), w], "h")
    g.node("Relu", ["h"], "r")
    g.output(g.node("MatMul", ["r", w], "y"))
    return 1


CASES = (
    matmul,
    vector,
    odd_columns,
    matmul_transposed,
    gemm_rows,
    gemm_columns,
    gemm_without_bias,
    gemm_adds_a_matrix,
    tied,
    tied_after_a_norm,
    gathered_from_the_end,
    no_ids,
    mixtral,
    gpt_oss,
    selected,
    reshaped,
    bfloat16_on_disk,
    bfloat16_table_on_disk,
    float16,
    embedding_of_float16,
    branches,
    shared,
)


# --- codes ------------------------------------------------------------------------------------


def apply(recipe: list, array: np.ndarray) -> np.ndarray:
    for step, numbers in recipe:
        if step == "transpose":
            array = array.T
        elif step == "permute":
            array = array.transpose(numbers)
        elif step == "reshape":
            array = array.reshape(numbers)
        else:
            axis, start, stop = numbers
            array = array[(slice(None),) * axis + (slice(start, stop),)]
    return array


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    if bits == 8:
        return codes
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, codes.shape[-1] % 2)])
    return codes[..., ::2] | codes[..., 1::2] << 4


def quantize(rows: np.ndarray, matrix: dict, dtype: type) -> tuple:
    """Return codes, scales and zero points as bytes, and the dequantized rows."""
    bits, block = matrix["bits"], matrix["block"]
    n, k = rows.shape
    padded = np.zeros((n, -(-k // block) * block), np.float32)
    padded[:, :k] = rows
    blocks = padded.reshape(n, -1, block)
    top = 2**bits - 1
    low = np.minimum(blocks.min(-1), 0)
    high = np.maximum(blocks.max(-1), 0)
    if matrix["zero_points"]:
        scales = ((high - low) / top).astype(dtype)
        zeros = np.clip(np.round(-low / scales.astype(np.float32)), 0, top)
    else:
        scales = (np.maximum(high, -low) / (2 ** (bits - 1) - 1)).astype(dtype)
        zeros = np.full(scales.shape, 2 ** (bits - 1), np.float32)
    scales[scales == 0] = 1  # the block is zero
    wide = scales.astype(np.float32)[..., None]
    codes = np.clip(np.round(blocks / wide) + zeros[..., None], 0, top).astype(np.uint8)
    exact = ((codes - zeros[..., None]) * wide).reshape(n, -1)[:, :k]
    packed = pack(codes, bits)
    return (packed, packed, scales, pack(zeros.astype(np.uint8), bits)), exact


def fill(model: onnx.ModelProto, matrices: list, folder: Path) -> onnx.ModelProto:
    """Write the new tensors of each matrix; return the float model with dequantized weights."""
    floats = onnx.ModelProto()
    floats.CopyFrom(model)
    weights = {tensor.name: tensor for tensor in floats.graph.initializer}
    for node in floats.graph.node:
        for attribute in node.attribute:
            weights.update((tensor.name, tensor) for tensor in attribute.g.initializer)
    for matrix in matrices:
        tensor = weights[matrix["weight"]]
        is_bfloat16 = tensor.data_type == TensorProto.BFLOAT16
        if is_bfloat16:
            bits = np.frombuffer(tensor.raw_data, np.uint16).astype(np.uint32) << 16
            array = bits.view(np.float32).reshape(tensor.dims)
        else:
            array = numpy_helper.to_array(tensor).copy()
        rows = apply(matrix["recipe"], array)
        assert list(rows.shape) == matrix["rows"], (rows.shape, matrix)
        dtype = np.float32 if is_bfloat16 else array.dtype
        parts, exact = quantize(rows.astype(np.float32), matrix, dtype)
        for part in matrix["tensors"]:
            data = parts[part["part"]]
            a_byte = 2 if part["type"] == TensorProto.UINT4 else 1  # values
            assert data.size * a_byte == np.prod(part["dims"]), (data.shape, part)
            (folder / part["file"]).write_bytes(data.tobytes())
        places = apply(matrix["recipe"], np.arange(array.size).reshape(array.shape))
        array = array.astype(np.float32) if is_bfloat16 else array
        array.reshape(-1)[places] = exact
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in floats.graph.node:
        if node.op_type == "Cast" and node.input[0] in weights:  # the weight is no longer bfloat16
            node.op_type = "Identity"
            del node.attribute[:]
    return floats


def results(model, level, feeds: dict) -> list:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def fuses_all_products(path: Path) -> bool:
    """Return whether ONNX Runtime fuses each product in the standard form into MatMulNBits."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path.with_name("optimized.onnx"))
    options.log_severity_level = 3
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(options.optimized_model_filepath, load_external_data=False).graph.node
    return {node.op_type for node in nodes} == {"MatMulNBits"}


def difference(got: list, wanted: list) -> float:
    worst = 0.0
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape, (one.shape, other.shape)
        if one.size:
            apart = np.abs(one.astype(np.float64) - other.astype(np.float64)).max()
            worst = max(worst, apart / np.abs(other).max())
    return worst


def float_in_standard_form(case, head: str) -> int:
    """Return the number of matrices with rows that no block divides, or that cannot be gathered as codes."""
    gathers = case in (
        tied_after_a_norm,
        gathered_from_the_end,
        embedding_of_float16,
        bfloat16_table_on_disk,
    )
    return int(case in (odd_columns, tied, no_ids) or (gathers and head == "int4"))


def check(case, scheme: str, head: str, form: str, program: str, folder: Path) -> str:
    """Return the fault, or nothing."""
    g = Graph()
    wanted = case(g)
    if form == "qdq":
        wanted -= float_in_standard_form(case, head)
    model = g.model()
    folder.mkdir(parents=True, exist_ok=True)
    given, made = folder / "given.onnx", folder / "made.onnx"
    onnx.save(model, given)
    run = subprocess.run(
        [program, given, made, scheme, head, "0", "16", "8", form],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        return "" if not wanted and "nothing to quantize" in run.stdout else run.stdout + run.stderr
    plan = json.loads(run.stdout)
    if len(plan["matrices"]) != wanted:
        return f"{len(plan['matrices'])} matrices: {plan}"
    floats = fill(model, plan["matrices"], folder)
    most = 2e-3 if case in (float16, embedding_of_float16) else MOST
    for level in LEVELS:
        expected = results(floats.SerializeToString(), level, g.inputs)
        worst = difference(results(str(made), level, g.inputs), expected)
        if not worst <= most:
            return f"{level}: {worst:.2g}"
    if form == "qdq" and case in (matmul, gemm_rows, mixtral) and not fuses_all_products(made):
        return "not fused"
    return ""


def main() -> int:
    program, folder = sys.argv[1], Path(sys.argv[2])
    failed = 0
    checked = 0
    for case in CASES:
        if len(sys.argv) > 3 and case.__name__ != sys.argv[3]:
            continue
        for form in ("matmulnbits", "qdq"):
            for scheme, head in SCHEMES:
                wrong = check(case, scheme, head, form, program, folder / case.__name__)
                checked += 1
                if wrong:
                    failed += 1
                    print(f"FAIL {case.__name__}, {scheme}, head {head}, {form}: {wrong}")
    print(f"{checked - failed} of {checked} passed")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
