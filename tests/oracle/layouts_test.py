"""Every layout of the data, as python onnx and ONNX Runtime read it: torch's bytes, torch's outputs.

Accepted and refused as forms_test.py says.

usage: layouts_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import sys
from collections import OrderedDict

import runtime
import support
import zoo
from save_cases import SaveTest

LAYOUTS = {
    "per tensor": (),
    "single": ("--layout", "single"),
    "shards": ("--layout", "shards", "--max-shard-size", "60kB"),
}


class LayoutsTest(SaveTest):
    folder_name = "layouts"

    def saved(self, label: str, graph, state, case, *options) -> dict:
        """The entries of the external initializers; nothing when the save failed."""
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
        """From each layout to each: the new weights are there, and nothing of the old ones."""
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


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(LayoutsTest(parsed).run())
