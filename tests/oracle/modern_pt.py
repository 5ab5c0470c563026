"""Writes the torch zip format by hand, without torch: what newer versions of torch write and this
one cannot (float8, float4, unsigned integers, big-endian data, no CRC), and files of many gigabytes
in constant memory. The bytes follow torch's own writer: miniz records with a data descriptor, the
"FB" padding that aligns the data, ZIP64 records only where a size or an offset needs them.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Callable, Iterable, Optional, Sequence, Union

# torch's short dtype name -> (torch's storage class, bytes of an element). A class of None is a dtype
# that has no storage class of its own: torch writes it through UntypedStorage and _rebuild_tensor_v3.
DTYPES = {
    "float64": ("DoubleStorage", 8),
    "float32": ("FloatStorage", 4),
    "float16": ("HalfStorage", 2),
    "bfloat16": ("BFloat16Storage", 2),
    "int64": ("LongStorage", 8),
    "int32": ("IntStorage", 4),
    "int16": ("ShortStorage", 2),
    "int8": ("CharStorage", 1),
    "uint8": ("ByteStorage", 1),
    "bool": ("BoolStorage", 1),
    "complex64": ("ComplexFloatStorage", 8),
    "complex128": ("ComplexDoubleStorage", 16),
    "uint16": (None, 2),
    "uint32": (None, 4),
    "uint64": (None, 8),
    "float8_e4m3fn": (None, 1),
    "float8_e4m3fnuz": (None, 1),
    "float8_e5m2": (None, 1),
    "float8_e5m2fnuz": (None, 1),
    "float8_e8m0fnu": (None, 1),
    "float4_e2m1fn_x2": (None, 1),
}

# No ONNX type: read on request only.
OTHER_DTYPES = {"complex32": (None, 4)}

Data = Union[bytes, Callable[[], Iterable[bytes]]]


# --- pickle, protocol 2 ------------------------------------------------------------------------


@dataclass(frozen=True)
class Global:
    module: str
    name: str


@dataclass(frozen=True)
class Reduce:
    function: Global
    arguments: tuple


@dataclass(frozen=True)
class PersistentId:
    value: tuple


@dataclass(frozen=True)
class OrderedDict:
    """An OrderedDict as state_dict() makes it; metadata becomes its `_metadata` attribute."""

    items: tuple = ()
    metadata: Optional[dict] = None


def _encode_int(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + struct.pack("<B", value)
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + struct.pack("<B", len(raw)) + raw


def _encode_items(items: Iterable[tuple], out: list) -> None:
    out.append(b"(")
    for key, value in items:
        _encode(key, out)
        _encode(value, out)
    out.append(b"u")


def _encode_tuple(values: tuple, out: list) -> None:
    short = {0: b")", 1: b"\x85", 2: b"\x86", 3: b"\x87"}
    if len(values) not in short:
        out.append(b"(")
    for value in values:
        _encode(value, out)
    out.append(short.get(len(values), b"t"))


def _encode(value, out: list) -> None:
    if value is None:
        out.append(b"N")
    elif isinstance(value, bool):
        out.append(b"\x88" if value else b"\x89")
    elif isinstance(value, int):
        out.append(_encode_int(value))
    elif isinstance(value, float):
        out.append(b"G" + struct.pack(">d", value))
    elif isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        out.append(b"X" + struct.pack("<I", len(raw)) + raw)
    elif isinstance(value, tuple):
        _encode_tuple(value, out)
    elif isinstance(value, list):
        out.append(b"](")
        for item in value:
            _encode(item, out)
        out.append(b"e")
    elif isinstance(value, dict):
        out.append(b"}")
        _encode_items(value.items(), out)
    elif isinstance(value, Global):
        out.append(f"c{value.module}\n{value.name}\n".encode())
    elif isinstance(value, PersistentId):
        _encode(value.value, out)
        out.append(b"Q")
    elif isinstance(value, Reduce):
        _encode(value.function, out)
        _encode(value.arguments, out)
        out.append(b"R")
    elif isinstance(value, OrderedDict):
        _encode(Reduce(Global("collections", "OrderedDict"), ()), out)
        _encode_items(value.items, out)
        if value.metadata is not None:
            _encode({"_metadata": value.metadata}, out)
            out.append(b"b")
    else:
        raise TypeError(f"no opcode for {type(value)}")


def pickle_bytes(value) -> bytes:
    """Return the value as one pickle of protocol 2."""
    out = [b"\x80\x02"]
    _encode(value, out)
    out.append(b".")
    return b"".join(out)


# --- tensors -----------------------------------------------------------------------------------


def contiguous_strides(shape: Sequence[int]) -> tuple:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def element_count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def tensor(
    dtype: str, key: str, numel: int, shape, strides=None, offset: int = 0, device: str = "cpu"
) -> Reduce:
    """Return torch's record of a tensor of `shape` over the storage `key` of `numel` elements."""
    storage_class, size = (DTYPES.get(dtype) or OTHER_DTYPES[dtype])
    strides = contiguous_strides(shape) if strides is None else tuple(strides)
    tail = (False, OrderedDict())
    if storage_class is not None:
        storage = PersistentId(("storage", Global("torch", storage_class), key, device, numel))
        arguments = (storage, offset, tuple(shape), strides) + tail
        return Reduce(Global("torch._utils", "_rebuild_tensor_v2"), arguments)
    untyped = Global("torch.storage", "UntypedStorage")
    storage = PersistentId(("storage", untyped, key, device, numel * size))
    arguments = (storage, offset, tuple(shape), strides) + tail + (Global("torch", dtype),)
    return Reduce(Global("torch._utils", "_rebuild_tensor_v3"), arguments)


# --- zip ---------------------------------------------------------------------------------------

_LIMIT32 = 0xFFFFFFFF
_UTF8 = 0x0800
_DESCRIPTOR = 0x0008


class TorchZip:
    """Streams records into a zip file as torch's writer does; nothing is sought, nothing kept."""

    def __init__(self, stream, prefix: str = "archive", alignment: int = 64, crc: bool = True):
        self._stream = stream
        self._prefix = prefix
        self._alignment = alignment
        self._crc = crc
        self._position = 0
        self._directory = []

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._position += len(data)

    def record(self, name: str, data: Data, size: Optional[int] = None) -> int:
        """Adds one stored record; `data` is bytes, or a function giving chunks of `size` bytes in all.

        Returns the offset of the record's first byte in the file.
        """
        chunks = [data] if isinstance(data, bytes) else data()
        size = len(data) if isinstance(data, bytes) else size
        path = f"{self._prefix}/{name}".encode()
        start, flags = self._position, _UTF8 | (_DESCRIPTOR if size else 0)
        zip64 = b""
        if size >= _LIMIT32:
            zip64 += struct.pack("<QQ", size, 0)
        if start >= _LIMIT32:
            zip64 += struct.pack("<Q", start)
        if zip64:
            zip64 = struct.pack("<HH", 1, len(zip64)) + zip64
        fixed = start + 30 + len(path) + len(zip64) + 4
        padding = -fixed % self._alignment
        extra = zip64 + b"FB" + struct.pack("<H", padding) + b"Z" * padding
        self._write(
            struct.pack("<IHHHHHIIIHH", 0x04034B50, 0, flags, 0, 0, 0, 0, 0, 0, len(path), len(extra))
        )
        self._write(path + extra)
        first, checksum, written = self._position, 0, 0
        for chunk in chunks:
            self._write(chunk)
            written += len(chunk)
            checksum = zlib.crc32(chunk, checksum) if self._crc else 0
        if written != size:
            raise ValueError(f"{name}: {written} bytes where {size} were declared")
        if size:
            sizes = "<IIQQ" if zip64 else "<IIII"
            self._write(struct.pack(sizes, 0x08074B50, checksum, size, size))
        self._directory.append((path, flags, checksum, size, start))
        return first

    def close(self) -> None:
        """Writes the central directory and its end; the stream stays open."""
        start = self._position
        for path, flags, checksum, size, offset in self._directory:
            zip64 = b""
            if size >= _LIMIT32:
                zip64 += struct.pack("<QQ", size, size)
            if offset >= _LIMIT32:
                zip64 += struct.pack("<Q", offset)
            if zip64:
                zip64 = struct.pack("<HH", 1, len(zip64)) + zip64
            size32, offset32 = min(size, _LIMIT32), min(offset, _LIMIT32)
            fields = (0x02014B50, 0, 0, flags, 0, 0, 0, checksum, size32, size32)
            names = (len(path), len(zip64), 0, 0, 0, 0, offset32)
            self._write(struct.pack("<IHHHHHHIIIHHHHHII", *fields, *names) + path + zip64)
        count, length, end = len(self._directory), self._position - start, self._position
        self._write(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 0x31E, 45, 0, 0, count, count, length, start))
        self._write(struct.pack("<IIQI", 0x07064B50, 0, end, 1))
        few, near = min(count, 0xFFFF), min(start, _LIMIT32)
        self._write(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, few, few, min(length, _LIMIT32), near, 0))


def write_archive(
    path: str,
    root,
    storages: Sequence[tuple],
    prefix: str = "archive",
    alignment: int = 64,
    crc: bool = True,
    byteorder: Optional[str] = "little",
    modern: bool = True,
) -> None:
    """Writes `root` (tensor() nodes inside) with its storages, each (key, data, size in bytes).

    modern: with the records that torch 2.7 added, storages in numeric order.
    """
    with open(path, "wb") as stream:
        archive = TorchZip(stream, prefix, alignment, crc)
        archive.record("data.pkl", pickle_bytes(root))
        if modern:
            archive.record(".format_version", b"1")
            archive.record(".storage_alignment", str(alignment).encode())
        if byteorder is not None:
            archive.record("byteorder", byteorder.encode())
        for key, data, size in storages:
            archive.record(f"data/{key}", data, size)
        archive.record("version", b"3\n")
        if modern:
            archive.record(".data/serialization_id", b"0" * 40)
        archive.close()


def save(path: str, tensors: Sequence[tuple], wrap: Optional[Callable] = None, **options) -> None:
    """Writes contiguous tensors, each (name, dtype, shape, data), one storage a tensor.

    wrap: makes the pickled object from the state dict; options: as write_archive.
    """
    items, storages = [], []
    for index, (name, dtype, shape, data) in enumerate(tensors):
        numel = element_count(shape)
        items.append((name, tensor(dtype, str(index), numel, shape)))
        storages.append((str(index), data, numel * DTYPES[dtype][1]))
    root = OrderedDict(tuple(items), metadata={})
    write_archive(path, wrap(root) if wrap else root, storages, **options)
