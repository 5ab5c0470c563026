"""Real architectures through save-external: ONNX Runtime must compute what torch computes, and every
initializer must hold the bytes of the state-dict tensor that the exporter named.

The first check alone is half blind: swapping two tensors of one shape often changes the output too little.
The second one is proved able to fail: each architecture gets one model with two files swapped.

usage: zoo_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import shutil
import sys
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch

import runtime
import suffix_algorithm
import support
import zoo


@dataclass(frozen=True)
class Variant:
    """The spelling of the names in the graph and the checkpoint, and the file type of the checkpoint."""

    name: str
    graph_underscored: bool = False
    keys_underscored: bool = False
    prefix: str = ""
    wrapped: bool = False
    safetensors: bool = False

    def graph_name(self, key: str) -> str:
        return support.underscored(key) if self.graph_underscored else key

    def key_name(self, key: str) -> str:
        return self.prefix + (support.underscored(key) if self.keys_underscored else key)


VARIANTS = (
    Variant("plain"),
    Variant("underscored_graph", graph_underscored=True),  # the form that the first-suffix algorithm was made for
    Variant("underscored_keys", keys_underscored=True, safetensors=True),
    Variant("module_prefix", prefix="module.", wrapped=True),
    Variant("module_prefix_underscored_graph", graph_underscored=True, prefix="module.", safetensors=True),
)


def write_checkpoint(state: dict, variant: Variant, path: Path) -> Path:
    """Return the checkpoint as the variant wants it; the file's path, with its extension."""
    renamed = OrderedDict((variant.key_name(key), value) for key, value in state.items())
    if variant.safetensors:
        path = path.with_suffix(".safetensors")
        kept, dropped = support.drop_tied(renamed)
        support.save_safetensors(path, kept, {"format": "pt", **dropped})
        return path
    path = path.with_suffix(".pt")
    torch.save({"state_dict": renamed, "epoch": 3} if variant.wrapped else renamed, path)
    return path


def check_report(report, label: str, process, truth: dict) -> None:
    """The JSON that save-external prints must say what it did."""
    document = support.parse_json(process.stdout)
    if not report.check(isinstance(document, dict), f"{label}: prints JSON", process.stdout[:100]):
        return
    slots = {entry["slot"] for entry in document["tensors"]}
    report.check(slots >= set(truth), f"{label}: reports every slot", str(sorted(set(truth) - slots)[:3]))
    report.check(document["verified"] is True, f"{label}: says that it verified")


def swap_pair(model: Path, truth: dict):
    """Swaps the files of two tensors of one shape; their names, or None when there is no such pair."""
    files = {}
    entries = support.external_entries(model)
    for name, value in truth.items():
        if name not in entries:
            continue
        kind = (tuple(value.shape), value.dtype)
        file = model.parent / entries[name]["location"]
        for other_name, other_file in files.get(kind, []):
            if other_file.read_bytes() != file.read_bytes():
                first, second = other_file.read_bytes(), file.read_bytes()
                other_file.write_bytes(second)
                file.write_bytes(first)
                return other_name, name
        files.setdefault(kind, []).append((name, file))
    return None


def check_swapped(report, tools, label: str, model: Path, checkpoint: Path, truth: dict) -> None:
    """The negative control: a wrong model must be seen as wrong."""
    copy = model.parent.with_name(model.parent.name + "_swapped")
    shutil.copytree(model.parent, copy)
    pair = swap_pair(copy / model.name, truth)
    if not report.check(pair, f"{label}: has two tensors of one shape to swap"):
        return
    wrong = support.wrong_initializers(copy / model.name, truth)
    report.check(set(wrong) == set(pair), f"{label}: the byte check sees the swapped pair", f"{pair} {wrong}")
    process = tools.verify(copy / model.name, "--against", checkpoint)
    document = support.parse_json(process.stdout) or {}
    named = {finding["tensor"] for finding in document.get("findings", [])}
    report.check(
        process.returncode == 1,
        f"{label}: verify-external --against refuses the swapped pair",
        support.last_line(process),
    )
    report.check(
        document.get("ok") is False and named == set(pair), f"{label}: ... and names it", f"{pair} {named}"
    )
    process = tools.verify(copy / model.name)
    report.check(
        process.returncode == 1,
        f"{label}: verify-external finds it by the manifest",
        support.last_line(process),
    )


def run_suffix(graph: onnx.ModelProto, checkpoint: Path, out: Path, truth: dict) -> str:
    """Return what goes wrong when the first-suffix algorithm does the same job; empty when nothing does."""
    out.mkdir(parents=True)
    try:
        suffix_algorithm.save_model_with_external_data(
            str(out), "model.onnx", "initializers", (str(checkpoint),), graph
        )
    except Exception as error:
        return f"stops: {type(error).__name__}"
    wrong = support.wrong_initializers(out / "model.onnx", truth)
    return f"{len(wrong)} of {len(truth)} initializers wrong" if wrong else ""


class ZooTest:
    def __init__(self, arguments):
        self.report = support.Report(arguments.verbose)
        self.tools = support.Tools(arguments.bin_dir)
        node_modules = runtime.install(arguments)
        self.folder = support.fresh_folder(arguments.work_dir / "zoo")
        self.runtime = runtime.Runtime(node_modules, self.folder)
        self.suffix_failures = Counter()

    def run_variant(self, case, exported: onnx.ModelProto, variant: Variant) -> None:
        report, label = self.report, f"{case.name}/{variant.name}"
        folder = self.folder / case.name / variant.name
        folder.mkdir(parents=True)
        names = {key: variant.graph_name(key) for key in case.state_dict}
        graph = support.rename_values(exported, names)
        onnx.save(graph, str(folder / "graph.onnx"))
        checkpoint = write_checkpoint(case.state_dict, variant, folder / "checkpoint")
        truth = support.expected_initializers(graph, case.state_dict, variant.graph_name)

        out = folder / "out"
        process = self.tools.save(folder / "graph.onnx", checkpoint, "-o", out)
        self.run_suffix(label, graph, checkpoint, folder / "suffix", truth)
        if not report.check(process.returncode == 0, f"{label}: save-external", support.last_line(process)):
            return
        check_report(report, label, process, truth)
        wrong = support.wrong_initializers(out / "model.onnx", truth)
        report.check(not wrong, f"{label}: every initializer's bytes", str(wrong[:4]))
        self.runtime.add(label, out / "model.onnx", case, graph)
        process = self.tools.verify(out / "model.onnx", "--against", checkpoint)
        report.check(
            process.returncode == 0, f"{label}: verify-external --against", support.last_line(process)
        )
        if variant is VARIANTS[0]:
            check_swapped(report, self.tools, label, out / "model.onnx", checkpoint, truth)

    def run_suffix(self, label: str, graph, checkpoint: Path, out: Path, truth: dict) -> None:
        if checkpoint.suffix != ".pt":
            return  # it reads torch's format only
        self.suffix_failures["runs"] += 1
        fault = run_suffix(graph, checkpoint, out, truth)
        if fault:
            self.suffix_failures["failures"] += 1
            print(f"suffix  {label}: {fault}")

    def run(self, only: str) -> int:
        for name in zoo.ARCHITECTURES:
            if only not in name:
                continue
            case = zoo.build(name)
            exported = zoo.export(case.module, case.inputs)
            for variant in VARIANTS:
                self.run_variant(case, exported, variant)
            for label, fault in self.runtime.run():
                self.report.check(
                    fault is None, f"{label}: ONNX Runtime computes what torch computes", str(fault)
                )
            shutil.rmtree(self.folder / name)
            print(f"done  {name}: {len(case.state_dict)} tensors, {len(VARIANTS)} variants", flush=True)
        counts = self.suffix_failures
        print(f"the first-suffix algorithm: {counts['failures']} of {counts['runs']} runs wrong (allowed)")
        return self.report.close()


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(ZooTest(parsed).run(parsed.only))
