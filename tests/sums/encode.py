"""Encodes safetensors, ONNX, pickle, zip and tar files by hand, because no library would write such files."""

import json
import struct
import zlib

FLOAT, INT64 = 1, 7


# --- protobuf ------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def field(place: int, value) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    return varint(place << 3 | 2) + varint(len(value)) + value


def tensor(name: str, dims=(), raw=None, external=None, data_type=FLOAT) -> bytes:
    body = b"".join(number(1, dim) for dim in dims) + number(2, data_type) + field(8, name)
    if raw is not None:
        body += field(9, raw)
    for key, value in (external or {}).items():
        body += field(13, field(1, key) + field(2, str(value)))
    return body + (number(14, 1) if external else b"")


def value_info(name: str, dims=None, elem_type=FLOAT) -> bytes:
    shape = b""
    if dims is not None:
        one = [field(1, number(1, dim)) if isinstance(dim, int) else field(1, field(2, dim)) for dim in dims]
        shape = field(2, b"".join(one))
    return field(1, name) + field(2, field(1, number(1, elem_type) + shape))


def node(op: str, inputs=(), outputs=(), name="", attributes=(), metadata=()) -> bytes:
    body = b"".join(field(1, each) for each in inputs) + b"".join(field(2, each) for each in outputs)
    body += (field(3, name) if name else b"") + field(4, op)
    body += b"".join(field(5, each) for each in attributes)
    return body + b"".join(field(9, field(1, key) + field(2, value)) for key, value in metadata)


def graph_attribute(name: str, body: bytes) -> bytes:
    return field(1, name) + field(6, body) + number(20, 5)


def graph(nodes=(), initializers=(), inputs=(), values=(), outputs=("out",)) -> bytes:
    body = b"".join(field(1, each) for each in nodes) + field(2, "g")
    body += b"".join(field(5, each) for each in initializers) + b"".join(field(11, each) for each in inputs)
    body += b"".join(field(12, value_info(each)) for each in outputs)
    return body + b"".join(field(13, each) for each in values)


def model(body: bytes, producer="pytorch", version="2.6.0", metadata=()) -> bytes:
    head = number(1, 8) + field(2, producer) + field(3, version)
    tail = field(8, field(1, "") + number(2, 17))
    return head + field(7, body) + tail + b"".join(field(14, field(1, k) + field(2, v)) for k, v in metadata)


def graph_of_names(names, dims=(), sort="Sum") -> bytes:
    """Return a model in which one node uses undefined names. If `dims` is None, no shapes are stated."""
    values = [] if dims is None else [value_info(name, dims) for name in names]
    return model(graph([node(sort, names, ["out"])], values=values))


# --- checkpoints ---------------------------------------------------------------------------------


def safetensors(shapes: dict, metadata=None, data=None) -> bytes:
    """Return a file of float32 tensors by name, whose bytes are zeros or `data`."""
    header, end = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, shape in shapes.items():
        count = 4
        for dim in shape:
            count *= dim
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [end, end + count]}
        end += count
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + (bytes(end) if data is None else data)


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def pickled_tensors(shapes: dict, storage="0", key_of=None) -> bytes:
    """Return a state dict as torch writes it. All tensors view one storage, or the storage key_of(place)."""
    out = [b"\x80\x02}("]
    for place, (name, shape) in enumerate(shapes.items()):
        count = 1
        for dim in shape:
            count *= dim
        key = key_of(place) if key_of else storage
        dims = b"(" + b"".join(b"J" + struct.pack("<i", dim) for dim in shape) + b"t"
        strides, step = [], 1
        for dim in reversed(shape):
            strides.insert(0, step)
            step *= dim
        steps = b"(" + b"".join(b"J" + struct.pack("<i", each) for each in strides) + b"t"
        out.append(
            text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage")
            + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + b"J" + struct.pack("<i", count)
            + b"tQK\x00" + dims + steps + b"\x89}tR"
        )
    return b"".join(out) + b"u."


def zip_file(records, deflate=()) -> bytes:
    """Return a zip file with records (name, bytes). Those named in `deflate` are deflated."""
    out, directory = bytearray(), bytearray()
    for name, data in records:
        raw, method, stored = name.encode(), 0, data
        if name in deflate:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            method, stored = 8, packer.compress(data) + packer.flush()
        fields = struct.pack("<HHHHIIIHH", 0, method, 0, 33, zlib.crc32(data), len(stored), len(data), len(raw), 0)
        directory += b"PK\1\2" + struct.pack("<H", 20) + struct.pack("<H", 20) + fields
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(out)) + raw
        out += b"PK\3\4" + struct.pack("<H", 20) + fields + raw + stored
    end = struct.pack("<HHHHIIH", 0, 0, len(records), len(records), len(directory), len(out), 0)
    return bytes(out + directory + b"PK\5\6" + end) if len(records) < 65535 else zip64(out, directory, len(records))


def zip64(out: bytearray, directory: bytearray, count: int) -> bytes:
    place = len(out) + len(directory)
    record = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, len(directory), len(out))
    locator = b"PK\6\7" + struct.pack("<IQI", 0, place, 1)
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return bytes(out + directory) + record + locator + end


def torch_zip(pickle: bytes, storages=(), deflate=False) -> bytes:
    records = [("a/data.pkl", pickle), ("a/byteorder", b"little"), ("a/version", b"3\n")]
    records += [("a/data/" + name, data) for name, data in storages]
    return zip_file(records, {"a/data.pkl"} if deflate else ())


def tar_file(members) -> bytes:
    out = bytearray()
    for name, data in members:
        head = bytearray(512)
        head[0 : len(name)] = name.encode()
        head[100:108], head[108:116], head[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
        head[124:136], head[136:148] = b"%011o\0" % len(data), b"00000000000\0"
        head[148:156], head[156:157], head[257:265] = b" " * 8, b"0", b"ustar\00000"
        head[148:156] = b"%06o\0 " % sum(head)
        out += head + data + bytes(-len(data) % 512)
    return bytes(out + bytes(1024))
