"""Measure the time and memory to cut a layer out of a large model, with this package and with tools that load the whole
model.

usage: cut.py FOLDER --bin-dir DIR [--sizes 2GB,4GB,16GB] [--peers 2GB,4GB] [--rounds 3]
              [--python PYTHON] [--goals]

The script writes one Llama after the other into FOLDER, in bfloat16 and as a sparse file, which takes no space on the
disk and is read as zeros. Its graph comes from oe.transformers.export with the layout `link`. The piece is the middle
layer. `cut-external` is measured as a whole command; Python functions are measured after the imports, each in its own
process:

    read          the graph file is read: the floor
    oe.cut        the piece beside the model, synced
    cut_bytes     the piece in memory
    extract_model onnx.utils, for the inputs and outputs that the piece has; it loads all data
    polygraphy    `polygraphy surgeon extract`, a command, if PYTHON has it; likewise

The Markdown table shows the median seconds, the largest peak of resident memory (and how much was used before), and the
bytes written. With --goals, the exit code is 1 if this package takes more than 0.3 s, or more memory than 64 MiB plus 8
times the graph.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import compare
import export_memory

export_memory.SIZES |= {
    "2GB": (2048, 5632, 16, 16, 8, 64_000),
    "4GB": (2048, 5632, 36, 16, 8, 64_000),
    "16GB": export_memory.SIZES["8B"],
}
PIECE = "piece.onnx"


def module_of(size: str) -> str:
    return f"model.layers.{export_memory.SIZES[size][2] // 2}"


# --- one way each, in a process of its own: imports, then a function -------------------------


def read(model: Path, module: str) -> Callable[[], object]:
    return model.read_bytes


def cut(model: Path, module: str) -> Callable[[], object]:
    import onnx_external as oe

    return lambda: oe.cut(model, PIECE, module=module)


def cut_bytes(model: Path, module: str) -> Callable[[], object]:
    import onnx_external as oe

    return lambda: oe.cut_bytes(model, module=module)


def extract_model(model: Path, module: str) -> Callable[[], object]:
    import onnx.utils

    inputs, outputs = json.loads((model.parent / "ends.json").read_text())
    return lambda: onnx.utils.extract_model(model, model.parent / PIECE, inputs, outputs)


WAYS = {
    "read": read, "oe.cut": cut, "cut_bytes": cut_bytes, "extract_model": extract_model,
}  # fmt: skip


def peak() -> int:
    """Return the peak resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def one(way: str, model: Path, module: str) -> None:
    job = WAYS[way](model, module)
    before, start = peak(), time.perf_counter()
    job()
    print(json.dumps([time.perf_counter() - start, peak(), before]))


# --- all of them -----------------------------------------------------------------------------


def make(folder: Path, size: str) -> Path:
    """Return the model's folder with its graph, and the names of the piece's inputs and outputs."""
    export_memory.make(folder, size, random=False)
    program = (
        "import json, sys, onnx_external as oe, onnx_external.transformers\n"
        "folder, module = sys.argv[1:]\n"
        "oe.transformers.export(folder, folder, layout='link', graphs='two', progress=False)\n"
        "_, found = oe.cut_bytes(f'{folder}/prefill.onnx', module=module)\n"
        "ends = json.dumps([list(found.inputs), list(found.outputs)])\n"
        "open(f'{folder}/ends.json', 'w').write(ends)\n"
    )
    subprocess.run([sys.executable, "-c", program, folder, module_of(size)], check=True)
    return folder / "prefill.onnx"


class Benchmark:
    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self._folder, self._given = folder, given
        self._meter = compare.Meter(folder)
        self.faults: list[str] = []

    def run(self, size: str, peers: bool) -> None:
        folder = self._folder / size
        folder.mkdir()
        model, module = make(folder, size), module_of(size)
        made = set(folder.iterdir())
        graph = model.stat().st_size
        allowed = (64 << 20) + 8 * graph
        print(f"\n{size}: {module}, a graph of {graph / 1e6:.1f} MB\n")
        print("| | s | peak MiB | MiB before | bytes written |\n|---|---|---|---|---|")
        ways = ["read", "cut-external", "oe.cut", "cut_bytes"]
        if peers:
            ways += ["extract_model"] + ["polygraphy"] * bool(self._given.python)
        for way in ways:
            found, written = [], 0
            for _ in range(self._given.rounds):
                found.append(self._measured(way, model, module))
                new = set(folder.iterdir()) - made
                written = max(written, sum(each.stat().st_size for each in new))
                for each in new:
                    each.unlink()
            seconds = statistics.median(each[0] for each in found)
            largest, before = max(each[1] for each in found), min(each[2] for each in found)
            told = f"{largest / 2**20:,.0f} | {before / 2**20:,.0f} | {written:,}"
            print(f"| {way} | {seconds:.3f} | {told} |", flush=True)
            ours = way in ("cut-external", "oe.cut", "cut_bytes")
            if ours and (seconds > 0.3 or largest - before > allowed):
                self.faults.append(f"{size}, {way}: more than 0.3 s or {allowed} bytes")
        shutil.rmtree(folder)

    def _measured(self, way: str, model: Path, module: str) -> tuple[float, int, int]:
        if way in WAYS:
            line = [sys.executable, __file__, str(model), "--one", way, "--module", module]
            done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True)
            return tuple(json.loads(done.stdout.splitlines()[-1]))
        piece = model.parent / PIECE
        if way == "cut-external":
            program = self._given.bin_dir / "cut-external"
            run = self._meter.run([program, model, "-o", piece, "--module", module])
        else:
            inputs, outputs = json.loads((model.parent / "ends.json").read_text())
            ends = [*(f"{name}:auto:auto" for name in inputs)]
            program = Path(self._given.python).with_name("polygraphy")
            run = self._meter.run([
                program, "surgeon", "extract", model, "-o", piece,
                "--save-external-data", f"{PIECE}.data",
                "--inputs", *ends, "--outputs", *(f"{name}:auto" for name in outputs),
            ])  # fmt: skip
        return run.seconds, run.peak_bytes, 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="is made, and removed at the end")
    parser.add_argument("--bin-dir", type=Path)
    parser.add_argument("--sizes", default="2GB,4GB,16GB")
    parser.add_argument("--peers", default="2GB,4GB", help="sizes for those who load all data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", help="of an environment with Polygraphy")
    parser.add_argument("--goals", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--module", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.one, given.folder, given.module)
        return 0
    folder = given.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    benchmark = Benchmark(folder, given)
    try:
        for size in given.sizes.split(","):
            benchmark.run(size, size in given.peers.split(","))
    finally:
        shutil.rmtree(folder)
    for fault in benchmark.faults:
        print(f"cut.py: {fault}", file=sys.stderr)
    return 1 if given.goals and benchmark.faults else 0


if __name__ == "__main__":
    sys.exit(main())
