"""Writes small GGUF files with numpy alone, and makes tiny models of several architectures."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The types of metadata values, and their formats in struct.
VALUES = {
    "uint8": (0, "B"),
    "int8": (1, "b"),
    "uint16": (2, "H"),
    "int16": (3, "h"),
    "uint32": (4, "I"),
    "int32": (5, "i"),
    "float32": (6, "f"),
    "bool": (7, "B"),
    "string": (8, ""),
    "array": (9, ""),
    "uint64": (10, "Q"),
    "int64": (11, "q"),
    "float64": (12, "d"),
}
# The tensor types that numpy has.
TENSORS = {
    "float32": 0,
    "float16": 1,
    "int8": 24,
    "int16": 25,
    "int32": 26,
    "int64": 27,
    "float64": 28,
    "bfloat16": 30,
}


class Typed:
    """A metadata value, with its GGUF type if the Python type does not determine it."""

    def __init__(self, kind: str, value: Any) -> None:
        self.kind = kind
        self.value = value


class Blocks:
    """A tensor of quantized blocks: its bytes, and its shape counted in values."""

    def __init__(self, kind: int, shape: tuple[int, ...], data: bytes) -> None:
        self.kind = kind
        self.shape = shape
        self.data = data


def gguf_bytes(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Array | Blocks] | None = None,
    *,
    version: int = 3,
    order: str = "<",
    alignment: int = 32,
) -> bytes:
    """Return the bytes of a file.

    Args:
        metadata: numbers, texts, lists, or `Typed`; integers become uint32, floats float32.
        tensors: numpy's shapes; the file has the dimensions reversed. version: the version of the
        format. order: the byte order as in struct, "<" or ">". alignment: the alignment of the
        tensors. If it is not 32, the metadata must also state it.
    """
    tensors = tensors or {}
    head = b"GGUF" + struct.pack(f"{order}IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _text(key, order) + _value(value, order)
    data = b""
    for name, tensor in tensors.items():
        kind, raw = _stored(tensor, order)
        data += b"\0" * (-len(data) % alignment)
        dims = tuple(reversed(tensor.shape))
        head += _text(name, order) + struct.pack(f"{order}I{len(dims)}Q", len(dims), *dims)
        head += struct.pack(f"{order}IQ", kind, len(data))
        data += raw
    return head + b"\0" * (-len(head) % alignment) + data


def write_gguf(path: Path, metadata: Mapping[str, Any], *args: Any, **how: Any) -> Path:
    """Write a file of `gguf_bytes`."""
    path.write_bytes(gguf_bytes(metadata, *args, **how))
    return path


def _text(text: str | bytes, order: str) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack(f"{order}Q", len(raw)) + raw


def _kind_of(value: Any) -> str:
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string", bytes: "string"}
    return kinds[type(value)]


def _item(kind: str, value: Any, order: str) -> bytes:
    return _text(value, order) if kind == "string" else struct.pack(order + VALUES[kind][1], value)


def _value(value: Any, order: str) -> bytes:
    kind, value = (value.kind, value.value) if isinstance(value, Typed) else (None, value)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        kind = kind or _kind_of(value)
        return struct.pack(f"{order}I", VALUES[kind][0]) + _item(kind, value, order)
    kind = kind or _kind_of(value[0])
    head = struct.pack(f"{order}IIQ", VALUES["array"][0], VALUES[kind][0], len(value))
    return head + b"".join(_item(kind, item, order) for item in value)


def _stored(tensor: Array | Blocks, order: str) -> tuple[int, bytes]:
    if isinstance(tensor, Blocks):
        return tensor.kind, tensor.data
    swapped = tensor.view(np.uint16) if tensor.dtype == ml_dtypes.bfloat16 else tensor
    raw = swapped.astype(swapped.dtype.newbyteorder(order)).tobytes()
    return TENSORS[tensor.dtype.name], raw
