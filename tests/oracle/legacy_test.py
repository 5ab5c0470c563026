"""Legacy torch files, tar files of torch 0.1 and plain pickles: names, types, shapes and digests must
be those of torch, which writes or at least reads all of them.

usage: legacy_test.py --bin-dir DIR --work-dir DIR [-v]
"""

import os
import pickle
import random
import struct
import sys
from collections import OrderedDict
from pathlib import Path

import onnx
import torch
from torch import nn

import legacy_files
import modern_pt
import support
from reader_test import ReaderTest, WithBuffers, every_dtype, nested, of_tree, ramp, views

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PROTOCOLS = (2, 3, 4, 5)


def save_legacy(value, path: Path, protocol: int = 2) -> None:
    torch.save(value, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def cases() -> dict:
    return {
        "dtypes": every_dtype(),
        "views": views(),
        "nested": nested(),
        "module_state": WithBuffers().state_dict(),
        "parameters": {"p": nn.Parameter(ramp(2, 3)), "q": nn.Parameter(ramp(4), requires_grad=False)},
        "list": [ramp(2), (ramp(3), {"x": ramp(1)})],
        "bare_tensor": ramp(2, 2),
        "empty_dict": {},
        "empty_tensors": {"a": torch.empty(0), "b": torch.empty(3, 0, 2).half()},
        "many": {f"block.{index}.weight": torch.full((3,), float(index)) for index in range(1500)},
        "large": {"w": torch.randn(1000, 1000), "v": ramp(5)},
        "long_text": {"text": "x" * 3_000_000, "w": ramp(2, 3)},
        "old_bytes": {"blob": bytes(range(256)) * 20, "w": ramp(3)},
    }


class LegacyTest(ReaderTest):
    FOLDER = "legacy"

    def expect_as_torch(self, label: str, path: Path) -> None:
        """Compare the listing of a file with torch.load."""
        self.expect(label, path, of_tree(torch.load(path)))

    def test_torch_files(self) -> None:
        for name, value in cases().items():
            for protocol in PROTOCOLS:
                path = self.folder / f"{name}.{protocol}.pt"
                save_legacy(value, path, protocol)
                self.expect(f"legacy/{name}, protocol {protocol}", path, of_tree(value))

    def test_values(self) -> None:
        """Quantized, sparse and numpy values list as they do in the zip form, which values_test.py judges."""
        channels = torch.quantize_per_channel(
            ramp(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.qint8
        )
        indices = torch.tensor([[0, 1, 2], [1, 0, 3]])
        value = {
            "tensor": torch.quantize_per_tensor(ramp(3, 5), 0.05, 3, torch.quint8),
            "wide": torch.quantize_per_tensor(ramp(3), 0.5, 0, torch.qint32).t(),
            "channel": channels,
            "coo": torch.sparse_coo_tensor(indices, ramp(3), (4, 5)),
            "csr": torch.sparse_csr_tensor([0, 1, 3], [1, 0, 2], ramp(3), size=(2, 3)),
            "array": ramp(4, 100).numpy(),
            "scalar": ramp(3).numpy()[1],
            "plain": ramp(2, 2),
        }
        zipped = self.folder / "values.zip.pt"
        torch.save(value, zipped)
        listed = self.list_values(zipped)
        self.report.check(listed and len(listed) > 8, "values: the zip form is read", str(listed)[:300])
        for protocol in PROTOCOLS:
            path = self.folder / f"values.{protocol}.pt"
            save_legacy(value, path, protocol)
            found = self.list_values(path)
            self.report.check(found == listed, f"values: legacy, protocol {protocol}", str(found)[:300])
            path = self.folder / f"values.{protocol}.pkl"
            path.write_bytes(pickle.dumps(value, protocol=protocol))
            found = self.list_values(path)
            self.report.check(found == listed, f"values: pickle, protocol {protocol}", str(found)[:300])

    def list_values(self, path: Path):
        process = self.tools.inspect(path, "--sha256", "--convert", "sparse", cwd=self.empty, limit_bytes=self.limit)
        document = support.parse_json(process.stdout)
        if document is None:
            return process.stderr
        keys = ("name", "dtype", "shape", "sha256")
        return sorted(tuple(str(entry.get(key)) for key in keys) for entry in document["tensors"])

    def test_trailing_bytes(self) -> None:
        path = self.folder / "trailing.pt"
        save_legacy(nested(), path)
        path.write_bytes(path.read_bytes() + b"more")
        self.expect("legacy/bytes behind the end", path, of_tree(nested()))

    def test_whole_module(self) -> None:
        """Modules list as they do in the zip form, which modules_test.py judges; so do their tensors."""
        module = nn.Sequential(WithBuffers(), nn.Linear(3, 2))
        zipped, legacy, plain = (self.folder / f"module.{form}" for form in ("zip.pt", "pt", "pkl"))
        torch.save(module, zipped)
        save_legacy(module, legacy)
        plain.write_bytes(pickle.dumps(module))
        listed = self.list_values(zipped)
        digests = {support.digest(support.tensor_bytes(t)) for t in module.state_dict().values()}
        whole = not isinstance(listed, str) and digests <= {entry[3] for entry in listed}
        self.report.check(whole, "whole module: the zip form is read", str(listed)[:300])
        for label, path in (("legacy", legacy), ("pickle", plain)):
            found = self.list_values(path)
            self.report.check(found == listed, f"whole module: {label}", str(found)[:300])

    def test_storage_views(self) -> None:
        data = floats(*range(12))
        root = OrderedDict(
            whole=legacy_files.tensor("float32", "5", 12, (3, 4)),
            part=legacy_files.tensor("float32", "5", 12, (2, 2), view=("6", 4, 8), offset=1),
            same=legacy_files.tensor("float32", "5", 12, (8,), view=("6", 4, 8)),
            stepped=legacy_files.tensor("float32", "5", 12, (3,), (2,), view=("7", 1, 6)),
            half=legacy_files.tensor("float16", "3", 4, (4,)),
        )
        path = self.folder / "storage_views.pt"
        storages = [("3", "float16", bytes(range(8))), ("5", "float32", data)]
        path.write_bytes(legacy_files.legacy_file(root, storages))
        self.expect_as_torch("legacy/storage views", path)

    def test_python2(self) -> None:
        path = self.folder / "python2.pt"
        tensors = [("conv.weight", (2, 3), floats(*range(6))), ("conv.bias", (2,), floats(7, 8))]
        path.write_bytes(legacy_files.python2_file(tensors))
        self.expect_as_torch("legacy/Python 2", path)

    def test_tar(self) -> None:
        data = floats(*range(12))
        root = OrderedDict(
            weight=modern_pt.PersistentId("100"),
            columns=modern_pt.PersistentId("101"),
            part=modern_pt.PersistentId("102"),
            again=modern_pt.PersistentId("100"),
            count=modern_pt.PersistentId("103"),
            deep={"x": modern_pt.PersistentId("101")},
        )
        tensors = [
            (100, 1, "float32", (3, 4), (4, 1), 0),
            (101, 1, "float32", (3, 2), (4, 1), 2),
            (102, 3, "float32", (4,), (1,), 1),
            (103, 2, "int64", (2,), (1,), 0),
        ]
        storages = [(1, "float32", data), (2, "int64", struct.pack("<2q", -5, 1 << 40))]
        path = self.folder / "torch01.tar"
        path.write_bytes(legacy_files.tar_file(root, storages, [(3, 1, 4, 8)], tensors))
        self.expect_as_torch("tar", path)
        whole = path.read_bytes()
        path.write_bytes(whole[: whole.index(data) + 5])
        self.expect_refusal("tar/cut off", path, "byte", "copy or download")

    def test_plain_pickle(self) -> None:
        value = {"model": OrderedDict(every_dtype()), "views": views(), "scale": 0.5}
        for protocol in range(6):
            path = self.folder / f"plain.{protocol}.pkl"
            path.write_bytes(pickle.dumps(value, protocol=protocol))
            self.expect(f"pickle/protocol {protocol}", path, of_tree(value))
        path = self.folder / "large.pkl"
        value = {"a": torch.randn(700, 1000), "b": ramp(3), "c": torch.randn(400, 1000).t()}
        path.write_bytes(pickle.dumps(value))
        self.expect("pickle/large", path, of_tree(value))

    def test_nested_files(self) -> None:
        """_load_from_bytes in a zip and in a legacy file."""
        storage = pickle.loads(pickle.dumps(ramp(6).storage()))
        inner = self.folder / "inner.pt"
        save_legacy(storage, inner)
        text = inner.read_bytes().decode("latin1")
        encoded = modern_pt.Reduce(modern_pt.Global("_codecs", "encode"), (text, "latin1"))
        loaded = modern_pt.Reduce(modern_pt.Global("torch.storage", "_load_from_bytes"), (encoded,))
        arguments = (loaded, 1, (2, 2), (2, 1), False, modern_pt.OrderedDict())
        nested_tensor = modern_pt.Reduce(modern_pt.Global("torch._utils", "_rebuild_tensor_v2"), arguments)
        path = self.folder / "nested_in_legacy.pt"
        root = {"n": nested_tensor, "w": legacy_files.tensor("float32", "1", 2, (2,))}
        path.write_bytes(legacy_files.legacy_file(root, [("1", "float32", floats(3, 4))]))
        self.expect_as_torch("nested in a legacy file", path)
        path = self.folder / "nested_in_zip.pt"
        root = {"n": nested_tensor, "w": modern_pt.tensor("float32", "0", 2, (2,))}
        modern_pt.write_archive(str(path), root, [("0", floats(3, 4), 8)])
        self.expect_as_torch("nested in a zip", path)

    def test_past_four_gigabytes(self) -> None:
        """In files with a hole, which take a few KB of the disk."""
        count, tail = (1 << 32) + (1 << 20), floats(1.5, -2.0, 7.0)
        root = OrderedDict(
            huge=legacy_files.tensor("uint8", "1", count, (count,)),
            tail=legacy_files.tensor("float32", "2", 3, (3,)),
        )
        head = legacy_files.preamble(modern_pt.pickle_bytes(root), ["1", "2"]) + struct.pack("<q", count)
        self.expect_huge("legacy/past 4 GiB", head, count, legacy_files.block("float32", tail), tail)

        inner = legacy_files.storage_head("uint8", count)
        small = legacy_files.storage_head("float32", 3) + tail
        head = b"\x80\x04}(" + legacy_files.opcodes("huge")
        head += legacy_files.tensor_of_bytes(b"\x8e" + struct.pack("<Q", len(inner) + count)) + inner
        end = legacy_files.tensor_end(count) + legacy_files.opcodes("tail")
        end += legacy_files.tensor_of_bytes(b"B" + struct.pack("<I", len(small))) + small
        end += legacy_files.tensor_end(3) + b"u."
        self.expect_huge("pickle/past 4 GiB", head, count, end, tail)

    def expect_huge(self, label: str, head: bytes, count: int, end: bytes, tail: bytes) -> None:
        """A file of `count` bytes of zeros between head and end, the last tensor of which is `tail`."""
        path = self.folder / "huge"
        with open(path, "wb") as file:
            file.write(head)
            file.seek(count, os.SEEK_CUR)
            file.write(end)
        process = self.tools.inspect(path, cwd=self.empty, limit_bytes=self.limit)
        document = support.parse_json(process.stdout)
        if self.report.check(document, f"{label}: is read", support.last_line(process)):
            huge, last = document["tensors"]
            self.report.check(huge["nbytes"] == count, f"{label}: the size", str(huge))
            with open(path, "rb") as file:
                file.seek(last["offset"])
                self.report.check(file.read(12) == tail, f"{label}: the offset", str(last))
        path.unlink()

    def test_save(self) -> None:
        """Test that weights in each of the formats lead to a model with torch's bytes."""
        graph = FIXTURES / "tiny" / "graph.onnx"
        state = torch.load(FIXTURES / "tiny" / "checkpoint.pt")["state_dict"]
        truth = support.expected_initializers(
            onnx.load(str(graph)), state, lambda key: key[len("module.") :]
        )
        self.report.check(len(truth) > 5, "save: the graph names weights", str(list(truth)))
        writers = {
            "legacy.pt": lambda path: save_legacy({"state_dict": state}, path),
            "plain2.pkl": lambda path: path.write_bytes(pickle.dumps(state, protocol=2)),
            "plain4.pkl": lambda path: path.write_bytes(pickle.dumps(state, protocol=4)),
        }
        for name, write in writers.items():
            path, out = self.folder / f"save_{name}", self.folder / f"out_{name}"
            write(path)
            process = self.tools.save(graph, path, "-o", out)
            self.report.check(process.returncode == 0, f"save/{name}: exit 0", support.last_line(process))
            wrong = support.wrong_initializers(out / "model.onnx", truth)
            self.report.check(not wrong, f"save/{name}: the bytes", str(wrong[:4]))
            process = self.tools.verify(out / "model.onnx", "--against", path)
            self.report.check(process.returncode == 0, f"save/{name}: verifies", support.last_line(process))

    def test_damaged(self) -> None:
        small = {"w": ramp(3, 4), "v": ramp(3, 4).t()}
        legacy, tar = self.folder / "small.pt", self.folder / "torch01_small.tar"
        save_legacy(small, legacy)
        tensors = [(100, 1, "float32", (3,), (1,), 0)]
        root = {"w": modern_pt.PersistentId("100")}
        tar.write_bytes(legacy_files.tar_file(root, [(1, "float32", floats(1, 2, 3))], [], tensors))
        plain = [pickle.dumps(small, protocol=protocol) for protocol in (2, 4)]
        self.expect_no_crash([legacy.read_bytes(), tar.read_bytes(), *plain], random.Random(13), 60)


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0])
    sys.exit(LegacyTest(parsed).run(None))
