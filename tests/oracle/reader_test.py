"""Tests that inspect-external prints torch's names, types, shapes and digests for many kinds of checkpoints.

torch writes what it can; modern_pt.py writes what only newer torch versions write. A folder of files
from other projects (--corpus) is read where it is given: benign files as its expected.json says,
all others without a crash, within bounded time and memory, and without any effect.

usage: reader_test.py --bin-dir DIR --work-dir DIR [--corpus DIR] [-v]
"""

import io
import json
import os
import random
import struct
import sys
import time
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import torch
from torch import nn

import modern_pt
import safetensors_file
import support

MEMORY_LIMIT = 1 << 30
LEGACY_MAGIC = bytes.fromhex("8a0a6cfc9c46f9206aa85019")
TIME_LIMIT = 20  # seconds, for one file of at most a few MB


@dataclass(frozen=True)
class Expected:
    dtype: str
    shape: tuple
    sha256: str


def of_bytes(dtype: str, shape, data: bytes) -> Expected:
    return Expected(dtype, tuple(shape), support.digest(data))


def of_tensor(value: torch.Tensor) -> Expected:
    return of_bytes(support.short_dtype(value), value.shape, support.tensor_bytes(value))


def of_tree(value, path: str = "") -> dict:
    """Return every tensor in nested dicts, lists and tuples, under its dotted path."""
    if torch.is_tensor(value):
        return {path: of_tensor(value)}
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, (list, tuple))
        else ()
    )
    result = {}
    for key, item in items:
        result.update(of_tree(item, f"{path}.{key}" if path else str(key)))
    return result


# --- what torch writes -------------------------------------------------------------------------

TORCH_DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128".split()
)


def ramp(*shape, dtype=torch.float32):
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, dtype=torch.float32) * 0.5 - 3).reshape(shape).to(dtype)


def every_dtype() -> dict:
    return OrderedDict((name, ramp(3, 5).to(getattr(torch, name))) for name in TORCH_DTYPES)


def views() -> dict:
    base, cube = ramp(6, 8), ramp(3, 4, 5, dtype=torch.float64)
    scalar_storage = ramp(16)
    return {
        "base": base,
        "rows": base[2:4],
        "columns": base[:, 3:5],
        "block": base[1:4, 2:7],
        "transposed": base.t(),
        "stepped": base[::2, 1::3],
        "row": base[3],
        "column": base[:, 3],
        "element": base[2, 2],
        "permuted": cube.permute(2, 0, 1),
        "middle": cube[:, 1:3, ::2],
        "expanded": ramp(5, 1).expand(5, 4),
        "expanded_front": ramp(4).expand(3, 4),
        "diagonal": base.diagonal(),
        "windows": scalar_storage.unfold(0, 4, 2),
        "scalar": torch.tensor(3.25),
        "one": torch.ones(1, 1, 1)[:, :, 0],
        "empty": torch.empty(0, 4),
        "empty_slice": base[3:3],
        "tied": base,
        "tied_transposed": base.t(),
        "half_columns": ramp(4, 6).half()[:, ::2],
        "int_step": torch.arange(20)[3::4],
        "bool_view": (torch.arange(12).reshape(3, 4) % 3 == 0).t(),
        "complex_transposed": torch.complex(ramp(2, 3), ramp(2, 3) + 1).t(),
    }


def nested() -> dict:
    state = {"layer.weight": ramp(3, 4), "layer.bias": ramp(3)}
    moments = {0: {"step": torch.tensor(4.0), "exp_avg": ramp(3, 4) + 1}, 1: {"exp_avg": ramp(3) + 2}}
    groups = [{"lr": 1e-3, "params": [0, 1], "betas": (0.9, 0.999)}]
    return {
        "epoch": 3,
        "state_dict": OrderedDict(state),
        "optimizer": {"state": moments, "param_groups": groups},
        "extra": [ramp(2), (ramp(1), {"deep": ramp(2, 2)})],
        "name": "a run",
        "nothing": None,
        "big": 1 << 70,
        "negative": -(1 << 40),
        "flags": {"a": True, "b": False},
    }


class WithBuffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
        self.register_buffer("table", torch.arange(6).reshape(2, 3))


def save_to_bytes(value) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def repack(
    source: Path,
    target: Path,
    method: int,
    shuffle: bool = False,
    comment: bytes = b"",
    folders: bool = False,
):
    """The archive as a zip tool writes it again."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", method) as new:
        names = old.namelist()
        if shuffle:
            names = list(reversed(names))
        prefix = names[0].split("/")[0]
        if folders:
            new.writestr(prefix + "/", b"")
            new.writestr(prefix + "/data/", b"")
        for name in names:
            new.writestr(name, old.read(name))
        new.comment = comment


class ReaderTest:
    FOLDER = "reader"

    def __init__(self, arguments):
        self.report = support.Report(arguments.verbose)
        self.tools = support.Tools(arguments.bin_dir)
        self.only = arguments.only
        self.folder = support.fresh_folder(arguments.work_dir / self.FOLDER)
        self.empty = self.folder / "empty"
        self.empty.mkdir()
        self.limit = self.tools.limit_for_memory(MEMORY_LIMIT)

    # --- checks ---

    def expect(self, label: str, path: Path, expected: dict) -> Optional[dict]:
        """Inspect a file with digests, and compare everything; return the tensors by name."""
        process = self.tools.inspect(path, "--sha256", cwd=self.empty, limit_bytes=self.limit)
        if not self.report.check(process.returncode == 0, f"{label}: is read", support.last_line(process)):
            return None
        document = support.parse_json(process.stdout)
        if not self.report.check(
            document and "format" in document, f"{label}: prints JSON", process.stdout[:100]
        ):
            return None
        tensors = {entry["name"]: entry for entry in document["tensors"]}
        found = {n: Expected(e["dtype"], tuple(e["shape"]), e.get("sha256", "")) for n, e in tensors.items()}
        wrong = sorted(
            name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)
        )
        detail = "; ".join(f"{name!r}: {found.get(name)}, not {expected.get(name)}" for name in wrong[:3])
        self.report.check(not wrong, f"{label}: names, types, shapes, digests", detail)
        self.check_ranges(label, path, tensors)
        return tensors

    def check_ranges(self, label: str, path: Path, tensors: dict) -> None:
        """Check that a file holds the right bytes wherever a plain range of it is reported."""
        wrong = []
        for name, entry in tensors.items():
            if "offset" not in entry:
                continue
            folder = path if path.is_dir() else path.parent
            with open(folder / entry["file"], "rb") as stream:
                stream.seek(entry["offset"])
                if support.digest(stream.read(entry["nbytes"])) != entry["sha256"]:
                    wrong.append(name)
        self.report.check(not wrong, f"{label}: the ranges hold the tensors", str(wrong[:4]))

    def expect_refusal(self, label: str, path: Path, *words: str) -> None:
        process = self.tools.inspect(path, "--sha256", cwd=self.empty, limit_bytes=self.limit)
        text = process.stderr
        self.report.check(process.returncode == 1, f"{label}: is refused", support.last_line(process))
        document = support.parse_json(process.stdout)
        self.report.check(
            path.name in text and document and path.name in document["error"]["message"],
            f"{label}: the error names the file",
            text[:200],
        )
        for word in words:
            self.report.check(word in text, f"{label}: the error says {word!r}", text[:200])

    def expect_calm(self, label: str, path: Path) -> None:
        """Check that any file leads to no crash, no long run and no side effect."""
        start = time.monotonic()
        try:
            process = self.tools.inspect(
                path, "--sha256", cwd=self.empty, limit_bytes=self.limit, timeout=TIME_LIMIT
            )
        except Exception as error:
            self.report.check(False, f"{label}: ends in time", str(error))
            return
        seconds = time.monotonic() - start
        what = f"exit {process.returncode} after {seconds:.1f} s {process.stderr[-200:]}"
        self.report.check(process.returncode in (0, 1), f"{label}: does not crash", what)
        self.report.check(bool(process.stderr) or process.returncode == 0, f"{label}: says why", what)
        self.report.check(
            not os.listdir(self.empty), f"{label}: leaves nothing behind", str(os.listdir(self.empty))
        )

    # --- torch's own files ---

    def test_torch_files(self) -> None:
        cases = {
            "dtypes": every_dtype(),
            "views": views(),
            "nested": nested(),
            "module_state": WithBuffers().state_dict(),
            "parameters": {
                "p": nn.Parameter(ramp(2, 3)),
                "frozen": nn.Parameter(ramp(4), requires_grad=False),
            },
            "list": [ramp(2), ramp(3)],
            "bare_tensor": ramp(2, 2),
            "empty_dict": {},
            "many": {f"block.{index}.weight": torch.full((3,), float(index)) for index in range(1500)},
            "odd_names": {
                name: torch.full((2,), float(i))
                for i, name in enumerate(["a/b", "../x", "ü.ö", "n w", 'q"', "", "t\tb"])
            },
            "long_name": {"n" * 70000: ramp(2)},
        }
        for name, value in cases.items():
            path = self.folder / f"{name}.pt"
            torch.save(value, path)
            self.expect(f"torch/{name}", path, of_tree(value))

    def test_protocols(self) -> None:
        value = {"views": views(), "nested": nested()}
        for protocol in (2, 3, 4, 5):
            path = self.folder / f"protocol{protocol}.pt"
            torch.save(value, path, pickle_protocol=protocol)
            self.expect(f"protocol {protocol}", path, of_tree(value))

    def test_prefixes(self) -> None:
        value = {"w": ramp(3, 3)}
        for stem in ("a.b.c", "data", "with blank", "größe", "archive"):
            path = self.folder / f"{stem}.pt"
            torch.save(value, path)
            self.expect(f"prefix {stem}", path, of_tree(value))
        path = self.folder / "from_buffer.bin"
        path.write_bytes(save_to_bytes(value))
        self.expect("saved to a buffer", path, of_tree(value))

    def test_repacked(self) -> None:
        value = {"state_dict": views(), "nested": nested(), "large": torch.zeros(300, 300)}
        source = self.folder / "source.pt"
        torch.save(value, source)
        kinds = {
            "stored": dict(method=zipfile.ZIP_STORED),
            "deflated": dict(method=zipfile.ZIP_DEFLATED),
            "shuffled": dict(method=zipfile.ZIP_STORED, shuffle=True),
            "comment": dict(method=zipfile.ZIP_STORED, comment=b"packed again"),
            "folders": dict(method=zipfile.ZIP_DEFLATED, folders=True, comment=b"x" * 1000),
        }
        for name, settings in kinds.items():
            path = self.folder / f"repacked_{name}.pt"
            repack(source, path, **settings)
            self.expect(f"repacked/{name}", path, of_tree(value))

    # --- what newer torch writes ---

    def test_modern(self) -> None:
        rng = random.Random(7)
        tensors = []
        for name, (_, size) in modern_pt.DTYPES.items():
            data = bytes(rng.randrange(2 if name == "bool" else 256) for _ in range(12 * size))
            tensors.append((f"t.{name}", name, (3, 4), data))
        expected = {name: of_bytes(dtype, shape, data) for name, dtype, shape, data in tensors}
        options = {
            "modern": {},
            "alignment 4096": dict(alignment=4096),
            "no crc": dict(crc=False),
            "no byteorder": dict(byteorder=None, modern=False),
            "wrapped": dict(wrap=lambda state: {"model": state, "step": 12, "loss": 0.25}),
        }
        for name, settings in options.items():
            path = self.folder / f"{name.replace(' ', '_')}.pt"
            modern_pt.save(str(path), tensors, **settings)
            prefix = "model." if name == "wrapped" else ""
            self.expect(f"modern/{name}", path, {prefix + key: value for key, value in expected.items()})

    def test_modern_views(self) -> None:
        """Views of an untyped storage, storages on other devices."""
        data = bytes(range(96))
        words = torch.frombuffer(bytearray(data), dtype=torch.int16).reshape(6, 8)
        state = modern_pt.OrderedDict(
            (
                ("whole", modern_pt.tensor("uint16", "0", 48, (6, 8), device="cuda:0")),
                ("transposed", modern_pt.tensor("uint16", "0", 48, (8, 6), (1, 8), device="cuda:0")),
                ("part", modern_pt.tensor("uint16", "0", 48, (2, 3), (8, 2), 9, device="cuda:0")),
                ("bytes", modern_pt.tensor("float8_e5m2", "1", 96, (96,), device="mps")),
            )
        )
        path = self.folder / "modern_views.pt"
        modern_pt.write_archive(str(path), state, [("0", data, 96), ("1", data, 96)])
        part = words.reshape(-1).as_strided((2, 3), (8, 2), 9)
        expected = {
            "whole": of_bytes("uint16", (6, 8), data),
            "transposed": of_bytes("uint16", (8, 6), support.tensor_bytes(words.t())),
            "part": of_bytes("uint16", (2, 3), support.tensor_bytes(part)),
            "bytes": of_bytes("float8_e5m2", (96,), data),
        }
        self.expect("modern/views", path, expected)

    def test_big_endian(self) -> None:
        state = every_dtype()
        tensors = []
        for name, value in state.items():
            unit = value.element_size() // (2 if value.is_complex() else 1)
            data = support.tensor_bytes(value)
            swapped = b"".join(data[i : i + unit][::-1] for i in range(0, len(data), unit))
            tensors.append((name, name, tuple(value.shape), swapped))
        path = self.folder / "big_endian.pt"
        modern_pt.save(str(path), tensors, byteorder="big")
        self.expect("modern/big-endian", path, of_tree(state))

    def test_past_four_gigabytes(self) -> None:
        """ZIP64 sizes and offsets, in a file with a hole: its size on disk is a few KB."""
        path, count = self.folder / "large.pt", (1 << 32) + (1 << 20)
        tail = struct.pack("<3f", 1.5, -2.0, 7.0)
        state = modern_pt.OrderedDict(
            (
                ("huge", modern_pt.tensor("uint8", "0", count, (count,))),
                ("tail", modern_pt.tensor("float32", "1", 3, (3,))),
            )
        )
        with open(path, "wb") as file:
            archive = modern_pt.TorchZip(HoleWriter(file), crc=False)
            archive.record("data.pkl", modern_pt.pickle_bytes(state))
            archive.record("data/0", lambda: (HOLE for _ in range(count // len(HOLE))), count)
            archive.record("data/1", tail)
            archive.record("version", b"3\n")
            archive.close()
        process = self.tools.inspect(path, cwd=self.empty)
        document = support.parse_json(process.stdout)
        if self.report.check(document, "past 4 GiB: is read", support.last_line(process)):
            huge, last = document["tensors"]
            self.report.check(huge["nbytes"] == count, "past 4 GiB: the size", str(huge))
            with open(path, "rb") as file:
                file.seek(last["offset"])
                self.report.check(file.read(12) == tail, "past 4 GiB: the offset", str(last))
        path.unlink()

    # --- several files ---

    def test_shards(self) -> None:
        shards = [{"a.weight": ramp(4, 4), "a.bias": ramp(4)}, {"b.weight": ramp(2, 4).half()}]
        expected = of_tree({**shards[0], **shards[1]})
        for kind, save in (("pytorch_model.bin", torch.save), ("model.safetensors", save_safetensors)):
            folder = self.folder / f"shards_{kind}"
            folder.mkdir()
            stem, extension = kind.split(".")
            weight_map = {}
            for index, shard in enumerate(shards):
                file = f"{stem}-{index + 1:05}-of-00002.{extension}"
                save(shard, folder / file)
                weight_map.update({name: file for name in shard})
            index = folder / f"{kind}.index.json"
            index.write_text(json.dumps({"metadata": {"total_size": 96}, "weight_map": weight_map}))
            self.expect(f"shards/{kind} by index", index, expected)
            self.expect(f"shards/{kind} by folder", folder, expected)
            (folder / weight_map["b.weight"]).unlink()
            self.expect_refusal(f"shards/{kind} with a missing shard", index)

    def test_safetensors(self) -> None:
        state = {name: value for name, value in every_dtype().items() if name != "complex128"}
        state.update({"scalar": torch.tensor(2.5), "empty": torch.empty(0, 3)})
        path = self.folder / "all.safetensors"
        save_safetensors(state, path)
        self.expect("safetensors/dtypes", path, of_tree(state))
        floats = [
            n for n in modern_pt.DTYPES if n.startswith("float8") or n in ("uint16", "uint32", "uint64")
        ]
        tensors = [(n, n, (4,), bytes(range(4 * modern_pt.DTYPES[n][1]))) for n in floats]
        path = self.folder / "modern.safetensors"
        safetensors_file.save(str(path), tensors, {"format": "pt"})
        self.expect("safetensors/modern dtypes", path, {n: of_bytes(d, s, b) for n, d, s, b in tensors})
        header = {
            "second": {"dtype": "U8", "shape": [2], "data_offsets": [3, 5]},
            "first": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        }
        path = self.folder / "order.safetensors"
        path.write_bytes(safetensors_file.header_bytes(header) + b"abcde")
        self.expect(
            "safetensors/order",
            path,
            {"first": of_bytes("uint8", (3,), b"abc"), "second": of_bytes("uint8", (2,), b"de")},
        )

    # --- damage ---

    def test_nothing_runs(self) -> None:
        """Test a torch file whose pickle would call os.system, next to a tensor."""
        command = modern_pt.Reduce(modern_pt.Global("os", "system"), ("touch pwned",))
        root = {"w": modern_pt.tensor("float32", "0", 2, (2,)), "evil": command}
        path = self.folder / "evil.pt"
        modern_pt.write_archive(str(path), root, [("0", bytes(8), 8)])
        self.expect_calm("a call of os.system", path)

    def test_damaged(self) -> None:
        """Test that every kind of damage to a small file leads to a result or an error, never to a crash."""
        source = {"state_dict": {"w": ramp(3, 4), "v": ramp(3, 4).t()}, "epoch": 3}
        whole = save_to_bytes(source)
        state = self.folder / "small.safetensors"
        save_safetensors(source["state_dict"], state)
        self.expect_no_crash([whole, state.read_bytes()], random.Random(11), 150)

    def expect_no_crash(self, originals: list, rng: random.Random, count: int) -> None:
        crashed = []
        path = self.folder / "damaged"
        for original in originals:
            for _ in range(count):
                data = bytearray(original)
                if rng.random() < 0.4:
                    del data[rng.randrange(len(data)) :]
                for _ in range(rng.randrange(1, 4)):
                    if data:
                        data[rng.randrange(len(data))] = rng.choice(
                            (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
                        )
                path.write_bytes(bytes(data))
                process = self.tools.inspect(path, "--sha256", cwd=self.empty, limit_bytes=self.limit)
                if process.returncode not in (0, 1):
                    crashed.append((process.returncode, bytes(data).hex()[:400]))
        label = f"{count * len(originals)} damaged files: no crash"
        self.report.check(not crashed, label, str(crashed[:1]))

    # --- files of other projects ---

    def test_corpus(self, corpus: Optional[Path]) -> None:
        if corpus is None or not (corpus / "expected.json").is_file():
            print("skipped: the corpus (no folder given by --corpus, or it holds no expected.json)")
            return
        expected = json.loads((corpus / "expected.json").read_text())
        counts = {"read": 0, "calm": 0}
        for path in sorted(p for p in corpus.rglob("*") if p.is_file()):
            name = path.relative_to(corpus).as_posix()
            truth = self.corpus_truth(path, expected.get(name))
            if truth is not None:
                counts["read"] += 1
                self.expect(f"corpus/{name}", path, truth)
            else:
                counts["calm"] += 1
                self.expect_calm(f"corpus/{name}", path)
        print(f"corpus: {counts['read']} files compared, {counts['calm']} only had to leave the reader alive")

    @staticmethod
    def corpus_truth(path: Path, facts: Optional[list]) -> Optional[dict]:
        """Return the expected contents of a file, if its content shows a format that must be read."""
        data = path.read_bytes()
        is_torch = data[:4] == b"PK\x03\x04" or LEGACY_MAGIC in data[:32]
        if is_torch and facts is not None:
            return {f["path"]: Expected(f["dtype"], tuple(f["shape"]), f["sha256"]) for f in facts}
        if len(data) > 9 and data[8:9] == b"{" and struct.unpack("<Q", data[:8])[0] <= len(data) - 8:
            try:
                return {
                    name: of_bytes(dtype, shape, raw)
                    for name, dtype, shape, raw in safetensors_file.load(str(path))
                }
            except (ValueError, KeyError, AssertionError):
                return None
        return None

    def run(self, corpus: Optional[Path]) -> int:
        tests = [getattr(self, name) for name in sorted(vars(type(self))) if name.startswith("test_")]
        for test in tests:
            if self.only not in test.__name__:
                continue
            try:
                test(corpus) if test.__name__ == "test_corpus" else test()
            except Exception as error:
                self.report.check(False, f"{test.__name__} runs to its end", repr(error))
            print(f"done  {test.__name__[5:]}", flush=True)
        return self.report.close()


HOLE = bytes(1 << 20)


class HoleWriter:
    """Writes a file, but skips blocks of zeros."""

    def __init__(self, file):
        self._file = file

    def write(self, data: bytes) -> None:
        if data is HOLE:
            self._file.seek(len(data), os.SEEK_CUR)
        else:
            self._file.write(data)


def save_safetensors(state: dict, path: Path) -> None:
    support.save_safetensors(path, state, {"format": "pt"})


if __name__ == "__main__":
    parsed = support.parse_arguments(
        __doc__.splitlines()[0], (("--corpus",), dict(type=Path, help="folder of files of other projects"))
    )
    sys.exit(ReaderTest(parsed).run(parsed.corpus.resolve() if parsed.corpus else None))
