"""Helpers for the oracle tests: counting, running the commands, ONNX Runtime, reading written models."""

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
from pathlib import Path

import onnx
import onnx.external_data_helper
import onnx.numpy_helper
import torch

import safetensors_file

HERE = Path(__file__).resolve().parent


class Report:
    """Counts passed and failed checks, and prints each failure immediately."""

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
        """Print the totals; return the exit code. A run without any check has failed."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 0 if self.passed and not self.failed else 1


def parse_arguments(description: str, *extra) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bin-dir", required=True, type=Path, help="folder of the three commands")
    parser.add_argument(
        "--work-dir", required=True, type=Path, help="folder to work in; what it holds is replaced"
    )
    parser.add_argument("--only", default="", help="run only the cases whose name contains this")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what passes, too")
    for names, settings in extra:
        parser.add_argument(*names, **settings)
    arguments = parser.parse_args()
    arguments.bin_dir = arguments.bin_dir.resolve()
    return arguments


def is_empty(folder: Path) -> bool:
    return not folder.exists() or not os.listdir(folder)


def fresh_folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path.resolve()


# --- the commands ------------------------------------------------------------------------------


class Tools:
    """Runs save-external, verify-external and inspect-external."""

    def __init__(self, bin_dir: Path):
        self._bin_dir = bin_dir

    def run(self, tool: str, *arguments, cwd=None, limit_bytes=None, timeout=300, own_peak=False):
        """Return the finished process: returncode (negative: a signal), stdout and stderr as text.

        own_peak: the peak memory that it tells is its own. Linux counts what the process had before exec, too:
        a child of Python has no less than Python; a child of a shell has.
        """

        def limit():
            if limit_bytes:
                resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        command = [str(self._bin_dir / tool), *(str(argument) for argument in arguments)]
        if own_peak:
            command = ["sh", "-c", '"$0" "$@"; exit $?', *command]
        return subprocess.run(
            command,
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            preexec_fn=limit,
        )

    def save(self, graph, *checkpoint_and_options):
        return self.run("save-external", graph, *checkpoint_and_options, "--no-fsync", "--json")

    def verify(self, *arguments):
        return self.run("verify-external", *arguments, "--json")

    def limit_for_memory(self, limit_bytes: int):
        """Return the limit, or None where the commands do not start under one: a sanitizer reserves terabytes."""
        if self.run("inspect-external", "--version", limit_bytes=limit_bytes).returncode == 0:
            return limit_bytes
        print("note  the commands do not start under a memory limit (a sanitizer?): memory is unbounded")
        return None

    def inspect(self, *arguments, **settings):
        return self.run("inspect-external", *arguments, "--json", **settings)


def parse_json(text: str):
    """Return the document, or None if the text is not JSON."""
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
    """Return the contiguous row-major little-endian bytes."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.numel() == 0:
        return b""
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    return flat.numpy().tobytes()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def drop_tied(state: dict) -> tuple:
    """Return the state dict as safetensors' save_model keeps it: of tied tensors the first name in sorted order.

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
    """Return the tensor's bytes from the field into which python onnx loaded them."""
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    return onnx.numpy_helper.to_array(tensor).tobytes()


def load_initializers(model_path: Path) -> dict:
    """name -> (dims, bytes) of the main graph's initializers, read by python onnx."""
    model = onnx.load(str(model_path))
    return {
        tensor.name: (tuple(tensor.dims), initializer_bytes(tensor)) for tensor in model.graph.initializer
    }


def external_entries(model_path: Path) -> dict:
    """name -> {location, offset, length} of the external initializers, not loaded."""
    model = onnx.load(str(model_path), load_external_data=False)
    external = (t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL)
    return {tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in external}


def wrong_initializers(model_path: Path, truth: dict) -> list:
    """Return the names of truth (initializer name -> torch tensor) that the model lacks or holds differently."""
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
    """Return the names that nodes read, also in subgraphs, and the outputs of Identity nodes."""
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
    """Return the expected contents of a written model: the value of every key that the given graph names.

    A key is named by a graph input, an initializer, a use, or the output of an Identity. It comes from the
    exporter's own naming, never from the tool under test. name_of: how the graph spells a key.
    """
    graph = model.graph
    names = {value.name for value in graph.input} | {t.name for t in graph.initializer} | names_used(graph)
    return {name_of(key): value for key, value in state.items() if name_of(key) in names}


def rename_values(model: onnx.ModelProto, names: dict) -> onnx.ModelProto:
    """Return a copy with the main graph's values renamed."""
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
