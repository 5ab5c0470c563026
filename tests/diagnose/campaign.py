"""Check whether oe.diagnose finds the module in which a fault was planted.

Architectures of tests/zoo are exported from their folders. On the sound graphs nothing may be
wrong. Then faults are planted one at a time in a graph or its data, in places drawn by a seed; the
reference stays right. ONNX Runtime judges where a fault shows: it computes every value of the whole
graph with and without it, and the module that is expected is the first, in the order of their
return, with an output that differs beyond the tolerance. A fault that shows nowhere (the row of a
word that no input has) is counted, and another is drawn.

--page writes a page of the results.

usage: campaign.py --work-dir DIR [--page FILE] [--only NAME,...] [--kinds KIND,...]
                   [--faults 1] [--seed 1] [--jobs N] [--rows FILE]
"""

import argparse
import json
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "zoo"))

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper

import onnx_external as oe
import pools
import results
import values as zoo_values
from architectures import ARCHITECTURES
from faults import KINDS, Fault, NoPlace
from graphs import Graph, Module, Values, beyond
from programs import quiet

MODELS = (
    "llama", "gpt2", "qwen3", "gemma2", "phi", "bloom", "gpt_neox", "opt", "falcon", "mamba",
    "mixtral", "qwen3_moe", "deepseek_v3", "bert", "roberta", "albert", "deberta_v2", "modernbert",
    "t5", "bart", "whisper", "vit", "swin", "resnet", "convnext", "clip", "wav2vec2",
)  # fmt: skip
LAYOUTS = ({"layout": "per-tensor"}, {"layout": "single"}, {"layout": "shards"})
DRAWS = 60  # the maximum, to find a fault that has an effect
SCALE = 3e5  # a value outside the range of float16


@dataclass
class Row:
    """The result of one diagnosis."""

    model: str
    graph: str
    kind: str  # "sound" and "sound, large" for a graph without a fault
    place: str = ""
    expected: str = ""
    found: str | None = None
    verdict: str = ""  # hit, parent, missed, nothing or error; "no place" if no place for a fault was found
    sentence: str = ""
    listed: bool = True  # whether all visibly wrong modules are listed as wrong
    others: list[str] = field(default_factory=list)  # further modules that the report calls wrong
    hidden: list[str] = field(default_factory=list)  # drawn earlier, but without effect
    broken: int = 0  # drawn earlier, but ONNX Runtime could not run the graph
    seconds: float = 0.0


class Sound:
    """The correct graphs of a folder, and their results on ONNX Runtime."""

    def __init__(self, folder: Path) -> None:
        self.saved, self.out, self.copy = folder / "saved", folder / "out", folder / "faulty"
        self.names = sorted(path.stem for path in self.out.glob("*.onnx"))
        dump = folder / "dump"
        self._sets = {
            name: sorted((dump / name if len(self.names) > 1 else dump).glob("test_data_set_*"))
            for name in self.names
        }
        self._values: dict[str, list[Values]] = {}

    def graph(self, name: str) -> Graph:
        return Graph(self.out / f"{name}.onnx")

    def feeds(self, graph: Graph) -> list[Values]:
        names = [value.name for value in graph.model.graph.input]
        return [
            {
                name: numpy_helper.to_array(onnx.load_tensor(each / f"input_{number}.pb"))
                for number, name in enumerate(names)
            }
            for each in self._sets[graph.path.stem]
        ]

    def values(self, graph: Graph) -> list[Values]:
        name = graph.path.stem
        if name not in self._values:
            self._values[name] = [graph.run(feed) for feed in self.feeds(graph)]
        return self._values[name]

    def planted(self, name: str, fault: Fault) -> Graph:
        """Return a copy of all graphs, with the fault."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.out, self.copy)
        fault.plant(Graph(self.copy / f"{name}.onnx"))
        return Graph(self.copy / f"{name}.onnx")

    def shows(self, name: str, fault: Fault) -> list[tuple[Module, float]]:
        """Return the modules of the fault, and the largest difference of their outputs."""
        changed, sound = self.planted(name, fault), self.graph(name)
        found = [changed.run(feed) for feed in self.feeds(changed)]
        return [
            (
                module,
                max(
                    beyond(got[value], want[value])
                    for got, want in zip(found, self.values(sound), strict=True)
                    for value in module.outputs
                    if value in want
                ),
            )
            for module in fault.modules
            if any(value in self.values(sound)[0] for value in module.outputs)
        ]


class Campaign:
    """The campaign for all faults of one architecture."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self._name, self._folder, self._seed = name, folder, seed
        self._draw = random.Random()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        torch.manual_seed(1)
        self._module = ARCHITECTURES[name].make()
        zoo_values.fill(self._module, 1)
        self._layout = LAYOUTS[sum(map(ord, name)) % len(LAYOUTS)]

    def rows(self, kinds: list[str], faults: int) -> Iterator[Row]:
        sound = self._exported()
        yield from self._diagnosed_sound(sound, "sound")
        for kind in kinds:
            about = sound
            if kind == "overflow":
                self._draw = random.Random(f"{self._seed} {self._name} large")
                large = self._large(sound)
                if large is None:
                    yield Row(self._name, "", kind, verdict="no place")
                    continue
                about = large
                yield from self._diagnosed_sound(large, "sound, large")
            for number in range(faults):
                self._draw = random.Random(f"{self._seed} {self._name} {kind} {number}")
                yield self._kept(self._fault(about, kind), about, number)

    def _kept(self, row: Row, sound: Sound, number: int) -> Row:
        """Keep the cases in which the fault was not found, for inspection."""
        if row.verdict not in ("hit", "no place"):
            kept = self._folder.parent / "missed" / f"{self._name}-{row.kind}-{number}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(sound.copy, kept / "out")
            shutil.copytree(sound.saved, kept / "saved")
        return row

    def _exported(self) -> Sound:
        """Return the graphs of the folder, and their inputs as oe.validate records them."""
        folder = self._folder / "sound"
        self._module.save_pretrained(folder / "saved", max_shard_size="200KB")
        torch.manual_seed(3)
        common = dict(fsync=False, progress=False, threads=1)
        oe.transformers.export(folder / "saved", folder / "out", **common, **self._layout)
        if not oe.validate(folder / "out", against=folder / "saved", dump=folder / "dump").ok:
            raise RuntimeError(f"{self._name}: the export is not right")
        return Sound(folder)

    def _large(self, sound: Sound) -> Sound | None:
        """Return the graphs with a weight so large that the outputs of its module are also large."""
        parameters = dict(self._module.named_parameters())
        folder = self._folder / "large"
        for _ in range(DRAWS):
            graph = sound.graph(self._draw.choice(sound.names))
            values = sound.values(graph)
            names = [
                name for name in graph.modules
                if f"{name}.weight" in parameters and graph.weight(f"{name}.weight") is not None
            ]  # fmt: skip
            if not names:
                continue
            module = graph.modules[self._draw.choice(sorted(names))]
            sizes = [abs(each[value]).max(initial=0) for each in values
                     for value in module.outputs if value in each]  # fmt: skip
            if not sizes or not max(sizes) > 1e-3:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self._folder / "sound", folder)
            large = Sound(folder)
            self._scale(large, f"{module.name}.weight", SCALE / float(max(sizes)))
            checked = [large.graph(name) for name in large.names]
            if all(_is_finite(each, found) for each in checked for found in large.values(each)):
                return large
        return None

    def _scale(self, large: Sound, name: str, factor: float) -> None:
        """Scale a weight in the folder and in all graphs."""
        value = self._module.get_parameter(name)
        kept = value.detach().clone()
        with torch.no_grad():
            value.mul_(factor)
        shutil.rmtree(large.saved)
        self._module.save_pretrained(large.saved, max_shard_size="200KB")
        with torch.no_grad():
            value.copy_(kept)
        graphs = [each for each in map(large.graph, large.names) if each.weight(name) is not None]
        values = [each.read(each.weight(name)) * np.float32(factor) for each in graphs]
        for graph, scaled in zip(graphs, values, strict=True):  # the graphs may share their data
            graph.change(graph.weight(name), scaled)
            graph.write()

    def _diagnosed_sound(self, sound: Sound, kind: str) -> Iterator[Row]:
        for name in sound.names:
            row = Row(self._name, name, kind)
            report = self._diagnosed(sound.out / f"{name}.onnx", sound, row)
            if report is not None:
                row.verdict = "hit" if report.ok else "wrong"
            yield row

    def _fault(self, sound: Sound, kind: str) -> Row:
        row = Row(self._name, "", kind, verdict="no place")
        for _ in range(DRAWS):
            row.graph = self._draw.choice(sound.names)
            graph = sound.graph(row.graph)
            try:
                fault = KINDS[kind](graph, self._draw, sound.values(graph))
            except NoPlace:
                continue
            try:
                wrong = self._wrong(sound, row.graph, fault)
            except Exception:  # raised by ONNX Runtime for a graph that is no longer valid
                row.broken += 1
                continue
            if not wrong:
                row.hidden.append(fault.place)
                continue
            row.place, row.expected = fault.place, wrong[0]
            changed = sound.planted(row.graph, fault)
            report = self._diagnosed(changed.path, sound, row)
            if report is not None:
                self._judge(row, report, wrong)
            break
        return row

    def _wrong(self, sound: Sound, name: str, fault: Fault) -> list[str]:
        """Return the modules in which a fault is clearly visible, in order."""
        found: dict[str, Module] = {}
        for part in fault.parts or [fault]:
            for module, far in sound.shows(name, part):
                if far > 2:
                    found[module.name] = module
                    break  # later modules may differ because of this one
                if far > 0.5:
                    return []  # neither
        return [module.name for module in sorted(found.values(), key=lambda each: each.last)]

    def _diagnosed(self, path: Path, sound: Sound, row: Row) -> oe.Diagnosis | None:
        start = time.monotonic()
        try:
            report = oe.diagnose(path, sound.saved)
            row.sentence = report.sentence
        except Exception as error:
            row.verdict, row.sentence = "error", f"{type(error).__name__}: {error}"
            report = None
        row.seconds = time.monotonic() - start
        return report

    @staticmethod
    def _judge(row: Row, report: oe.Diagnosis, wrong: list[str]) -> None:
        row.found = None if report.first is None else report.first.name
        row.listed = set(wrong) <= {each.name for each in report.wrong}
        row.others = [each.name for each in report.wrong if each.name not in wrong]
        if row.found is None:
            row.verdict = "nothing"
        elif row.found == row.expected:
            row.verdict = "hit"
        else:
            inside = row.expected.startswith(f"{row.found}.") or not row.found
            row.verdict = "parent" if inside else "missed"


def _is_finite(graph: Graph, values: Values) -> bool:
    results = {value.name for value in graph.model.graph.output}
    return all(bool((abs(values[name]) < 1e30).all()) for name in results if name in values)


def work(job: tuple) -> list[Row]:
    name, folder, kinds, faults, seed = job
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    found: list[Row] = []
    try:
        with quiet():
            for row in Campaign(name, folder, seed).rows(kinds, faults):
                found.append(row)
    except Exception:
        found.append(Row(name, "", "campaign", verdict="error", sentence=traceback.format_exc()))
    shutil.rmtree(folder, ignore_errors=True)
    return found


def show(row: Row) -> None:
    told = f"{row.model:12} {row.graph:8} {row.kind:12} {row.verdict:8} {row.seconds:5.1f} s"
    print(f"{told}  {row.place}", flush=True)
    if row.verdict != "no place" and not results.is_right(row):
        print(f"    expected {row.expected!r}, found {row.found!r}: {row.sentence}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-dir", required=True, type=Path, help="folders in it are replaced")
    parser.add_argument("--page", type=Path, help="where to write the results")
    parser.add_argument("--only", default=",".join(MODELS), help="architectures")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of faults")
    parser.add_argument("--faults", type=int, default=1, help="of each kind in each architecture")
    parser.add_argument("--seed", type=int, default=1, help="draws other places")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--rows", type=Path, help="a file for all rows, as JSON")
    return parser.parse_args()


def main() -> int:
    given, start = parse(), time.monotonic()
    kinds = given.kinds.split(",")
    jobs = [
        (name, given.work_dir.resolve() / name, kinds, given.faults, given.seed)
        for name in given.only.split(",")
    ]
    rows: list[Row] = []
    for found in pools.results(work, jobs, given.jobs, 4):
        for row in found:
            show(row)
        rows += found
        if given.rows:
            given.rows.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if given.page:
        results.write(given.page, rows)
    counts = results.counts(rows)
    print(f"{len(jobs)} models: {counts}; {time.monotonic() - start:.0f} s")
    right = any(map(results.is_right, rows))
    return 0 if right and all(results.is_right(r) or r.verdict == "no place" for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
