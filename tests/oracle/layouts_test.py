"""Tests that python onnx and ONNX Runtime read torch's bytes and outputs in every layout.

Accepted and refused as forms_test.py says.

usage: layouts_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import sys
from collections import OrderedDict
from dataclasses import replace

import torch

import runtime
import support
import zoo
from save_cases import SMALL, SaveTest

LAYOUTS = {
    "per tensor": (),
    "single": ("--layout", "single"),
    "shards": ("--layout", "shards", "--max-shard-size", "60kB"),
}


class LayoutsTest(SaveTest):
    folder_name = "layouts"

    def saved(self, label: str, graph, state, case, *options) -> dict:
        """Return the entries of the external initializers, or nothing if the save failed."""
        result = self.accept(label, graph, state, case, *options, against=())
        return support.external_entries(result[0]) if result else {}

    def test_layouts(self) -> None:
        files = {}
        for name, options in LAYOUTS.items():
            entries = self.saved(name, self.graph, self.small.state_dict, self.small, *options)
            files[name] = {entry["location"] for entry in entries.values()}
            keys = {key for entry in entries.values() for key in entry}
            self.report.check(
                keys == {"location", "offset", "length"}, f"{name}: an entry is a range", str(keys)
            )
        self.report.check(files["single"] == {"model.data"}, "single: is one file", str(files["single"]))
        count = len(files["shards"])
        names = {f"model-{number + 1:05}-of-{count:05}.data" for number in range(count)}
        self.report.check(
            count > 1 and files["shards"] == names, "shards: are numbered", str(files["shards"])
        )

    def test_alignment(self) -> None:
        options = (*LAYOUTS["single"], "--align", "4096")
        entries = self.saved("on pages", self.graph, self.small.state_dict, self.small, *options)
        offsets = [int(entry["offset"]) for entry in entries.values()]
        self.report.check(
            all(offset % 4096 == 0 for offset in offsets), "on pages: offsets are aligned", str(offsets[:5])
        )

    def test_large_tensor_in_shards(self) -> None:
        options = ("--layout", "shards", "--max-shard-size", "8KiB")
        result = self.accept(
            "a small shard size", self.graph, self.small.state_dict, self.small, *options, against=()
        )
        if result:
            large = {
                name
                for name, value in self.small.state_dict.items()
                if len(support.tensor_bytes(value)) > 8192
            }
            said = set(result[1]["oversized"])
            self.report.check(large and said == large, "a small shard size: is reported", str(said))

    def test_tied(self) -> None:
        untied = zoo.make_case("untied", zoo.UntiedGpt, lambda: zoo.ids(96))
        graph = zoo.export(untied.module, untied.inputs)
        tied = zoo.build("gpt_tied")
        copied = OrderedDict((name, value.clone()) for name, value in tied.state_dict.items())
        checkpoints = {"tied": tied.state_dict, "equal": copied}
        for name, options in LAYOUTS.items():
            for kind, state in checkpoints.items():
                for dedup in ("off", "storage", "content"):
                    label = f"{name}, {kind} weights, dedup {dedup}"
                    entries = self.saved(label, graph, state, tied, *options, "--dedup", dedup)
                    if not entries:
                        continue
                    same = entries["lm_head.weight"] == entries["transformer.wte.weight"]
                    shared = dedup == "content" or (dedup == "storage" and kind == "tied")
                    self.report.check(
                        same == shared, f"{label}: {'one range' if shared else 'two ranges'}"
                    )

    def test_replacing(self) -> None:
        """Test replacing each layout by each: the new weights are present, and nothing of the old ones."""
        folder, graph, old = self.write("old weights", self.graph, self.small.state_dict)
        _, _, new = self.write("new weights", self.graph, self.other.state_dict)
        truth = support.expected_initializers(self.graph, self.other.state_dict)
        for before, options in LAYOUTS.items():
            for after, new_options in LAYOUTS.items():
                label = f"{before} replaced by {after}"
                out = folder / label.replace(" ", "_")
                self.tools.save(graph, old, "-o", out, *options)
                process = self.tools.save(graph, new, "-o", out, "--overwrite", *new_options)
                self.report.check(process.returncode == 0, f"{label}: is accepted", support.last_line(process))
                wrong = support.wrong_initializers(out / "model.onnx", truth)
                self.report.check(not wrong, f"{label}: every initializer's bytes", str(wrong[:3]))
                fresh = folder / f"fresh {after}"
                if not fresh.exists():
                    self.tools.save(graph, new, "-o", fresh, *new_options)
                count, wanted = len([*out.rglob("*")]), len([*fresh.rglob("*")])
                self.report.check(count == wanted, f"{label}: nothing old is left", f"{count}, not {wanted}")

    # --- links -------------------------------------------------------------------------------

    def linked(self, label: str, graph, state, case, write) -> None:
        """A model that refers to the checkpoint that `write(path, state)` makes beside it."""
        folder = self.folder / label.replace(" ", "_")
        out = folder / "out"
        out.mkdir(parents=True)
        checkpoint = out / "checkpoint"
        write(checkpoint, state)
        before = support.digest(checkpoint.read_bytes())
        result = self.accept(label, graph, checkpoint, case, "--layout", "link", against=())
        if not result:
            return
        model, document = result
        entries = support.external_entries(model).values()
        self.report.check(
            {entry["location"] for entry in entries} == {"checkpoint"}, f"{label}: is the checkpoint's"
        )
        left = sorted(path.name for path in out.iterdir())
        self.report.check(
            left == ["checkpoint", "model.manifest.json", "model.onnx"], f"{label}: nothing is copied", str(left)
        )
        alone = self.tools.verify(model)
        self.report.check(alone.returncode == 0, f"{label}: is verified alone", support.last_line(alone))
        counts = support.parse_json(alone.stdout)
        self.report.check(
            counts["linked"] == counts["tensors"] == len(entries), f"{label}: all are links", alone.stdout[:300]
        )
        process = self.tools.save(folder / "graph.onnx", checkpoint, "-o", out, "--overwrite")
        self.report.check(process.returncode == 0, f"{label}: is replaced", support.last_line(process))
        same = checkpoint.exists() and support.digest(checkpoint.read_bytes()) == before
        self.report.check(same, f"{label}: the checkpoint stays when the model is replaced")
        self.tools.save(folder / "graph.onnx", checkpoint, "-o", out, "--overwrite", "--layout", "link")

    def test_links(self) -> None:
        tied = zoo.build("gpt_tied")
        cases = {"": (self.graph, self.small), " tied": (zoo.export(tied.module, tied.inputs), tied)}
        for kind, (graph, case) in cases.items():
            self.linked(f"link pt{kind}", graph, case.state_dict, case, lambda path, s: torch.save(s, path))
            self.linked(
                f"link safetensors{kind}",
                graph,
                case.state_dict,
                case,
                lambda path, s: support.save_safetensors(path, *support.drop_tied(s)),
            )

    def test_links_into_a_legacy_file(self) -> None:
        """Test a file whose storages start where its pickles end; a comment in the state aligns them, or not."""
        verdicts = set()
        for padding in range(8):
            label = f"link legacy {padding}"
            folder = self.folder / label.replace(" ", "_")
            (folder / "out").mkdir(parents=True)
            checkpoint = folder / "out" / "checkpoint"
            state = {"comment": "x" * padding, "state_dict": self.small.state_dict}
            torch.save(state, checkpoint, _use_new_zipfile_serialization=False)
            _, graph, _ = self.write(label, self.graph, checkpoint)
            process = self.tools.save(graph, checkpoint, "-o", folder / "out", "--layout", "link")
            verdicts.add(process.returncode)
            if process.returncode == 0:
                self.runtime.add(label, folder / "out" / "model.onnx", self.small, self.graph)
            else:
                self.report.check(
                    "begin at a multiple of" in process.stderr, f"{label}: says why", support.last_line(process)
                )
        self.report.check(verdicts == {0, 1}, "link legacy: some are aligned, some not", str(verdicts))


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(LayoutsTest(parsed).run())
