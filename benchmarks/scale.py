"""Measure how save-external scales: 100,000 tensors, and a checkpoint of 100 GB.

The large checkpoint is a sparse file in which every tensor has 64 KiB of noise and then a hole, so it fits on a disk of
any size. The copies have the same holes. The script prints Markdown tables of wall time, peak memory and disk usage. It
fails if a peak exceeds the documented limit (64 MiB, 4 KiB per tensor, 8 times the graph file), or if a copy of the
sparse checkpoint is not sparse.

usage: scale.py --bin-dir DIR --work-dir DIR [--gigabytes 100] [--tensors 100000] [--quick]
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import compare
import modern_pt  # compare adds its folder to the path

NOISE = compare.BLOCK[: 64 << 10]
ZEROS = bytes(compare.CHUNK)  # represents a piece of a hole
COLUMNS = 1 << 13  # NOISE ends at the end of a row, because zeros from the middle of a row on count as missing data


class SparseStream:
    """A file in which each write of ZEROS makes a hole."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, data: bytes) -> None:
        if data is ZEROS:
            self._stream.seek(len(data), 1)
        else:
            self._stream.write(data)


def sparse_chunks(size: int):
    def chunks():
        yield NOISE
        left = size - len(NOISE)
        while left >= len(ZEROS):
            yield ZEROS
            left -= len(ZEROS)
        yield bytes(left)

    return chunks


def sparse_shapes(gigabytes: int) -> list:
    """Return the shapes of a few tensors of 2 GB (or a tenth of the total), as in the largest models."""
    each = min(gigabytes * 10**9 // 10, 2 * 10**9)
    rows = each // (2 * COLUMNS)
    return [(f"layers.{i}.weight", [rows, COLUMNS]) for i in range(gigabytes * 10**9 // each)]


def write_torch(path: Path, shapes: list) -> None:
    sizes = [2 * modern_pt.element_count(shape) for _, shape in shapes]
    nodes = tuple(
        (name, modern_pt.tensor("float16", str(i), sizes[i] // 2, shape))
        for i, (name, shape) in enumerate(shapes)
    )
    with open(path, "wb") as stream:
        archive = modern_pt.TorchZip(SparseStream(stream), crc=False)
        archive.record("data.pkl", modern_pt.pickle_bytes(modern_pt.OrderedDict(nodes, {})))
        archive.record("byteorder", b"little")
        for i, size in enumerate(sizes):
            archive.record(f"data/{i}", sparse_chunks(size), size)
        archive.record("version", b"3\n")
        archive.close()


def write_small(path: Path, shapes: list) -> list:
    """Write small tensors that all differ; return (offset, length, name) of each."""
    places = []
    size = 2 * modern_pt.element_count(shapes[0][1])
    nodes = tuple(
        (name, modern_pt.tensor("float16", str(i), size // 2, shape)) for i, (name, shape) in enumerate(shapes)
    )
    with open(path, "wb") as stream:
        archive = modern_pt.TorchZip(stream)
        archive.record("data.pkl", modern_pt.pickle_bytes(modern_pt.OrderedDict(nodes, {})))
        archive.record("byteorder", b"little")
        for i, (name, _) in enumerate(shapes):
            data = i.to_bytes(8, "little") + NOISE[: size - 8]
            places.append((archive.record(f"data/{i}", data), size, name))
        archive.record("version", b"3\n")
        archive.close()
    return places


def write_safetensors(path: Path, shapes: list) -> None:
    header, place = {}, 0
    for name, shape in shapes:
        size = 2 * modern_pt.element_count(shape)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for entry in header.values():
            stream.seek(8 + len(text) + entry["data_offsets"][0])
            stream.write(NOISE)
        stream.truncate(8 + len(text) + place)


FORMATS = {"checkpoint.pt": write_torch, "checkpoint.safetensors": write_safetensors}
LAYOUTS = {
    "link": ("--layout", "link"),
    "per-tensor": (),
    "single": ("--layout", "single"),
    "shards of 10 GB": ("--layout", "shards", "--max-shard-size", "10GB"),
}


def allocated(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


class Scale:
    def __init__(self, arguments):
        self._bin = arguments.bin_dir.resolve()
        self._folder = arguments.work_dir.resolve()
        self._folder.mkdir(parents=True)
        self._meter = compare.Meter(self._folder)
        self.faults = []

    def _graph(self, shapes: list) -> Path:
        listing, graph = self._folder / "tensors.json", self._folder / "graph.onnx"
        listing.write_text(json.dumps(shapes))
        subprocess.run([sys.executable, compare.HERE / "peers.py", "graph", listing, graph], check=True)
        self._allowed = (64 << 20) + 4096 * len(shapes) + 8 * graph.stat().st_size
        return graph

    def _row(self, name: str, command: list, out: Path = None) -> None:
        run = self._meter.run(command)
        room = f"{allocated(out) / 1e6:,.0f}" if out else "-"
        print(f"| {name} | {run.seconds:.2f} | {run.peak_bytes / 2**20:.0f} | {room} |", flush=True)
        if run.peak_bytes > self._allowed:
            self.faults.append(f"{name}: {run.peak_bytes} bytes of memory, {self._allowed} are allowed")

    def _head(self, title: str) -> None:
        print(f"\n{title}; at most {self._allowed / 2**20:.0f} MiB are allowed\n")
        print("| subject | s | peak MiB | MB on the disk |\n|---|---|---|---|")

    def sparse(self, gigabytes: int) -> None:
        shapes = sparse_shapes(gigabytes)
        graph = self._graph(shapes)
        self._head(f"{gigabytes} GB, {len(shapes)} tensors of fp16, sparse, fsync")
        for name, write in FORMATS.items():
            home = self._folder / name.replace(".", "_")
            home.mkdir()
            checkpoint = home / name
            write(checkpoint, shapes)
            before = allocated(home)
            for layout, options in LAYOUTS.items():
                out = home if layout == "link" else home / "out"
                save = [self._bin / "save-external", graph, checkpoint, "-o", out, *options]
                for how, extra in (("copied", ("--no-verify",)), ("copied and verified", ())):
                    if layout == "link":
                        how, extra = "linked", ("--overwrite",)
                    elif out.exists():
                        shutil.rmtree(out)
                    self._row(f"{name}, {layout}: {how}", [*save, *extra], None if layout == "link" else out)
                    if layout != "link" and allocated(out) > 2 * before + (16 << 20):
                        self.faults.append(f"{name}, {layout}: the copy takes {allocated(out)} bytes")
                    if layout == "link":
                        break
                if layout != "link":
                    verify = [self._bin / "verify-external", out / "model.onnx"]
                    self._row(f"{name}, {layout}: verify-external", verify)
                    self._row(f"{name}, {layout}: --against it", [*verify, "--against", checkpoint])
            shutil.rmtree(home)

    def many(self, tensors: int) -> None:
        shapes = [(f"model.blocks.{i // 10}.part{i % 10}.weight", [512]) for i in range(tensors)]
        graph, checkpoint = self._graph(shapes), self._folder / "many.pt"
        places = write_small(checkpoint, shapes)
        listing = self._folder / "places.txt"
        listing.write_text("".join(f"{o} {n} {name.replace('.', '_')}\n" for o, n, name in places))
        loop = self._folder / "write_files"
        compare.compile_c("write_files.c", loop)
        self._head(f"{tensors:,} tensors of 1 KiB, a graph of {graph.stat().st_size / 1e6:.0f} MB")
        self._row("the C loop that writes the files, no sync", [loop, checkpoint, listing, self._folder / "loop", "2"])
        save = [self._bin / "save-external", graph, checkpoint, "-q", "-o"]
        for name, options in {
            "dry run": ("--dry-run",),
            "per-tensor, `--no-verify --no-fsync`": ("--no-verify", "--no-fsync"),
            "per-tensor, verified, fsync (default)": (),
            "single, verified, fsync": ("--layout", "single"),
        }.items():
            out = self._folder / name.replace(" ", "_").replace("`", "").replace(",", "")
            self._row(name, [*save, out, *options])
            if "--dry-run" not in options:
                self._row("verify-external of it", [self._bin / "verify-external", out / "model.onnx", "-q"])
        self._row("per-tensor, replacing the single file", [*save, out, "--overwrite"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", type=Path, required=True)
    parser.add_argument("--work-dir", type=Path, required=True, help="a folder that does not exist yet")
    parser.add_argument("--gigabytes", type=int, default=100)
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="5 GB and 1,000 tensors: whether it runs")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.gigabytes, arguments.tensors = 5, 1_000
        shutil.rmtree(arguments.work_dir, ignore_errors=True)
    scale = Scale(arguments)
    scale.many(arguments.tensors)
    scale.sparse(arguments.gigabytes)
    shutil.rmtree(arguments.work_dir, ignore_errors=True)
    for fault in scale.faults:
        print(f"scale.py: {fault}", file=sys.stderr)
    return 1 if scale.faults else 0


if __name__ == "__main__":
    sys.exit(main())
