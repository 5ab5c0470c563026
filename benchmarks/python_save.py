"""Measure saves of the Python package in comparison with those of torch, onnx and onnx_ir.

One process holds the model. Each run is a forked child, which shares its pages, writes into a new folder, and reports
its time and the increase of its peak memory. Subjects take turns within a round. The output shows medians, medians of
the ratios in each round, and whether our goals are reached. compare.py describes other disturbances of a measurement
and the countermeasures. Memory is touched before each run.

usage: python_save.py --work-dir DIR [--bin-dir DIR] [--rounds 5] [--cases 2GB,small,...]
                      [--memory touched|full-cache] [--quick]

    2GB    1.97 GB of fp16 in 201 tensors, in memory: an ONNXProgram, and the same as a state dict
    small  20,000 tensors of 10 KB: a state dict, beside the command with the same in a file
    read   a 2 GB .pt: all its tensors as arrays
    seed   the same .pt through the function that exporters copied around, and through ours
    seed-small   5,000 tensors of 10 KB, as the case before (its time grows with the square)

Needs torch 2.9, onnx, onnx_ir, onnxscript and safetensors beside the package.
"""

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Callable

import numpy as np
import onnx
import onnx_ir as ir
import torch
from compare import (
    BLOCK,
    CHUNK,
    available_memory,
    compile_c,
    llm_shapes,
    machine,
    small_shapes,
    warm,
)

import onnx_external as oe
from onnx_external import _core as core

Run = tuple[float, int]

# Larger outputs are deleted after each run, to free space on the disk and in the page cache. Many small files stay,
# because a file system is slow for minutes after many deletions.
LARGE = 1_000_000_000


# --- the model -----------------------------------------------------------------------------------


def filled(elements: int, seed: int) -> torch.Tensor:
    """Return fp16 values without NaN, which differ for each seed."""
    tensor = torch.empty(elements, dtype=torch.float16)
    data = np.frombuffer(BLOCK, np.uint8) & 0x3F
    view = tensor.view(torch.uint8).numpy()
    for start in range(0, len(view), CHUNK):
        part = view[start : start + CHUNK]
        part[:] = np.roll(data, seed * 4099 % CHUNK)[: len(part)]
    return tensor


def state_dict(shapes: list) -> dict:
    return {
        name: filled(int(np.prod(shape)), index).reshape(shape)
        for index, (name, shape) in enumerate(shapes)
    }


def program_of(tensors: dict) -> "torch.onnx.ONNXProgram":
    """Return a program like that of the exporter, in which torch wraps each live tensor."""
    from torch.onnx._internal.exporter import _core

    values, nodes = [], []
    for index, (name, tensor) in enumerate(tensors.items()):
        data = _core.TorchTensor(tensor, name)
        value = ir.Value(
            name=name, shape=data.shape, type=ir.TensorType(data.dtype), const_value=data
        )
        value.metadata_props["pkg.torch.export.graph_signature.InputSpec.kind"] = "PARAMETER"
        node = ir.node("Identity", [value])
        node.outputs[0].name = f"y{index}"
        node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
        values.append(value)
        nodes.append(node)
    outputs = [node.outputs[0] for node in nodes]
    graph = ir.Graph(
        [], outputs, nodes=nodes, initializers=values, opset_imports={"": 21}, name="g"
    )
    return torch.onnx.ONNXProgram(ir.Model(graph, ir_version=10), None)


def graph_of(tensors: dict, as_inputs: bool = False) -> onnx.ModelProto:
    """Return the graph without weights."""
    value = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Identity", [name], [f"y.{name}"]) for name in tensors]
    forms = [value(name, onnx.TensorProto.FLOAT16, list(t.shape)) for name, t in tensors.items()]
    outputs = [
        value(f"y.{name}", onnx.TensorProto.FLOAT16, list(t.shape)) for name, t in tensors.items()
    ]
    inputs, values = (forms, []) if as_inputs else ([], forms)
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, value_info=values)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
    )


# --- subjects ------------------------------------------------------------------------------------


def memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise SystemExit(f"/proc/self/status has no {field}")


def in_child(work: Callable[[Path], object], folder: Path, tensors: dict | None = None) -> Run:
    """Return the seconds, and the increase of the peak memory.

    In a forked process, the first reference to each of `tensors` makes the kernel copy its page, which takes 0.15 s for
    20,000 tensors. Therefore this is done before the clock starts.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for tensor in (tensors or {}).values():
                tensor.untyped_storage()
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
            before = memory("VmRSS")
            start = time.perf_counter()
            kept = work(folder)
            seconds = time.perf_counter() - start
            os.write(writing, json.dumps([seconds, memory("VmHWM") - before]).encode())
            del kept
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise SystemExit(f"a run failed: {os.waitstatus_to_exitcode(status)}")
    seconds, peak = json.loads(text)
    return seconds, peak


def synced(save: Callable[[Path], object]) -> Callable[[Path], object]:
    """Do the equivalent of `cp` and `sync` in the shell."""

    def work(folder: Path) -> object:
        result = save(folder)
        descriptor = os.open(folder, os.O_RDONLY)
        libc.syncfs(descriptor)
        os.close(descriptor)
        return result

    return work


class Subjects:
    """Runs subjects in turns."""

    def __init__(self, folder: Path, given: argparse.Namespace, size: int) -> None:
        self._folder, self._rounds, self._bytes = Path(mkdtemp(dir=folder)), given.rounds, size
        self._full_cache = given.memory == "full-cache"
        self._touch = self._folder / "touch"
        compile_c("touch_memory.c", self._touch)
        self.runs: dict[str, list[Run]] = {}

    def measure(
        self, subjects: dict[str, Callable[[Path], object]], tensors: dict | None = None
    ) -> None:
        for number in range(self._rounds):
            for turn, (name, work) in enumerate(subjects.items()):
                out = self._folder / f"out{number}.{turn}"
                out.mkdir()
                os.sync()
                self._prepare_memory()
                self.runs.setdefault(name, []).append(in_child(work, out, tensors))
                if self._bytes > LARGE:
                    shutil.rmtree(out)
            print(f"round {number + 1} of {self._rounds} done", file=sys.stderr)

    def _prepare_memory(self) -> None:
        if self._full_cache:
            filler = self._folder / "filler"  # a hole, which takes no space on the disk
            filler.touch()
            os.truncate(filler, available_memory())
            warm(filler)
            return
        touched = min(int(1.2 * self._bytes), available_memory() - (2 << 30))
        subprocess.run([self._touch, str(max(touched, 1 << 20))], check=True)

    def seconds(self, name: str) -> list[float]:
        return [run[0] for run in self.runs[name]]

    def ratio(self, name: str, other: str) -> float:
        pairs = zip(self.seconds(name), self.seconds(other), strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)

    def table(self, reference: str) -> None:
        print(
            f"| subject | median s | x {reference} | peak MiB above the model |\n|---|---|---|---|"
        )
        for name, runs in self.runs.items():
            peak = max(run[1] for run in runs) / 2**20
            median = statistics.median(self.seconds(name))
            print(f"| {name} | {median:.3f} | {self.ratio(name, reference):.2f} | {peak:.0f} |")
        print()


def check(text: str, value: float, most: float) -> None:
    print(f"- {text}: {value:.2f}, at most {most:g}: {'reached' if value <= most else 'MISSED'}")


# --- cases ---------------------------------------------------------------------------------------


def large(folder: Path, given: argparse.Namespace, target: int) -> None:
    tensors = state_dict(llm_shapes(target))
    program, graph = program_of(tensors), graph_of(tensors)
    total = sum(tensor.nbytes for tensor in tensors.values())
    print(f"## {total / 1e9:.2f} GB in memory, {len(tensors)} tensors, {given.rounds} rounds\n")
    theirs = "program.save"
    subjects = Subjects(folder, given, total)

    def ours(given: object = program, **options: object) -> Callable[[Path], object]:
        return lambda out: oe.save(given, out / "model.onnx", progress=False, **options)

    def by_ir(workers: int) -> Callable[[Path], object]:
        return lambda out: ir.save(
            program.model, out / "model.onnx", external_data="model.onnx.data", max_workers=workers
        )

    def save_program(out: Path) -> None:
        program.save(out / "model.onnx", external_data=True)

    raw = {"fsync": False, "verify": False}
    subjects.measure(
        {
            theirs: save_program,
            "onnx_ir.save(max_workers=2)": by_ir(2),
            "oe.save, single, not verified": ours(**raw),
            "oe.save, per-tensor, not verified": ours(layout="per-tensor", **raw),
            "oe.save, single": ours(fsync=False),
            "oe.save, per-tensor": ours(layout="per-tensor", fsync=False),
            "oe.save(graph, state dict), single, not verified": ours(graph, weights=tensors, **raw),
            "program.save and sync": synced(save_program),
            "oe.save, durable and verified (default)": ours(),
        }
    )
    subjects.table(theirs)
    check(
        "per tensor / program.save",
        subjects.ratio("oe.save, per-tensor, not verified", theirs),
        0.7,
    )
    check("single / program.save", subjects.ratio("oe.save, single, not verified", theirs), 0.9)
    name = "oe.save, single, not verified"
    check(
        "single / onnx_ir.save(max_workers=2)",
        subjects.ratio(name, "onnx_ir.save(max_workers=2)"),
        1,
    )
    name = "oe.save, durable and verified (default)"
    check("default / program.save and sync", subjects.ratio(name, "program.save and sync"), 1.3)
    peak = max(
        run[1] for key, runs in subjects.runs.items() if key.startswith("oe.") for run in runs
    )
    check("MiB above the model", peak / 2**20, 64)


def small(folder: Path, given: argparse.Namespace, count: int, commands: Path | None) -> None:
    tensors = state_dict(small_shapes(count))
    graph = graph_of(tensors)
    onnx.save(graph, folder / "small.onnx")
    torch.save(tensors, folder / "small.pt")
    print(f"## {count:,} tensors of 10 KB, {given.rounds} rounds\n")
    options = {"layout": "per-tensor", "fsync": False, "verify": False, "progress": False}
    reference = "oe.save(graph, path)"
    subjects = {
        reference: lambda out: oe.save(folder / "small.onnx", out, folder / "small.pt", **options),
        "oe.save(graph, state dict)": lambda out: oe.save(graph, out, tensors, **options),
        "dry run": lambda out: oe.plan(graph, weights=tensors),
    }
    if commands is not None:
        reference = "save-external"
        command = [commands / "save-external", folder / "small.onnx", folder / "small.pt"]
        flags = ["--no-fsync", "--no-verify", "-q"]
        subjects = {
            reference: lambda out: subprocess.run([*command, "-o", out, *flags], check=True),
            **subjects,
        }
    measured = Subjects(folder, given, sum(tensor.nbytes for tensor in tensors.values()))
    measured.measure(subjects, tensors)
    measured.table(reference)
    check(
        f"from memory / {reference}", measured.ratio("oe.save(graph, state dict)", reference), 1.3
    )
    for collects in True, False:
        (gc.enable if collects else gc.disable)()
        parts = [python_part(lambda: oe.plan(graph, weights=tensors)) for _ in range(given.rounds)]
        name = "collector " + ("on" if collects else "off")
        check(
            f"microseconds of Python a tensor, {name}", statistics.median(parts) / count * 1e6, 10
        )
    gc.enable()


def python_part(work: Callable[[], object]) -> float:
    """Return the seconds that a call spends outside the extension."""
    native, inside = core.save, 0.0

    def timed(*given: object) -> core.SaveResult:
        nonlocal inside
        start = time.perf_counter()
        try:
            return native(*given)
        finally:
            inside = time.perf_counter() - start

    core.save = timed
    try:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start - inside
    finally:
        core.save = native


def arrays_of(path: Path) -> dict:
    with oe.open_checkpoint(path) as checkpoint:
        return {name: tensor.numpy() for name, tensor in checkpoint.items()}


def arrays_of_safetensors(path: Path) -> dict:
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read(folder: Path, given: argparse.Namespace, target: int) -> None:
    from safetensors.torch import save_file

    tensors = state_dict(llm_shapes(target))
    torch.save(tensors, folder / "c.pt")
    save_file(tensors, folder / "c.safetensors")
    del tensors
    print(
        f"## All tensors of a checkpoint of {(folder / 'c.pt').stat().st_size / 1e9:.2f} GB, "
        f"{given.rounds} rounds\n"
    )
    ours = "oe.open_checkpoint(.pt), numpy()"
    measured = Subjects(folder, given, target)
    measured.measure(
        {
            ours: lambda out: arrays_of(folder / "c.pt"),
            "oe.open_checkpoint(.safetensors), numpy()": lambda out: arrays_of(
                folder / "c.safetensors"
            ),
            "torch.load(mmap=True)": lambda out: torch.load(
                folder / "c.pt", mmap=True, weights_only=True
            ),
            "safetensors.safe_open, get_tensor": lambda out: arrays_of_safetensors(
                folder / "c.safetensors"
            ),
        }
    )
    measured.table(ours)
    check("milliseconds", statistics.median(measured.seconds(ours)) * 1e3, 50)
    check("MiB", max(run[1] for run in measured.runs[ours]) / 2**20, 32)


def seed(
    basepath: str,
    model_location: str,
    initializer_location: str,
    paths: tuple,
    model: onnx.ModelProto,
) -> None:
    """Save like a function that many exporters copied (torch, 2023)."""
    with_initializers = onnx.ModelProto()
    with_initializers.CopyFrom(model)
    input_names = [given.name for given in model.graph.input]
    for path in paths:
        for name, tensor in torch.load(path).items():
            refined = name.replace(".", "_")
            for input_name in input_names:
                if input_name.endswith(refined) or refined.endswith(input_name):
                    refined = input_name
                    break
            relative = os.path.join(initializer_location, refined)
            with_initializers.graph.initializer.append(
                seed_tensor(tensor, refined, relative, basepath)
            )
    onnx.save(with_initializers, os.path.join(basepath, model_location))


def seed_tensor(tensor: torch.Tensor, name: str, location: str, basepath: str) -> onnx.TensorProto:
    proto = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT16, dims=tensor.shape)
    proto.data_location = onnx.TensorProto.EXTERNAL
    length = tensor.untyped_storage().nbytes()
    for key, value in {"location": location, "offset": 0, "length": length}.items():
        proto.external_data.add(key=key, value=str(value))
    path = os.path.join(basepath, location)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as data:
        data.write(tensor.numpy().tobytes())
    return proto


def drop_in(folder: Path, given: argparse.Namespace, shapes: list) -> None:
    tensors = {name.replace(".", "_"): tensor for name, tensor in state_dict(shapes).items()}
    target = sum(tensor.nbytes for tensor in tensors.values())
    torch.save(tensors, folder / "s.pt")
    graph = graph_of(tensors, as_inputs=True)
    del tensors
    size = (folder / "s.pt").stat().st_size
    print(
        f"## The seed's call on {len(shapes):,} tensors, {size / 1e9:.2f} GB, {given.rounds} rounds\n"
    )
    place = ("model.onnx", "initializers", (str(folder / "s.pt"),), graph)
    measured = Subjects(folder, given, target)
    measured.measure(
        {
            "the seed": lambda out: seed(str(out), *place),
            "oe.save_model_with_external_data (durable, verified)": lambda out: (
                oe.save_model_with_external_data(out, *place)
            ),
            "the seed and sync": synced(lambda out: seed(str(out), *place)),
            "oe.save, per-tensor, not verified": lambda out: oe.save(
                graph, out, place[2], layout="per-tensor", fsync=False, verify=False, progress=False
            ),
        }
    )
    measured.table("the seed")
    name = "oe.save, per-tensor, not verified"
    print(f"- the seed / ours without sync: {1 / measured.ratio(name, 'the seed'):.1f}")
    name = "oe.save_model_with_external_data (durable, verified)"
    print(f"- the seed and sync / our call: {1 / measured.ratio(name, 'the seed and sync'):.1f}")


def importing() -> None:
    program = (
        "import time, numpy; start = time.perf_counter(); import onnx_external;"
        "print(time.perf_counter() - start)"
    )
    times = [float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(11)]
    print("## Importing\n")
    check("milliseconds beyond numpy's", statistics.median(times) * 1e3, 60)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work-dir", type=Path, required=True)
    parser.add_argument("--bin-dir", type=Path, help="the folder of save-external")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default="2GB,small,read,seed,seed-small")
    parser.add_argument(
        "--memory",
        choices=("touched", "full-cache"),
        default="touched",
        help="what free memory is before each run, as in compare.py",
    )
    parser.add_argument("--quick", action="store_true", help="small data: does it work?")
    arguments = parser.parse_args()
    folder = arguments.work_dir / "python_save"
    folder.mkdir(parents=True, exist_ok=True)
    target = 50_000_000 if arguments.quick else 2_000_000_000
    count = 500 if arguments.quick else 20_000
    print(machine(folder), "\n")
    cases = arguments.cases.split(",")
    try:
        importing()
        if "2GB" in cases:
            large(folder, arguments, target)
        if "small" in cases:
            small(folder, arguments, count, arguments.bin_dir)
        if "read" in cases:
            read(folder, arguments, target)
        if "seed" in cases:
            drop_in(folder, arguments, llm_shapes(target))
        if "seed-small" in cases:
            drop_in(folder, arguments, small_shapes(count // 4))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    sys.exit(main())
