"""Tests two graphs that share one checkpoint: torch's bytes and outputs, and each byte only once on disk.

usage: sets_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import json
import sys
from pathlib import Path

import onnx
import torch
from torch import nn

import runtime
import support
import zoo
from save_cases import SaveTest

LAYOUTS = {
    "per tensor": (),
    "single": ("--layout", "single"),
    "shards": ("--layout", "shards", "--max-shard-size", "20kB"),
    "link": ("--layout", "link"),
}


class Encoder(nn.Module):
    """An embedding and a layer."""

    def __init__(self, embed: nn.Embedding):
        super().__init__()
        self.embed = embed
        self.layer = nn.Linear(32, 32)

    def forward(self, ids):
        return self.layer(self.embed(ids))


class Decoder(nn.Module):
    """A decoder with the same embedding, which is also the output layer, and a layer of the same name."""

    def __init__(self, embed: nn.Embedding):
        super().__init__()
        self.embed = embed
        self.layer = nn.Linear(32, 32)
        self.head = nn.Linear(32, 96, bias=False)
        self.head.weight = embed.weight

    def forward(self, ids):
        return self.head(torch.relu(self.layer(self.embed(ids))))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        embed = nn.Embedding(96, 32)
        self.encoder = Encoder(embed)
        self.decoder = Decoder(embed)


class SetsTest(SaveTest):
    folder_name = "sets"

    def __init__(self, arguments):
        super().__init__(arguments)
        torch.manual_seed(3)
        self.pair = Pair().eval()
        self.cases = {
            name: zoo.make_case(name, lambda part=part: part, lambda: zoo.ids(96), distinct=False)
            for name, part in (("encoder", self.pair.encoder), ("decoder", self.pair.decoder))
        }
        self.graphs = {name: zoo.export(case.module, case.inputs) for name, case in self.cases.items()}

    def files(self, label: str) -> tuple:
        """Return the folder, the graphs and the checkpoint of a case."""
        folder = self.folder / label.replace(" ", "_")
        folder.mkdir()
        paths = []
        for name, graph in self.graphs.items():
            paths.append(folder / f"{name}.onnx")
            onnx.save(graph, str(paths[-1]))
        checkpoint = folder / "pair.safetensors"
        state = {key: value for key, value in self.pair.state_dict().items() if key != "decoder.head.weight"}
        del state["decoder.embed.weight"]  # safetensors has tied tensors once
        support.save_safetensors(checkpoint, state)
        return folder, paths, checkpoint

    def map_file(self, folder: Path) -> Path:
        """Write a map file, because both graphs have a layer.weight."""
        models = {
            f"{name}.onnx": {
                "embed.weight": "encoder.embed.weight",
                "layer.weight": f"{name}.layer.weight",
                "layer.bias": f"{name}.layer.bias",
            }
            for name in self.graphs
        }
        path = folder / "map.json"
        path.write_text(json.dumps({"models": models}))
        return path

    def check_models(self, label: str, out: Path) -> None:
        for name, case in self.cases.items():
            truth = support.expected_initializers(self.graphs[name], case.state_dict)
            wrong = support.wrong_initializers(out / f"{name}.onnx", truth)
            self.report.check(truth and not wrong, f"{label}: {name}: every byte", str(wrong[:4]))
            self.runtime.add(f"{label}, {name}", out / f"{name}.onnx", case, self.graphs[name])

    def test_layouts(self) -> None:
        for label, options in LAYOUTS.items():
            folder, graphs, checkpoint = self.files(label)
            mapped = ("--map", self.map_file(folder))
            # A linked model lies beside its checkpoint, here in place of the graphs.
            linked = label == "link"
            out = folder if linked else folder / "out"
            more = ("--overwrite",) if linked else ()
            process = self.tools.save(*graphs, checkpoint, "-o", out, *options, *mapped, *more)
            if not self.report.check(
                process.returncode == 0, f"{label}: is accepted", support.last_line(process)
            ):
                continue
            self.check_models(label, out)
            self.check_ranges(label, out)
            verified = self.tools.verify(out, "--against", checkpoint, *mapped)
            self.report.check(
                verified.returncode == 0, f"{label}: verify-external agrees", support.last_line(verified)
            )

    def check_ranges(self, label: str, out: Path) -> None:
        """Check that no byte is stored twice, and that both models share the range of the embedding."""
        entries = [support.external_entries(out / f"{name}.onnx") for name in self.graphs]
        places = {
            (entry["location"], entry.get("offset", "0"), entry["length"])
            for model in entries
            for entry in model.values()
        }
        state = self.pair.state_dict()
        distinct = {value.data_ptr(): value for value in state.values()}
        self.report.check(
            len(places) == len(distinct), f"{label}: as many ranges as tensors", f"{len(places)}"
        )
        stored = sum(int(length) for _, _, length in places)
        wanted = sum(len(support.tensor_bytes(value)) for value in distinct.values())
        self.report.check(stored == wanted, f"{label}: each byte once", f"{stored}, not {wanted}")
        shared = [model["embed.weight"] for model in entries]
        self.report.check(shared[0] == shared[1], f"{label}: one range for both", str(shared))

    def test_without_a_checkpoint(self) -> None:
        """Test models that contain their weights: equal bytes are found, and both models compute."""
        folder = self.folder / "joined"
        folder.mkdir()
        graphs = []
        for name, case in self.cases.items():
            graphs.append(folder / f"{name}.onnx")
            onnx.save(zoo.export(case.module, case.inputs, with_weights=True), str(graphs[-1]))
        process = self.tools.save(*graphs, "-o", folder / "out", "--inline-below", "0")
        self.report.check(process.returncode == 0, "joined: is accepted", support.last_line(process))
        self.check_ranges("joined", folder / "out")
        for name, case in self.cases.items():
            model = folder / "out" / f"{name}.onnx"
            self.runtime.add(f"joined, {name}", model, case, self.graphs[name])


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(SetsTest(parsed).run())
