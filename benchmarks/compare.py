"""Measures save-external in comparison with cp, the seed's algorithm in Python, and onnx.save_model.

The script makes checkpoints shaped like language models (fp16, about 200 tensors), a checkpoint with many small
tensors, and graphs for them. The cases with -inline have one model that contains the weights instead. Every subject
runs once per round, each into a new folder. The Markdown table shows medians, ratios per round, and peak memory.

Several effects disturb such measurements. In a folder with many deleted files, creating files is slow for minutes;
therefore many small files are deleted only if the disk becomes full, and only large outputs are deleted after each run,
together with their cached pages. Dirty pages of one run slow down the next; therefore each run begins with a sync. If
the host takes back idle memory, the first use of a page is slow; therefore memory is touched before each run, or the
page cache is full. If a core is busy, a warning is printed.

A case such as 2GB-transposed (fp16) or 2GB-transposed-fp32 has large matrices, which are saved unchanged and
transposed.

usage: compare.py --bin-dir DIR --work-dir DIR [--cases 2GB,6GB,small,1.9GB-inline] [--rounds 5]
                  [--memory touched|full-cache] [--subjects 'copy;copy, verify'] [--quick]
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "oracle"))

import modern_pt  # noqa: E402

LAYERS = 22
UNITS = {"float16": 2, "float32": 4}
CHUNK = 4 << 20


# --- checkpoints -------------------------------------------------------------------------------


def llm_shapes(target_bytes: int) -> list:
    """Return the names and shapes of a Llama-like fp16 model with 201 tensors and about this size."""

    def total(width: int) -> int:
        return LAYERS * (4 * width**2 + 3 * width * (width * 11 // 4)) + 2 * 16 * width**2

    width = 64
    while 2 * total(width + 16) <= target_bytes:
        width += 16
    hidden, vocabulary = width * 11 // 4, 16 * width
    shapes = [("model.embed_tokens.weight", [vocabulary, width])]
    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        shapes += [(f"{base}.self_attn.{part}_proj.weight", [width, width]) for part in "qkvo"]
        shapes += [(f"{base}.mlp.{part}_proj.weight", [hidden, width]) for part in ("gate", "up")]
        shapes.append((f"{base}.mlp.down_proj.weight", [width, hidden]))
        shapes += [(f"{base}.{part}_layernorm.weight", [width]) for part in ("input", "post_attention")]
    return shapes + [("model.norm.weight", [width]), ("lm_head.weight", [vocabulary, width])]


def small_shapes(count: int) -> list:
    """Return the names and shapes of many tensors of 10 KB."""
    return [(f"model.blocks.{index // 10}.part{index % 10}.weight", [5120]) for index in range(count)]


def matrix_shapes(target_bytes: int, unit: int) -> list:
    """Return matrices of about this total size: a tall one, then alternately square ones and ones a fifth as tall."""
    scale = min(1.0, target_bytes / 2e9) ** 0.5
    width, height = int(4096 * scale), int(65536 * scale)
    shapes = [("tall.weight", [height, width])]
    while sum(unit * shape[0] * shape[1] for _, shape in shapes) < target_bytes:
        rows = (width, int(11008 * scale))[len(shapes) % 2]
        shapes.append((f"layers.{len(shapes)}.weight", [rows, width]))
    return shapes


def random_chunks(size: int, seed: int):
    """Return a function that yields `size` random bytes in chunks, which differ for each seed."""

    def chunks():
        block = BLOCK[seed * 4099 % CHUNK :] + BLOCK[: seed * 4099 % CHUNK]
        for start in range(0, size, CHUNK):
            yield block[: min(CHUNK, size - start)]

    return chunks


BLOCK = random.Random(1).randbytes(CHUNK)


def write_checkpoint(path: Path, shapes: list, dtype: str = "float16") -> list:
    """Write the checkpoint in chunks; return (offset, length, name) of each tensor's bytes."""
    unit = UNITS[dtype]
    sizes = [unit * modern_pt.element_count(shape) for _, shape in shapes]
    nodes = []
    for index, (name, shape) in enumerate(shapes):
        nodes.append((name, modern_pt.tensor(dtype, str(index), sizes[index] // unit, shape)))
    places = []
    with open(path, "wb") as stream:
        archive = modern_pt.TorchZip(stream)
        archive.record("data.pkl", modern_pt.pickle_bytes(modern_pt.OrderedDict(tuple(nodes), {})))
        archive.record("byteorder", b"little")
        for index, (name, _) in enumerate(shapes):
            offset = archive.record(f"data/{index}", random_chunks(sizes[index], index), sizes[index])
            places.append((offset, sizes[index], name))
        archive.record("version", b"3\n")
        archive.close()
    return places


# --- runs --------------------------------------------------------------------------------------


@dataclass
class Run:
    seconds: float
    peak_bytes: int


class Meter:
    """Runs commands and measures them."""

    def __init__(self, folder: Path):
        self._program, self._result, self._log = folder / "measure", folder / "result.txt", folder / "log.txt"
        compile_c("measure.c", self._program)

    def run(self, command: list) -> Run:
        """Return the wall time and peak resident memory of a command. A failing command ends the program."""
        line = [str(part) for part in (self._program, self._result, *command)]
        with open(self._log, "wb") as log:
            code = subprocess.run(line, stdout=log, stderr=log).returncode
        if code != 0:
            text = self._log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"{' '.join(line[2:])}: exit {code}\n{text}")
        seconds, peak = self._result.read_text().split()
        return Run(float(seconds), int(peak) * 1024)


def compile_c(source: str, program: Path) -> None:
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-pthread", HERE / source, "-o", program], check=True)


FLOORS = ("cp", "cp, sync", "C loop", "C loop, syncfs")
# After each run of READ_BACK_OF, its output is read once without the page cache. A default save is compared with the
# sum of the two.
READ_BACK_OF, READ_BACK, DEFAULT = "copy, fsync", "read back", "copy, verify, fsync (default)"
# `cp` followed by a sync of the disk, and the C loop followed by a sync of its file system.
CP_AND_SYNC = ["sh", "-c", 'cp "$0" "$1" && sync']
LOOP_AND_SYNCFS = ["sh", "-c", '"$0" "$1" "$2" "$3" "$4" && sync -f "$3"']


@dataclass
class Subject:
    name: str
    command: Callable[[Path], list]  # gets an output folder that does not exist yet
    rounds: int
    runs: list = field(default_factory=list)
    # Ratios to each of FLOORS in the same round.
    ratios: dict = field(default_factory=lambda: {floor: [] for floor in FLOORS})


def available_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


class Case:
    """A checkpoint, its graph, and the subjects that run on them."""

    dtype = "float16"
    checks_outputs = True

    def __init__(self, name: str, shapes: list, folder: Path, arguments):
        self.name, self._arguments = name, arguments
        self._folder = folder / name
        self._folder.mkdir(parents=True)
        self.graph, self.checkpoint = self._folder / "graph.onnx", self._folder / "checkpoint.pt"
        self.tensors = len(shapes)
        self._make_graph(self.graph, shapes)
        places = write_checkpoint(self.checkpoint, shapes, self.dtype)
        self.bytes, self.graph_bytes = self.checkpoint.stat().st_size, self.graph.stat().st_size
        self._meter = Meter(self._folder)
        compile_c("touch_memory.c", self._folder / "touch_memory")
        self._list = self._folder / "places.txt"
        self._list.write_text("".join(f"{o} {n} {name.replace('.', '_')}\n" for o, n, name in places))
        self.shapes = shapes
        self.reads: list = []  # seconds
        self.subjects = self._subjects()

    def _make_graph(self, path: Path, shapes: list) -> None:
        listing = self._folder / "tensors.json"
        listing.write_text(json.dumps(shapes))
        onnx_type = {"float16": "FLOAT16", "float32": "FLOAT"}[self.dtype]
        subprocess.run([sys.executable, HERE / "peers.py", "graph", listing, path, onnx_type], check=True)

    def _subjects(self) -> list:
        arguments = self._arguments
        save = [arguments.bin_dir / "save-external", self.graph, self.checkpoint]
        save += ["--threads", str(arguments.threads), "-o"]
        peers = [sys.executable, HERE / "peers.py"]
        files = [self.graph, self.checkpoint]
        rounds, slow = arguments.rounds, min(arguments.peer_rounds, arguments.rounds)
        fast = ["--no-verify", "--no-fsync"]
        subjects = [
            Subject("cp", lambda out: ["cp", self.checkpoint, out], rounds),
            Subject("copy", lambda out: [*save, out, *fast], rounds),
            Subject("copy, single", lambda out: [*save, out, "--layout", "single", *fast], rounds),
            Subject("copy, shards", lambda out: [*save, out, "--layout", "shards", *fast], rounds),
            Subject("copy, verify", lambda out: [*save, out, "--no-fsync"], rounds),
            Subject("cp, sync", lambda out: [*CP_AND_SYNC, self.checkpoint, out], rounds),
            Subject("copy, fsync", lambda out: [*save, out, "--no-verify"], rounds),
            Subject(DEFAULT, lambda out: [*save, out], rounds),
            Subject("link, fsync", lambda out: [*save, self._folder, "--layout", "link", "--overwrite"], rounds),
            Subject("dry run", lambda out: [*save, out, "--dry-run"], rounds),
            Subject("the seed's algorithm, Python", lambda out: [*peers, "seed", *files, out], slow),
            Subject("onnx.save_model, Python", lambda out: [*peers, "onnx", *files, out], slow),
        ]
        if self.tensors > 1000 or "C loop" in (arguments.subjects or "").split(";"):
            compile_c("write_files.c", self._folder / "write_files")
            loop = [self._folder / "write_files", self.checkpoint, self._list]
            threads = str(arguments.threads)
            subjects[1:1] = [
                Subject("C loop", lambda out: [*loop, out, threads], rounds),
                Subject("C loop, syncfs", lambda out: [*LOOP_AND_SYNCFS, *loop, out, threads], rounds),
            ]
        return subjects

    def _verify_arguments(self) -> list:
        return ["--against", self.checkpoint]

    def allowed_memory(self) -> int:
        """Return the memory limit of save-external: 64 MiB, 4 KiB per tensor, and 8 times the graph file."""
        return (64 << 20) + 4096 * self.tensors + 8 * self.graph_bytes

    def run(self) -> None:
        if not any(self._is_wanted(subject) for subject in self.subjects if subject.name != "cp"):
            names = "; ".join(subject.name for subject in self.subjects)
            raise SystemExit(f"--subjects: {self.name} has none of these; it has {names}")
        for number in range(self._arguments.rounds):
            times = {}
            for subject in self.subjects:
                if number < subject.rounds and self._is_wanted(subject):
                    times[subject.name] = self._run_one(subject, number)
            for subject in self.subjects:
                for floor in FLOORS:
                    if subject.name in times and floor in times:
                        subject.ratios[floor].append(times[subject.name] / times[floor])

    def _is_wanted(self, subject: Subject) -> bool:
        wanted = self._arguments.subjects
        return not wanted or subject.name in ("cp", *wanted.split(";"))

    def _run_one(self, subject: Subject, number: int) -> float:
        out = self._folder / f"round{number}" / subject.name.replace(" ", "_").replace(",", "")
        out.parent.mkdir(exist_ok=True)
        self._make_room()
        os.sync()
        self._prepare_memory()
        warm(self.checkpoint)
        run = self._meter.run(subject.command(out))
        subject.runs.append(run)
        if number == 0 and subject.name.startswith("copy") and self.checks_outputs:
            verify = [self._arguments.bin_dir / "verify-external", out / "model.onnx"]
            self._meter.run([*verify, *self._verify_arguments()])
        if subject.name == READ_BACK_OF:
            self._read_back(out)
        if self.tensors <= 1000:
            shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
        print(
            f"{self.name} round {number + 1}: {subject.name}: {run.seconds:.3f} s",
            file=sys.stderr,
            flush=True,
        )
        return run.seconds

    def _read_back(self, out: Path) -> None:
        reader = self._folder / "read_files"
        if not reader.exists():
            compile_c("read_files.c", reader)
        self.reads.append(self._meter.run([reader, out, str(self._arguments.threads)]).seconds)

    def disk_rows(self) -> list:
        """Return the disk's rates, and the ratio of a default save to an unverified save plus one read."""
        times = {subject.name: [run.seconds for run in subject.runs] for subject in self.subjects}
        rows = []
        for name, seconds in ((READ_BACK_OF, times.get(READ_BACK_OF, [])), (READ_BACK, self.reads)):
            if self.reads and seconds:
                rate = statistics.median(self.bytes / each for each in seconds) / 1e6
                rows.append(f"| {self.name} | {name} | {statistics.median(seconds):.3f} | {rate:.0f} MB/s |")
        floors = [sum(pair) for pair in zip(times.get(READ_BACK_OF, []), self.reads)]
        ratios = [run / floor for run, floor in zip(times.get(DEFAULT, []), floors)]
        if ratios:
            rows.append(
                f"| {self.name} | {DEFAULT} / ({READ_BACK_OF} + {READ_BACK}) | {statistics.median(ratios):.2f} |"
            )
        return rows

    def _prepare_memory(self) -> None:
        """Touch all memory in advance, because a page that is new from the host takes ten times as long as its copy."""
        if self._arguments.memory == "touched":
            touched = min(int(1.2 * self.bytes), available_memory() - self.bytes - (2 << 30))
            subprocess.run([self._folder / "touch_memory", str(max(touched, 1 << 20))], check=True)
            return
        filler = self._folder / "filler"  # a hole, which takes space in the cache but not on the disk
        with open(filler, "wb") as stream:
            stream.truncate(available_memory())
        warm(filler)

    def _make_room(self) -> None:
        """Delete old rounds only if the disk would become full."""
        for old in sorted(self._folder.glob("round*"))[:-1]:
            if shutil.disk_usage(self._folder).free > 8 * self.bytes:
                return
            print(f"note: deleting {old.name}: the disk is nearly full", file=sys.stderr)
            shutil.rmtree(old)

    def rows(self) -> list:
        rows = []
        for subject in (each for each in self.subjects if each.runs):
            seconds = statistics.median(run.seconds for run in subject.runs)
            peak = max(run.peak_bytes for run in subject.runs)
            ratios = [f"{statistics.median(of):.2f}" if of else "-" for of in subject.ratios.values()]
            numbers = (f"{seconds:.3f}", *ratios, f"{peak / 2**20:.0f}", str(len(subject.runs)))
            rows.append("| " + " | ".join((self.name, subject.name, *numbers)) + " |")
        return rows + self.disk_rows()

    def memory_is_bounded(self) -> bool:
        prefixes = ("copy", "dry", "link")
        ours = [run.peak_bytes for s in self.subjects if s.name.startswith(prefixes) for run in s.runs]
        return max(ours, default=0) <= self.allowed_memory()


class InlineCase(Case):
    """A model that contains its weights, which are moved into files and back."""

    def _subjects(self) -> list:
        arguments, made = self._arguments, self._folder / "made"
        tool = arguments.bin_dir / "save-external"
        subprocess.run(
            [tool, self.graph, self.checkpoint, "-o", made, "--layout", "inline", "-q"], check=True
        )
        self.checkpoint.unlink()
        self.checkpoint = made / "model.onnx"  # what cp copies
        self.bytes = self.checkpoint.stat().st_size
        save = [tool, self.checkpoint, "--threads", str(arguments.threads), "-o"]
        peer = [sys.executable, HERE / "peers.py", "relayout", self.checkpoint]
        rounds, slow = arguments.rounds, min(arguments.peer_rounds, arguments.rounds)
        fast = ["--no-verify", "--no-fsync"]
        return [
            Subject("cp", lambda out: ["cp", self.checkpoint, out], rounds),
            Subject("copy", lambda out: [*save, out, *fast], rounds),
            Subject("copy, single", lambda out: [*save, out, "--layout", "single", *fast], rounds),
            Subject("copy, inline", lambda out: [*save, out, "--layout", "inline", *fast], rounds),
            Subject("copy, verify", lambda out: [*save, out, "--no-fsync"], rounds),
            Subject("copy, verify, fsync (default)", lambda out: [*save, out], rounds),
            Subject("dry run (the scan)", lambda out: [*save, out, "--dry-run"], rounds),
            Subject("onnx.load and save_model, Python", lambda out: [*peer, out], slow),
        ]

    def _verify_arguments(self) -> list:
        return []

    def allowed_memory(self) -> int:
        """Return the memory limit of 64 MiB and 1 KiB per tensor."""
        return (64 << 20) + 1024 * self.tensors


class TransposedCase(Case):
    """The same matrices for a graph that reads them unchanged, and for a graph that reads them transposed."""

    checks_outputs = False  # verification is one of the subjects

    def _subjects(self) -> list:
        arguments = self._arguments
        turned = self._folder / "transposed.onnx"
        self._make_graph(turned, [(name, shape[::-1]) for name, shape in self.shapes])
        entries = {
            name.replace(".", "_"): {"key": name, "recipe": ["transpose"]} for name, _ in self.shapes
        }
        map_file = self._folder / "map.json"
        map_file.write_text(json.dumps({"map": entries}))
        work = ["--threads", str(arguments.threads)]
        tool, checked = arguments.bin_dir / "save-external", arguments.bin_dir / "verify-external"
        subjects = [Subject("cp", lambda out: ["cp", self.checkpoint, out], arguments.rounds)]
        for suffix, graph, mapping in (("", self.graph, []), (", transposed", turned, ["--map", map_file])):
            save = [tool, graph, self.checkpoint, *mapping, *work, "-o"]
            made = self._folder / f"made{len(suffix)}"
            subprocess.run([*save, made, "--no-fsync", "-q"], check=True)
            verify = [checked, made / "model.onnx", *mapping, *work, "--against", self.checkpoint]
            for name, command in (
                ("copy", lambda out, save=save: [*save, out, "--no-verify", "--no-fsync"]),
                ("copy, single", lambda out, save=save: [*save, out, "--layout", "single", "--no-verify", "--no-fsync"]),
                ("copy, verify", lambda out, save=save: [*save, out, "--no-fsync"]),
                ("copy, verify, fsync (default)", lambda out, save=save: [*save, out]),
                ("verify-external --against", lambda out, verify=verify: verify),
            ):
                subjects.append(Subject(name + suffix, command, arguments.rounds))
        return subjects

    def rows(self) -> list:
        """Return the rows, with the cost of transposing as medians of ratios in the same round."""
        times = {subject.name: [run.seconds for run in subject.runs] for subject in self.subjects}
        rows = super().rows()
        for name, plain in times.items():
            turned = times.get(f"{name}, transposed", [])
            if plain and turned:
                ratio = statistics.median(b / a for a, b in zip(plain, turned))
                rows.append(f"| {self.name} | {name}: transposed / plain | {ratio:.2f} |")
        return rows


def warm(path: Path) -> None:
    """Read the file into the page cache."""
    with open(path, "rb", buffering=0) as stream:
        while stream.read(CHUNK):
            pass


# --- report ------------------------------------------------------------------------------------


def file_system_of(path: Path) -> str:
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind = line.split()[:3]
        if str(path).startswith(mount) and len(mount) > len(best[0]):
            best = (mount, kind)
    return best[1]


def machine(path: Path) -> str:
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {memory:.0f} GiB, {file_system_of(path)}, Linux {platform.release()}"


def report(cases: list, arguments) -> None:
    print(f"\nMachine: {machine(arguments.work_dir)}; {arguments.threads} threads; source in the page cache.")
    for case in cases:
        sizes = f"{case.bytes / 1e9:.2f} GB, {case.tensors} tensors, graph {case.graph_bytes / 1e3:.0f} KB"
        print(f"{case.name}: {sizes}; save-external may use {case.allowed_memory() / 2**20:.0f} MiB.")
    floors = " | ".join(f"x {floor}" for floor in FLOORS)
    print(f"\n| case | subject | median s | {floors} | peak MiB | rounds |")
    print("|---|---|" + "---|" * (len(FLOORS) + 3))
    for case in cases:
        print("\n".join(case.rows()))


SIZES = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def make_case(name: str, folder: Path, arguments) -> Case:
    size, _, form = name.partition("-")
    if form.startswith("transposed"):
        TransposedCase.dtype = {"transposed": "float16", "transposed-fp32": "float32"}[form]
        shapes = matrix_shapes(bytes_of(size, name), UNITS[TransposedCase.dtype])
        return TransposedCase(name, shapes, folder, arguments)
    kind = InlineCase if form == "inline" else Case
    return kind(name, shapes_of(size, arguments.small_count), folder, arguments)


def shapes_of(case: str, small_count: int) -> list:
    if case == "small":
        return small_shapes(small_count)
    return llm_shapes(bytes_of(case, case))


def bytes_of(size: str, case: str) -> int:
    number, unit = size[:-2], size[-2:]
    if unit not in SIZES or not number.replace(".", "", 1).isdigit():
        raise SystemExit(
            f"no case {case!r}: give sizes such as 2GB, 500MB, 1.9GB-inline or 2GB-transposed, or small"
        )
    return int(float(number) * SIZES[unit])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", type=Path, required=True)
    parser.add_argument(
        "--work-dir", type=Path, required=True, help="on the disk to measure; emptied before and after"
    )
    parser.add_argument(
        "--cases",
        default="2GB,6GB,small,1.9GB-inline",
        help="sizes of language models, with -inline of one that holds its weights; sizes with -transposed or "
        "-transposed-fp32 of large matrices; and small",
    )
    parser.add_argument("--small-count", type=int, default=20000, help="tensors of the small case")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--peer-rounds", type=int, default=1, help="rounds that the slow Python peers take part in"
    )
    parser.add_argument(
        "--subjects", help="only these, by their names in the table, with ; between them; cp is always one"
    )
    parser.add_argument(
        "--memory",
        choices=("touched", "full-cache"),
        default="touched",
        help="before each run: free memory that was just touched, or (for runs of many seconds) none "
        "free, the page cache full of a file that nobody needs",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--quick", action="store_true", help="50 MB, 1,500 small tensors, one round: does it run?"
    )
    arguments = parser.parse_args()
    arguments.bin_dir, arguments.work_dir = arguments.bin_dir.resolve(), arguments.work_dir.resolve()
    if arguments.quick:
        arguments.cases, arguments.small_count, arguments.rounds = "50MB,small,50MB-inline,50MB-transposed", 1500, 1
    return arguments


def main() -> int:
    arguments = parse()
    if os.getloadavg()[0] > 0.5:
        print(f"warning: the machine is not idle (load {os.getloadavg()[0]:.1f})", file=sys.stderr)
    folder = arguments.work_dir / "compare"
    shutil.rmtree(folder, ignore_errors=True)
    cases = []
    try:
        for name in arguments.cases.split(","):
            cases.append(make_case(name, folder, arguments))
            cases[-1].run()
        report(cases, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bounded = all(case.memory_is_bounded() for case in cases)
    if not bounded:
        print("save-external used more memory than it may", file=sys.stderr)
    return 0 if bounded else 1


if __name__ == "__main__":
    sys.exit(main())
