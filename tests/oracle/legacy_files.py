"""Writes by hand what torch wrote before 1.6 and no longer writes: storage views, Python 2's pickles,
and the tar files of 0.1. torch.load still reads all of it, which is how the tests know the truth.
"""

import io
import struct
import tarfile
from typing import Sequence

import modern_pt
from modern_pt import Global, PersistentId, Reduce, pickle_bytes

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
SYSTEM = {
    "protocol_version": VERSION,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}


def storage_id(dtype: str, key: str, numel: int, view=None) -> PersistentId:
    storage_class = Global("torch", modern_pt.DTYPES[dtype][0])
    return PersistentId(("storage", storage_class, key, "cpu", numel, view))


def tensor(dtype: str, key: str, numel: int, shape, strides=None, offset: int = 0, view=None) -> Reduce:
    strides = modern_pt.contiguous_strides(shape) if strides is None else tuple(strides)
    storage = storage_id(dtype, key, numel, view)
    arguments = (storage, offset, tuple(shape), strides, False, modern_pt.OrderedDict())
    return Reduce(Global("torch._utils", "_rebuild_tensor_v2"), arguments)


def preamble(root_pickle: bytes, keys: Sequence[str]) -> bytes:
    parts = (pickle_bytes(MAGIC), pickle_bytes(VERSION), pickle_bytes(SYSTEM), root_pickle)
    return b"".join(parts) + pickle_bytes(list(keys))


def block(dtype: str, data: bytes) -> bytes:
    return struct.pack("<q", len(data) // modern_pt.DTYPES[dtype][1]) + data


def legacy_file(root, storages: Sequence[tuple]) -> bytes:
    """storages: (key, dtype, bytes) in the order of the file."""
    blocks = (block(dtype, data) for _, dtype, data in storages)
    return preamble(pickle_bytes(root), [key for key, _, _ in storages]) + b"".join(blocks)


# --- plain pickle, by opcodes ------------------------------------------------------------------


def opcodes(value) -> bytes:
    return pickle_bytes(value)[2:-1]  # without PROTO and STOP


def storage_head(dtype: str, numel: int) -> bytes:
    """Return a whole file of one storage, up to its bytes."""
    root = pickle_bytes(storage_id(dtype, "1", numel))
    return preamble(root, ["1"]) + struct.pack("<q", numel)


def tensor_of_bytes(opcode_and_length: bytes) -> bytes:
    """Return the start of a tensor whose storage is loaded from bytes, up to these."""
    rebuild, load = Global("torch._utils", "_rebuild_tensor"), Global("torch.storage", "_load_from_bytes")
    return opcodes(rebuild) + b"(" + opcodes(load) + opcode_and_length


def tensor_end(size: int) -> bytes:
    return b"\x85R" + opcodes(0) + opcodes((size,)) + opcodes((1,)) + b"tR"


# --- Python 2 ----------------------------------------------------------------------------------


def short_string(text: str) -> bytes:
    return b"U" + bytes((len(text),)) + text.encode()


def long1(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True) if value else b""
    return b"\x8a" + bytes((len(raw),)) + raw


def python2_tensor(key: str, numel: int, shape: Sequence[int]) -> bytes:
    """_rebuild_tensor with four arguments, sizes as LONG1, names as SHORT_BINSTRING."""
    sizes = b"".join(long1(size) for size in shape)
    strides = b"".join(long1(stride) for stride in modern_pt.contiguous_strides(shape))
    storage = b"(" + short_string("storage") + b"ctorch\nFloatStorage\n" + short_string(key)
    storage += short_string("cpu") + long1(numel) + b"NtQ"
    return b"ctorch._utils\n_rebuild_tensor\n(" + storage + b"K\x00(" + sizes + b"t(" + strides + b"ttR"


def python2_file(tensors: Sequence[tuple]) -> bytes:
    """tensors: (name, shape, bytes of floats). An OrderedDict of a list of [name, tensor] lists."""
    pairs = b""
    for index, (name, shape, data) in enumerate(tensors):
        pairs += b"](" + short_string(name) + python2_tensor(str(index), len(data) // 4, shape) + b"e"
    root = b"\x80\x02ccollections\nOrderedDict\n](" + pairs + b"e\x85R."
    keys = b"\x80\x02](" + b"".join(short_string(str(i)) for i in range(len(tensors))) + b"e."
    head = preamble(root, ())[: -len(pickle_bytes([]))]
    return head + keys + b"".join(block("float32", data) for _, _, data in tensors)


# --- tar ---------------------------------------------------------------------------------------


def tar_member(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def tar_file(root, storages: Sequence[tuple], views: Sequence[tuple], tensors: Sequence[tuple]) -> bytes:
    """storages: (key, dtype, bytes); views: (key, storage, offset, numel); tensors: (key, storage, dtype,
    shape, strides, offset). In the root, PersistentId(str(key)) stands for each."""
    stored = pickle_bytes(len(storages))
    for key, dtype, data in storages:
        stored += pickle_bytes((key, "cpu", Global("torch", modern_pt.DTYPES[dtype][0])))
        stored += block(dtype, data)
    stored += pickle_bytes([tuple(view) for view in views])
    described = pickle_bytes(len(tensors))
    for key, storage, dtype, shape, strides, offset in tensors:
        kind = modern_pt.DTYPES[dtype][0].replace("Storage", "Tensor")
        described += pickle_bytes((key, storage, Global("torch", kind)))
        described += struct.pack(f"<ii{2 * len(shape) + 1}q", len(shape), 0, *shape, *strides, offset)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        tar_member(archive, "sys_info", pickle_bytes(SYSTEM))
        tar_member(archive, "pickle", pickle_bytes(root))
        tar_member(archive, "tensors", described)
        tar_member(archive, "storages", stored)
    return stream.getvalue()
