"""Makes hostile names, which match in many ways. SIZE is the approximate size of graph and checkpoint."""

import encode as e

SAVE = ["save-external", "g.onnx", "c.safetensors", "--dry-run"]


def pair(slots, keys, dims=(1,), key_shape=(1,), metadata=None, options=()):
    files = {"g.onnx": e.graph_of_names(slots, dims), "c.safetensors": e.safetensors(dict.fromkeys(keys, key_shape), metadata)}
    return files, SAVE + list(options)


def shared_suffix(draw, size):
    """Make a slot of every suffix of every key, so that each component of a key leads to a prefix."""
    depth = draw.choice([4, 16, 60])
    tail = ["a"] * depth
    slots = [".".join(tail[i:]) for i in range(depth)]
    count = max(1, size // (2 * depth + 70))
    return pair(slots, [f"{i}." + ".".join(tail) for i in range(count)])


def nested_prefix(draw, size):
    """Make nested keys such as p.p.p.w, with slots that all prefixes but one leave open."""
    depth = draw.choice([8, 40, 64])
    count = max(1, size // (2 * depth + 150))
    keys = [".".join(["p"] * (i % depth) + [f"w{i // depth}"]) for i in range(count)]
    slots = [".".join(["p"] * draw.randrange(depth) + [f"w{i // depth}"]) for i in range(count)]
    return pair(sorted(set(slots)), sorted(set(keys)))


def added_prefix(draw, size):
    depth = draw.choice([4, 16, 60])
    tail = ["a"] * depth
    count = max(1, size // (4 * depth + 40))
    return pair([f"{i}." + ".".join(tail) for i in range(count)], [".".join(tail[i:]) for i in range(depth)])


def duplicate_names(bits, count, letter="a"):
    """Return different names that are equal if dots count as underscores."""
    return ["".join(letter + ("." if i >> bit & 1 else "_") for bit in range(bits)) + "z" for i in range(count)]


def refined_ties(draw, size):
    """One bucket of names that refine alike meets as many prefixes."""
    count = max(2, size // 150)
    bits = max(3, count.bit_length())
    slots = duplicate_names(bits, count)
    keys = [f"{i}.{draw.choice(slots)}" for i in range(count)]
    return pair(slots, keys, dims=draw.choice([(1,), None]))


def refined_ties_added(draw, size):
    count = max(2, size // 150)
    keys = duplicate_names(max(3, count.bit_length()), count)
    return pair([f"{i}.{draw.choice(keys)}" for i in range(count)], keys)


def refined_bucket(draw, size):
    """Make slots and keys that are all equal if dots count as underscores."""
    count = max(2, size // 150)
    names = duplicate_names(max(3, count.bit_length() + 1), 2 * count)
    draw.shuffle(names)
    return pair(names[:count], names[draw.randrange(count) : draw.randrange(count, 2 * count) + 1])


def metadata_ties(draw, size):
    """Make dropped names, each of which stands for a slot of a large bucket."""
    count = max(2, size // 120)
    slots = duplicate_names(max(3, count.bit_length()), count)
    return pair(slots + ["kept"], ["kept"], metadata=dict.fromkeys(slots, "kept"))


def metadata_chain(draw, size):
    """Tie each weight to the previous one; the checkpoint has the first one or all."""
    count = max(2, size // 120)
    nodes = [e.node("Add", [f"y{i - 1}" if i else "w0", f"w{i}"], [f"y{i}"]) for i in range(count)]
    copies = [e.node("Identity", [f"w{i - 1}"], [f"w{i}"]) for i in range(1, count)] if draw.random() < 0.5 else []
    values = [e.value_info(f"w{i}", (1,)) for i in range(count)]
    keys = [f"w{i}" for i in range(1 if draw.random() < 0.7 else count)]
    metadata = {f"w{i}": f"w{i - 1}" for i in range(1, count)}
    files = {"g.onnx": e.model(e.graph([*copies, *nodes], values=values)),
             "c.safetensors": e.safetensors(dict.fromkeys(keys, (1,)), metadata)}
    return files, SAVE


def metadata_wrapped(draw, size):
    """Make the same chain with names of wrappers, which are ignored."""
    count = max(2, size // 200)
    parts = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"]
    names = [".".join(draw.choice(parts) for _ in range(draw.randrange(1, 9))) + f".w{i % 7}" for i in range(count)]
    return pair(sorted(set(names)) + ["kept"], ["kept"], metadata=dict.fromkeys(names, "kept"))


def one_last_segment(draw, size):
    count = max(2, size // 130)
    return pair([f"x{i}.weight" for i in range(count)], [f"y{i}.weight" for i in range(count)],
                options=draw.choice([[], ["-v"], ["--json"]]))


def suffix_rule(draw, size):
    """Make names without a common prefix, so that many long suffixes are compared."""
    count, depth = max(2, size // 400), draw.choice([3, 20, 40])
    tail = ".".join(["s"] * depth)
    slots = [f"{'s.' * (i % depth)}{i % 50}_{tail}"[-200:] for i in range(count)]
    return pair(sorted(set(slots)), [f"k{i}.{tail}" for i in range(count)], dims=None)


def near_names(draw, size):
    """Make long names with small differences, for which the nearest names are searched."""
    length = draw.choice([20, 250, 1000])
    count = max(2, size // (2 * length + 100))
    stem = "n" * (length - 8)
    return pair([f"{stem}{i:07}a" for i in range(count)], [f"{stem}{i:07}b" for i in range(count)])


def long_names(draw, size):
    length = max(10, size // draw.choice([2, 8, 40]))
    count = max(1, size // (2 * length + 80))
    stem = draw.choice(["a.", "a_", "_.", "/a", "_orig_mod."]) * (length // 2)
    keys = [f"{i}.{stem}w"[:length] + "w" for i in range(count)]
    return pair([f"{stem}w"[:length] + "w", *(f"{i}{stem}w"[:length] + "x" for i in range(count))], keys)


def one_shape(draw, size):
    """Make names that never match with equal shapes, so that all are candidates in a map file."""
    count = max(2, size // 160)
    return pair([f"s{i}.q" for i in range(count)], [f"k{i}.r" for i in range(count)],
                dims=(1, 1), key_shape=(1, 1), options=["--save-map", "map.json"])


def partial(draw, size):
    """Make names that match in part; all others are missing or left over, with the same shape."""
    count = max(2, size // 160)
    slots = [f"m{i % 97}.a{i}" for i in range(count)]
    keys = [f"m{i % 97}.{'a' if i % 3 else 'b'}{i}" for i in range(count)]
    return pair(slots, keys, options=draw.choice([["--partial", "--unmatched", "skip", "--save-map", "map.json"], ["--save-map", "map.json"], ["--unmatched", "keep"], ["--partial"], []]))


def subgraph_slots(draw, size):
    """Use one name with different shapes in the branches of many If nodes."""
    count = max(2, size // 260)
    bodies = []
    for i in range(count):
        dims = draw.choice([(1,), ("n",), ("m", 1)]) if draw.random() < 0.01 else (1,)
        values = [e.value_info("w", dims)]
        bodies.append(e.graph_attribute("then_branch", e.graph([e.node("Neg", ["w"], ["o"])], values=values)))
    nodes = [e.node("If", ["c"], [f"o{i}"], attributes=[body]) for i, body in enumerate(bodies)]
    keys = {f"k{i}.w": (1,) for i in range(count)}
    return {"g.onnx": e.model(e.graph(nodes)), "c.safetensors": e.safetensors(keys)}, SAVE


def many_inputs(draw, size):
    """Make inputs x.N next to inputs x, which is how torch makes names unique."""
    count = max(2, size // 100)
    dims = draw.choice([(1,), (1, 1)])
    names = [f"x{i}" for i in range(count // 2)] + [f"x{i}.1" for i in range(count // 2)]
    inputs = [e.value_info(name, dims, draw.choice([e.FLOAT, e.INT64])) for name in names]
    nodes = [e.node("Sum", [*names, "w"], ["out"])]
    keys = {"w": (1,), **{f"x{i}": (1,) for i in range(count // 2)}} if draw.random() < 0.5 else {"w": (1,)}
    return {"g.onnx": e.model(e.graph(nodes, inputs=inputs)), "c.safetensors": e.safetensors(keys)}, SAVE


def identities(draw, size):
    """Return a chain of Identity nodes over one weight, forwards or in a star."""
    count = max(2, size // 40)
    chain = draw.random() < 0.5
    nodes = [e.node("Identity", [f"i{i - 1}" if chain and i else "w"], [f"i{i}"]) for i in range(count)]
    nodes.append(e.node("Sum", [f"i{i}" for i in range(count)], ["out"]))
    held = [e.tensor("w", (1,), b"\0\0\0\0")] if draw.random() < 0.7 else []
    keys = {draw.choice(["w", f"i{count - 1}"]): (1,), "other": (1,)}
    return {"g.onnx": e.model(e.graph(nodes, held)), "c.safetensors": e.safetensors(keys)}, SAVE


def numbered(draw, size):
    count = max(2, size // 130)
    nodes = [e.node("Relu", ["w"], [f"mask{i}"]) for i in range(count)]
    names = [f"mask{i}.1" for i in range(count)]
    keys = {f"mask{i}": (1,) for i in range(count)} | {"w": (1,)}
    graph = e.graph([*nodes, e.node("Sum", names, ["out"])], values=[e.value_info(n, (1,)) for n in names])
    return {"g.onnx": e.model(graph), "c.safetensors": e.safetensors(keys)}, SAVE


def modules(draw, size):
    """Make unused keys deep inside modules that are used or unused."""
    depth = draw.choice([3, 100, 1000])
    count = max(2, size // (depth * 2 + 120))
    keys = {f"{i}." + "m." * depth + draw.choice(["weight", "bias", "running_mean"]): (1,) for i in range(count)}
    keys["used.weight"] = (1,)
    nodes = [e.node("Sum", ["used.weight"], ["out"], name=f"/{i}/m") for i in range(count)]
    graph = e.graph(nodes[:1], values=[e.value_info("used.weight", (1,))])
    return {"g.onnx": e.model(graph), "c.safetensors": e.safetensors(keys)}, SAVE


def options_of_names(draw, size):
    """Make options with regular expressions for many long names."""
    count = max(2, size // 200)
    keys = ["a" * draw.choice([3, 100, 5000]) + f".{i}" for i in range(max(2, count // 20))]
    expression = draw.choice(["(a*)*b", "(a|aa)+$", "(.*)(.*)(.*)(.*)x"])
    option = draw.choice([["--ignore", expression], ["--rename", f"s/{expression}|a/b/g"]])
    return pair(["a", "b"], keys, options=option)


def map_file(draw, size):
    """Return a map, or ties, of every slot to the same key; the last name is wrong."""
    count = max(2, size // 130)
    slots = [f"s{i}" for i in range(count)]
    last = draw.choice(["s0", "no"])
    text = "{" + "".join(f'"s{i}": "k",' for i in range(count)) + f'"{last}": "kk"}}'
    files, command = pair(slots, ["k", *(f"k{i}" for i in range(count))], options=["--map", "m.json"])
    return {**files, "m.json": text.encode()}, command


FAMILIES = [shared_suffix, nested_prefix, added_prefix, refined_ties, refined_ties_added, refined_bucket, metadata_ties,
            metadata_chain, metadata_wrapped, one_last_segment, suffix_rule, near_names, long_names, one_shape, partial, subgraph_slots,
            many_inputs, identities, numbered, modules, options_of_names, map_file]
