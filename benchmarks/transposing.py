"""Measure saves of a program whose weights are stored transposed: linear layers of a Llama, plain and transposed.

usage: transposing.py FOLDER [GB] [ROUNDS]

Prints medians of interleaved rounds, of `oe.save(model, FILE, CHECKPOINT)` in the layout `single`, and of their
ratios. FOLDER needs twice the size; what it holds of this benchmark is replaced and removed.
"""

import json
import shutil
import statistics
import sys
import time
from pathlib import Path

import numpy
import onnx_ir as ir

import onnx_external as oe

WIDTH, INNER = 2048, 5632
SHAPES = {"q": (WIDTH, WIDTH), "o": (WIDTH, WIDTH), "gate": (INNER, WIDTH), "up": (INNER, WIDTH), "down": (WIDTH, INNER)}
HALF = ir.TensorType(ir.DataType.FLOAT16)


def weights_of(size: int) -> dict:
    """Return names and shapes of fp16 matrices of about `size` bytes in total."""
    layer = 2 * sum(rows * columns for rows, columns in SHAPES.values())
    return {
        f"layers.{number}.{name}.weight": shape
        for number in range(max(1, round(size / layer)))
        for name, shape in SHAPES.items()
    }


def write_checkpoint(path: Path, weights: dict) -> None:
    header, end = {}, 0
    for name, (rows, columns) in weights.items():
        header[name] = {"dtype": "F16", "shape": [rows, columns], "data_offsets": [end, end + 2 * rows * columns]}
        end += 2 * rows * columns
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    noise = numpy.random.default_rng(0).standard_normal(max(r * c for r, c in weights.values())).astype(numpy.float16)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for rows, columns in weights.values():
            stream.write(memoryview(noise[: rows * columns]).cast("B"))


def graph_of(weights: dict) -> ir.Model:
    """Return a graph of x @ w.T for each weight."""
    inputs, outputs, nodes, values = [], [], [], []
    for name, shape in weights.items():
        weight = ir.Value(name=name, type=HALF, shape=ir.Shape(shape))
        x = ir.Value(name=f"x.{name}", type=HALF, shape=ir.Shape(("rows", shape[1])))
        turned = ir.node("Transpose", [weight], {"perm": [1, 0]})
        product = ir.node("MatMul", [x, turned.outputs[0]])
        product.outputs[0].name, turned.outputs[0].name = f"y.{name}", f"t.{name}"
        product.outputs[0].type, product.outputs[0].shape = HALF, ir.Shape(("rows", shape[0]))
        inputs.append(x)
        outputs.append(product.outputs[0])
        nodes += [turned, product]
        values.append(weight)
    graph = ir.Graph(inputs, outputs, nodes=nodes, initializers=values, opset_imports={"": 18}, name="g")
    return ir.Model(graph, ir_version=10)


def main() -> None:
    folder = Path(sys.argv[1]) / "transposing"
    size = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    weights = weights_of(int(size * 1e9))
    checkpoint = folder / "weights.safetensors"
    write_checkpoint(checkpoint, weights)
    model = graph_of(weights)
    ways = {
        what: {"verify": verify, "fsync": fsync}
        for what, verify, fsync in (("copy", False, False), ("copy, verify", True, False), ("default", True, True))
    }
    seconds = {(what, turned): [] for what in ways for turned in (False, True)}
    for _ in range(rounds):
        for (what, turned), found in seconds.items():
            start = time.monotonic()
            oe.save(
                model, folder / "out/model.onnx", checkpoint, files=oe.Layout(transpose_weights=turned), progress=False, **ways[what]
            )
            found.append(time.monotonic() - start)
            shutil.rmtree(folder / "out")
    total = checkpoint.stat().st_size / 1e9
    print(f"{total:.2f} GB of fp16 in {len(weights)} matrices, {rounds} rounds\n")
    print("| | plain, s | transposed, s | ratio |\n|---|---|---|---|")
    for what in ways:
        plain, turned = seconds[what, False], seconds[what, True]
        ratio = statistics.median(b / a for a, b in zip(plain, turned, strict=True))
        print(f"| {what} | {statistics.median(plain):.2f} | {statistics.median(turned):.2f} | {ratio:.1f} |")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
