"""Tests recipes and derived tensors of map files with random chains of steps, compared with torch.

usage: recipes_test.py --bin-dir DIR --work-dir DIR [--only SEED] [-v]
"""

import json
import random
import sys

import onnx
import torch
from onnx import TensorProto, helper

import support

DTYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.float64: TensorProto.DOUBLE,
    torch.int64: TensorProto.INT64,
    torch.int8: TensorProto.INT8,
    torch.bool: TensorProto.BOOL,
    torch.complex64: TensorProto.COMPLEX64,
}
LAYOUTS = ("per-tensor", "single", "shards", "inline")
SEEDS = 12
SLOTS = 16


def bytes_of(tensor: torch.Tensor) -> bytes:
    flat = tensor.contiguous().reshape(-1)
    return flat.view(torch.int8).numpy().tobytes() if flat.numel() else b""


class Maker:
    """Makes keys, definitions and torch's results for them."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        self.state = {}
        self.derived = {}

    def key(self, dtype, shape) -> tuple:
        """Return a new key, perhaps one whose elements do not lie in order."""
        values = torch.randint(-100, 100, tuple(shape)).to(torch.float32)
        tensor = (values > 0) if dtype == torch.bool else values.to(dtype)
        if len(shape) == 2 and self.random.random() < 0.3:
            tensor = tensor.t().contiguous().t()
        name = f"key.{len(self.state)}"
        self.state[name] = tensor
        return name, tensor

    def step(self, tensor: torch.Tensor) -> tuple:
        rank = tensor.dim()
        kind = self.random.choice(("transpose", "permute", "reshape", "slice"))
        if kind == "transpose" and rank == 2:
            return "transpose", tensor.t()
        if kind == "slice" and rank > 0:
            dim = self.random.randrange(-rank, rank)
            size = tensor.shape[dim]
            start = self.random.randrange(size)
            stop = self.random.randrange(start + 1, size + 1)
            given = start - size if self.random.random() < 0.3 else start
            return {"slice": [dim, given, stop]}, tensor.narrow(dim, start, stop - start)
        if kind == "reshape":
            left, shape = tensor.numel(), []
            while left > 1 and len(shape) < 4:
                divisors = [n for n in range(1, min(left, 64) + 1) if left % n == 0]
                shape.append(self.random.choice(divisors))
                left //= shape[-1]
            shape.append(-1 if self.random.random() < 0.5 else left)
            return {"reshape": shape}, tensor.reshape(shape)
        dims = self.random.sample(range(rank), rank)
        return {"permute": dims}, tensor.permute(dims)

    def recipe(self, tensor: torch.Tensor, most: int) -> tuple:
        steps = []
        for _ in range(self.random.randrange(most + 1)):
            step, tensor = self.step(tensor)
            steps.append(step)
        return steps, tensor

    def definition(self, dtype, depth: int, shape=None) -> tuple:
        """Return a KEY of a derived tensor, of the shape if it is given, and what torch makes of it."""
        wanted = shape
        if depth == 0 or self.random.random() < 0.2:
            sizes = shape or [self.random.randrange(1, 9) for _ in range(self.random.randrange(1, 4))]
            made, tensor = self.key(dtype, sizes)
            made = {"key": made}
        else:
            first, tensor = self.definition(dtype, depth - 1, None)
            parts, tensors = [first], [tensor]
            for _ in range(self.random.randrange(3)):
                part, other = self.definition(dtype, 0, list(tensor.shape) or None)
                if other.shape == tensor.shape:
                    parts.append(part)
                    tensors.append(other)
            kind = self.random.choice(("concat", "stack"))
            rank = tensor.dim() + (kind == "stack")
            if kind == "concat" and rank == 0:
                kind, rank = "stack", 1
            dim = self.random.randrange(-rank, rank)
            tensor = torch.cat(tensors, dim) if kind == "concat" else torch.stack(tensors, dim)
            made = {kind: parts, "dim": dim}
        if wanted is None:
            steps, tensor = self.recipe(tensor, 3)
            if steps:
                made["recipe"] = steps
        if self.random.random() < 0.3:
            name = f"derived.{len(self.derived)}"
            self.derived[name] = made
            made = {"key": name}
        return made, tensor

    def slot(self) -> tuple:
        """Return an entry of the map, and what the slot must hold."""
        dtype = self.random.choice(list(DTYPES))
        made, tensor = self.definition(dtype, self.random.randrange(3))
        name = f"slot.{len(self.derived)}"
        self.derived[name] = made
        entry = {"key": name}
        if dtype.is_floating_point and self.random.random() < 0.4:
            tensor = tensor.to(torch.float16 if dtype != torch.float16 else torch.float32)
            entry["recipe"] = ["cast"]
        return entry, tensor


def case_of(seed: int) -> tuple:
    maker = Maker(seed)
    entries, truth = {}, {}
    while len(entries) < SLOTS:
        entry, tensor = maker.slot()
        slot = f"w{len(entries)}"
        entries[slot], truth[slot] = entry, tensor
    inputs = [helper.make_tensor_value_info(n, DTYPES[t.dtype], list(t.shape)) for n, t in truth.items()]
    node = helper.make_node("Use", list(truth), ["y"], domain="test")
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([node], "graph", inputs, [output])
    return helper.make_model(graph), maker.state, {"derived": maker.derived, "map": entries}, truth


def test_seed(seed: int, tools, report, folder) -> None:
    model, state, document, truth = case_of(seed)
    folder = support.fresh_folder(folder / str(seed))
    graph, checkpoint, map_file = folder / "graph.onnx", folder / "c.pt", folder / "map.json"
    onnx.save(model, str(graph))
    torch.save(state, checkpoint)
    map_file.write_text(json.dumps(document))
    layout = LAYOUTS[seed % len(LAYOUTS)]
    label = f"seed {seed}, {layout}"
    options = ("--map", map_file, "--layout", layout, "--save-map", folder / "saved.json")
    process = tools.save(graph, checkpoint, "-o", folder / "out", *options)
    if not report.check(process.returncode == 0, f"{label}: is saved", process.stderr[:500]):
        return
    saved = onnx.load(str(folder / "out" / "model.onnx"))
    found = {tensor.name: bytes(tensor.raw_data) for tensor in saved.graph.initializer}
    for slot, tensor in truth.items():
        same = found.get(slot) == bytes_of(tensor)
        report.check(same, f"{label}: {slot} is what torch makes", str(document["map"][slot]))
    for against in ((), ("--map", map_file), ("--map", folder / "saved.json")):
        verified = tools.verify(folder / "out" / "model.onnx", "--against", checkpoint, *against)
        report.check(verified.returncode == 0, f"{label}: verified {against}", verified.stderr[:500])
    torch.save({key: changed(value) for key, value in state.items()}, checkpoint)
    verified = tools.verify(folder / "out" / "model.onnx", "--against", checkpoint)
    report.check(verified.returncode == 1, f"{label}: other values are found", verified.stdout[:300])


def changed(tensor: torch.Tensor) -> torch.Tensor:
    return ~tensor if tensor.dtype == torch.bool else tensor + 1


def main() -> int:
    arguments = support.parse_arguments(__doc__)
    tools, report = support.Tools(arguments.bin_dir), support.Report(arguments.verbose)
    folder = support.fresh_folder(arguments.work_dir / "recipes")
    for seed in range(SEEDS):
        if arguments.only in ("", str(seed)):
            test_seed(seed, tools, report, folder)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
