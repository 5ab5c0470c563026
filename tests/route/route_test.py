"""Counts the source files that a save executes before the first byte of a tensor is copied.

usage: route_test.py TRACED_SAVE_EXTERNAL SOURCES WORK_FOLDER

A command that notes the functions that it enters (trace.cc) saves one tensor, and ends when it calls
splice() or copy_file_range() for the first time. Counted are the files of COUNTED in which these
functions stand, a header and its source as one; those of lower floors (checkpoints, graphs, names)
are not, nor are initializers of static variables. It prints them in the order in which they are entered first, and fails if they are more than
MOST: whoever adds a file to the route takes another out.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, helper

COUNTED = ("tools/save_external", "src/jobs/", "src/save/", "src/base/copy_range")
MOST = 15
ELEMENTS = 1 << 18  # of 4 bytes: larger than a buffer, because smaller tensors are not spliced


def make_inputs(folder: Path) -> list:
    """Write a graph with one weight without data, and a checkpoint with this weight."""
    torch.save({"w": torch.rand(ELEMENTS)}, folder / "weights.pt")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, [ELEMENTS])],
        [value("y", TensorProto.FLOAT, [ELEMENTS])],
        value_info=[value("w", TensorProto.FLOAT, [ELEMENTS])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "graph.onnx")
    return [folder / "graph.onnx", folder / "weights.pt", "-o", folder / "out"]


def entered(command: Path, arguments: list, folder: Path) -> list:
    """Return the addresses of the functions that the command enters, in order."""
    trace = folder / "trace"
    run = [command, *arguments, "--threads", "1"]
    subprocess.run(run, check=True, env={**os.environ, "ONNX_EXTERNAL_ROUTE": str(trace)})
    return trace.read_text().split()


def files_of(command: Path, addresses: list, sources: Path) -> list:
    """Return the source files that contain the functions, each once, without suffixes."""
    output = subprocess.run(
        ["addr2line", "-f", "-e", command], input="\n".join(addresses), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = []
    for function, line in zip(output[::2], output[1::2], strict=True):
        path = Path(line.partition(":")[0])
        is_static = "_GLOBAL__sub_I" in function or "static_initialization" in function
        if path.is_absolute() and sources in path.resolve().parents and not is_static:
            files.append(str(path.resolve().relative_to(sources).with_suffix("")))
    return list(dict.fromkeys(files))


def main() -> None:
    command, sources, work = (Path(argument).resolve() for argument in sys.argv[1:])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    files = files_of(command, entered(command, make_inputs(work), work), sources)
    counted = [file for file in files if file.startswith(COUNTED)]
    print(*counted, sep="\n")
    print(f"{len(counted)} files, at most {MOST}")
    expected = {"tools/save_external", "src/save/item_copier", "src/base/copy_range"}
    if not expected <= set(counted):
        sys.exit(f"the trace does not lead from the command to the copying: {expected - set(counted)} is missing")
    if len(counted) > MOST:
        sys.exit("the route of a tensor has become longer")


main()
