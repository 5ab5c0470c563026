"""Compare the perplexity of GGUF files in llama.cpp with that of their exports, on the same tokens.

    pip install gguf xllamacpp
    python benchmarks/gguf_perplexity.py LIBRARY MODEL.gguf FOLDER IDS.npy

LIBRARY is a shared library with llama.cpp's C functions, such as the xllamacpp*.so of the package xllamacpp or the
libllama.so of llama-cpp-python (if ggml is a separate library, it is loaded from the same folder). MODEL.gguf is a
Llama with a tied head, FOLDER is the transformers folder from which it was made, and IDS.npy contains the tokens of a
text that was not used for training.

The first row is MODEL.gguf itself. For the others, the float weights of FOLDER are quantized to one type by the
library's own functions, the embedding to Q6_K where llama.cpp does so, and written with the metadata of MODEL.gguf.
llama.cpp runs with its defaults; the exports keep the codes and run on ONNX Runtime's CPU provider. Each sequence
starts with an empty cache. The brackets contain the difference from llama.cpp in percent and its standard error.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx
import onnxruntime

import onnx_external as oe

Run = Callable[[np.ndarray], np.ndarray]

LENGTH = 256
AT_ONCE = 16  # sequences
TYPES = (
    "F16 BF16 Q8_0 Q6_K Q5_K Q5_1 Q5_0 Q4_K Q4_1 Q4_0 IQ4_NL IQ4_XS MXFP4 Q3_K Q2_K".split()
)
SMALL_HEADS = ("Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "MXFP4", "Q3_K", "Q2_K")
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


class Params(ctypes.Structure):
    """A placeholder for llama.cpp's settings, which are passed through unchanged.

    It is larger than these structures, which is allowed for the last argument of a call by value.
    """

    _fields_ = (("fields", ctypes.c_uint64 * 64),)


class Batch(ctypes.Structure):
    """The structure llama_batch."""

    _fields_ = (
        ("count", ctypes.c_int32),
        ("tokens", ctypes.POINTER(ctypes.c_int32)),
        ("embeddings", ctypes.POINTER(ctypes.c_float)),
        ("positions", ctypes.POINTER(ctypes.c_int32)),
        ("sequence_counts", ctypes.POINTER(ctypes.c_int32)),
        ("sequences", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("wanted", ctypes.POINTER(ctypes.c_int8)),
    )


class Llama:
    """The C functions of llama.cpp."""

    def __init__(self, path: Path) -> None:
        for beside in sorted(path.parent.glob("libggml*.so*")):
            ctypes.CDLL(str(beside), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.library.llama_log_set(self.quiet, None)
        self.library.llama_backend_init()
        for name, result in {
            "llama_model_default_params": Params,
            "llama_context_default_params": Params,
            "llama_model_load_from_file": ctypes.c_void_p,
            "llama_init_from_model": ctypes.c_void_p,
            "llama_batch_init": Batch,
            "llama_get_logits": ctypes.POINTER(ctypes.c_float),
            "llama_get_memory": ctypes.c_void_p,
            "ggml_quantize_chunk": ctypes.c_size_t,
        }.items():
            getattr(self.library, name).restype = result

    def quantize(self, kind: gguf.GGMLQuantizationType, weight: np.ndarray) -> np.ndarray:
        """Return the quantized blocks of each row."""
        rows, columns = weight.shape
        size, bytes_of_block = gguf.GGML_QUANT_SIZES[kind]
        out = np.empty((rows, columns // size * bytes_of_block), np.uint8)
        where = weight.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p)
        sizes = [ctypes.c_int64(each) for each in (0, rows, columns)]
        self.library.ggml_quantize_chunk(int(kind), *where, *sizes, None)
        return out

    def runner(self, file: Path, tokens: int) -> Run:
        """Return a function that returns the logits of a sequence."""
        call = self.library
        model = call.llama_model_load_from_file(str(file).encode(), call.llama_model_default_params())
        context = ctypes.c_void_p(
            call.llama_init_from_model(ctypes.c_void_p(model), call.llama_context_default_params())
        )
        call.llama_set_n_threads(context, 1, 1)
        batch = call.llama_batch_init(LENGTH, 0, 1)

        def run_one(ids: np.ndarray) -> np.ndarray:
            call.llama_memory_clear(ctypes.c_void_p(call.llama_get_memory(context)), True)
            batch.count = len(ids)
            for i, token in enumerate(ids):
                batch.tokens[i], batch.positions[i], batch.wanted[i] = int(token), i, 1
                batch.sequence_counts[i], batch.sequences[i][0] = 1, 0
            if call.llama_decode(context, batch) != 0:
                raise SystemExit(f"{file}: llama.cpp does not run it")
            return np.ctypeslib.as_array(call.llama_get_logits(context), (len(ids), tokens)).copy()

        return lambda rows: np.stack([run_one(row) for row in rows])


def exported(file: Path, out: Path) -> dict[int, Run]:
    """Export a file; return functions for the logits of sequences, by accuracy level."""
    has_codes = file.stem.rpartition("-")[2] not in ("F16", "BF16")
    how: Any = oe.Quantize("keep", accuracy_level=4) if has_codes else None
    oe.transformers.export(file, out, quantize=how, check=False, overwrite=True, progress=False)
    runs = {4: runner(out / "model.onnx")}
    model = onnx.load(out / "model.onnx", load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    onnx.save(model, out / "level0.onnx")
    return {0: runner(out / "level0.onnx"), **runs}


def runner(graph: Path) -> Run:
    """Return a function that returns the logits of sequences."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(rows: np.ndarray) -> np.ndarray:
        feed: dict[str, np.ndarray] = {}
        for each in session.get_inputs():
            if each.name == "input_ids":
                feed[each.name] = rows
            elif each.name == "attention_mask":
                feed[each.name] = np.ones_like(rows)
            elif each.name == "position_ids":
                feed[each.name] = np.broadcast_to(np.arange(rows.shape[1]), rows.shape).copy()
            else:
                _, heads, _, size = each.shape
                feed[each.name] = np.zeros((len(rows), heads, 0, size), np.float32)
        return session.run(["logits"], feed)[0]

    return run


def losses(run: Run, sequences: np.ndarray) -> np.ndarray:
    """Return the loss of each token, except for the first of each sequence."""
    found = []
    for start in range(0, len(sequences), AT_ONCE):
        rows = sequences[start : start + AT_ONCE]
        logits = run(rows).astype(np.float64)[:, :-1]
        logits -= logits.max(axis=2, keepdims=True)
        picked = np.take_along_axis(logits, rows[:, 1:, None], axis=2)[..., 0]
        found.append(np.log(np.exp(logits).sum(axis=2)) - picked)
    return np.concatenate(found).reshape(-1)


def told(found: np.ndarray, other: np.ndarray) -> str:
    """Return a perplexity, and its difference from another one in %, with the standard error."""
    more = found - other
    error = more.std() / len(more) ** 0.5
    return f"{np.exp(found.mean()):.3f} ({more.mean() * 100:+.3f} ± {error * 100:.3f})"


def weights_of(folder: Path, heads: int, kv_heads: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the names and float32 values of the tensors of a file."""
    with oe.open_checkpoint(folder) as checkpoint:
        for key in checkpoint:
            base, _, suffix = key.rpartition(".")
            name = NAMES.get(base) or "blk.{1}.{0}".format(*_in_layer(base))
            values = np.array(checkpoint[key].numpy(), dtype=np.float32)
            if name.endswith(("attn_q", "attn_k")):
                count = heads if name.endswith("q") else kv_heads
                halves = values.reshape(count, 2, -1, values.shape[1]).swapaxes(1, 2)
                values = np.ascontiguousarray(halves).reshape(values.shape)
            yield f"{name}.{suffix}", values


def _in_layer(base: str) -> tuple[str, str]:
    number, _, rest = base.removeprefix("model.layers.").partition(".")
    return NAMES[rest], number


def write(llama: Llama, kind: str, model: Path, folder: Path, file: Path) -> None:
    """Write a file of one type with the metadata of the model."""
    reader = gguf.GGUFReader(model)
    keys = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    heads, kv_heads = (
        int(keys[f"llama.attention.{key}"].contents()) for key in ("head_count", "head_count_kv")
    )
    writer = gguf.GGUFWriter(file, "llama")
    for key, field in keys.items():
        if key != "general.architecture":
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], inner)
    for name, values in weights_of(folder, heads, kv_heads):
        is_head = name.startswith("token_embd")
        each = "F32" if values.ndim == 1 else "Q6_K" if is_head and kind in SMALL_HEADS else kind
        number = gguf.GGMLQuantizationType[each]
        if each == "F32":
            writer.add_tensor(name, values)
        elif each == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        elif each == "BF16":
            writer.add_tensor(name, gguf.quantize(values, number), raw_dtype=number)
        else:
            writer.add_tensor(name, llama.quantize(number, values), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("ids", type=Path)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--types", nargs="*", default=TYPES)
    given = parser.parse_args()
    ids = np.load(given.ids)[: given.tokens // LENGTH * LENGTH].astype(np.int64)
    sequences = ids.reshape(-1, LENGTH)
    llama = Llama(given.library)
    print("| | llama.cpp | accuracy level 0 | accuracy level 4 |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for kind in ("", *given.types):
            file = work / f"model-{kind}.gguf" if kind else given.model
            if kind:
                write(llama, kind, given.model, given.folder, file)
            peer = losses(llama.runner(file, _vocabulary(given.folder)), sequences)
            ours = exported(file, work / "out")
            cells = [told(losses(run, sequences), peer) for run in ours.values()]
            name, first = kind or given.model.stem, f"{np.exp(peer.mean()):.3f}"
            print(f"| {name} | {first} | {' | '.join(cells)} |", flush=True)


def _vocabulary(folder: Path) -> int:
    with oe.open_checkpoint(folder) as checkpoint:
        return int(checkpoint["model.embed_tokens.weight"].shape[0])


if __name__ == "__main__":
    main()
