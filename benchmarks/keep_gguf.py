"""Measure the cost of keeping the codes of a GGUF file, in comparison with a copy: a 7B Llama in Q4_K_M.

usage: keep_gguf.py COMMAND FOLDER [GB] [ROUNDS]

COMMAND is save-external. Prints medians of interleaved rounds, their ratios to `cp` of the file in the same round,
processor seconds and the peak of memory; then the bits a weight of the file and of the model. FOLDER needs three times
the size; what it holds of this benchmark is replaced and removed.
"""

import shutil
import struct
import subprocess
from pathlib import Path

import numpy
import onnx
from quantize import INNER, SHAPES, WIDTH, graph_of
from rounds import HEAD, new_folder, parser_of, print_rounds

HEADS, VOCABULARY, ALIGNMENT = 32, 32000, 32
NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TYPES = {"F32": (0, 1, 4), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210)}  # number, values and bytes of a block
SCALES = {"Q4_K": [1, 3], "Q6_K": [209]}  # upper bytes of float16
TEXT, UINT32, FLOAT32, ARRAY = 8, 4, 6, 9


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def metadata(layers: int) -> bytes:
    entries = [text("general.architecture") + struct.pack("<I", TEXT) + text("llama")]
    numbers = {"block_count": layers, "context_length": 4096, "embedding_length": WIDTH, "feed_forward_length": INNER}
    numbers |= {"attention.head_count": HEADS, "attention.head_count_kv": HEADS, "vocab_size": VOCABULARY}
    entries += [text(f"llama.{key}") + struct.pack("<II", UINT32, value) for key, value in numbers.items()]
    entries.append(text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", FLOAT32, 1e-5))
    entries.append(text("tokenizer.ggml.model") + struct.pack("<I", TEXT) + text("gpt2"))
    tokens = b"".join(text(f"t{i}") for i in range(VOCABULARY))
    entries.append(text("tokenizer.ggml.tokens") + struct.pack("<IIQ", ARRAY, TEXT, VOCABULARY) + tokens)
    return struct.pack("<Q", len(entries)) + b"".join(entries)


def tensors_of(layers: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return types and shapes by name. As in Q4_K_M, half of the layers have Q6_K in v and down."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "token_embd.weight": ("Q4_K", (VOCABULARY, WIDTH)),
        "output_norm.weight": ("F32", (WIDTH,)),
        "output.weight": ("Q6_K", (VOCABULARY, WIDTH)),
    }
    for layer in range(layers):
        for name, shape in zip(NAMES, SHAPES, strict=True):
            kind = "Q6_K" if name in ("attn_v", "ffn_down") and layer % 2 == 0 else "Q4_K"
            found[f"blk.{layer}.{name}.weight"] = (kind, shape)
        for name in ("attn_norm", "ffn_norm"):
            found[f"blk.{layer}.{name}.weight"] = ("F32", (WIDTH,))
    return found


def bytes_of(kind: str, shape: tuple[int, ...]) -> int:
    _, values, size = TYPES[kind]
    return int(numpy.prod(shape)) // values * size


def contents() -> dict[str, numpy.ndarray]:
    """Return random blocks of each type with small scales, enough for the largest tensor."""
    made = {"F32": numpy.ones(WIDTH, numpy.float32).view(numpy.uint8)}
    for kind, places in SCALES.items():
        size = TYPES[kind][2]
        blocks = numpy.random.default_rng(0).integers(0, 256, (VOCABULARY * WIDTH // 256, size), dtype=numpy.uint8)
        blocks[:, places] = 0x10
        made[kind] = blocks.reshape(-1)
    return made


def write_gguf(path: Path, layers: int) -> None:
    tensors = tensors_of(layers)
    infos, end = b"", 0
    for name, (kind, shape) in tensors.items():
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos += struct.pack("<IQ", TYPES[kind][0], end)
        end += -(-bytes_of(kind, shape) // ALIGNMENT) * ALIGNMENT
    head = b"GGUF" + struct.pack("<IQ", 3, len(tensors)) + metadata(layers) + infos
    made = contents()
    with path.open("wb") as stream:
        stream.write(head + bytes(-len(head) % ALIGNMENT))
        for kind, shape in tensors.values():
            size = bytes_of(kind, shape)
            stream.write(memoryview(made[kind][:size]))
            stream.write(bytes(-size % ALIGNMENT))


def weights_of(layers: int) -> dict[str, tuple[int, int]]:
    """Return the matrices of the graph under transformers' names."""
    return {f"model.layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in zip(NAMES.values(), SHAPES, strict=True)}


def main() -> None:
    given = parser_of(__doc__).parse_args()
    folder = new_folder(given.folder / "keep_gguf")
    weights = sum(rows * columns for rows, columns in SHAPES)
    layers = max(1, round((given.gb * 1e9 - 0.18e9) / (weights * 0.6)))
    file, out, copy = folder / "model.gguf", folder / "out", folder / "copy"
    write_gguf(file, layers)
    onnx.save(graph_of(weights_of(layers)), folder / "graph.onnx")
    save = [given.command, str(folder / "graph.onnx"), str(file), "-o", str(out), "--layout", "single"]
    save += ["--unmatched", "skip", "-q", "--no-fsync"]
    keep = [*save, "--quantize", "keep"]
    ways = {
        "cp": (["cp", str(file), str(copy)], copy),
        "keep": ([*keep, "--no-verify"], out),
        "keep, every byte read back": (keep, out),
        "floats": ([*save, "--no-verify"], out),
    }
    print(HEAD)
    print_rounds(ways, given.rounds)
    subprocess.run(keep, check=True)
    written = sum(one.stat().st_size for one in out.rglob("*") if one.is_file())
    count = weights * layers
    print(f"{file.stat().st_size / 1e9:.2f} GB; bits a weight of the layers: {written * 8 / count:.2f}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
