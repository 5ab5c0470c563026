"""Measure quantizing a checkpoint beside a copy of its file: matrices of a Llama of 7B, in bfloat16.

usage: quantize.py COMMAND FOLDER [GB] [ROUNDS] [--cold] [--peers]

COMMAND is save-external. Prints medians of interleaved rounds, their ratios to `cp` of the checkpoint in the same
round, processor seconds and the peak of memory. `--cold` drops the checkpoint from the page cache before each run, and
waits for the disk after it (`cp` with `sync`). `--peers` also runs ONNX Runtime's own quantizer (packages onnx
and onnxruntime) on a tenth of the matrices, in float32, once. FOLDER needs twice the size; what it holds of
this benchmark is replaced and removed.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper

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
    """Names and shapes of bfloat16 matrices of about `size` bytes."""
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
    """Return the greatest of x @ w.T for each weight: a product that reaches an output would be a head."""
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


def drop_pages(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def timed(command: list[str], out: Path, cold: Path | None) -> tuple[float, float, int]:
    """Wall seconds, processor seconds, and the peak of memory in MiB, which measure.c takes."""
    result = out.with_name("measured")
    if cold:
        os.sync()
        drop_pages(cold)
    start = time.monotonic()
    process = subprocess.Popen([result.with_name("measure"), result, *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command)}: failed")
    if cold and command[0] == "cp":
        os.sync()
    wall = time.monotonic() - start
    shutil.rmtree(out, ignore_errors=True) if out.is_dir() else out.unlink(missing_ok=True)
    return wall, usage.ru_utime + usage.ru_stime, int(result.read_text().split()[1]) // 1024


def run_peer(folder: Path, weights: dict) -> None:
    """Time ONNX Runtime's quantizer, which holds all weights in memory."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("folder", type=Path)
    parser.add_argument("gb", type=float, nargs="?", default=2.0)
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args()
    folder = given.folder / "quantize"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = Path(__file__).with_name("measure.c")
    subprocess.run(["cc", "-O2", "-o", folder / "measure", source], check=True)
    weights = weights_of(given.gb * 1e9)
    checkpoint, out, copy = folder / "weights.safetensors", folder / "out", folder / "copy"
    write_checkpoint(checkpoint, weights)
    onnx.save(graph_of(weights), folder / "graph.onnx")
    save = [given.command, str(folder / "graph.onnx"), str(checkpoint), "-o", str(out), "--dtype", "slot", "--layout", "single", "-q"]
    ways = {"cp": (["cp", str(checkpoint), str(copy)], copy)}
    for what, options in WAYS.items():
        ways[what] = ([*save, *options, *([] if given.cold else ["--no-fsync"])], out)
    found: dict[str, list] = {what: [] for what in ways}
    for _ in range(given.rounds):
        for what, (command, made) in ways.items():
            found[what].append(timed(command, made, checkpoint if given.cold else None))
    size = checkpoint.stat().st_size / 1e9
    print(f"{size:.2f} GB of bfloat16 in {len(weights)} matrices, {given.rounds} rounds, {'cold' if given.cold else 'warm'}\n")
    print("| | s | x cp | processor s | peak, MiB |\n|---|---|---|---|---|")
    for what, runs in found.items():
        ratio = statistics.median(run[0] / base[0] for run, base in zip(runs, found["cp"], strict=True))
        wall, cpu, peak = (statistics.median(run[i] for run in runs) for i in range(3))
        print(f"| {what} | {wall:.2f} | {ratio:.2f} | {cpu:.2f} | {peak:.0f} |")
    if given.peers:
        run_peer(folder, weights)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
