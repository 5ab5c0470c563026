"""Makes small folders with quantized checkpoints from the formulas of their layouts, using only
numpy.

Each maker returns the stored tensors, the config, and the float values that they represent.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TYPES = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "int8": "I8",
    "uint8": "U8",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
E4M3 = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)


class Made(NamedTuple):
    tensors: dict[str, Array]
    config: dict[str, Any]
    floats: dict[str, Array]
    files: dict[str, Any] | None = None


def write(folder: Path, made: Made) -> Path:
    """Write a folder like a quantization library: model.safetensors, config.json, other files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors(made.tensors))
    for name, value in {"config.json": made.config, **(made.files or {})}.items():
        (folder / name).write_text(json.dumps(value))
    return folder


def safetensors(tensors: dict[str, Array]) -> bytes:
    """Return the bytes of a safetensors file with these tensors."""
    header: dict[str, Any] = {}
    data = b""
    for name, value in tensors.items():
        end = len(data) + value.nbytes
        header[name] = {
            "dtype": TYPES[value.dtype.name],
            "shape": list(value.shape),
            "data_offsets": [len(data), end],
        }
        data += np.ascontiguousarray(value).tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def bits_of(codes: Array, bits: int) -> Array:
    return ((codes[..., None] >> np.arange(bits)) & 1).astype(np.uint8)


def stream(codes: Array, bits: int, word: Any) -> Array:
    """Pack along the last axis without gaps, low bits first, into whole words."""
    flat = bits_of(codes.astype(np.int64), bits).reshape(*codes.shape[:-1], -1)
    width = np.dtype(word).itemsize * 8
    flat = np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, -flat.shape[-1] % width)])
    return np.ascontiguousarray(np.packbits(flat, axis=-1, bitorder="little")).view(word)


def spread(values: Array, group: int, columns: int) -> Array:
    """Repeat the value of each group for all of its columns."""
    return np.repeat(values.astype(np.float64), group, axis=-1)[..., :columns]


def scales_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float16) -> Array:
    return (rng.random(shape) * 0.1 + 0.01).astype(dtype)


def once(values: Array) -> Array:
    return values.astype(np.float32)


def planes(codes: Array, bits: int) -> Array:
    """Pack rows of codes as gptq_p: for 32 codes, their low bits first, then the higher ones."""
    words, below = [], 0
    for width in {3: (2, 1), 5: (4, 1), 6: (4, 2), 7: (4, 2, 1)}.get(bits, (bits,)):
        part = (codes >> below & (2**width - 1)).reshape(len(codes), -1, 32)
        shape = (len(codes), part.shape[1], width)
        words.append(stream(part.reshape(-1, 32), width, np.int32).reshape(shape))
        below += width
    return np.concatenate(words, 2).reshape(len(codes), -1)


def gptq(
    rng: np.random.Generator,
    bits: int = 4,
    rows: int = 32,
    columns: int = 96,
    group: int = 32,
    version: int = 1,
    says: str | None = None,
    symmetric: bool = False,
    order: bool = False,
    packed: Callable[[Array, int], Array] | None = None,
) -> Made:
    packed = packed or (lambda codes, bits: stream(codes, bits, np.int32))
    groups = -(-columns // group)
    codes = rng.integers(0, 2**bits, (rows, columns))
    zeros = rng.integers(0, 2**bits, (rows, groups))
    if symmetric:
        zeros[:] = 2 ** (bits - 1)
    scales = scales_of(rng, (rows, groups))
    index = np.arange(columns) // group
    if order:
        index = rng.permutation(index)
    stored = zeros if version == 2 else (zeros - 1) % 2**bits
    tensors = {
        "a.g_idx": index.astype(np.int32),
        "a.qweight": packed(codes, bits).T,
        "a.qzeros": packed(stored.T, bits),
        "a.scales": scales.T,
        "a.bias": np.zeros(rows, np.float16),
    }
    w = (codes - zeros[:, index].astype(np.float64)) * scales[:, index].astype(np.float64)
    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "checkpoint_format": says or ("gptq_v2" if version == 2 else "gptq"),
    }
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w)})


def awq(rng: np.random.Generator, rows: int = 48, columns: int = 80, group: int = 40) -> Made:
    places = np.array([0, 2, 4, 6, 1, 3, 5, 7])  # the column in each nibble of a word
    codes = rng.integers(0, 16, (columns, rows))
    zeros = rng.integers(0, 16, (columns // group, rows))
    scales = scales_of(rng, (columns // group, rows))

    def packed(values: Array) -> Array:
        return stream(
            values.reshape(len(values), -1, 8)[:, :, places].reshape(values.shape), 4, "i4"
        )

    w = (codes - np.repeat(zeros, group, 0).astype(np.float64)) * np.repeat(
        scales, group, 0
    ).astype(np.float64)
    tensors = {"a.qweight": packed(codes), "a.qzeros": packed(zeros), "a.scales": scales}
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"}
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w.T)})


def quark(rng: np.random.Generator, signed: bool = True) -> Made:
    rows, columns, group = 16, 64, 32
    places = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    codes = rng.integers(-8, 8, (columns, rows)) if signed else rng.integers(0, 16, (columns, rows))
    scales = scales_of(rng, (columns // group, rows), np.float32)
    zeros = np.zeros(scales.shape, int) if signed else rng.integers(0, 16, scales.shape)

    def packed(values: Array) -> Array:
        ordered = (values & 15).reshape(len(values), -1, 8)[:, :, places]
        return stream(ordered.reshape(values.shape), 4, "i4")

    w = (codes - np.repeat(zeros, group, 0)) * np.repeat(scales, group, 0).astype(np.float64)
    tensors = {"a.weight": packed(codes), "a.weight_scale": scales}
    if not signed:
        tensors["a.weight_zero_point"] = packed(zeros)
    weight = {"dtype": "int4" if signed else "uint4", "group_size": group}
    config = {"quant_method": "quark", "global_quant_config": {"weight": weight}}
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w.T)})


def quark_by_layers(rng: np.random.Generator) -> Made:
    made = quark(rng)
    config = made.config["quantization_config"]
    weight = config.pop("global_quant_config")
    return made._replace(
        config={"quantization_config": config | {"layer_type_quant_config": {"Linear": weight}}}
    )


def awq_gemv(rng: np.random.Generator, rows: int = 24, columns: int = 192) -> Made:
    group, padded = 64, 8
    codes = rng.integers(0, 16, (rows, columns))
    zeros = rng.integers(0, 16, (rows, padded))
    scales = scales_of(rng, (rows, padded))
    w = (codes - spread(zeros, group, columns)) * spread(scales, group, columns)
    tensors = {
        "a.qweight": stream(codes, 4, "i4"),
        "a.qzeros": stream(zeros, 4, "i4"),
        "a.scales": scales,
    }
    config = {"quant_method": "awq", "w_bit": 4, "q_group_size": group, "version": "GEMV"}
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w)})


def packed_ct(
    rng: np.random.Generator,
    bits: int = 4,
    rows: int = 48,
    columns: int = 96,
    group: int = 32,
    dense: bool = True,
    zero_points: bool = False,
    order: str = "",
) -> Made:
    groups = -(-columns // group)
    codes = rng.integers(0, 2**bits, (rows, columns))
    scales = scales_of(rng, (rows, groups), ml_dtypes.bfloat16)
    zeros = np.full((rows, groups), 2 ** (bits - 1))
    index = np.arange(columns) // group
    if zero_points:
        zeros = rng.integers(0, 2**bits, (rows, groups))
    tensors = {
        "a.weight_packed": stream(codes, bits, "i4") if dense else padded(codes, bits),
        "a.weight_scale": scales,
        "a.weight_shape": np.array([rows, columns]),
        "a.input_global_scale": np.ones(1, np.float32),
    }
    if zero_points:
        tensors["a.weight_zero_point"] = stream(zeros.T, bits, "i4").T
    if order == "none":
        tensors["a.weight_g_idx"] = np.full(columns, -1, np.int32)
    if order == "shuffled":
        index = rng.permutation(index)
        tensors["a.weight_g_idx"] = index.astype(np.int32)
    w = (codes - zeros[:, index].astype(np.float64)) * scales[:, index].astype(np.float64)
    args = {"num_bits": bits, "type": "int", "group_size": group, "strategy": "group"}
    return Made(tensors, compressed(args), {"a.weight": once(w)})


def whole_ct(rng: np.random.Generator, rows: int = 6, columns: int = 40) -> Made:
    """Return a weight with one scale and one zero point, which is not packed."""
    codes = rng.integers(0, 256, (rows, columns))
    scale, zero = scales_of(rng, (1,), ml_dtypes.bfloat16), np.array([-100], np.int8)
    tensors = {
        "a.weight_packed": stream(codes, 8, "i4"),
        "a.weight_scale": scale,
        "a.weight_zero_point": zero,
        "a.weight_shape": np.array([rows, columns]),
    }
    args = {"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": False}
    w = (codes - 128 + 100.0) * scale.astype(np.float64)
    return Made(tensors, compressed(args), {"a.weight": once(w)})


def experts_ct(rng: np.random.Generator, begin: str = "weight_", experts: int = 3) -> Made:
    """Stack experts as one weight: "experts.down_proj.weight_packed" or "..._packed"."""
    rows, columns, group = 16, 64, 32
    codes = rng.integers(0, 16, (experts, rows, columns))
    zeros = rng.integers(0, 16, (experts, rows, columns // group))
    scales = scales_of(rng, zeros.shape, ml_dtypes.bfloat16)
    name = "m.experts.down_proj"
    prefix = f"{name}.{begin}" if begin else f"{name}_"
    tensors = {
        f"{prefix}packed": stream(codes, 4, "i4"),
        f"{prefix}scale": scales,
        f"{prefix}zero_point": stream(zeros.swapaxes(1, 2), 4, "i4").swapaxes(1, 2),
    }
    w = (codes - spread(zeros, group, columns)) * spread(scales, group, columns)
    args = {"num_bits": 4, "type": "int", "group_size": group, "strategy": "group"}
    return Made(tensors, compressed(args), {name: once(w)})


def padded(codes: Array, bits: int) -> Array:
    """Pack like old versions of compressed-tensors, in which no code is split between two words."""
    each = 32 // bits
    codes = np.pad(codes, [(0, 0), (0, -codes.shape[1] % each)]).astype(np.uint32)
    parts = codes.reshape(len(codes), -1, each) << (np.arange(each) * bits).astype(np.uint32)
    return np.bitwise_or.reduce(parts, axis=-1).view(np.int32)


def compressed(args: dict[str, Any], format_name: str = "pack-quantized") -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": args}}
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": format_name,
            "config_groups": groups,
        }
    }


def int8_ct(rng: np.random.Generator, rows: int = 24, columns: int = 40) -> Made:
    codes = rng.integers(-128, 128, (rows, columns), dtype=np.int8)
    zeros = rng.integers(-9, 9, (rows, 1), dtype=np.int8)
    scales = scales_of(rng, (rows, 1), ml_dtypes.bfloat16)
    w = (codes - zeros.astype(np.float64)) * scales.astype(np.float64)
    tensors = {"a.weight": codes, "a.weight_scale": scales, "a.weight_zero_point": zeros}
    args = {"num_bits": 8, "type": "int", "strategy": "channel", "group_size": None}
    return Made(tensors, compressed(args, "int-quantized"), {"a.weight": once(w)})


def float8(
    rng: np.random.Generator,
    rows: int = 72,
    columns: int = 100,
    block: tuple[int, int] = (32, 48),
    exponents: bool = False,
) -> Made:
    codes = rng.integers(0, 0x7E, (rows, columns)).astype(np.uint8)
    codes |= (rng.integers(0, 2, codes.shape) << 7).astype(np.uint8)
    shape = (-(-rows // block[0]), -(-columns // block[1]))
    if exponents:
        scales = (2.0 ** rng.integers(-9, 3, shape)).astype(ml_dtypes.float8_e8m0fnu)
    else:
        scales = scales_of(rng, shape, np.float32)
    whole = np.repeat(spread(scales.astype(np.float64), block[1], columns), block[0], 0)[:rows]
    tensors = {"a.weight": codes.view(ml_dtypes.float8_e4m3fn), "a.weight_scale_inv": scales}
    config = {"quant_method": "fp8", "weight_block_size": list(block)}
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(E4M3[codes] * whole)})


def mxfp4_experts(rng: np.random.Generator, experts: int = 3, rows: int = 10) -> Made:
    groups = 2
    codes = rng.integers(0, 16, (experts, rows, groups, 32))
    scales = rng.integers(110, 130, (experts, rows, groups)).astype(np.uint8)
    w = E2M1[codes] * 2.0 ** (scales.astype(int) - 127)[..., None]
    tensors = {
        "m.gate_up_proj_blocks": stream(codes, 4, "u1"),
        "m.gate_up_proj_scales": scales,
        "m.gate_up_proj_bias": np.zeros((experts, rows), np.float32),
    }
    floats = once(w.reshape(experts, rows, -1)).transpose(0, 2, 1)
    return Made(
        tensors, {"quantization_config": {"quant_method": "mxfp4"}}, {"m.gate_up_proj": floats}
    )


def nvfp4(
    rng: np.random.Generator, divides: bool = True, reversed_name: bool = False, rows: int = 12
) -> Made:
    columns = 64
    codes = rng.integers(0, 16, (rows, columns))
    scales = (rng.random((rows, columns // 16)) * 400 + 20).astype(ml_dtypes.float8_e4m3fn)
    factor = np.float32(1 / 2688.0)
    number = np.float32(2688.0) if divides else factor
    whole = scales.astype(np.float64)
    whole = whole / float(number) if divides else whole * float(number)
    w = E2M1[codes] * spread(whole, 16, columns)
    if divides != reversed_name:
        names = ("a.weight_packed", "a.weight_scale", "a.weight_global_scale")
        config = compressed(
            {"num_bits": 4, "type": "float", "group_size": 16}, "nvfp4-pack-quantized"
        )
    else:
        names = ("a.weight", "a.weight_scale", "a.weight_scale_2")
        config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    tensors = dict(zip(names, (stream(codes, 4, "u1"), scales, np.array([number])), strict=True))
    return Made(tensors, config, {"a.weight": once(w)})


def bnb4(rng: np.random.Generator, rows: int = 12, columns: int = 96, nested: bool = False) -> Made:
    block = 64
    table = np.sort(rng.standard_normal(16)).astype(np.float32)
    codes = rng.integers(0, 16, rows * columns)
    count = -(-codes.size // block)
    state: dict[str, Any] = {"shape": [rows, columns], "blocksize": block, "dtype": "float16"}
    tensors = {
        "a.weight": (codes[::2] << 4 | codes[1::2]).astype(np.uint8).reshape(-1, 1),
        "a.weight.quant_map": table,
    }
    if nested:
        coarse = np.sort(rng.random(256)).astype(np.float32)
        absmax = rng.integers(0, 256, count).astype(np.uint8)
        top = rng.random(-(-count // 256)).astype(np.float32)
        offset = np.float32(0.0123)
        numbers = (coarse[absmax] * np.repeat(top, 256)[:count] + offset).astype(np.float32)
        tensors["a.weight.nested_absmax"] = top
        tensors["a.weight.nested_quant_map"] = coarse
        state |= {"nested_blocksize": 256, "nested_offset": float(offset)}
    else:
        absmax = numbers = rng.random(count).astype(np.float32)
    tensors["a.weight.absmax"] = absmax
    text = json.dumps(state).encode()
    tensors["a.weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(text, np.uint8)
    w = table[codes].astype(np.float64) * np.repeat(numbers, block)[: codes.size].astype(np.float64)
    config = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    return Made(tensors, config, {"a.weight": once(w.reshape(rows, columns))})


def bnb8(rng: np.random.Generator, rows: int = 6, columns: int = 20) -> Made:
    codes = rng.integers(-127, 128, (rows, columns), dtype=np.int8)
    scb = rng.random(rows).astype(np.float32)
    tensors = {"a.weight": codes, "a.SCB": scb, "a.weight_format": np.array(0, np.uint8)}
    w = codes * (scb.astype(np.float64) / 127)[:, None]
    config = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    return Made(tensors, config, {"a.weight": once(w)})


def mlx(rng: np.random.Generator, bits: int = 4, rows: int = 8, columns: int = 128) -> Made:
    group = 64
    codes = rng.integers(0, 2**bits, (rows, columns))
    scales = scales_of(rng, (rows, columns // group), ml_dtypes.bfloat16)
    biases = (-scales.astype(np.float32) * 3.3).astype(ml_dtypes.bfloat16)
    w = codes * spread(scales, group, columns) + spread(biases, group, columns)
    tensors = {"a.weight": stream(codes, bits, "u4"), "a.scales": scales, "a.biases": biases}
    config = {"quantization": {"group_size": group, "bits": bits}}
    return Made(tensors, config, {"a.weight": once(w)})


HQQ = {
    8: ("8bit_u8", np.uint8, [0]),
    4: ("4bit_u8", np.uint8, [4, 0]),
    3: ("3bit_32", np.int32, [27, 24, 21, 18, 15, 12, 9, 6, 3, 0]),
    2: ("2bit_u8", np.uint8, [6, 4, 2, 0]),
    1: ("1bit_u8", np.uint8, [7, 6, 5, 4, 3, 2, 1, 0]),
}


def mlx_float4(rng: np.random.Generator, mode: str = "nvfp4", rows: int = 8) -> Made:
    group = 16 if mode == "nvfp4" else 32
    codes = rng.integers(0, 16, (rows, 128))
    stored = rng.integers(40, 80, (rows, 128 // group), dtype=np.uint8)
    scales = E4M3[stored] if mode == "nvfp4" else 2.0 ** (stored.astype(np.float64) - 127)
    w = E2M1[codes] * spread(scales, group, 128)
    tensors = {"a.weight": stream(codes, 4, "u4"), "a.scales": stored}
    config = {"quantization": {"group_size": group, "bits": 4, "mode": mode}}
    return Made(tensors, config, {"a.weight": once(w)})


def in_parts(codes: Array, shifts: list[int], word: Any) -> Array:
    """Split the first axis into parts, and pack the rows of all parts into shared words."""
    codes = np.pad(codes, [(0, -len(codes) % len(shifts)), (0, 0)]).astype(np.int64)
    parts = codes.reshape(len(shifts), -1, codes.shape[1])
    return np.bitwise_or.reduce([p << s for p, s in zip(parts, shifts, strict=True)]).astype(word)


def hqq(
    rng: np.random.Generator, bits: int = 4, rows: int = 16, columns: int = 96, axis: int = 1
) -> Made:
    packing, word, shifts = HQQ[bits]
    group = 32
    count = rows * columns // group
    codes = rng.integers(0, 2**bits, (count, group) if axis else (group, count))
    scales = scales_of(rng, (count, 1) if axis else (1, count))
    zeros = (rng.random(scales.shape) * 2**bits).astype(np.float16)
    w = (codes - zeros.astype(np.float64)) * scales.astype(np.float64)
    tensors = {
        "a.W_q": in_parts(codes, shifts, word),
        "a.scale": scales,
        "a.zero": zeros,
        "a.shape": np.array([rows, columns]),
        "a.nbits": np.array(bits, np.int32),
        "a.group_size": np.array(group, np.int32),
        "a.axis": np.array(axis, np.int32),
        "a.packing": np.frombuffer(packing.encode(), np.uint8),
        "a.quant_scale": np.array(0, np.uint8),
    }
    return Made(tensors, {}, {"a.weight": once(w.reshape(rows, columns))})


def quanto(rng: np.random.Generator, bits: int = 4, rows: int = 16, columns: int = 96) -> Made:
    group = 32
    count = rows * columns // group
    codes = rng.integers(0, 2**bits, (count, group))
    scales = scales_of(rng, (count, 1), ml_dtypes.bfloat16)
    shifts = (rng.random((count, 1)) * 0.3).astype(ml_dtypes.bfloat16)
    w = codes * scales.astype(np.float64) - shifts.astype(np.float64)
    data = in_parts(codes, list(range(0, 8, bits)), np.uint8)
    tensors = {
        "x.up_proj.weight._data._data": data,
        "x.up_proj.weight._scale": scales,
        "x.up_proj.weight._shift": shifts,
        "x.up_proj.input_scale": np.ones((), np.float32),
    }
    qmap = {"x.up_proj": {"weights": f"qint{bits}", "activations": "none"}}
    floats = {"x.up_proj.weight": once(w.reshape(rows, columns))}
    return Made(tensors, {"hidden_size": columns}, floats, {"quanto_qmap.json": qmap})


def torchao(rng: np.random.Generator, rows: int = 10, columns: int = 64) -> Made:
    codes = rng.integers(-8, 8, (rows, columns), dtype=np.int8)
    scales = scales_of(rng, (rows, columns // 32), np.float32)
    zeros = rng.integers(-3, 3, scales.shape, dtype=np.int8)
    w = (codes - spread(zeros, 32, columns)) * spread(scales, 32, columns)
    tensors = {"a._weight_qdata": codes, "a._weight_scale": scales, "a._weight_zero_point": zeros}
    config = {"quantization_config": {"quant_method": "torchao"}}
    return Made(tensors, config, {"a.weight": once(w)})


def torchao_int4(rng: np.random.Generator, rows: int = 10, columns: int = 64) -> Made:
    codes = rng.integers(-8, 8, (rows, columns))
    scales = scales_of(rng, (columns // 32, rows), ml_dtypes.bfloat16)
    minima = (rng.random(scales.shape) - 0.5).astype(ml_dtypes.bfloat16)
    factors = (rng.random(columns) + 0.5).astype(ml_dtypes.bfloat16)
    w = codes * spread(scales.T, 32, columns) + spread(minima.T, 32, columns)
    tensors = {
        "a._weight_qdata": (codes[:, ::2] & 15 | (codes[:, 1::2] & 15) << 4).astype(np.int8),
        "a._weight_scale": scales,
        "a._weight_zero_point": minima,
        "a._weight_act_pre_scale": factors,
    }
    config = {"quantization_config": {"quant_method": "torchao"}}
    return Made(tensors, config, {"a.weight": once(w * factors.astype(np.float64))})


def olive(rng: np.random.Generator, bits: int = 4, rows: int = 6, columns: int = 96) -> Made:
    group = 32
    codes = rng.integers(0, 2**bits, (rows, columns))
    zeros = rng.integers(0, 2**bits, (rows, columns // group))
    scales = scales_of(rng, zeros.shape, np.float32)
    w = (codes - spread(zeros, group, columns)) * spread(scales, group, columns)
    tensors = {
        "a.qweight": stream(codes, bits, "u1"),
        "a.qzeros": stream(zeros, bits, "u1"),
        "a.scales": scales,
    }
    config = {"quant_method": "olive", "bits": bits, "group_size": group}
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w)})


def gemma(rng: np.random.Generator, bits: int = 2, rows: int = 6, columns: int = 40) -> Made:
    codes = rng.integers(0, 2**bits, (rows, columns))
    scales = scales_of(rng, (rows, 1), np.float32)
    w = (codes - 2.0 ** (bits - 1)) * scales.astype(np.float64)
    tensors = {
        "x.a.weight": stream(codes, bits, "u1"),
        "x.a.weight_scale": scales,
        "x.a.input_activation_scale": np.zeros((), np.float32),
        "e.embedding_quantized": stream(codes, bits, "u1"),
        "e.embedding_scale": scales,
    }
    config = {
        "quant_method": "gemma",
        "num_bits": 4,
        "module_quant_configs": {r"a$|^e": {"num_bits": bits}},
    }
    floats = {"x.a.weight": once(w), "e.weight": once(w)}
    return Made(tensors, {"quantization_config": config}, floats)


def modelopt_awq(rng: np.random.Generator, rows: int = 8, columns: int = 64) -> Made:
    codes = rng.integers(-8, 8, (rows, columns))
    scales = scales_of(rng, (rows, columns // 32), np.float32)
    factors = (rng.random(columns) + 0.5).astype(ml_dtypes.bfloat16)
    w = codes * spread(scales, 32, columns) * factors.astype(np.float64)
    low, high = codes[::2] & 15, codes[1::2] & 15
    tensors = {
        "a.weight": (low | high << 4).astype(np.uint8),
        "a.weight_scale": scales,
        "a.pre_quant_scale": factors,
    }
    config = {"quantization": {"quant_algo": "W4A16_AWQ", "group_size": 32}}
    return Made(tensors, {}, {"a.weight": once(w)}, {"hf_quant_config.json": config})


def bitnet(rng: np.random.Generator, rows: int = 16, columns: int = 12, auto: bool = False) -> Made:
    codes = rng.integers(0, 3, (rows, columns))
    scale = np.array([1.37], ml_dtypes.bfloat16)
    factor = float(scale[0]) if auto else 1 / float(scale[0])
    tensors = {"a.weight": in_parts(codes, [0, 2, 4, 6], np.uint8), "a.weight_scale": scale}
    config = {"quant_method": "bitnet", "linear_class": "autobitlinear" if auto else "bitlinear"}
    return Made(
        tensors, {"quantization_config": config}, {"a.weight": once((codes - 1.0) * factor)}
    )


def quark_rows(rng: np.random.Generator, bits: int = 4, whole: bool = False) -> Made:
    """Quark without groups: codes lie along K; zero points of rows are packed like codes."""
    rows, columns = 16, 64
    places = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    codes = rng.integers(0, 2**bits, (rows, columns))
    zeros = rng.integers(0, 2**bits, 1 if whole else rows)
    scales = scales_of(rng, zeros.shape, np.float32)

    def packed(values: Array) -> Array:
        if bits == 8:
            return values.astype(np.uint8)
        ordered = values.reshape(*values.shape[:-1], -1, 8)[..., places]
        return stream(ordered.reshape(values.shape), 4, "i4")

    w = (codes - zeros.astype(np.float64)[:, None]) * scales.astype(np.float64)[:, None]
    tensors = {
        "a.weight": packed(codes),
        "a.weight_scale": scales.reshape(()) if whole else scales,
        "a.weight_zero_point": zeros.astype(np.int32).reshape(()) if whole else packed(zeros),
    }
    weight = {"dtype": f"uint{bits}", "qscheme": "per_tensor" if whole else "per_channel"}
    config = {"quant_method": "quark", "global_quant_config": {"weight": weight}}
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w)})


def quark_groups(rng: np.random.Generator, dtype: str = "int8") -> Made:
    """Quark with groups and a code in each element: the weight is stored transposed."""
    rows, columns, group = 64, 64, 32
    bits, signed = int(dtype[-1]), dtype.startswith("int")
    low = -(2 ** (bits - 1)) if signed else 0
    stored = np.int32 if bits == 2 else np.dtype(dtype)
    codes = rng.integers(low, low + 2**bits, (rows, columns))
    zeros = rng.integers(low, low + 2**bits, (rows, columns // group))
    scales = scales_of(rng, zeros.shape, ml_dtypes.bfloat16)
    w = (codes - spread(zeros, group, columns)) * spread(scales, group, columns)
    tensors = {
        "a.weight": codes.T.astype(stored),
        "a.weight_scale": scales.T,
        "a.weight_zero_point": zeros.T.astype(stored),
    }
    own = {"weight": {"dtype": dtype, "qscheme": "per_group", "group_size": group}}
    config = {"quant_method": "quark", "layer_quant_config": {"*a": own}}
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w)})


def quark_float4(rng: np.random.Generator) -> Made:
    codes = rng.integers(0, 16, (12, 64))
    scales = scales_of(rng, (12, 2), ml_dtypes.bfloat16)
    tensors = {"a.weight": stream(codes, 4, "u1"), "a.weight_scale": scales}
    weight = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}
    config = {"quant_method": "quark", "global_quant_config": {"weight": weight}}
    w = E2M1[codes] * spread(scales, 32, 64)
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w)})


def float6(rng: np.random.Generator, quark: bool = False) -> Made:
    """MXFP6: E2M3 of compressed-tensors, or E3M2 of Quark."""
    exponent = 3 if quark else 2
    mantissa = 5 - exponent
    codes = rng.integers(0, 64, (10, 96))
    e, m = codes >> mantissa & (2**exponent - 1), codes & (2**mantissa - 1)
    whole = np.where(e > 0, 1 + m / 2**mantissa, m / 2**mantissa)
    values = whole * 2.0 ** (np.maximum(e, 1) - (2 ** (exponent - 1) - 1))
    scales = rng.integers(118, 128, (10, 3)).astype(np.uint8)
    w = np.where(codes >= 32, -values, values) * spread(2.0 ** (scales - 127.0), 32, 96)
    name = "a.weight" if quark else "a.weight_packed"
    tensors = {name: stream(codes, 6, "u1"), "a.weight_scale": scales}
    if quark:
        weight = {"dtype": "fp6_e3m2", "qscheme": "per_group", "group_size": 32}
        own = {"quant_method": "quark", "global_quant_config": {"weight": weight}}
        return Made(tensors, {"quantization_config": own}, {"a.weight": once(w)})
    args = {"num_bits": 6, "type": "float", "group_size": 32}
    return Made(tensors, compressed(args, "mxfp6-pack-quantized"), {"a.weight": once(w)})


def blocks_ct(rng: np.random.Generator, packed: bool = True) -> Made:
    """int8 with a scale for each block of rows and columns; the last blocks are cut."""
    rows, columns, block = 72, 100, 64
    codes = rng.integers(0, 256, (rows, columns))
    scales = scales_of(rng, (2, 2), ml_dtypes.bfloat16)
    w = (codes - 128) * np.repeat(spread(scales, block, columns), block, 0)[:rows]
    args = {"num_bits": 8, "type": "int", "strategy": "block", "block_structure": [block, block]}
    if packed:
        tensors = {
            "a.weight_packed": stream(codes, 8, "i4"),
            "a.weight_shape": np.array([rows, columns]),
        }
    else:
        tensors = {"a.weight": (codes - 128).astype(np.int8)}
    tensors["a.weight_scale"] = scales
    return Made(tensors, compressed(args), {"a.weight": once(w)})


def nvfp4_modelopt_32(rng: np.random.Generator) -> Made:
    codes = rng.integers(0, 16, (12, 128))
    scales = (rng.random((12, 4)) * 400 + 20).astype(ml_dtypes.float8_e4m3fn)
    factor = np.float32(1 / 2688.0)
    w = E2M1[codes] * spread(scales.astype(np.float64) * float(factor), 32, 128)
    tensors = {
        "a.weight": stream(codes, 4, "u1"),
        "a.weight_scale": scales,
        "a.weight_scale_2": np.array(factor),
    }
    config = {"quant_method": "modelopt", "quant_algo": "W4A8_NVFP4_FP8"}
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w)})


def tiled(scales: Array) -> Array:
    """Arrange scales in tiles of 128 rows and 4 groups, as cuBLAS reads them."""
    rows, groups = scales.shape
    table = np.pad(scales, [(0, -rows % 128), (0, -groups % 4)])
    tiles = table.reshape(-1, 4, 32, table.shape[1] // 4, 4).transpose(0, 3, 2, 1, 4)
    return tiles.reshape(-1, 16).reshape(len(table) // 4, -1)


def torchao_tiles(
    rng: np.random.Generator, rows: int = 256, columns: int = 256, nvfp4: bool = False
) -> Made:
    group = 16 if nvfp4 else 32
    shape = (rows, columns // group)
    tensors: dict[str, Array] = {}
    if nvfp4:
        codes = rng.integers(0, 16, (rows, columns))
        scales = (rng.random(shape) * 400 + 20).astype(ml_dtypes.float8_e4m3fn)
        second = np.array(1 / 2688.0, np.float32)
        w = E2M1[codes] * spread(scales.astype(np.float64) * float(second), group, columns)
        tensors["a._weight_qdata"] = stream(codes, 4, "u1")
        tensors["a._weight_per_tensor_scale"] = second
    else:
        codes = rng.integers(0, 0x7E, (rows, columns)).astype(np.uint8)
        scales = (2.0 ** rng.integers(-9, 3, shape)).astype(ml_dtypes.float8_e8m0fnu)
        w = E4M3[codes] * spread(scales, group, columns)
        tensors["a._weight_qdata"] = codes.view(ml_dtypes.float8_e4m3fn)
    tensors["a._weight_scale"] = tiled(scales.view(np.uint8)).view(scales.dtype)
    config = {"quantization_config": {"quant_method": "torchao"}}
    return Made(tensors, config, {"a.weight": once(w)})


def olive_override(rng: np.random.Generator) -> Made:
    made = olive(rng, bits=8)
    config = made.config["quantization_config"]
    own = {"bits": 4, "overrides": {"a": {"bits": 8}}}
    return made._replace(config={"quantization_config": config | own})


def modelopt_smooth(rng: np.random.Generator) -> Made:
    codes = rng.integers(-128, 128, (8, 64), dtype=np.int8)
    scales = scales_of(rng, (8,), np.float32)
    factors = (rng.random(64) + 0.5).astype(ml_dtypes.bfloat16)
    w = codes * scales.astype(np.float64)[:, None] * factors.astype(np.float64)
    tensors = {"a.weight": codes, "a.weight_scale": scales, "a.pre_quant_scale": factors}
    config = {"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL"}
    return Made(tensors, {"quantization_config": config}, {"a.weight": once(w)})


def modelopt_blocks(rng: np.random.Generator) -> Made:
    made = float8(rng, 256, 384, (128, 128))
    scales = made.tensors["a.weight_scale_inv"].reshape(2, 1, 3, 1)
    tensors = {"a.weight": made.tensors["a.weight"], "a.weight_scale": scales}
    config = {"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"}
    return made._replace(tensors=tensors, config={"quantization_config": config})


def auto_round(rng: np.random.Generator) -> Made:
    """AutoRound's own format stores zero points unchanged, in one stream of 3 bits."""
    made = gptq(rng, bits=3, version=2)
    config = {"quant_method": "auto-round", "packing_format": "auto_round", "bits": 3}
    return made._replace(config={"quantization_config": config | {"group_size": 32}})


Maker = Callable[[np.random.Generator], Made]

MAKERS: dict[str, Maker] = {
    "gptq 4 bits": gptq,
    "gptq 3 bits": lambda rng: gptq(rng, bits=3),
    "gptq 2 bits v2": lambda rng: gptq(rng, bits=2, version=2),
    "gptq 8 bits": lambda rng: gptq(rng, bits=8),
    **{
        f"gptq_p {bits} bits": lambda rng, bits=bits: gptq(
            rng, bits, rows=64, version=2, says="gptq_p", order=bits == 6, packed=planes
        )
        for bits in (3, 4, 5, 6, 7)
    },
    "gptq act-order": lambda rng: gptq(rng, order=True),
    "gptq one group": lambda rng: gptq(rng, group=96),
    "gptq says v1": lambda rng: gptq(rng, version=2, says="gptq", symmetric=True),
    "gptq says v2": lambda rng: gptq(rng, version=1, says="gptq_v2", symmetric=True),
    "auto-round": auto_round,
    "awq gemm": awq,
    "awq gemv": awq_gemv,
    "quark int4": quark,
    "quark uint4": lambda rng: quark(rng, signed=False),
    "quark by layers": quark_by_layers,
    "quark rows": quark_rows,
    "quark whole": lambda rng: quark_rows(rng, whole=True),
    "quark uint8 rows": lambda rng: quark_rows(rng, bits=8),
    **{
        f"quark {dtype} groups": lambda rng, dtype=dtype: quark_groups(rng, dtype)
        for dtype in ("int8", "uint8", "int2")
    },
    "quark fp4": quark_float4,
    "quark fp6": lambda rng: float6(rng, quark=True),
    "ct 4 bits": packed_ct,
    "ct 1 bit": lambda rng: packed_ct(rng, bits=1, zero_points=True),
    "ct 2 bits": lambda rng: packed_ct(rng, bits=2),
    "ct 3 bits": lambda rng: packed_ct(rng, bits=3, columns=80, group=16),
    "ct 5 bits": lambda rng: packed_ct(rng, bits=5, zero_points=True),
    "ct 6 bits, padded": lambda rng: packed_ct(rng, bits=6, dense=False),
    "ct 7 bits": lambda rng: packed_ct(rng, bits=7),
    "ct 8 bits": lambda rng: packed_ct(rng, bits=8, zero_points=True),
    "ct zero points": lambda rng: packed_ct(rng, rows=44, zero_points=True),
    "ct ragged groups": lambda rng: packed_ct(rng, columns=80, group=64),
    "ct actorder": lambda rng: packed_ct(rng, order="shuffled"),
    "ct no actorder": lambda rng: packed_ct(rng, order="none"),
    "ct one zero point": whole_ct,
    "ct experts": experts_ct,
    "ct one expert": lambda rng: experts_ct(rng, experts=1),
    "ct experts, parameters": lambda rng: experts_ct(rng, begin=""),
    "ct int8": int8_ct,
    "ct blocks": blocks_ct,
    "ct int8 blocks": lambda rng: blocks_ct(rng, packed=False),
    "ct mxfp6": float6,
    "fp8 ragged blocks": float8,
    "fp8 exponents": lambda rng: float8(rng, exponents=True),
    "fp8 rows": lambda rng: float8(rng, block=(1, 100)),
    "fp8 whole": lambda rng: float8(rng, block=(72, 100)),
    "mxfp4 experts": mxfp4_experts,
    "nvfp4 divisor": nvfp4,
    "nvfp4 factor": lambda rng: nvfp4(rng, divides=False),
    "nvfp4 factor under the name of a divisor": lambda rng: nvfp4(rng, False, True),
    "nvfp4 divisor under the name of a factor": lambda rng: nvfp4(rng, True, True),
    "nvfp4 groups of 32": nvfp4_modelopt_32,
    "bnb nf4": bnb4,
    "bnb nested": lambda rng: bnb4(rng, nested=True),
    "bnb int8": bnb8,
    **{f"mlx {bits} bits": lambda rng, bits=bits: mlx(rng, bits) for bits in (2, 3, 4, 5, 6, 8)},
    "mlx nvfp4": mlx_float4,
    "mlx mxfp4": lambda rng: mlx_float4(rng, "mxfp4"),
    **{f"hqq {bits} bits": lambda rng, bits=bits: hqq(rng, bits) for bits in HQQ},
    "hqq axis 0": lambda rng: hqq(rng, axis=0),
    "quanto int4": quanto,
    "quanto int2": lambda rng: quanto(rng, bits=2),
    "torchao": torchao,
    "torchao int4": torchao_int4,
    "torchao mxfp8 tiles": torchao_tiles,
    "torchao nvfp4 tiles": lambda rng: torchao_tiles(rng, nvfp4=True),
    "torchao cut tiles": lambda rng: torchao_tiles(rng, 64, 32),
    "olive": olive,
    "olive override": olive_override,
    "olive 8 bits": lambda rng: olive(rng, bits=8),
    "gemma 2 bits": gemma,
    "gemma 4 bits": lambda rng: gemma(rng, bits=4),
    "modelopt int4": modelopt_awq,
    "modelopt int8 with input factors": modelopt_smooth,
    "modelopt fp8 blocks": modelopt_blocks,
    "bitnet": bitnet,
    "bitnet auto": lambda rng: bitnet(rng, auto=True),
}
