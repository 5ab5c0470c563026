"""Test files of torch 2.13: inspect-external must list torch's names, types, shapes and digests.

The files of fixtures/modern are made anew by the torch that runs this; beside them are larger ones, those
of several processes, and those that differ from run to run.

usage: modern_test.py --bin-dir DIR --work-dir DIR [-v]
"""

import os
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.serialization import config

import support

sys.path.insert(0, str(support.HERE.parent.parent / "fixtures"))

import make_modern_fixtures as modern  # noqa: E402
from make_modern_fixtures import Found, ramp  # noqa: E402


def alignments(path: Path, size: int) -> Found:
    base = ramp(16, 24)
    tensors = {"w": base, "t": base.t(), "part": base[2:4, 1:5], "e": torch.empty(0, 4), "b": ramp(7)}
    settings = config.save
    settings.storage_alignment, before = size, settings.storage_alignment
    try:
        torch.save(tensors, path)
    finally:
        settings.storage_alignment = before
    return Found(tensors)


def protocols(path: Path, protocol: int, **how) -> Found:
    tensors = {"w": ramp(3, 4), "u": modern.from_bytes(torch.uint16, 3)}
    torch.save({"model": tensors, "epoch": 3}, path, pickle_protocol=protocol, **how)
    return Found({f"model.{name}": value for name, value in tensors.items()})


def several_programs(path: Path) -> Found:
    from torch.export.pt2_archive._package import package_pt2

    exported = torch.export.export(modern.net_class()(ramp), (ramp(1, 2),))
    programs = {"first": exported, "second": exported.run_decompositions()}
    package_pt2(str(path), exported_programs=programs)
    return Found({
        f"{name}.{key}": value
        for name, program in programs.items()
        for key, value in {**program.state_dict, **program.constants}.items()
    })  # fmt: skip


def frozen(path: Path) -> Found:
    """Return a module whose weights are constants, in the order of the code."""
    module = nn.Sequential(nn.Linear(3, 4)).eval()
    torch.jit.freeze(torch.jit.script(module)).save(str(path))
    return Found({"CONSTANTS.c0": module[0].weight, "CONSTANTS.c1": module[0].bias})


def save_ranks(rank: int, ranks: int, folder: str) -> None:
    """Save the files of each process of a training run; full values are equal everywhere."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    os.chdir(folder)
    warnings.simplefilter("ignore")
    store = dist.FileStore(str(Path(folder) / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    full, mesh = sharded_values(), init_device_mesh("cpu", (ranks,))
    state = {name: distribute_tensor(value, mesh, [Shard(dim)]) for name, (value, dim) in full.items()}
    if ranks == 4:
        square = init_device_mesh("cpu", (2, 2))
        state["grid"] = distribute_tensor(ramp(5, 6), square, [Shard(0), Shard(1)])
        state["twice"] = distribute_tensor(ramp(5, 6), square, [Shard(0), Shard(0)])
    dcp.save(state, checkpoint_id="flat")
    writer = dcp.FileSystemWriter("split", single_file_per_rank=False)
    dcp.save({"a": {"list": [1, state["rows"]], "b": state["odd"]}}, storage_writer=writer)
    module = net_of(nn.Linear)
    fully_shard(module)
    dcp.save({"model": module.state_dict()}, checkpoint_id="fsdp")
    torch.save(module.state_dict(), f"fsdp_{rank}.pt")
    safetensors = dcp.filesystem.SerializationFormat.SAFETENSORS
    dcp.save(state, storage_writer=dcp.FileSystemWriter("safetensors", serialization_format=safetensors))
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter("chunks", save_distributed=True))
    whole = dcp.HuggingFaceStorageWriter("whole", save_distributed=True, enable_consolidation=True)
    dcp.save(state, storage_writer=whole)
    dist.destroy_process_group()


def sharded_values() -> dict:
    """Name -> (value, dimension that is cut)."""
    return {
        "rows": (ramp(8, 6), 0), "odd": (ramp(7, 5), 0), "thin": (ramp(1, 4), 0), "columns": (ramp(4, 9), 1),
        "half": (ramp(6, 3, dtype=torch.bfloat16), 0), "line": (ramp(10), 0),
    }  # fmt: skip


def net_of(linear) -> nn.Module:
    module = nn.Sequential(linear(4, 6), linear(6, 3))
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(ramp(*parameter.shape) + index)
    return module


class ModernTest:
    def __init__(self, arguments):
        self.report = support.Report(arguments.verbose)
        self.tools = support.Tools(arguments.bin_dir)
        self.only = arguments.only
        self.folder = support.fresh_folder(arguments.work_dir / "modern_files")

    def expect(self, label: str, path: Path, found: Found) -> None:
        options = [f"--{option}" for option in found.options]
        process = self.tools.inspect(path, "--sha256", *options)
        document = support.parse_json(process.stdout)
        if not self.report.check(document, f"{label}: is read", support.last_line(process)):
            return
        truth = {
            name: (modern.dtype_name(v.dtype), list(v.shape), support.digest(modern.tensor_bytes(v)))
            for name, v in found.tensors.items()
        }
        listed = {t["name"]: (t["dtype"], t["shape"], t["sha256"]) for t in document["tensors"]}
        wrong = sorted(name for name in truth.keys() | listed.keys() if truth.get(name) != listed.get(name))
        self.report.check(not wrong, f"{label}: names, types, shapes, digests", str(wrong[:4]))
        refused = {entry["path"]: entry["reason"] for entry in document["refused_tensors"]}
        wrong = [
            (name, refused.get(name))
            for name in refused.keys() | found.refused.keys()
            if found.refused.get(name, "\0") not in refused.get(name, "")
        ]
        self.report.check(not wrong, f"{label}: what is refused", str(wrong[:4]))

    def expect_refusal(self, label: str, path: Path, *words: str) -> None:
        process = self.tools.inspect(path)
        self.report.check(
            process.returncode == 1 and all(word in process.stderr for word in words),
            f"{label}: is refused by name",
            support.last_line(process),
        )

    def test_fixtures(self) -> None:
        for name, maker in {**modern.MAKERS, **modern.CHANGING_MAKERS}.items():
            path = self.folder / name
            self.expect(name, path, maker(path))

    def test_alignments(self) -> None:
        for size in (1, 8, 64, 512, 4096, 65536):
            path = self.folder / f"aligned_{size}.pt"
            self.expect(f"alignment {size}", path, alignments(path, size))

    def test_protocols(self) -> None:
        for protocol in (2, 3, 4, 5):
            for label, how in {"zip": {}, "legacy": {"_use_new_zipfile_serialization": False}}.items():
                path = self.folder / f"protocol_{protocol}_{label}.pt"
                self.expect(f"protocol {protocol}, {label}", path, protocols(path, protocol, **how))

    def test_programs(self) -> None:
        for maker in (several_programs, frozen):
            path = self.folder / f"{maker.__name__}.pt2"
            self.expect(maker.__name__, path, maker(path))

    def test_filled(self) -> None:
        """skip_data() promises where the data belong; who fills them there gets a checkpoint.

        The file is larger than 4 GiB, as torch lays it out, and nearly all of it is a hole.
        """
        path, tensors = self.folder / "filled.pt", {"last": ramp(3, 4)}
        large = torch.empty((4 << 30) + 4096, dtype=torch.uint8)  # nobody touches it
        with torch.serialization.skip_data():
            torch.save({"large": large, **tensors}, path)
        self.expect("saved without data", path, Found({}, {"large": "skip_data", "last": "skip_data"}))
        places = torch._C.PyTorchFileReader(str(path))
        with open(path, "r+b") as file:
            file.seek(places.get_record_offset("data/1"))
            file.write(modern.tensor_bytes(tensors["last"]))
        del places
        self.expect("filled", path, Found(tensors, options=("filter=last",)))
        path.unlink()

    def test_ranks(self) -> None:
        values = {name: value for name, (value, _) in sharded_values().items()}
        module = net_of(nn.Linear)
        for ranks in (1, 4):
            with tempfile.TemporaryDirectory(dir=self.folder) as name:
                folder = Path(name)
                torch.multiprocessing.spawn(save_ranks, (ranks, name), nprocs=ranks)
                whole = {**values, **({"grid": ramp(5, 6), "twice": ramp(5, 6)} if ranks == 4 else {})}
                self.expect(f"{ranks} ranks", folder / "flat", Found(whole))
                nested = {"a.list.1": values["rows"], "a.b": values["odd"]}
                self.expect(f"{ranks} ranks, several files each", folder / "split", Found(nested))
                self.expect(f"{ranks} ranks, safetensors of one file", folder / "whole", Found(whole))
                state = {f"model.{key}": value for key, value in module.state_dict().items()}
                self.expect(f"{ranks} ranks, FSDP", folder / "fsdp", Found(state))
                self.expect_refusal(
                    f"{ranks} ranks, safetensors in DCP", folder / "safetensors", "which torch itself"
                )
                self.expect_rank_files(ranks, folder, module.state_dict())

    def expect_rank_files(self, ranks: int, folder: Path, state: dict) -> None:
        """Test that a file of one process, saved by torch.save, is the state dict only if it was the only process."""
        for rank in range(ranks):
            parts = {key: "it is a DTensor, and this file has only the" for key in state}
            found = Found(state) if ranks == 1 else Found({}, parts)
            self.expect(f"rank {rank} of {ranks}", folder / f"fsdp_{rank}.pt", found)
        if ranks > 1:
            words = "that distributed training wrote"
            self.expect_refusal(f"{ranks} ranks, chunks", folder / "chunks", words)

    def run(self) -> int:
        warnings.simplefilter("ignore")  # torch calls much of this experimental
        for name in sorted(vars(ModernTest)):
            if name.startswith("test_") and self.only in name:
                getattr(self, name)()
                print(f"done  {name[5:]}", flush=True)
        return self.report.close()


if __name__ == "__main__":
    sys.exit(ModernTest(support.parse_arguments(__doc__.splitlines()[0])).run())
