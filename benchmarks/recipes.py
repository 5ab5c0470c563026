"""Measure derived tensors (64 matrices joined, stacked, or stacked and transposed) in comparison with a plain save.

usage: recipes.py SAVE_EXTERNAL FOLDER [ROUNDS]

Prints medians of interleaved rounds, without fsync, for the same bytes. FOLDER needs 1.1 GB; what it
holds of this benchmark is replaced and removed.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper

EXPERTS = 64
ROWS, COLUMNS = 2048, 1024  # 8 MB of float32


def write_checkpoint(path: Path) -> list:
    names = [f"expert.{number}.weight" for number in range(EXPERTS)]
    size = 4 * ROWS * COLUMNS
    header = {
        name: {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = numpy.random.default_rng(0)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for _ in names:
            stream.write(random.standard_normal((ROWS, COLUMNS), dtype=numpy.float32).tobytes())
    return names


def graph_of(slots: dict) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    inputs = [value(name, TensorProto.FLOAT, shape) for name, shape in slots.items()]
    node = helper.make_node("Use", list(slots), ["y"], domain="test")
    return helper.make_model(helper.make_graph([node], "g", inputs, [value("y", TensorProto.FLOAT, [1])]))


def cases(names: list) -> dict:
    """Return (slots, map file) by label."""
    turned = [{"key": name, "recipe": ["transpose"]} for name in names]
    return {
        "plain": ({name: [ROWS, COLUMNS] for name in names}, {}),
        "concat 0": ({"w": [EXPERTS * ROWS, COLUMNS]}, {"w": {"concat": names, "dim": 0}}),
        "stack 0": ({"w": [EXPERTS, ROWS, COLUMNS]}, {"w": {"stack": names, "dim": 0}}),
        "stack 1": ({"w": [ROWS, EXPERTS, COLUMNS]}, {"w": {"stack": names, "dim": 1}}),
        "concat 1": ({"w": [ROWS, EXPERTS * COLUMNS]}, {"w": {"concat": names, "dim": 1}}),
        "stack of transposed": ({"w": [EXPERTS, COLUMNS, ROWS]}, {"w": {"stack": turned, "dim": 0}}),
    }


def main() -> None:
    tool, folder = sys.argv[1], Path(sys.argv[2]) / "recipes"
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    checkpoint = folder / "experts.safetensors"
    all_cases = cases(write_checkpoint(checkpoint))
    times = {(label, verify): [] for label in all_cases for verify in (False, True)}
    for number, (slots, derived) in enumerate(all_cases.values()):
        onnx.save(graph_of(slots), str(folder / f"{number}.onnx"))
        (folder / f"{number}.json").write_text(json.dumps({"derived": derived}))
    for _ in range(rounds):
        for number, label in enumerate(all_cases):
            for verify in (False, True):
                command = [tool, folder / f"{number}.onnx", checkpoint, "-o", folder / "out", "-q"]
                command += ["--layout", "single", "--no-fsync", "--map", folder / f"{number}.json"]
                start = time.monotonic()
                subprocess.run(command + ([] if verify else ["--no-verify"]), check=True)
                times[label, verify].append(time.monotonic() - start)
                shutil.rmtree(folder / "out")
    plain = {verify: statistics.median(times["plain", verify]) for verify in (False, True)}
    for (label, verify), seconds in times.items():
        median = statistics.median(seconds)
        how = "verified" if verify else "not verified"
        print(f"{label:20} {how:12} {median:6.2f} s  {median / plain[verify]:5.2f} of plain")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
