"""Tests that inspect-external and save-external read distributed checkpoints like torch.

usage: dcp_test.py --bin-dir DIR --work-dir DIR [-v]
"""

import random
import sys
from collections import OrderedDict
from pathlib import Path

import onnx
import torch

import dcp_folder
import support
import zoo
from dcp_folder import Saved, grid


def ramp(*shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) * 0.5 - 3).reshape(shape).to(dtype)


def noise(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


class DcpTest:
    def __init__(self, arguments):
        self.report = support.Report(arguments.verbose)
        self.tools = support.Tools(arguments.bin_dir)
        self.only = arguments.only
        self.folder = support.fresh_folder(arguments.work_dir / "dcp")

    def expect(self, label: str, saved: Saved, names=None, tensors=None, opaque=()) -> Path:
        """Write the folder, and compare everything that inspect-external lists with torch."""
        folder = dcp_folder.write(self.folder / label.replace(" ", "_"), saved)
        process = self.tools.inspect(folder, "--sha256")
        document = support.parse_json(process.stdout)
        if not self.report.check(document, f"{label}: is read", support.last_line(process)):
            return folder
        truth = {
            (names or {}).get(name, name): (
                support.short_dtype(value),
                list(value.shape),
                support.digest(support.tensor_bytes(value)),
            )
            for name, value in (tensors or saved.tensors).items()
        }
        found = {t["name"]: (t["dtype"], t["shape"], t["sha256"]) for t in document["tensors"]}
        wrong = sorted(name for name in truth.keys() | found.keys() if truth.get(name) != found.get(name))
        self.report.check(not wrong, f"{label}: names, types, shapes, digests", str(wrong[:4]))
        self.report.check(document["format"] == "dcp", f"{label}: its format", document["format"])
        objects = sorted(entry["path"] for entry in document.get("opaque_objects", []))
        self.report.check(objects == sorted(opaque), f"{label}: its bytes items", str(objects))
        return folder

    def test_one_rank(self) -> None:
        tensors = {
            "a.weight": noise(7, 5),
            "a.bias": noise(5, dtype=torch.bfloat16),
            "scalar": torch.tensor(3.5),
            "empty": torch.zeros(0, 4),
            "count": torch.tensor(12, dtype=torch.int64),
            "mask": torch.tensor([True, False, True]),
            "complex": torch.view_as_complex(noise(3, 2)),
        }
        self.expect("one rank", Saved(tensors))

    def test_cuts(self) -> None:
        """Test every cut of every shape, with elements of 1 to 16 bytes."""
        shapes = {
            "rows": (16, 6),
            "uneven": (10, 3),
            "columns": (6, 16),
            "odd columns": (5, 7),
            "mesh": (9, 10),
            "cube": (4, 5, 6),
            "four": (3, 4, 2, 5),
            "line": (13,),
        }
        counts = [(4,), (1, 4), (2, 3), (1, 1, 3), (2, 2, 2), (1, 2, 1, 5), (3, 1, 2)]
        tensors, cuts = {}, {}
        for label, shape in shapes.items():
            for count in counts:
                if len(count) > len(shape):
                    continue
                for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.float64):
                    name = f"{label} {count} {dtype}".replace(".", "-")
                    tensors[name] = ramp(*shape, dtype=dtype)
                    cuts[name] = grid(shape, *count)
        self.expect("cuts, 4 ranks", Saved(tensors, cuts, ranks=4))

    def test_irregular(self) -> None:
        """Chunks that are no grid, and more ranks than rows (the idle ones write nothing of use)."""
        tensors = {"bricks": ramp(4, 6), "thin": ramp(2, 3), "pinwheel": ramp(3, 3)}
        cuts = {
            "bricks": [((0, 0), (2, 4)), ((0, 4), (2, 2)), ((2, 0), (2, 2)), ((2, 2), (2, 4))],
            "thin": [((0, 0), (1, 3)), ((1, 0), (1, 3)), ((2, 0), (0, 3))],
            "pinwheel": [
                ((0, 0), (1, 2)),
                ((0, 2), (2, 1)),
                ((2, 1), (1, 2)),
                ((1, 0), (2, 1)),
                ((1, 1), (1, 1)),
            ],
        }
        self.expect("irregular", Saved(tensors, cuts, ranks=3))

    def test_large(self) -> None:
        """Test tensors that need several reads, and rows longer than one read."""
        tensors = {
            "columns": noise(3000, 700),
            "wide": noise(3, 700_001),
            "middle": noise(8, 90, 1500, dtype=torch.float16),
        }
        cuts = {
            "columns": grid((3000, 700), 1, 8),
            "wide": grid((3, 700_001), 2, 3),
            "middle": grid((8, 90, 1500), 1, 7),
        }
        self.expect("large", Saved(tensors, cuts, ranks=8))

    def test_views(self) -> None:
        """Test chunks that are strided views of larger storages."""
        tensors = {"t": noise(40, 30).t(), "cut": noise(12, 50)}
        self.expect(
            "views", Saved(tensors, {"cut": grid((12, 50), 2, 4), "t": grid((30, 40), 3)}, contiguous=False)
        )

    def test_versions(self) -> None:
        for label, options in {
            "torch 1.13": dict(spelling=dcp_folder.OLD),
            "strides": dict(strides=True),
            "protocol 5": dict(protocol=5),
            "protocol 2": dict(protocol=2),
            "no planner data": dict(paths={}),
        }.items():
            saved = Saved({"w": ramp(4, 4), "b": ramp(4)}, {"w": grid((4, 4), 2)}, ranks=2, **options)
            self.expect(label, saved)

    def nested(self) -> Saved:
        model = {"fc.weight": noise(6, 4), "fc.bias": noise(6)}
        tensors, paths, cuts = {}, {}, {}
        for key, value in model.items():
            tensors[f"model.{key}"] = value
            paths[f"model.{key}"] = ("model", key)
            cuts[f"model.{key}"] = grid(value.shape, 3)
            tensors[f"optim.state.{key}.exp_avg"] = value * 2
            paths[f"optim.state.{key}.exp_avg"] = ("optim", "state", key, "exp_avg")
        objects = {"epoch": 3, "optim.param_groups": [{"lr": 0.1}]}
        paths.update({"epoch": ("epoch",), "optim.param_groups": ("optim", "param_groups")})
        return Saved(tensors, cuts, objects, paths, ranks=3)

    def test_nested(self) -> None:
        saved = self.nested()
        self.expect("nested", saved, opaque=saved.objects)

    # --- through save-external ---

    def export(self):
        case = zoo.build("vgg")
        return case, zoo.export(case.module, case.inputs)

    def save(self, label: str, graph, state: dict, folder: Path, *options) -> None:
        place = self.folder / label.replace(" ", "_")
        place.mkdir()
        onnx.save(graph, str(place / "graph.onnx"))
        process = self.tools.save(place / "graph.onnx", folder, "-o", place / "out", *options)
        document = support.parse_json(process.stdout)
        if not self.report.check(document, f"{label}: is saved", support.last_line(process)):
            return
        self.report.check(document["verified"], f"{label}: says that it verified")
        truth = support.expected_initializers(graph, state)
        wrong = support.wrong_initializers(place / "out" / "model.onnx", truth)
        self.report.check(truth and not wrong, f"{label}: every initializer's bytes", str(wrong[:4]))
        verified = self.tools.verify(place / "out" / "model.onnx", "--against", folder, *options)
        self.report.check(verified.returncode == 0, f"{label}: verifies", support.last_line(verified))

    def test_save(self) -> None:
        case, graph = self.export()
        state = OrderedDict((name, value.detach()) for name, value in case.state_dict.items())
        by_rows = {name: grid(value.shape, 4) for name, value in state.items() if value.dim()}
        by_columns = {name: grid(value.shape, 1, 3) for name, value in state.items() if value.dim() > 1}
        for label, cuts in {"save whole": {}, "save rows": by_rows, "save columns": by_columns}.items():
            folder = dcp_folder.write(self.folder / f"{label} folder", Saved(state, cuts, ranks=4))
            self.save(label, graph, state, folder)
        tensors = {f"model.{name}": value for name, value in state.items()}
        tensors.update({f"ema.{name}": value + 1 for name, value in state.items()})
        paths = {name: tuple(name.split(".", 1)) for name in tensors}
        folder = dcp_folder.write(self.folder / "save nested folder", Saved(tensors, paths=paths))
        self.save("save nested", graph, state, folder, "--key", "model")
        refused = self.tools.save(self.folder / "save_nested" / "graph.onnx", folder, "-o", self.folder / "x")
        self.report.check(
            refused.returncode == 1 and "'model' (" in refused.stderr and "'ema' (" in refused.stderr,
            "two state dicts: both are listed",
            support.last_line(refused),
        )

    def test_damaged_chunk(self) -> None:
        """Test that the CRC-32 reveals a changed byte in a chunk, before and after assembly."""
        for label, cuts in {"damaged whole": {}, "damaged cut": {"w": grid((64, 64), 1, 2)}}.items():
            saved = Saved({"w": ramp(64, 64)}, cuts)
            folder = dcp_folder.write(self.folder / label.replace(" ", "_"), saved)
            part = folder / "__0_0.distcp"
            data = bytearray(part.read_bytes())
            data[data.find(support.tensor_bytes(ramp(64, 64)[0, :8])) + 4] ^= 1
            part.write_bytes(data)
            process = self.tools.inspect(folder, "--sha256")
            self.report.check(
                process.returncode == 1 and "CRC-32" in process.stderr,
                f"{label}: is an error",
                support.last_line(process),
            )

    def test_damaged_metadata(self) -> None:
        """Test that every kind of damage leads to a result or an error in bounded memory, never to a crash."""
        folder = dcp_folder.write(self.folder / "damaged metadata", self.nested())
        original = (folder / ".metadata").read_bytes()
        rng = random.Random(12)
        limit = self.tools.limit_for_memory(1 << 30)
        crashed = []
        for _ in range(150):
            data = bytearray(original)
            if rng.random() < 0.1:
                del data[rng.randrange(len(data)) :]
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            (folder / ".metadata").write_bytes(data)
            process = self.tools.inspect(folder, "--sha256", limit_bytes=limit)
            if process.returncode not in (0, 1):
                crashed.append((process.returncode, bytes(data).hex()))
        self.report.check(not crashed, "150 damaged metadata files: no crash", str(crashed[:1]))

    def run(self) -> int:
        for name in sorted(vars(DcpTest)):
            if name.startswith("test_") and self.only in name:
                getattr(self, name)()
                print(f"done  {name[5:]}", flush=True)
        return self.report.close()


if __name__ == "__main__":
    sys.exit(DcpTest(support.parse_arguments(__doc__.splitlines()[0])).run())
