"""Measure the cost of keeping 4-bit codes (groups of 128) of a checkpoint, in comparison with a copy of its file.

usage: keep.py COMMAND FOLDER [GB] [ROUNDS]

COMMAND is save-external. For GPTQ, AWQ and compressed-tensors, prints medians of interleaved rounds, their ratios to
`cp` of the checkpoint in the same round, processor seconds and the peak of memory. FOLDER needs twice the size; what
it holds of this benchmark is replaced and removed.
"""

import json
import shutil
from pathlib import Path

import numpy
import onnx
from quantize import INNER, SHAPES, WIDTH, graph_of
from rounds import HEAD, new_folder, parser_of, print_rounds

GROUP = 128
SETTINGS = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True, "checkpoint_format": "gptq"},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
    "compressed-tensors": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP},
            }
        },
        "ignore": [],
    },
}


def tensors_of(kind: str, n: int, k: int) -> dict[str, tuple[str, list[int]]]:
    """Return name suffixes, types and shapes of the tensors of one matrix."""
    groups = k // GROUP
    if kind == "gptq":
        return {
            "g_idx": ("I32", [k]),
            "qweight": ("I32", [k // 8, n]),
            "qzeros": ("I32", [groups, n // 8]),
            "scales": ("F16", [groups, n]),
        }
    if kind == "awq":
        return {"qweight": ("I32", [k, n // 8]), "qzeros": ("I32", [groups, n // 8]), "scales": ("F16", [groups, n])}
    return {"weight_packed": ("I32", [n, k // 8]), "weight_scale": ("F16", [n, groups]), "weight_shape": ("I64", [2])}


def content_of(name: str, dtype: str, shape: list[int], matrix: tuple[int, int], noise: numpy.ndarray) -> numpy.ndarray:
    if name == "g_idx":
        return numpy.arange(shape[0], dtype=numpy.int32) // GROUP
    if name == "weight_shape":
        return numpy.array(matrix, numpy.int64)
    count = int(numpy.prod(shape))
    if name == "qzeros":
        return numpy.full(count, 0x77777777, numpy.uint32)
    return numpy.full(count, 0.01, numpy.float16) if dtype == "F16" else noise[:count]


def write_folder(folder: Path, kind: str, matrices: dict[str, tuple[int, int]]) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"quantization_config": SETTINGS[kind]}))
    header, contents, end = {}, [], 0
    noise = numpy.random.default_rng(0).integers(0, 2**32, INNER * WIDTH // 8, dtype=numpy.uint32)
    for weight, (n, k) in matrices.items():
        for name, (dtype, shape) in tensors_of(kind, n, k).items():
            content = content_of(name, dtype, shape, (n, k), noise)
            header[weight.removesuffix("weight") + name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + content.nbytes]}
            contents.append(content)
            end += content.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for content in contents:
            stream.write(memoryview(content).cast("B"))


def main() -> None:
    given = parser_of(__doc__).parse_args()
    folder = new_folder(given.folder / "keep")
    layer = sum(rows * columns for rows, columns in SHAPES) / 2
    matrices = {
        f"layers.{number}.{i}.weight": shape for number in range(max(1, round(given.gb * 1e9 / layer))) for i, shape in enumerate(SHAPES)
    }
    onnx.save(graph_of(matrices), folder / "graph.onnx")
    print(HEAD)
    for kind in SETTINGS:
        write_folder(folder / kind, kind, matrices)
        checkpoint, out, copy = folder / kind / "model.safetensors", folder / "out", folder / "copy"
        save = [given.command, str(folder / "graph.onnx"), str(folder / kind), "-o", str(out), "--quantize", "keep"]
        save += ["--layout", "single", "-q", "--no-fsync"]
        ways = {"cp": (["cp", str(checkpoint), str(copy)], copy)}
        ways |= {"keep": ([*save, "--no-verify"], out), "keep, every byte read back": (save, out)}
        size = checkpoint.stat().st_size / 1e9
        print_rounds(ways, given.rounds, start=f"{kind}, {size:.2f} GB: ")
        shutil.rmtree(folder / kind)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
