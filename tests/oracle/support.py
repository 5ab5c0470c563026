"""What the oracle tests share: counting, running the commands, ONNX Runtime, reading what was written."""

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.numpy_helper
import torch

import safetensors_file

HERE = Path(__file__).resolve().parent


class Report:
    """Counts what passed and failed, and prints each failure as it happens."""

    def __init__(self, verbose: bool = False):
        self.passed = 0
        self.failed = 0
        self._verbose = verbose

    def check(self, condition, what: str, detail: str = "") -> bool:
        if condition:
            self.passed += 1
            if self._verbose:
                print(f"ok    {what}", flush=True)
        else:
            self.failed += 1
            print(f"FAIL  {what}: {detail}" if detail else f"FAIL  {what}", flush=True)
        return bool(condition)

    def close(self) -> int:
        """Prints the totals; the exit code. A run that checked nothing has failed."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 0 if self.passed and not self.failed else 1


def parse_arguments(description: str, *extra) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bin-dir", required=True, type=Path, help="folder of the three commands")
    parser.add_argument("--work-dir", required=True, type=Path, help="folder to work in; what it holds is replaced")
    parser.add_argument("--only", default="", help="run only the cases whose name contains this")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what passes, too")
    for names, settings in extra:
        parser.add_argument(*names, **settings)
    arguments = parser.parse_args()
    arguments.bin_dir = arguments.bin_dir.resolve()
    return arguments


NODE_MODULES = (
    ("--node-modules",),
    dict(type=Path, help="folder that holds onnxruntime-node; default: WORK_DIR/node, installed there if absent"),
)


def fresh_folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path.resolve()


# --- the commands ------------------------------------------------------------------------------


class Tools:
    """Runs save-external, verify-external and inspect-external."""

    def __init__(self, bin_dir: Path):
        self._bin_dir = bin_dir

    def run(self, tool: str, *arguments, cwd=None, limit_bytes=None, timeout=300):
        """The finished process: returncode (negative: a signal), stdout and stderr as text."""

        def limit():
            if limit_bytes:
                resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        command = [str(self._bin_dir / tool), *(str(argument) for argument in arguments)]
        return subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=timeout, preexec_fn=limit
        )

    def save(self, graph, *checkpoint_and_options):
        return self.run("save-external", graph, *checkpoint_and_options, "--no-fsync", "--json")

    def verify(self, *arguments):
        return self.run("verify-external", *arguments, "--json")

    def inspect(self, *arguments, **settings):
        return self.run("inspect-external", *arguments, "--json", **settings)


def parse_json(text: str):
    """The document, or None when the text is not one."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def last_line(process) -> str:
    lines = [line for line in process.stderr.splitlines() if line.strip()]
    return f"exit {process.returncode}: " + (lines[-1] if lines else "(stderr empty)")


# --- tensors -----------------------------------------------------------------------------------


def short_dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).replace("torch.", "")


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The contiguous row-major little-endian bytes."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.numel() == 0:
        return b""
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    return flat.numpy().tobytes()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def drop_tied(state: dict) -> tuple:
    """The state dict as safetensors' save_model keeps it: of tied tensors the first name in sorted order.

    Also gives the pairs (dropped name -> kept name) that save_model writes into the metadata.
    """
    kept, dropped = {}, {}
    for name in sorted(state):
        place = (state[name].data_ptr(), state[name].shape, state[name].dtype)
        if state[name].numel() and place in kept:
            dropped[name] = kept[place]
        else:
            kept[place] = name
    return {name: value for name, value in state.items() if name not in dropped}, dropped


def save_safetensors(path: Path, state: dict, metadata=None) -> None:
    tensors = ((name, short_dtype(value), value.shape, tensor_bytes(value)) for name, value in state.items())
    safetensors_file.save(str(path), list(tensors), metadata)


# --- models ------------------------------------------------------------------------------------


def initializer_bytes(tensor: onnx.TensorProto) -> bytes:
    """The tensor's bytes, wherever python onnx's loader has put them."""
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    return onnx.numpy_helper.to_array(tensor).tobytes()


def load_initializers(model_path: Path) -> dict:
    """name -> (dims, bytes) of the main graph's initializers, read by python onnx."""
    model = onnx.load(str(model_path))
    return {tensor.name: (tuple(tensor.dims), initializer_bytes(tensor)) for tensor in model.graph.initializer}


def external_entries(model_path: Path) -> dict:
    """name -> {location, offset, length} of the external initializers, not loaded."""
    model = onnx.load(str(model_path), load_external_data=False)
    external = (t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL)
    return {tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in external}


def wrong_initializers(model_path: Path, truth: dict) -> list:
    """The names of truth (initializer name -> torch tensor) that the model lacks or holds differently."""
    try:
        found = load_initializers(model_path)
    except Exception as error:
        return [f"python onnx cannot load it: {error}"]
    wrong = []
    for name, value in truth.items():
        if name not in found:
            wrong.append(f"{name} (absent)")
        elif found[name] != (tuple(value.shape), tensor_bytes(value)):
            wrong.append(name)
    return wrong


def names_used(graph: onnx.GraphProto) -> set:
    """The names that nodes read, those of subgraphs too, and the outputs of Identity nodes."""
    names = set()
    for node in graph.node:
        names.update(node.input)
        if node.op_type == "Identity":
            names.update(node.output)
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs):
                names |= names_used(subgraph)
    return names


def expected_initializers(model: onnx.ModelProto, state: dict, name_of=lambda key: key) -> dict:
    """What a written model must hold: the value of every key that the given graph names.

    A key is named by a graph input, an initializer, a use, or the output of an Identity. It comes from the
    exporter's own naming, never from the tool under test. name_of: how the graph spells a key.
    """
    graph = model.graph
    names = {value.name for value in graph.input} | {t.name for t in graph.initializer} | names_used(graph)
    return {name_of(key): value for key, value in state.items() if name_of(key) in names}


def rename_values(model: onnx.ModelProto, names: dict) -> onnx.ModelProto:
    """A copy with the main graph's values renamed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    for value in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for values in (node.input, node.output):
            for index, name in enumerate(values):
                values[index] = names.get(name, name)
    return copy


def underscored(key: str) -> str:
    return key.replace(".", "_")


# --- ONNX Runtime ------------------------------------------------------------------------------


def install_runtime(arguments: argparse.Namespace) -> Path:
    """The folder with onnxruntime-node; installs it from the registry that npm is set to, if absent.

    The package carries its CPU library, so no install script has to run.
    """
    if arguments.node_modules:
        return arguments.node_modules.resolve()
    folder = arguments.work_dir.resolve() / "node"
    if not (folder / "node_modules" / "onnxruntime-node").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", folder)
        command = ["npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=folder, check=True, timeout=600)
    return folder / "node_modules"


class Runtime:
    """ONNX Runtime in one node process a batch of models."""

    def __init__(self, node_modules: Path, folder: Path):
        self._node_modules = node_modules
        self._folder = folder
        self._jobs = []

    def feed(self, case, model: onnx.ModelProto) -> list:
        """Writes the case's inputs; their descriptions, named as the graph's first inputs."""
        feeds = []
        for index, value in enumerate(case.inputs):
            file = self._folder / f"{case.name}.input{index}.bin"
            file.write_bytes(tensor_bytes(value))
            name = model.graph.input[index].name
            feeds.append({"name": name, "dtype": short_dtype(value), "shape": list(value.shape), "file": str(file)})
        return feeds

    def add(self, label: str, model_path: Path, feeds: list, outputs: tuple) -> None:
        """Plans a run whose outputs must be these."""
        out = self._folder / f"outputs{len(self._jobs)}"
        self._jobs.append((label, {"model": str(model_path), "inputs": feeds, "out": str(out)}, outputs))

    def run(self) -> list:
        """(label, what is wrong or None) for each planned run, and forgets them."""
        jobs, self._jobs = self._jobs, []
        if not jobs:
            return []
        listing = self._folder / "jobs.json"
        listing.write_text(json.dumps([job for _, job, _ in jobs]))
        command = ["node", str(HERE / "ort_run.js"), str(self._node_modules), str(listing)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=600)
        answers = [parse_json(line) for line in process.stdout.splitlines()]
        answers += [{"ok": False, "error": f"node: {last_line(process)}"}] * (len(jobs) - len(answers))
        return [(label, difference(answer, job, outputs)) for (label, job, outputs), answer in zip(jobs, answers)]


def difference(answer: dict, job: dict, outputs: tuple):
    """None when ONNX Runtime's outputs are torch's: max|a-b| <= 1e-4 max|b|; else what differs."""
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


def stop_without(condition, reason: str) -> None:
    if not condition:
        print(f"skipped: {reason}")
        sys.exit(0)


def is_empty(folder: Path) -> bool:
    return not folder.exists() or not os.listdir(folder)
