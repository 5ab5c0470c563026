"""Writes and reads the safetensors format: a length, a JSON header, the bytes."""

import json
import math
import struct

_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}


def header_bytes(header: dict) -> bytes:
    """Return the length and the header, padded with spaces to a multiple of 8 bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def save(path: str, tensors, metadata=None) -> None:
    """tensors: (name, torch's short dtype name, shape, contiguous little-endian bytes) each."""
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        end = offset + len(data)
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    with open(path, "wb") as stream:
        stream.write(header_bytes(header))
        for _, _, _, data in tensors:
            stream.write(data)


def load(path: str) -> list:
    """Read back the tensors that save() was given."""
    dtypes = {short: name for name, short in _NAMES.items()}
    with open(path, "rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
        base, result = 8 + length, []
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            stream.seek(base + begin)
            data = stream.read(end - begin)
            assert math.prod(entry["shape"]) == 0 or data, name
            result.append((name, dtypes[entry["dtype"]], entry["shape"], data))
    return result
