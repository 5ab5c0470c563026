"""Makes hostile files that are small but expensive to read. SIZE is the approximate number of stored bytes."""

import struct

import encode as e

SPARSE = 1 << 30  # bytes of a file that has none


def commands(draw, name, more=()):
    """Return the commands that read a checkpoint."""
    if draw.random() < 0.5:
        flags = [["--sha256"], ["--json"], ["--tree"], ["--sort", "size", "--filter", "a.*b$"], ["--html", "x.html"], ["--diff", name]]
        return ["inspect-external", name, *draw.choice(flags), *more]
    return ["save-external", "g.onnx", name, "--dry-run", *more]


def checkpoint(draw, name, data, more=()):
    return {"g.onnx": e.graph_of_names(["w", "x.w", "y"]), name: data}, commands(draw, name, more)


# --- pickles and archives --------------------------------------------------------------------------


def opcodes(draw, size):
    """Make runs of opcodes of one or two bytes, each of which creates an object."""
    unit = draw.choice([b"]", b"}", b"(", b"N", b")", b"K\0", b"]q\0", b"\x8f", b"(l", b"(d", b"0N", b"N\x94", b"N\x85", b"2", b"]2a", b"X\0\0\0\0", b"h\0", b"cc\nc\n", b")R", b"Nb", b"U\0"])
    start = b"\x80\x02" + draw.choice([b"", b"(", b"]q\0(", b"]q\0", b"}(", b"cc\nc\nq\0"])
    return start + unit * (size // len(unit)) + draw.choice([b".", b"e.", b"u.", b"t.", b"l.", b""])


def plain_pickle(draw, size):
    return checkpoint(draw, "c.pt", opcodes(draw, size))


def deflated_pickle(draw, size):
    """Make a pickle that inflates a thousand times."""
    stored = size if draw.random() < 0.3 else min(size, 24_000)
    return checkpoint(draw, "c.pt", e.torch_zip(opcodes(draw, stored * draw.choice([10, 100, 1000])), [("0", bytes(4))], deflate=True))


def deflated_tensors(draw, size):
    """Return a state dict whose names repeat, so that it deflates well."""
    count = max(1, size // draw.choice([4, 20]))
    names = {f"{'n' * draw.choice([1, 40])}{i}": (1,) for i in range(min(count, 150_000))}
    return checkpoint(draw, "c.pt", e.torch_zip(e.pickled_tensors(names), [("0", bytes(4))], deflate=True))


def pickled_state(draw, size):
    names = {f"m.{i}.w": (1,) * draw.choice([1, 1, 5]) for i in range(max(1, size // 150))}
    return checkpoint(draw, "c.pt", e.torch_zip(e.pickled_tensors(names), [("0", bytes(4))]))


def nested(draw, size):
    """Make nested dicts and lists, and an object that many paths reach."""
    depth = size // 12
    deep = b"}" + b"".join(e.text("a") + b"}" for _ in range(depth)) + b"s" * depth
    shared = b"]q\0" + b"".join(b"]q" + bytes([i + 1]) + b"h" + bytes([i]) + b"ah" + bytes([i]) + b"a" for i in range(200))
    lists = b"]" * (size // 2) + b"a" * (size // 2 - 1)
    tensor = e.pickled_tensors({"w": (1,)})[2:-1]
    wide = b"}(" + b"".join(e.text(str(i)) + b"h\0" for i in range(size // 10)) + b"u"
    body = draw.choice([deep, shared, lists, tensor + b"q\0" + wide, b"}" + e.text("d") + tensor + b"q\0s" + e.text("e") + wide + b"s"])
    return checkpoint(draw, "c.pt", e.torch_zip(b"\x80\x02" + body + b".", [("0", bytes(4))]))


def many_records(draw, size):
    count = max(1, size // 120)
    storages = [(str(i), bytes(4)) for i in range(count)]
    names = {f"w{i}": (1,) for i in range(count if draw.random() < 0.5 else 1)}
    return checkpoint(draw, "c.pt", e.torch_zip(e.pickled_tensors(names, key_of=str), storages))


def many_views(draw, size):
    """Make many views of one storage that is a hole."""
    shape = draw.choice([(1 << 10,), (1 << 16,), (4, 1 << 20), (1 << 26,)])
    names = {f"w{i}": shape for i in range(max(1, size // 200))}
    data = e.pickled_tensors(names)
    legacy = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}."
    return checkpoint(draw, "c.pt", (legacy + data + b"\x80\x02]" + e.text("0") + b"a." + struct.pack("<q", 1 << 26), SPARSE))


def tar(draw, size):
    count = max(1, size // 1100)
    return checkpoint(draw, "c.pt", e.tar_file([(f"m{i}", b"x") for i in range(count)]))


# --- JSON ----------------------------------------------------------------------------------------


def json_documents(draw, size):
    unit = draw.choice(["[", '{"a":', '"a",', "1,", "{},", "[],", '{"a":1},', "1e9,", "null,"])
    text = (draw.choice(["{", "[", '{"weight_map":{"a":[', '{"__metadata__":{"a":[', '{"a":[']) + unit * (size // len(unit))).encode()
    if draw.random() < 0.5:
        return checkpoint(draw, "c.safetensors", struct.pack("<Q", len(text)) + text)
    return checkpoint(draw, "c.safetensors.index.json", text)


def small_tensors(draw, size):
    names = {f"{i}": draw.choice([(0,), (1,), ()]) for i in range(max(1, size // 60))}
    return checkpoint(draw, "c.safetensors", e.safetensors(names))


def sparse_safetensors(draw, size):
    """Make tensors in a file that is a hole."""
    count = max(1, size // 90)
    header, each = {}, SPARSE // count // 4 * 4
    for i in range(count):
        header[f"w{i}.x"] = {"dtype": "F32", "shape": [each // 4], "data_offsets": [i * each, (i + 1) * each]}
    text = str(header).replace("'", '"').encode()
    return checkpoint(draw, "c.safetensors", (struct.pack("<Q", len(text)) + text, 8 + len(text) + count * each))


def shard_index(draw, size):
    """Make many names in one shard, or as many shards."""
    shards = draw.choice([1, 20, 500])
    names = [f"w{i}" for i in range(max(shards, size // 60))]
    files = {f"s{i}.safetensors": e.safetensors({name: (1,) for name in names[i::shards]}) for i in range(shards)}
    entries = ",".join(f'"{name}":"s{i % shards}.safetensors"' for i, name in enumerate(names))
    files["c.index.json"] = ('{"weight_map":{' + entries + "}}").encode()
    files["g.onnx"] = e.graph_of_names(["w0", "w1"])
    return files, commands(draw, "c.index.json")


def missing_shards(draw, size):
    entries = ",".join(f'"w{i}":"s{i}.safetensors"' for i in range(max(1, size // 30)))
    return checkpoint(draw, "c.index.json", ('{"weight_map":{' + entries + "}}").encode())


FAMILIES = [plain_pickle, deflated_pickle, deflated_tensors, pickled_state, nested, many_records, many_views, tar,
            json_documents, small_tensors, sparse_safetensors, shard_index, missing_shards]
