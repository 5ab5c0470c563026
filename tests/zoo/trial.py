"""Exports an architecture, saves it from memory and checkpoints in many ways, and judges each result."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import checkpoints
import memory
import programs
import values
from architectures import Architecture
from judge import Judge, Truth

LAYOUTS = (
    ("--layout", "per-tensor"),
    ("--layout", "single"),
    ("--layout", "shards", "--max-shard-size", "30kB"),
)

RIGHT, REFUSED, WRONG = "right", "refused", "WRONG"
GRAPHS = ("memory", "plain", "bare", "default", "learned", "default bare")
MEMORY = GRAPHS[0]
APART = "dcp"  # stores tied tensors one by one


@dataclass(frozen=True)
class Outcome:
    """The verdict on a save. `why` is the first line of a refusal, or the fault."""

    graph: str
    checkpoint: str
    layout: str
    verdict: str
    why: str = ""


@dataclass(frozen=True)
class Graph:
    """A graph as a user has it, and what it must hold once it has the new weights.

    held: its initializers as exported, which are those of the old weights. old: where those are, if the graph's
    tensors are to be recognized among them.
    """

    name: str
    path: Path
    held: dict
    truth: Truth
    old: Path | None = None


class Trial:
    """The old weights are those at export, the new ones those of the checkpoints."""

    def __init__(self, architecture: Architecture, tool: Path, folder: Path):
        self._tool, self._folder = tool, folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        torch.manual_seed(1)
        self._module = architecture.make()
        values.fill(self._module, 1)
        self._inputs = architecture.inputs(architecture.sizes)
        self._layouts = 0

    def run(self) -> list:
        """Return the outcomes; raises CannotExport."""
        try:
            graphs, now = self._export()
            files = {
                kind: make(self._module, self._folder / kind)
                for kind, make in checkpoints.KINDS.items()
            }
            files = {kind: path for kind, path in files.items() if path}
            self._judge = Judge(self._inputs, programs.run(self._module, self._inputs))
            found = [
                self._from_files(graph, kind, path)
                for graph in graphs
                for kind, path in files.items()
            ]
            found += [self._link(graphs[0], files["bin"]), self._link(graphs[0], files["folder"])]
            found += self._from_memory(graphs, now)
            return found + self._blindness(graphs[0])
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _export(self) -> tuple:
        """Return all graphs, and the programs that have the new weights, as the module then has."""
        self._old = checkpoints.torch_file(self._module, self._folder / "old")
        exporter = programs.Exporter(self._module, self._inputs)
        plain, default = exporter.program(optimize=False), exporter.program(optimize=True)
        paths = {}
        for name, program in (("plain", plain), ("default", default)):
            paths[name] = programs.save(program, self._folder / f"{name}.onnx")
            bare = self._folder / f"{name}-bare.onnx"
            paths[f"{name} bare"] = programs.save(program, bare, include_initializers=False)
        held = {"plain": programs.initializers(plain), "default": programs.initializers(default)}
        values.fill(self._module, 2)
        now = {
            "plain": exporter.program(optimize=False),
            "default": exporter.program(optimize=True),
        }
        truth = {
            name: Truth(programs.initializers(program), programs.tied(program))
            for name, program in now.items()
        }
        graphs = [
            Graph("plain", paths["plain"], held["plain"], truth["plain"]),
            Graph("bare", paths["plain bare"], {}, truth["plain"]),
            Graph("default", paths["default"], held["default"], truth["default"]),
            Graph("learned", paths["default"], held["default"], truth["default"], self._old),
            Graph("default bare", paths["default bare"], {}, truth["default"]),
        ]
        return graphs, now

    # ---- saves

    def _next_layout(self) -> tuple:
        self._layouts += 1
        return LAYOUTS[self._layouts % len(LAYOUTS)]

    def _from_files(self, graph: Graph, kind: str, checkpoint: Path) -> Outcome:
        out, layout = self._folder / "out", self._next_layout()
        return self._judged(
            graph, kind, layout, out, lambda: self._command(graph, checkpoint, out, layout)
        )

    def _link(self, graph: Graph, checkpoint: Path) -> Outcome:
        """The checkpoint lies in the output folder, as a linked one must."""
        out, layout = self._folder / "linked", ("--layout", "link")
        out.mkdir()
        inside = out / checkpoint.name
        (shutil.copytree if checkpoint.is_dir() else shutil.copy)(checkpoint, inside)
        kind = "folder" if checkpoint.is_dir() else "bin"
        return self._judged(
            graph, kind, layout, out, lambda: self._command(graph, inside, out, layout)
        )

    def _from_memory(self, graphs: list, now: dict) -> list:
        """Return the programs themselves, and a state dict for graphs of the old weights."""
        found = [self._own_bytes(now["plain"])]
        for graph in (graphs[0], graphs[2]):
            program, own = now[graph.name], replace(graph, name=MEMORY)
            for layout in LAYOUTS:
                found.append(self._held(own, graph.name, program, None, layout))
            found.append(
                self._held(own, graph.name, program.model_proto, None, self._next_layout())
            )
        state = self._module.state_dict()
        for graph in graphs:
            model = memory.graph_of(graph.path)
            found.append(self._held(graph, "state dict", model, state, self._next_layout()))
        return found

    def _held(
        self, graph: Graph, kind: str, model: object, weights: dict | None, layout: tuple
    ) -> Outcome:
        out = self._folder / "out"
        return self._judged(
            graph,
            kind,
            layout,
            out,
            lambda: memory.save(model, weights, out, layout, graph.old or None),
        )

    def _own_bytes(self, program: torch.onnx.ONNXProgram) -> Outcome:
        """Return whether an export without the optimizer has the module's own bytes, by which all else is judged."""
        state, held = self._module.state_dict(), programs.initializers(program)
        shared = held.keys() & state.keys()
        other = sorted(name for name in shared if held[name].data != programs.bytes_of(state[name]))
        why = (
            f"torch's own export differs from the module: {other[:4]}"
            if other or not shared
            else ""
        )
        return Outcome(MEMORY, "plain", "none", WRONG if why else RIGHT, why)

    def _command(self, graph: Graph, checkpoint: Path, out: Path, layout: tuple) -> Path:
        command = [
            self._tool / "save-external",
            graph.path,
            checkpoint,
            "-o",
            out,
            "--no-fsync",
            "--json",
        ]
        command += ["--threads", "1", *layout, *(("--learn-map", graph.old) if graph.old else ())]
        process = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=120
        )
        if process.returncode == 1:
            raise memory.Refused(_refusal(process.stdout))
        if process.returncode:
            raise RuntimeError(f"exit {process.returncode}: {process.stderr}")
        return out / "model.onnx"

    def _judged(
        self, graph: Graph, kind: str, layout: tuple, out: Path, save: Callable[[], Path]
    ) -> Outcome:
        try:
            why = self._judge.faults(save(), graph.truth, graph.held, once=kind != APART)
            return Outcome(graph.name, kind, layout[1], WRONG if why else RIGHT, why)
        except memory.Refused as refusal:
            return Outcome(graph.name, kind, layout[1], REFUSED, str(refusal))
        except Exception as error:  # a crash of a command, or an exception that is no refusal
            return Outcome(graph.name, kind, layout[1], WRONG, f"{type(error).__name__}: {error}")
        finally:
            shutil.rmtree(out, ignore_errors=True)

    def _blindness(self, graph: Graph) -> list:
        """A wrong outcome if the judge takes a model with the old weights for right."""
        stale = self._held(graph, "old", memory.graph_of(graph.path), None, self._next_layout())
        if stale.verdict == WRONG:
            return []
        return [
            Outcome(graph.name, "old", stale.layout, WRONG, "the judge does not see old weights")
        ]


def _refusal(document: str) -> str:
    """Return the error's message without the file at its beginning."""
    error = json.loads(document)["error"]
    return " ".join(error["message"].removeprefix(error["file"]).lstrip(": ").split())
