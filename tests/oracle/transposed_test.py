"""Tests recipes for weights that an exporter transposed, compared with torch and ONNX Runtime.

usage: transposed_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import json
import re
import sys
from collections import OrderedDict
from pathlib import Path

import onnx
import torch

import runtime
import support
import zoo
from save_cases import SaveTest

CAST = ("--dtype", "slot")
LAYOUTS = ("per-tensor", "single", "shards", "inline")


class Mixer(torch.nn.Module):
    """Linear layers on three dimensions, which torch exports as MatMuls with transposed weights: one
    that is read in tiles, a square one, and one of a single output."""

    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(600, 1100)
        self.narrow = torch.nn.Linear(1100, 48)
        self.square = torch.nn.Linear(48, 48, bias=False)
        self.last = torch.nn.Linear(48, 1, bias=False)

    def forward(self, x):
        return self.last(torch.relu(self.square(self.narrow(torch.relu(self.wide(x))))))


def build(seed: int) -> zoo.Case:
    torch.manual_seed(seed)
    module = Mixer().eval()
    inputs = (torch.randn(2, 3, 600),)
    return zoo.Case("mixer", module, inputs, zoo.run_module(module, inputs))


def folded_weights(graph: onnx.ModelProto) -> dict:
    """Return the graph's name -> the key, for the weights that the exporter transposed, in their order."""
    names = [t.name for t in graph.graph.initializer if t.name.startswith("onnx::MatMul")]
    return dict(zip(names, ("wide.weight", "narrow.weight", "square.weight", "last.weight")))


class TransposedTest(SaveTest):
    folder_name = "transposed"

    def __init__(self, arguments):
        super().__init__(arguments)
        old = build(1)
        self.case = build(2)
        self.model = zoo.export(old.module, old.inputs, with_weights=True, fold=True)
        self.folded = folded_weights(self.model)
        self.map = self.folder / "map.json"
        entries = {slot: {"key": key, "recipe": ["transpose"]} for slot, key in self.folded.items()}
        self.map.write_text(json.dumps({"map": entries}))

    def truth(self, dtype=torch.float32) -> dict:
        state = self.case.state_dict
        truth = {slot: state[key].to(dtype).float().t() for slot, key in self.folded.items()}
        biases = [t.name for t in self.model.graph.initializer if t.name.endswith("bias")]
        return {**truth, **{name: state[name].to(dtype).float() for name in biases}}

    def data_of(self, model: Path) -> dict:
        files = [path for path in model.parent.rglob("*") if path.is_file()]
        return {str(path.relative_to(model.parent)): path.read_bytes() for path in files}

    def accept_mapped(self, label: str, state, *options, truth=None):
        """Accept a mapped save, and check that verify-external needs only the manifest."""
        saved = self.accept(
            label, self.model, state, self.case, "--map", self.map, *options, truth=truth or self.truth(),
            against=("--map", self.map, *(o for o in options if o in CAST)),
        )
        if not saved:
            return None
        checkpoint = self.folder / label.replace(" ", "_") / "checkpoint.pt"
        verified = self.tools.verify(saved[0], "--against", checkpoint)
        self.report.check(
            verified.returncode == 0, f"{label}: verified by the manifest", support.last_line(verified)
        )
        return saved

    def test_layouts(self) -> None:
        self.report.check(len(self.folded) == 4, "the exporter transposed", str(self.folded))
        for layout in LAYOUTS:
            trees = []
            for threads in (1, 2):
                label = f"{layout} {threads}"
                options = ("--layout", layout, "--threads", threads, "--max-shard-size", "1MB")
                saved = self.accept_mapped(
                    label, self.case.state_dict, *(options if layout == "shards" else options[:4])
                )
                if saved:
                    trees.append(self.data_of(saved[0]))
                    recipes = [t["recipe"] for t in saved[1]["tensors"] if "recipe" in t]
                    self.report.check(recipes == [["transpose"]] * 4, f"{label}: says so", str(recipes))
            same = len(trees) == 2 and trees[0] == trees[1]
            self.report.check(same, f"{layout}: the same bytes with one thread and two")

    def test_casts(self) -> None:
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            label = f"from {support.short_dtype(torch.zeros(1, dtype=dtype))}"
            state = OrderedDict((key, value.to(dtype)) for key, value in self.case.state_dict.items())
            module = Mixer().eval()
            module.load_state_dict({key: value.float() for key, value in state.items()})
            outputs = zoo.run_module(module, self.case.inputs)
            case, self.case = self.case, zoo.Case(label, module, self.case.inputs, outputs)
            self.accept_mapped(label, state, *CAST, "--layout", "single")
            self.case = case

    def test_link(self) -> None:
        """Test that only a matrix of one row can be linked, because its transpose has the same bytes."""
        self.refuse(
            "link", self.model, self.case.state_dict, ["it is transposed"], "--map", self.map, "--layout", "link"
        )

    def test_dry_run(self) -> None:
        folder, graph, checkpoint = self.write("dry run", self.model, self.case.state_dict)
        process = self.tools.run(
            "save-external", graph, checkpoint, "-o", folder / "out", "--map", self.map, "--dry-run"
        )
        count = process.stdout.count("map, transposed")
        self.report.check(count == 4, "dry run: prints the recipe", process.stdout[:600])

    def test_saved_map(self) -> None:
        saved = self.folder / "saved.json"
        self.accept_mapped("saved map", self.case.state_dict, "--save-map", saved)
        entries = json.loads(saved.read_text())["map"]
        given = json.loads(self.map.read_text())["map"]
        same = all(entries.get(slot) == entry for slot, entry in given.items())
        self.report.check(same, "the saved map has the recipes", str(entries))

    def test_equal_bytes(self) -> None:
        """A transposed weight and a copy that was stored transposed are one run of bytes."""
        graph = onnx.ModelProto()
        graph.CopyFrom(self.model)
        weight = next(t for t in graph.graph.initializer if self.folded.get(t.name) == "wide.weight")
        copy = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight), "copy")
        graph.graph.initializer.append(copy)
        graph.graph.node.append(onnx.helper.make_node("Identity", ["copy"], ["copied"]))
        graph.graph.output.append(
            onnx.helper.make_tensor_value_info("copied", onnx.TensorProto.FLOAT, list(weight.dims))
        )
        state = OrderedDict(self.case.state_dict)
        state["copy"] = state["wide.weight"].t().contiguous()
        folder, graph_path, checkpoint = self.write("equal bytes", graph, state)
        process = self.tools.save(
            graph_path, checkpoint, "-o", folder / "out", "--map", self.map, "--dedup", "content"
        )
        if not self.report.check(process.returncode == 0, "equal bytes: saved", support.last_line(process)):
            return
        entries = support.external_entries(folder / "out" / "model.onnx")
        same = entries["copy"]["location"] == entries[weight.name]["location"]
        self.report.check(same, "equal bytes: stored once", str(entries))

    def test_damage(self) -> None:
        """Test a flipped byte, and a square weight that was not transposed."""
        saved = self.accept_mapped("damage", self.case.state_dict)
        if not saved:
            return
        checkpoint = saved[0].parent.parent / "checkpoint.pt"
        entries = support.external_entries(saved[0])
        for name, place in ((name, place) for name in self.folded for place in (0, -1)):
            file = saved[0].parent / entries[name]["location"]
            data = bytearray(file.read_bytes())
            data[place] ^= 1
            file.write_bytes(data)
            verified = self.tools.verify(saved[0], "--against", checkpoint, "--map", self.map)
            codes = {f["code"] for f in support.parse_json(verified.stdout)["findings"]}
            self.report.check(
                codes == {"bytes-differ", "crc-differs"}, f"damage: found in {name} at {place}", str(codes)
            )
            data[place] ^= 1
            file.write_bytes(data)
        entries = json.loads(self.map.read_text())["map"]
        square = next(slot for slot, key in self.folded.items() if key == "square.weight")
        entries[square] = "square.weight"
        plain = self.folder / "plain.json"
        plain.write_text(json.dumps({"map": entries}))
        verified = self.tools.verify(saved[0], "--against", checkpoint, "--map", plain)
        codes = [f["code"] for f in support.parse_json(verified.stdout)["findings"]]
        self.report.check(codes == ["bytes-differ"], "damage: a square one the wrong way", str(codes))


    def test_memory(self) -> None:
        """Compare the memory of transposing with that of a plain save: a tile for each of up to three threads."""
        if not self.tools.limit_for_memory(1 << 40):
            return
        state = {f"w{i}": torch.rand(rows, 2896).half() for i, rows in enumerate((16000, 7783, 2896, 2896))}
        allowed = {1: 24 << 20, 2: 40 << 20, 8: 56 << 20}  # by threads
        peaks = {}
        for turned in (False, True):
            values = [
                onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT16, list(w.t().shape if turned else w.shape))
                for n, w in state.items()
            ]
            nodes = [onnx.helper.make_node("Shape", [name], [f"{name}_shape"]) for name in state]
            outputs = [onnx.helper.make_tensor_value_info(f"{n}_shape", onnx.TensorProto.INT64, [2]) for n in state]
            graph = onnx.helper.make_graph(nodes, "g", values, outputs)
            folder, path, checkpoint = self.write(f"memory {turned}", onnx.helper.make_model(graph), state)
            entries = {n: {"key": n, "recipe": ["transpose"]} if turned else n for n in state}
            (folder / "map.json").write_text(json.dumps(entries))
            for threads in allowed:
                process = self.tools.run(
                    "save-external", path, checkpoint, "-o", folder / f"out{threads}", "--map", folder / "map.json",
                    "--threads", threads, "--no-fsync", "-v", own_peak=True,
                )
                found = re.search(r"([0-9.]+) MB peak memory", process.stderr)
                if self.report.check(found, f"memory {turned} {threads}: is told", process.stderr[-300:]):
                    peaks[turned, threads] = float(found.group(1)) * 1e6
        for threads, most in allowed.items():
            more = peaks.get((True, threads), 1e9) - peaks.get((False, threads), 0)
            self.report.check(more <= most, f"memory: {threads} threads", f"{more / 1e6:.0f} MB more")


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(TransposedTest(parsed).run())
