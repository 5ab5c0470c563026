"""Installs ONNX Runtime's Node package, runs models with it, and compares them with torch."""

import argparse
import fcntl
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx

from support import HERE, last_line, parse_json, short_dtype, tensor_bytes


NODE_MODULES = (
    ("--node-modules",),
    dict(
        type=Path,
        help="folder that holds onnxruntime-node; default: WORK_DIR/node, installed there if absent",
    ),
)


def install(arguments: argparse.Namespace) -> Path:
    """Return the folder with onnxruntime-node; installs it from the registry that npm is set to, if absent.

    The package carries its CPU library, so no install script has to run.
    """
    if arguments.node_modules:
        return arguments.node_modules.resolve()
    folder = arguments.work_dir.resolve() / "node"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two tests may start at once
        if not (folder / "node_modules" / "onnxruntime-node").is_dir():
            shutil.copy(HERE / "package.json", folder)
            quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--silent"]
            command = ["npm", "install", "--ignore-scripts", *quiet]
            subprocess.run(command, cwd=folder, check=True, timeout=600)
    return folder / "node_modules"


class Runtime:
    """ONNX Runtime in one node process a batch of models."""

    def __init__(self, node_modules: Path, folder: Path):
        self._node_modules = node_modules
        self._folder = folder
        self._jobs = []

    def add(self, label: str, model_path: Path, case, graph: onnx.ModelProto) -> None:
        """Plans a run on the case's inputs, which are the graph's first; its outputs must be the case's."""
        out = self._folder / f"outputs{len(self._jobs)}"
        feeds = []
        for index, value in enumerate(case.inputs):
            file = self._folder / f"inputs{len(self._jobs)}.{index}.bin"
            file.write_bytes(tensor_bytes(value))
            name = graph.graph.input[index].name
            feeds.append(
                {"name": name, "dtype": short_dtype(value), "shape": [*value.shape], "file": str(file)}
            )
        job = {"model": str(model_path), "inputs": feeds, "out": str(out)}
        self._jobs.append((label, job, case.outputs))

    def run(self) -> list:
        """Return (label, fault or None) for each planned run, and clear the plan."""
        jobs, self._jobs = self._jobs, []
        if not jobs:
            return []
        listing = self._folder / "jobs.json"
        listing.write_text(json.dumps([job for _, job, _ in jobs]))
        command = ["node", str(HERE / "ort_run.js"), str(self._node_modules), str(listing)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=600)
        answers = [parse_json(line) for line in process.stdout.splitlines()]
        answers += [{"ok": False, "error": f"node: {last_line(process)}"}] * (len(jobs) - len(answers))
        return [
            (label, difference(answer, job, outputs)) for (label, job, outputs), answer in zip(jobs, answers)
        ]


def difference(answer: dict, job: dict, outputs: tuple):
    """Return None if ONNX Runtime's outputs equal torch's (max|a-b| <= 1e-4 max|b|), otherwise the difference."""
    if not answer["ok"]:
        return f"ONNX Runtime refuses: {answer['error'][:300]}"
    if len(answer["outputs"]) != len(outputs):
        return f"{len(answer['outputs'])} outputs, not {len(outputs)}"
    for index, (facts, expected) in enumerate(zip(answer["outputs"], outputs)):
        data = (Path(job["out"]) / f"{index}.bin").read_bytes()
        got = np.frombuffer(data, dtype=facts["dtype"]).reshape(facts["shape"])
        want = expected.numpy()
        if got.shape != want.shape:
            return f"output {index} has shape {got.shape}, not {want.shape}"
        error, scale = float(np.abs(got - want).max()), float(np.abs(want).max())
        if not error <= 1e-4 * scale:
            return f"output {index} differs from torch's by {error:.3g} (largest value {scale:.3g})"
    return None
