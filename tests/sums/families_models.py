"""Makes hostile graphs and models. SIZE is the approximate number of stored bytes."""

import encode as e

SPARSE = 1 << 30  # bytes of a data file that has none

INSPECT = (["--json"], ["--sha256"], ["--tree"], ["--html", "x.html"], ["--sort", "size"], ["-v"], ["--diff", "m.onnx"])


def reading(draw, files):
    """Return the commands that read a model."""
    files.setdefault("c.safetensors", e.safetensors({"w": (1,), "w0": (1,), "w1": (1,)}))
    options = [["inspect-external", "m.onnx", *draw.choice(INSPECT)], ["verify-external", "m.onnx"],
               ["verify-external", "m.onnx", "--against", "c.safetensors"], ["save-external", "m.onnx", "c.safetensors", "--dry-run"],
               ["save-external", "m.onnx", "-o", "out", "--no-fsync", "--layout", draw.choice(["single", "inline", "per-tensor", "shards"])]]
    return files, draw.choice(options)


def messages(draw, size):
    """Make messages of a few bytes each, for which a parser creates objects."""
    unit, place = draw.choice([
        (e.field(5, b""), "graph"), (e.field(1, b""), "graph"), (e.field(13, b""), "graph"), (e.field(11, b""), "graph"),
        (e.field(15, b""), "graph"), (e.field(12, b""), "graph"), (e.field(16, b""), "graph"), (e.field(14, b""), "graph"),
        (e.field(14, b""), "model"), (e.field(8, b""), "model"), (e.field(25, b""), "model"), (e.field(20, b""), "model"),
        (e.field(1, b""), "node"), (e.field(2, b""), "node"), (e.field(5, b""), "node"), (e.field(9, b""), "node"),
        (e.field(10, b""), "attribute"), (e.field(11, b""), "attribute"), (e.field(22, b""), "attribute"), (e.field(9, b""), "attribute"),
        (e.field(15, b""), "attribute"), (e.number(8, 1), "attribute"), (e.field(13, b""), "tensor"), (e.number(1, 1), "tensor"),
        (e.number(1, 0), "tensor"), (e.field(6, b""), "tensor"), (e.field(99, b""), "graph"), (e.number(99, 1), "model")])
    run = unit * (size // len(unit))
    body = e.graph([e.node("Neg", ["w"], ["out"])])
    if place == "node":
        body += e.field(1, e.field(4, "Neg") + run)
    elif place == "attribute":
        body += e.field(1, e.field(4, "Neg") + e.field(5, e.field(1, "a") + run))
    elif place == "tensor":
        body += e.field(5, e.field(8, "t") + e.number(2, e.FLOAT) + run)
    elif place == "graph":
        body += run
    return reading(draw, {"m.onnx": e.model(body) + (run if place == "model" else b"")})


def empty_initializers(draw, size):
    dims, raw = draw.choice([((0,), None), ((0,), b""), ((1,), b"\0\0\0\0"), ((), None)])
    kinds = draw.choice([lambda i: f"i{i}", lambda i: "", lambda i: f"m.{i}.n.{i}.w"])
    count = max(1, size // len(e.field(5, e.tensor(kinds(9999), dims, raw))))
    body = e.graph([e.node("Neg", ["w"], ["out"])], [e.tensor(kinds(i), dims, raw) for i in range(count)])
    return reading(draw, {"m.onnx": e.model(body)})


def nodes(draw, size):
    """Make many nodes, each of which reads the output of the previous one."""
    unit = draw.choice(["Neg", "Constant", "Identity"])
    count = max(1, size // 30)
    value = [e.field(1, "value") + e.field(5, e.tensor("", (1,), b"\0\0\0\0")) + e.number(20, 4)] if unit == "Constant" else []
    made = [e.node(unit, [] if value else [f"{i}"], [f"{i + 1}"], attributes=value) for i in range(count)]
    return reading(draw, {"m.onnx": e.model(e.graph(made))})


def untyped(draw, size):
    """Make undefined names whose types and shapes must be found through many nodes, in either order."""
    rank = draw.choice([1, 4, 8, 64])
    op = draw.choice(["Sum", "Concat", "LSTM", "MatMul", "Transpose", "Where", "Gemm", "Slice", "Squeeze"])
    count = max(1, size // 40)
    if draw.random() < 0.5:
        made = [e.node(op, [f"w{i}" for i in range(count)], ["out"])]
    else:
        made = [e.node(op, [f"v{i}", f"w{i % 3}", f"u{i}"], [f"v{i + 1}"]) for i in range(count)]
        made = made[::-1] if draw.random() < 0.5 else made
    values = [e.value_info(name, (2,) * rank) for name in ("out", f"v{count}", "v0", "w0")]
    return reading(draw, {"m.onnx": e.model(e.graph(made, values=values))})


def deep_graphs(draw, size):
    """Make subgraphs that are nested to the limit, or side by side."""
    depth = draw.choice([5, 30, 99, 101])
    names = [f"w{i}" for i in range(max(1, size // (20 * depth)))]
    body = e.graph([e.node("Sum", names, ["o"])])
    for level in range(depth):
        body = e.graph([e.node("Sum", names, ["s"]), e.node("If", ["c"], [f"o{level}"], attributes=[e.graph_attribute("then_branch", body)])])
    return reading(draw, {"m.onnx": e.model(body)})


def metadata(draw, size):
    """Make exporters' metadata on values, with lists of names from which they were folded."""
    count = max(1, size // draw.choice([150, 1000]))
    names = "[" + ",".join(f"'w{i}'" for i in range(max(1, size // count // 8))) + "]"
    values = [e.value_info(f"v{i}", (1,)) + e.field(4, e.field(1, "pkg.onnxscript.optimizer.folded_from") + e.field(2, names)) for i in range(count)]
    body = e.graph([e.node("Sum", [f"v{i}" for i in range(count)], ["out"])], [e.tensor(f"v{i}", (1,), b"\0\0\0\0") for i in range(count)], values=values)
    return reading(draw, {"m.onnx": e.model(body)})


def one_range(draw, size):
    """Make many tensors that refer to one large range, or to overlapping ranges, of an empty file."""
    count = max(1, size // 110)
    total = draw.choice([1 << 20, 1 << 26, SPARSE, 1 << 34])
    step = draw.choice([0, 0, 4096])
    length = max(4, (total - step * count) // 4 * 4)
    held = [e.tensor(f"w{i}", (length // 4,), external={"location": "d", "offset": i * step, "length": length}) for i in range(count)]
    body = e.graph([e.node("Sum", [f"w{i}" for i in range(count)], ["out"])], held)
    return reading(draw, {"m.onnx": e.model(body), "d": (b"", total)})


def many_files(draw, size):
    """Make entries for as many files, which exist or not."""
    count = min(max(1, size // 100), 3000)
    held = [e.tensor(f"w{i}", (1,), external={"location": f"d{i}"}) for i in range(count)]
    body = e.graph([e.node("Sum", [f"w{i}" for i in range(count)], ["out"])], held)
    files = {f"d{i}": bytes(4) for i in range(count)} if draw.random() < 0.3 else {}
    return reading(draw, {"m.onnx": e.model(body), **files})


def bad_entries(draw, size):
    count = max(1, size // 60)
    entry = draw.choice([{"location": ""}, {"location": "../x"}, {"offset": 1}, {"location": "d", "length": "x"}, {"location": "/" * 200}, {"x": "y"}])
    held = [e.tensor(f"w{i}", (1,), external=entry) for i in range(count)]
    return reading(draw, {"m.onnx": e.model(e.graph([e.node("Neg", ["w0"], ["out"])], held))})


def manifests(draw, size):
    """Return a manifest of huge lists, beside a model that refers to its folder."""
    held = [e.tensor(f"w{i}", (1,), external={"location": f"d/w{i}", "length": 4}) for i in range(3)]
    unit = draw.choice(['{"slot":"w0","file":"w0","offset":0,"length":4,"key":"w","rule":"exact","dtype":"float32","shape":[1],"crc32":"00000000"},', '{"name":"w0"},', '"w0",', "{},", "[],", "1,"])
    key = draw.choice(["tensors", "files", "linked", "test_data", "sources", "x"])
    text = '{"version":1,"model":"m.onnx","' + key + '":[' + unit * (size // len(unit)) + unit[:-1] + "]}"
    files = {"m.onnx": e.model(e.graph([e.node("Sum", ["w0", "w1", "w2"], ["out"])], held)), "d/manifest.json": text.encode()}
    return reading(draw, files | {f"d/w{i}": bytes(4) for i in range(3)})


def held_bytes(draw, size):
    """Make data that may belong to any of as many keys, whose bytes differ only at the end."""
    count = max(1, size // 250)
    length = draw.choice([8, 4096, 1 << 20])
    name = draw.choice(["onnx::MatMul_", "w", "val_"])
    held = [e.tensor(f"{name}{i}", (length // 4,), external={"location": "d", "offset": (i + 1) * length, "length": length}) for i in range(count)]
    body = e.graph([e.node(draw.choice(["MatMul", "Sum", "Gather"]), [f"{name}{i}" for i in range(count)], ["out"])], held)
    each = length // 4
    header = ",".join(f'"k{i}":{{"dtype":"F32","shape":[{each}],"data_offsets":[{i * length},{(i + 1) * length}]}}' for i in range(count))
    text = ("{" + header + "}").encode()
    keys = (len(text).to_bytes(8, "little") + text, 8 + len(text) + count * length)
    options = draw.choice([[], ["--learn-map", "c.safetensors"], ["--learn-map", "c.safetensors", "--unmatched", "skip"], ["--partial"], ["--dedup", "content"]])
    files = {"m.onnx": e.model(body), "d": (b"", length * (count + 1)), "c.safetensors": keys}
    return files, ["save-external", "m.onnx", "c.safetensors", "--dry-run", *options]


def learned(draw, size):
    """Return an old checkpoint whose tensors are all equal, or all unknown."""
    count = max(1, size // 250)
    fill = draw.choice([lambda i: bytes(8), lambda i: i.to_bytes(8, "little"), lambda i: b"\1\2\3\4\5\6\7\10"])
    held = [e.tensor(f"{draw.choice('xy')}{i}.w", (2,), fill(i)) for i in range(count)]
    body = e.graph([e.node("Sum", [f"x{i}.w" for i in range(count)], ["out"])], held)
    shift = draw.choice([0, 1, count])
    old = e.safetensors({f"k{i}.w": (2,) for i in range(count)}, data=b"".join(fill(i + shift) for i in range(count)))
    new = e.safetensors({f"k{i}.w": (2,) for i in range(count)}, data=bytes(8) * count)
    return {"m.onnx": e.model(body), "o.safetensors": old, "c.safetensors": new}, [
        "save-external", "m.onnx", "c.safetensors", "--dry-run", "--learn-map", "o.safetensors"]


FAMILIES = [messages, empty_initializers, nodes, untyped, deep_graphs, metadata, one_range, many_files, bad_entries, manifests, held_bytes, learned]
