"""Tests the ways of exporting that docs/mapping.md shows first, for architectures of the zoo.

Each graph gets a checkpoint of other weights than it had at export, and ONNX Runtime must then compute what torch
computes; a graph that was saved without its constants must be refused with the way out.

usage: recipe_test.py --bin-dir DIR --work-dir DIR [--only NAME,...]
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import checkpoints
import onnx_external as oe
import programs
import values
from architectures import ARCHITECTURES
from judge import Judge

WAY_OUT = "save it without include_initializers=False"


def skeleton(module: torch.nn.Module, inputs: dict, path: Path) -> None:
    oe.torch.skeleton(module, (), inputs).save(path)


def plain(module: torch.nn.Module, inputs: dict, path: Path, **settings) -> None:
    programs.save(programs.Exporter(module, inputs).program(optimize=False), path, **settings)


def bare(module: torch.nn.Module, inputs: dict, path: Path) -> None:
    plain(module, inputs, path, include_initializers=False)


WAYS: dict[str, Callable] = {"skeleton": skeleton, "plain": plain, "bare": bare}


def fill(tool: Path, graph: Path, checkpoint: Path, out: Path) -> str:
    """Return the command's message if the save fails, or "" if it succeeds."""
    command = [
        tool,
        graph,
        checkpoint,
        "-o",
        out,
        "--overwrite",
        "--no-fsync",
        "-q",
        "--layout",
        "single",
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    return (
        "" if done.returncode == 0 else " ".join(done.stderr.split()) or f"exit {done.returncode}"
    )


def try_one(name: str, tool: Path, folder: Path) -> dict[str, str]:
    """Return "right", "refused: ..." or "WRONG: ..." for each way."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    architecture = ARCHITECTURES[name]
    torch.manual_seed(1)
    module = architecture.make()
    values.fill(module, 1)
    inputs = architecture.inputs(architecture.sizes)
    for way, export in WAYS.items():
        with programs.quiet():
            export(module, inputs, folder / f"{way}.onnx")
    values.fill(module, 2)
    judge = Judge(inputs, programs.run(module, inputs))
    checkpoint = checkpoints.torch_file(module, folder / "weights")
    found = {}
    for way in WAYS:
        why = fill(tool, folder / f"{way}.onnx", checkpoint, folder / way)
        if not why:
            why = judge.difference(folder / way / "model.onnx")
            found[way] = f"WRONG: {why}" if why else "right"
        elif way == "bare" and WAY_OUT in why:
            found[way] = "refused: its constants are missing"
        else:
            found[way] = f"WRONG: {why[:300]}"
    shutil.rmtree(folder, ignore_errors=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", required=True, type=Path, help="folder of the commands")
    parser.add_argument(
        "--work-dir", required=True, type=Path, help="its folder `recipe` is replaced"
    )
    parser.add_argument(
        "--only", default="", help="architectures, separated by commas; all by default"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    failed = 0
    print(f"| architecture | {' | '.join(WAYS)} |\n|---{'|---' * len(WAYS)}|")
    for name in arguments.only.split(",") if arguments.only else ARCHITECTURES:
        try:
            found = try_one(
                name, arguments.bin_dir / "save-external", arguments.work_dir / "recipe" / name
            )
        except (programs.CannotExport, oe.ExportError) as error:
            found = dict.fromkeys(WAYS, f"not exported: {str(error)[:80]}")
        failed += any("WRONG" in text for text in found.values())
        print(f"| {name} | {' | '.join(found[way] for way in WAYS)} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
