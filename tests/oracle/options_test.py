"""Tests the options of save-external, unusual checkpoints, the committed fixtures, and the command line.

Accepted and refused as forms_test.py says.

usage: options_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import json
import sys
from collections import OrderedDict

import onnx
import torch

import runtime
import support
import zoo
from save_cases import SaveTest, prefixed

FIXTURES = support.HERE.parent.parent / "fixtures"
REFUSED_FIXTURES = (
    "truncated.pt",
    "flipped_bit.pt",
    "legacy.pt",
    "expand_bomb.pt",
    "out_of_storage.pt",
    "overlapping.safetensors",
    "duplicate_names.safetensors",
    "huge_header.safetensors",
)


class OptionsTest(SaveTest):
    folder_name = "options"

    def test_map(self) -> None:
        state = self.small.state_dict
        names = {key: f"w{index}" for index, key in enumerate(state)}
        shuffled = OrderedDict(sorted((names[key], value) for key, value in state.items()))
        self.refuse("names that say nothing", self.graph, shuffled, ["--map"])
        slots = [value.name for value in self.graph.graph.input if value.name in state]
        file = self.folder / "map.json"
        file.write_text(json.dumps({slot: names[slot] for slot in slots}))
        self.accept("a map file", self.graph, shuffled, self.small, "--map", file)
        replay = self.folder / "saved_map.json"
        self.accept(
            "a saved map",
            self.graph,
            shuffled,
            self.small,
            "--map",
            file,
            "--save-map",
            replay,
            against=["--map", file],
        )
        self.accept("a saved map, replayed", self.graph, shuffled, self.small, "--map", replay)
        file.write_text(json.dumps({"no.such.slot": "w0"}))
        self.refuse("a map with an unknown slot", self.graph, shuffled, ["no.such.slot"], "--map", file)

    def test_rename(self) -> None:
        state = OrderedDict()
        for key, value in self.small.state_dict.items():
            state[key.replace("features", "body").replace("classifier", "head")] = value
        renames = ["--rename", "s/^body/features/", "--rename", "s/^head/classifier/"]
        self.refuse("other names", self.graph, state, ["body.0.weight"])
        self.accept("names rewritten", self.graph, state, self.small, *renames)

    def test_tie(self) -> None:
        untied = zoo.make_case("untied", zoo.UntiedGpt, lambda: zoo.ids(96))
        graph = zoo.export(untied.module, untied.inputs)
        tied = zoo.build("gpt_tied")
        state = {key: value for key, value in tied.state_dict.items() if key != "lm_head.weight"}
        self.refuse("a dropped tied weight", graph, state, ["lm_head.weight"])
        tie = ["--map", "lm_head.weight=transformer.wte.weight"]
        truth = support.expected_initializers(graph, tied.state_dict)
        self.accept("a dropped tied weight named", graph, state, tied, *tie, truth=truth)
        result = self.accept("a tied weight in the file", graph, tied.state_dict, tied, truth=truth)
        if result:
            entries = support.external_entries(result[0])
            same = entries["lm_head.weight"] == entries["transformer.wte.weight"]
            self.report.check(
                same, "a tied weight in the file: is written once", str(entries["lm_head.weight"])
            )
        kept, dropped = support.drop_tied(tied.state_dict)
        path = self.folder / "tied.safetensors"
        support.save_safetensors(path, kept, {"format": "pt", **dropped})
        self.accept("a tied weight that safetensors dropped", graph, path, tied, truth=truth)

    def test_partial(self) -> None:
        state = self.small.state_dict
        part = {key: value for key, value in state.items() if key.startswith("features")}
        part["unknown.weight"] = torch.ones(3, 3)
        self.refuse("old and new weights mixed", self.full, part, ["classifier.0.weight", "--partial"])
        mixed = zoo.make_case("mixed", zoo.SmallVgg, zoo.image)
        mixed.module.load_state_dict(
            {**self.other.state_dict, **{k: v for k, v in part.items() if k in state}}
        )
        mixed = zoo.Case("mixed", mixed.module, mixed.inputs, zoo.run_module(mixed.module, mixed.inputs))
        result = self.accept("old and new weights mixed on purpose", self.full, part, mixed, "--partial")
        if result:
            kept = [
                name
                for name in support.expected_initializers(self.full, state)
                if name.startswith("classifier")
            ]
            self.report.check(
                sorted(result[1]["initializers_kept"]) == sorted(kept), "mixed: the kept ones are listed"
            )
        self.refuse("a missing weight", self.graph, part, ["classifier.0.weight"])

    def test_inputs_stay(self) -> None:
        names = [value.name for value in self.graph.graph.input]
        result = self.accept(
            "--keep-inputs", self.graph, self.small.state_dict, self.small, "--keep-inputs", against=()
        )
        if result:
            left = [value.name for value in onnx.load(str(result[0]), load_external_data=False).graph.input]
            self.report.check(left == names, "--keep-inputs: the inputs stay", str(left[:3]))
        old = onnx.ModelProto()
        old.CopyFrom(self.graph)
        old.ir_version = 3
        result = self.accept("IR version 3", old, self.small.state_dict, self.small)
        if result:
            left = [value.name for value in onnx.load(str(result[0]), load_external_data=False).graph.input]
            self.report.check(left == names, "IR version 3: the inputs stay", str(left[:3]))

    def test_user_inputs(self) -> None:
        """Test a graph input between the weights, which is the caller's or a missing weight."""
        graph = onnx.ModelProto()
        graph.CopyFrom(self.graph)
        values = [*graph.graph.input]
        reordered = [*values[1:4], values[0], *values[4:]]
        del graph.graph.input[:]
        graph.graph.input.extend(reordered)
        user = values[0].name
        self.refuse("an input between the weights", graph, self.small.state_dict, [user, "--inputs"])
        folder, graph_path, checkpoint = self.write("an input between, named", graph, self.small.state_dict)
        process = self.tools.save(graph_path, checkpoint, "-o", folder / "out", "--inputs", user)
        self.report.check(
            process.returncode == 0, "an input between, named: is accepted", support.last_line(process)
        )
        wrong = support.wrong_initializers(
            folder / "out/model.onnx", support.expected_initializers(graph, self.small.state_dict)
        )
        self.report.check(not wrong, "an input between, named: every initializer's bytes", str(wrong[:3]))

    def test_symbolic_input(self) -> None:
        """Test that a key with the name of the caller's input does not fill the input."""
        module, inputs = self.small.module, self.small.inputs
        options = dict(input_names=["x"], dynamic_axes={"x": {0: "batch"}})
        graph = zoo.export(module, inputs, **options)
        state = {**self.small.state_dict, "x": torch.ones(2, 3, 32, 32)}
        result = self.accept(
            "a symbolic input",
            graph,
            state,
            self.small,
            "--ignore",
            "^x$",
            truth=support.expected_initializers(self.graph, self.small.state_dict),
        )
        if result:
            self.report.check(
                result[1]["inputs_left"] == ["x"], "a symbolic input: stays", str(result[1]["inputs_left"])
            )

    # --- checkpoints ---

    def test_several_files(self) -> None:
        state = self.small.state_dict
        folder, graph, _ = self.write("several files", self.graph, state)
        halves = [{k: v for k, v in state.items() if k.startswith(p)} for p in ("features", "classifier")]
        for index, half in enumerate(halves):
            torch.save(half, folder / f"half{index}.pt")
        paths = [folder / "half0.pt", folder / "half1.pt"]
        process = self.tools.save(graph, *paths, "-o", folder / "out")
        wrong = support.wrong_initializers(
            folder / "out/model.onnx", support.expected_initializers(self.graph, state)
        )
        self.report.check(
            process.returncode == 0 and not wrong,
            "several files: are one checkpoint",
            support.last_line(process),
        )
        process = self.tools.save(graph, paths[0], folder / "checkpoint.pt", "-o", folder / "twice")
        self.report.check(
            process.returncode == 1, "the same keys in two files: are refused", support.last_line(process)
        )
        self.report.check(
            "features.0.weight" in process.stderr,
            "the same keys in two files: are named",
            process.stderr[:300],
        )

    def test_views(self) -> None:
        """Strided, expanded and shared storages, as a careless training script saves them."""
        state = OrderedDict()
        whole = torch.cat(
            [value.reshape(-1) for value in self.small.state_dict.values() if value.dtype == torch.float32]
        )
        start = 0
        for index, (key, value) in enumerate(self.small.state_dict.items()):
            if value.dtype == torch.float32:
                piece = whole[start : start + value.numel()].reshape(value.shape)
                start += value.numel()
                transposed = piece.transpose(0, -1).contiguous().transpose(0, -1)
                state[key] = transposed if index % 3 == 0 else piece
            else:
                state[key] = value
        self.accept("views of one storage", self.graph, state, self.small)

    def test_damaged_checkpoint(self) -> None:
        folder, graph, checkpoint = self.write("a flipped bit", self.graph, self.small.state_dict)
        data = bytearray(checkpoint.read_bytes())
        weight = support.tensor_bytes(self.small.state_dict["classifier.0.weight"])
        data[bytes(data).index(weight) + 1000] ^= 1
        checkpoint.write_bytes(bytes(data))
        self.refuse("a flipped bit under a CRC", graph, checkpoint, [checkpoint.name])
        checkpoint.write_bytes(bytes(data[: len(data) // 2]))
        self.refuse("a truncated checkpoint", graph, checkpoint, [checkpoint.name])

    def test_types_and_shapes(self) -> None:
        state = OrderedDict(self.small.state_dict)
        state["classifier.3.weight"] = state["classifier.3.weight"].half()
        self.refuse("another element type", self.graph, state, ["classifier.3.weight"])
        state["classifier.3.weight"] = torch.ones(64, 65)
        self.refuse("another shape", self.graph, state, ["classifier.3.weight", "65"])

    def test_no_match(self) -> None:
        state = {"alpha": torch.ones(7), "beta": torch.ones(9, 9)}
        self.refuse("nothing matches", self.graph, state, ["alpha"])
        self.refuse("no tensors at all", self.graph, {"epoch": 3}, ["checkpoint.pt"])

    # --- the committed files ---

    def test_fixtures(self) -> None:
        """Test that each form of the tiny checkpoint leads to the model in its expected.json."""
        tiny, bad = FIXTURES / "tiny", FIXTURES / "bad"
        expected = json.loads((tiny / "expected.json").read_text())
        outputs = (torch.tensor(expected["output"]["logits"]).reshape(2, 5, -1),)
        case = zoo.Case("tiny", None, (torch.tensor(expected["input"]["input_ids"]),), outputs)
        state = zoo.make_case("tiny", lambda: zoo.TiedGpt(8, 24, 8, 1), lambda: zoo.ids(24, 5)).state_dict
        truth = {name: state[name] for name in expected["initializers"]}
        digests = {name: support.digest(support.tensor_bytes(value)) for name, value in truth.items()}
        agree = all(digests[name] == facts["sha256"] for name, facts in expected["initializers"].items())
        self.report.check(agree, "fixtures: expected.json is what the zoo makes")
        forms = ("checkpoint.pt", "model.safetensors", "sharded_bin", "sharded_safetensors")
        indexes = (
            "sharded_bin/pytorch_model.bin.index.json",
            "sharded_safetensors/model.safetensors.index.json",
        )
        for name in forms + indexes:
            self.accept(f"fixture {name}", tiny / "graph.onnx", tiny / name, case, truth=truth)
        whole = tiny / "checkpoint.pt"
        self.accept("fixture untrained_graph", tiny / "untrained_graph.onnx", whole, case, truth=truth)
        self.refuse(
            "fixture missing_weight",
            bad / "missing_weight.onnx",
            whole,
            ["transformer.ln_f.shift", "transformer.ln_f.bias"],
        )
        self.refuse(
            "fixture teacher_and_student", tiny / "graph.onnx", bad / "teacher_and_student.pt", ["--prefix"]
        )
        for name in REFUSED_FIXTURES:
            self.refuse(f"fixture {name}", tiny / "graph.onnx", bad / name, [name])

    # --- the command ---

    def test_modes(self) -> None:
        state = prefixed(self.small.state_dict, "module.")
        self.refuse("no prefix, of keys with one", self.graph, state, ["features.0"], "--prefix", "")
        self.accept("a prefix that is found", self.graph, state, self.small)
        self.accept("no prefix", self.graph, self.small.state_dict, self.small, "--prefix", "")

    def test_dry_run(self) -> None:
        folder, graph, checkpoint = self.write("dry run", self.graph, self.small.state_dict)
        process = self.tools.save(graph, checkpoint, "-o", folder / "out", "--dry-run")
        document = support.parse_json(process.stdout) or {"tensors": []}
        slots = {entry["slot"] for entry in document["tensors"]}
        expected = set(support.expected_initializers(self.graph, self.small.state_dict))
        self.report.check(
            process.returncode == 0 and slots == expected,
            "a dry run: tells what it would do",
            support.last_line(process),
        )
        self.report.check(support.is_empty(folder / "out"), "a dry run: writes nothing")

    def test_overwrite(self) -> None:
        result = self.accept("a first save", self.graph, self.small.state_dict, self.small)
        if not result:
            return
        self.compute()
        out = result[0].parent
        truth = support.expected_initializers(self.graph, self.small.state_dict)
        folder, graph, checkpoint = self.write("a second save", self.graph, self.other.state_dict)
        process = self.tools.save(graph, checkpoint, "-o", out)
        self.report.check(process.returncode == 1, "a second save: is refused", support.last_line(process))
        self.report.check(
            "--overwrite" in process.stderr, "a second save: the error says --overwrite", process.stderr[:300]
        )
        self.report.check(
            not support.wrong_initializers(result[0], truth), "a second save: the first stays whole"
        )
        before = {path.name for path in out.iterdir()}
        process = self.tools.save(graph, checkpoint, "-o", out, "--overwrite")
        self.report.check(process.returncode == 0, "--overwrite: is accepted", support.last_line(process))
        truth = support.expected_initializers(self.graph, self.other.state_dict)
        self.report.check(
            not support.wrong_initializers(result[0], truth), "--overwrite: the new weights are there"
        )
        after = {path.name for path in out.iterdir()}
        self.report.check(
            len(after) == len(before) == 2, "--overwrite: the old data is gone", f"{before} {after}"
        )

    def test_command_line(self) -> None:
        folder, graph, checkpoint = self.write("command line", self.graph, self.small.state_dict)
        for arguments in (
            [],
            [graph],
            [graph, checkpoint],
            [graph, checkpoint, "-o", folder / "out", "--no-such-option"],
        ):
            process = self.tools.run("save-external", *arguments)
            self.report.check(
                process.returncode == 2,
                f"{len(arguments)} arguments: exit code 2",
                support.last_line(process),
            )
        process = self.tools.save(folder / "absent.onnx", checkpoint, "-o", folder / "out")
        named = process.returncode == 1 and "absent.onnx" in process.stderr
        self.report.check(named, "a missing graph: is named", support.last_line(process))
        process = self.tools.save(graph, folder / "absent.pt", "-o", folder / "out")
        named = process.returncode == 1 and "absent.pt" in process.stderr
        self.report.check(named, "a missing checkpoint: is named", support.last_line(process))
        self.report.check(support.is_empty(folder / "out"), "a wrong command line: leaves nothing")


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(OptionsTest(parsed).run())
