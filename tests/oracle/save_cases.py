"""Provides the base class of tests that save real exports: a case is accepted or refused, with all checks."""

from collections import OrderedDict
from pathlib import Path

import onnx
import torch

import runtime
import support
import zoo

SMALL = "vgg"  # convolutions, BatchNorm and linear layers, 160 KB


def prefixed(state: dict, prefix: str) -> OrderedDict:
    return OrderedDict((prefix + key, value) for key, value in state.items())


class SaveTest:
    """A subclass's methods test_... run in the order of their names; `folder_name` is theirs alone."""

    folder_name = ""

    def __init__(self, arguments):
        self.report = support.Report(arguments.verbose)
        self.tools = support.Tools(arguments.bin_dir)
        self.only = arguments.only
        node_modules = runtime.install(arguments)
        self.folder = support.fresh_folder(arguments.work_dir / self.folder_name)
        self.runtime = runtime.Runtime(node_modules, self.folder)
        self.small = zoo.build(SMALL)
        self.graph = zoo.export(self.small.module, self.small.inputs)
        self.other = zoo.build(SMALL, seed_shift=1)  # the same names, other weights
        self.full = zoo.export(self.other.module, self.other.inputs, with_weights=True)

    # --- one case ---

    def write(self, label: str, graph, checkpoint) -> tuple:
        """Return the folder of the case, its graph file and its checkpoint file; both may be paths already."""
        folder = self.folder / label.replace(" ", "_").replace("/", "-")
        folder.mkdir(exist_ok=True)
        if isinstance(graph, onnx.ModelProto):
            onnx.save(graph, str(folder / "graph.onnx"))
            graph = folder / "graph.onnx"
        if not isinstance(checkpoint, Path):
            torch.save(checkpoint, folder / "checkpoint.pt")
            checkpoint = folder / "checkpoint.pt"
        return folder, graph, checkpoint

    def accept(self, label: str, graph, checkpoint, case, *options, truth=None, against=None):
        """Saves, checks and returns (model path, document); None when the save failed.

        truth: initializer name -> tensor; by default the case's state dict where the graph names its keys.
        against: options for verify-external --against; by default those of the save.
        """
        folder, graph_path, checkpoint_path = self.write(label, graph, checkpoint)
        process = self.tools.save(graph_path, checkpoint_path, "-o", folder / "out", *options)
        if not self.report.check(
            process.returncode == 0, f"{label}: is accepted", support.last_line(process)
        ):
            return None
        document = support.parse_json(process.stdout)
        self.report.check(
            document and document["verified"], f"{label}: says that it verified", process.stdout[:100]
        )
        model = folder / "out" / "model.onnx"
        given = onnx.load(str(graph_path), load_external_data=False)
        if truth is None:
            truth = support.expected_initializers(given, case.state_dict)
        wrong = support.wrong_initializers(model, truth)
        self.report.check(truth and not wrong, f"{label}: every initializer's bytes", str(wrong[:4]))
        self.runtime.add(label, model, case, given)
        verified = self.tools.verify(
            model, "--against", checkpoint_path, *(options if against is None else against)
        )
        self.report.check(
            verified.returncode == 0, f"{label}: verify-external agrees", support.last_line(verified)
        )
        return model, document

    def refuse(self, label: str, graph, checkpoint, words, *options) -> None:
        """Check that the save fails, that its message contains all of `words`, and that nothing is left."""
        folder, graph_path, checkpoint_path = self.write(label, graph, checkpoint)
        process = self.tools.save(graph_path, checkpoint_path, "-o", folder / "refused", *options)
        self.report.check(process.returncode == 1, f"{label}: is refused", support.last_line(process))
        document = support.parse_json(process.stdout)
        self.report.check(
            document and document["error"]["message"] in process.stderr,
            f"{label}: is a document, too",
            process.stdout[:200],
        )
        for word in words:
            self.report.check(
                word in process.stderr, f"{label}: the error says {word!r}", process.stderr[:600]
            )
        left = support.is_empty(folder / "refused")
        self.report.check(left, f"{label}: nothing is left", "the output folder is not empty")

    def compute(self) -> None:
        """Run the models accepted so far on ONNX Runtime, before they are removed."""
        for label, fault in self.runtime.run():
            self.report.check(
                fault is None, f"{label}: ONNX Runtime computes what torch computes", str(fault)
            )

    def run(self) -> int:
        for name in [name for name in dir(self) if name.startswith("test_") and self.only in name]:
            try:
                getattr(self, name)()
            except Exception as error:
                self.report.check(False, f"{name} runs to its end", repr(error))
            self.compute()
            print(f"done  {name[5:]}", flush=True)
        return self.report.close()
