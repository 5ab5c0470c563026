"""Measure the quantization of a checkpoint in comparison with a copy of its file (matrices of a 7B Llama in bfloat16).

usage: quantize.py COMMAND FOLDER [GB] [ROUNDS] [--cold] [--peers]

COMMAND is save-external. Prints medians of interleaved rounds, their ratios to `cp` of the checkpoint in the same
round, processor seconds and the peak of memory. `--cold` drops the checkpoint from the page cache before each run, and
waits for the disk after it (`cp` with `sync`). `--peers` also runs ONNX Runtime's own quantizer (packages onnx
and onnxruntime) on a tenth of the matrices, in float32, once. FOLDER needs twice the size; what it holds of
this benchmark is replaced and removed.
"""

import json
import shutil
import time
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper
from rounds import HEAD, new_folder, parser_of, print_rounds

WIDTH, INNER = 4096, 11008
SHAPES = [(WIDTH, WIDTH)] * 4 + [(INNER, WIDTH)] * 2 + [(WIDTH, INNER)]
WAYS = {
    "int4, nearest": ["--quantize", "int4, nearest", "--no-verify"],
    "int4": ["--quantize", "int4", "--no-verify"],
    "int8": ["--quantize", "int8", "--no-verify"],
    "int4, nearest, verified": ["--quantize", "int4, nearest"],
    "int4, verified": ["--quantize", "int4"],
}


def weights_of(size: float) -> dict[str, tuple[int, int]]:
    """Return names and shapes of bfloat16 matrices of about `size` bytes in total."""
    layer = 2 * sum(rows * columns for rows, columns in SHAPES)
    return {
        f"layers.{number}.{i}.weight": shape for number in range(max(1, round(size / layer))) for i, shape in enumerate(SHAPES)
    }


def write_checkpoint(path: Path, weights: dict) -> None:
    header, end = {}, 0
    for name, (rows, columns) in weights.items():
        header[name] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [end, end + 2 * rows * columns]}
        end += 2 * rows * columns
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    noise = numpy.random.default_rng(0).standard_normal(INNER * WIDTH).astype(numpy.float32)
    halves = (noise.view(numpy.uint32) >> 16).astype(numpy.uint16)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for rows, columns in weights.values():
            stream.write(memoryview(halves[: rows * columns]).cast("B"))


def graph_of(weights: dict) -> onnx.ModelProto:
    """Return a graph with the largest value of x @ w.T for each weight, because a product that reaches an output is a
    head.
    """
    nodes, tensors, outputs = [], [], []
    for name, shape in weights.items():
        tensors.append(TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape))
        nodes.append(helper.make_node("Transpose", [name], [f"{name}.T"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", [f"x{shape[1]}", f"{name}.T"], [f"{name}.y"]))
        nodes.append(helper.make_node("ReduceMax", [f"{name}.y"], [f"{name}.max"], keepdims=0))
        outputs.append(helper.make_tensor_value_info(f"{name}.max", TensorProto.FLOAT, []))
    inputs = [helper.make_tensor_value_info(f"x{size}", TensorProto.FLOAT, ["n", size]) for size in (WIDTH, INNER)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def run_peer(folder: Path, weights: dict) -> None:
    """Measure ONNX Runtime's quantizer, which loads all weights into memory."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    some = dict(list(weights.items())[: max(1, len(weights) // 10)])
    model = graph_of(some)
    noise = numpy.random.default_rng(0).standard_normal(INNER * WIDTH).astype(numpy.float32)
    for node in list(model.graph.node):
        if node.op_type == "Transpose":
            model.graph.node.remove(node)
    for tensor in model.graph.initializer:
        rows, columns = tensor.dims
        tensor.raw_data = noise[: rows * columns].tobytes()
        tensor.name += ".T"
        tensor.dims[:] = [columns, rows]
    start = time.monotonic()
    MatMulNBitsQuantizer(model, block_size=64, is_symmetric=False).process()
    numbers = sum(rows * columns for rows, columns in some.values())
    print(f"\nONNX Runtime's quantizer, int4/64 with zero points, nearest: {(time.monotonic() - start) / numbers * 1e9:.1f} ns a weight")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args()
    folder = new_folder(given.folder / "quantize")
    weights = weights_of(given.gb * 1e9)
    checkpoint, out, copy = folder / "weights.safetensors", folder / "out", folder / "copy"
    write_checkpoint(checkpoint, weights)
    onnx.save(graph_of(weights), folder / "graph.onnx")
    save = [given.command, str(folder / "graph.onnx"), str(checkpoint), "-o", str(out), "--dtype", "slot", "--layout", "single", "-q"]
    ways = {"cp": (["cp", str(checkpoint), str(copy)], copy)}
    for what, options in WAYS.items():
        ways[what] = ([*save, *options, *([] if given.cold else ["--no-fsync"])], out)
    size = checkpoint.stat().st_size / 1e9
    print(f"{size:.2f} GB of bfloat16 in {len(weights)} matrices, {given.rounds} rounds, {'cold' if given.cold else 'warm'}\n")
    print(HEAD)
    print_rounds(ways, given.rounds, checkpoint if given.cold else None)
    if given.peers:
        run_peer(folder, weights)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
