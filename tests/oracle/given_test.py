"""Tests models that contain their weights, which get another layout without a checkpoint and back.

python onnx must load the same tensors, and ONNX Runtime compute the same outputs, wherever the tensors stand:
initializers, subgraphs, attributes, functions, sparse ones; in raw_data and in every typed field.

usage: given_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import sys
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.numpy_helper
import torch
from onnx import TensorProto, helper

import runtime
import support
import zoo
from save_cases import SaveTest

LAYOUTS = {
    "per tensor": ("--layout", "per-tensor"),
    "single": ("--layout", "single"),
    "shards": ("--layout", "shards", "--max-shard-size", "60kB"),
    "inline": ("--layout", "inline"),
}


def tensor_values(tensor: onnx.TensorProto):
    """(type, dims, bytes), from whatever field holds them."""
    if tensor.data_type == TensorProto.STRING:
        data = b"\0".join(tensor.string_data)
    elif tensor.data_type == TensorProto.COMPLEX64 and tensor.float_data:
        data = np.array(tensor.float_data, np.float32).tobytes()  # onnx 1.12 cannot
    elif tensor.data_type == TensorProto.BFLOAT16 and tensor.int32_data:
        data = np.array(tensor.int32_data, np.uint16).tobytes()  # onnx would make it float32
    else:
        data = support.initializer_bytes(tensor)
    return tensor.data_type, tuple(tensor.dims), data


def all_values(model: onnx.ModelProto) -> list:
    """Return the values of initializers and attributes of nodes, also in subgraphs, in the order of the model."""

    def of_graph(graph):
        yield from (tensor_values(tensor) for tensor in graph.initializer)
        yield from of_nodes(graph.node)

    def of_nodes(nodes):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield tensor_values(attribute.t)
                for graph in (attribute.g, *attribute.graphs):
                    yield from of_graph(graph)

    return [*of_graph(model.graph), *(value for f in model.functions for value in of_nodes(f.node))]


def constant(name: str, value: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value))


def typed_model() -> onnx.ModelProto:
    """One initializer an element type, in the typed fields; nothing uses them."""
    count = 700
    numbers = range(count)
    make = helper.make_tensor
    tensors = [
        make("f32", TensorProto.FLOAT, [count], [i / 3 for i in numbers]),
        make("f64", TensorProto.DOUBLE, [count], [i / 7 for i in numbers]),
        make("f16", TensorProto.FLOAT16, [count], [float(i) for i in numbers]),
        make("bf16", TensorProto.BFLOAT16, [count], [float(i) for i in numbers]),
        make("c64", TensorProto.COMPLEX64, [count], [complex(i, -i) for i in numbers]),
        make("i64", TensorProto.INT64, [count // 7, 7], [i * 10**12 - 5 for i in numbers]),
        make("i32", TensorProto.INT32, [count], [i - 300 for i in numbers]),
        make("i16", TensorProto.INT16, [count], [i - 300 for i in numbers]),
        make("i8", TensorProto.INT8, [2 * count], [i % 256 - 128 for i in range(2 * count)]),
        make("u64", TensorProto.UINT64, [count], [2**64 - 1 - i for i in numbers]),
        make("u32", TensorProto.UINT32, [count], [2**32 - 1 - i for i in numbers]),
        make("u16", TensorProto.UINT16, [count], [i * 90 for i in numbers]),
        make("u8", TensorProto.UINT8, [2 * count], [i % 256 for i in range(2 * count)]),
        make("bool", TensorProto.BOOL, [2 * count], [i % 3 == 0 for i in range(2 * count)]),
        make("small", TensorProto.INT64, [2], [4, -1]),
        make("text", TensorProto.STRING, [2], [b"t" * 600, b"u"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "typed", [x], [y], tensors)
    return with_version(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def with_version(model: onnx.ModelProto) -> onnx.ModelProto:
    model.ir_version = 8
    return model


SIZE = 24


def branch(name: str, weight: np.ndarray, node_value: np.ndarray) -> onnx.GraphProto:
    nodes = [
        constant(f"{name}_c", node_value),
        helper.make_node("MatMul", ["m3", "w"], [f"{name}_m"]),
        helper.make_node("Add", [f"{name}_m", f"{name}_c"], [f"{name}_y"]),
    ]
    y = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [SIZE, SIZE])
    return helper.make_graph(nodes, name, [], [y], [onnx.numpy_helper.from_array(weight, "w")])


def shapes_model() -> tuple:
    """Weights beside the small tensors that runtimes want in the model: a shape, axes, scales; and its case."""
    x = np.random.RandomState(6).rand(4, 3, 1, 8).astype(np.float32)
    weight = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    numbers = {
        "weight": weight,
        "axes": np.array([2], np.int64),
        "shape": np.array([1, 4, 3, 8], np.int64),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["m"]),
        helper.make_node("Squeeze", ["m", "axes"], ["s"]),
        helper.make_node("Reshape", ["s", "shape"], ["r"]),
        helper.make_node("Resize", ["r", "", "scales"], ["y"], mode="nearest"),
    ]
    graph = helper.make_graph(
        nodes,
        "shapes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 16])],
        [onnx.numpy_helper.from_array(value, name) for name, value in numbers.items()],
    )
    model = with_version(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    y = (x @ weight).reshape(1, 4, 3, 8).repeat(2, 2).repeat(2, 3)
    return model, SimpleNamespace(inputs=(torch.from_numpy(x),), outputs=(torch.from_numpy(y),))


def places_model() -> tuple:
    """Return a model with a weight in every place, and the case that says what it computes."""
    random = np.random.RandomState(5)
    matrix = lambda: random.rand(SIZE, SIZE).astype(np.float32)  # noqa: E731
    main, attribute, function, inner, inner_constant, x = (matrix() for _ in range(6))
    values, indices = random.rand(300).astype(np.float32), np.arange(300, dtype=np.int64)
    dense = np.zeros(SIZE * SIZE, np.float32)
    dense[:300] = values
    sparse = onnx.SparseTensorProto()
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(values, "sparse"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(indices))
    sparse.dims.extend([SIZE, SIZE])
    body = [constant("fc", function), helper.make_node("MatMul", ["a", "fc"], ["b"])]
    opset = helper.make_opsetid("", 17)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m0"]),
        constant("c", attribute),
        helper.make_node("MatMul", ["m0", "c"], ["m1"]),
        helper.make_node("MatMul", ["m1", "sparse"], ["m2"]),
        helper.make_node("F", ["m2"], ["m3"], domain="local"),
        helper.make_node(
            "If",
            ["yes"],
            ["y"],
            then_branch=branch("then", inner, inner_constant),
            else_branch=branch("else", inner + 1, inner_constant),
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "places",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [SIZE, SIZE])],
        [
            onnx.numpy_helper.from_array(main, "w"),
            onnx.numpy_helper.from_array(np.array(True), "yes"),
        ],
    )
    graph.sparse_initializer.append(sparse)
    model = helper.make_model(graph, opset_imports=[opset, helper.make_opsetid("local", 1)])
    model.functions.append(helper.make_function("local", "F", ["a"], ["b"], body, [opset]))
    y = x @ main @ attribute @ dense.reshape(SIZE, SIZE) @ function @ inner + inner_constant
    return with_version(model), SimpleNamespace(inputs=(torch.from_numpy(x),), outputs=(torch.from_numpy(y),))


class GivenTest(SaveTest):
    folder_name = "given"

    def relayout(self, label: str, given, out, *options) -> dict:
        """Save without a checkpoint and verify; return the document or None."""
        process = self.tools.save(given, "-o", out, *options)
        accepted = self.report.check(
            process.returncode == 0, f"{label}: is accepted", support.last_line(process)
        )
        if not accepted:
            return None
        document = support.parse_json(process.stdout)
        self.report.check(document and document["verified"], f"{label}: says that it verified")
        verified = self.tools.verify(out / "model.onnx")
        answer = support.parse_json(verified.stdout)
        self.report.check(
            verified.returncode == 0 and answer["used_manifest"],
            f"{label}: verify-external agrees",
            support.last_line(verified),
        )
        return document

    def there_and_back(self, name: str, model: onnx.ModelProto, case, *options, loads=True) -> None:
        """Save in each layout and back into the model, and check that the tensors stay the same."""
        folder = support.fresh_folder(self.folder / name.replace(" ", "_"))
        given = folder / "given.onnx"
        onnx.save(model, str(given))
        truth = all_values(model)
        for layout, arguments in LAYOUTS.items():
            label = f"{name}, {layout}"
            out = folder / layout.replace(" ", "_")
            if not self.relayout(label, given, out, *arguments, *options):
                continue
            back = folder / f"{out.name}_back"
            self.relayout(f"{label} and back", out / "model.onnx", back, "--layout", "inline")
            for where, path in ((label, out), (f"{label} and back", back)):
                if loads or path is back:
                    loaded = all_values(onnx.load(str(path / "model.onnx")))
                    self.report.check(loaded == truth, f"{where}: python onnx loads the same tensors")
                if case:
                    self.runtime.add(where, path / "model.onnx", case, model)
            left = onnx.load(str(back / "model.onnx"), load_external_data=False)
            external = support.external_entries(back / "model.onnx")
            self.report.check(not external, f"{label} and back: nothing is external", str(external)[:200])
            self.report.check(
                len(left.graph.initializer) == len(model.graph.initializer), f"{label} and back: all are there"
            )

    def test_exported(self) -> None:
        """Test models that torch exports with their weights."""
        self.there_and_back("exported", self.full, self.other)

    def test_types(self) -> None:
        self.there_and_back("types", typed_model(), None)

    def test_places(self) -> None:
        """python onnx 1.12 loads no external data of functions, nor of sparse initializers: ONNX Runtime
        is asked, and python onnx once all is back in the model."""
        model, case = places_model()
        self.there_and_back("places", model, case, "--attributes", loads=False)
        self.there_and_back("places without attributes", model, case)

    def test_all_outside(self) -> None:
        """A tool that puts everything into a file, shapes and axes too, writes what no runtime loads."""
        model, case = shapes_model()
        folder = support.fresh_folder(self.folder / "all_outside")
        given = folder / "given.onnx"
        outside = onnx.ModelProto()
        outside.CopyFrom(model)
        onnx.save(outside, str(given), save_as_external_data=True, size_threshold=0)
        self.report.check(
            len(support.external_entries(given)) == 4, "all outside: so is every tensor that is given"
        )
        for layout, arguments in LAYOUTS.items():
            label = f"all outside, {layout}"
            out = folder / layout.replace(" ", "_")
            if self.relayout(label, given, out, *arguments):
                external = sorted(support.external_entries(out / "model.onnx"))
                wanted = [] if layout == "inline" else ["weight"]
                self.report.check(external == wanted, f"{label}: only weights stay outside", str(external))
                loaded = all_values(onnx.load(str(out / "model.onnx")))
                self.report.check(loaded == all_values(model), f"{label}: the tensors are the same")
                self.runtime.add(label, out / "model.onnx", case, model)

    def test_shared_weights(self) -> None:
        """torch stores equal initial weights once, behind Identity nodes: they are compared all the same."""
        folder = support.fresh_folder(self.folder / "shared_weights")
        norms = torch.nn.Sequential(*(torch.nn.LayerNorm(8) for _ in range(4))).eval()
        given, checkpoint = folder / "given.onnx", folder / "same.pt"
        graph = zoo.export(norms, (torch.zeros(2, 8),), with_weights=True)
        onnx.save(graph, str(given))
        torch.save(norms.state_dict(), checkpoint)
        self.report.check(len(graph.graph.initializer) == 2, "shared weights: two tensors are left of eight")
        self.relayout("shared weights", given, folder / "single", "--layout", "single")
        other = {key: value + int(key[0]) % 2 for key, value in norms.state_dict().items()}
        torch.save(other, folder / "other.pt")
        for path in (given, folder / "single" / "model.onnx"):
            verified = self.tools.verify(path, "--against", checkpoint)
            self.report.check(
                verified.returncode == 0, f"shared weights: {path.name} is right", support.last_line(verified)
            )
            verified = self.tools.verify(path, "--against", folder / "other.pt")
            found = sorted(f["tensor"] for f in support.parse_json(verified.stdout)["findings"])
            wanted = sorted(key for key in other if int(key[0]) % 2)
            self.report.check(found == wanted, f"shared weights: {path.name} is wrong where it is", str(found))

    def test_damage(self) -> None:
        """Test that a damaged model gets no new layout, in any combination of layouts."""
        folder = support.fresh_folder(self.folder / "damage")
        given = folder / "given.onnx"
        onnx.save(self.full, str(given))
        for layout, arguments in LAYOUTS.items():
            out = folder / layout.replace(" ", "_")
            self.relayout(f"damage, {layout}", given, out, *arguments)
            files = [path for path in sorted(out.rglob("*")) if path.is_file() and "manifest" not in path.name]
            victim = max(files, key=lambda path: path.stat().st_size)
            data = bytearray(victim.read_bytes())
            data[len(data) // 2] ^= 4
            victim.write_bytes(data)
            for target, options in LAYOUTS.items():
                process = self.tools.save(out / "model.onnx", "-o", folder / "to", *options)
                self.report.check(
                    process.returncode == 1 and "damaged or changed" in process.stderr,
                    f"damage, {layout} to {target}: is refused",
                    support.last_line(process),
                )

    def test_what_moves(self) -> None:
        model, _ = places_model()
        folder = support.fresh_folder(self.folder / "what_moves")
        given = folder / "given.onnx"
        onnx.save(model, str(given))
        slots = {}
        for name, options in (("default", ()), ("attributes", ("--attributes",))):
            document = self.relayout(name, given, folder / name, *options, "--inline-below", "0")
            slots[name] = {tensor["slot"] for tensor in document["tensors"]}
        inner = {"w", "sparse", "sparse.indices"}
        self.report.check(slots["default"] == inner, "default: initializers move", str(slots["default"]))
        attributes = {"c.value", "fc.value", "then_c.value", "else_c.value"}
        self.report.check(
            slots["attributes"] == inner | attributes, "attributes: move when asked", str(slots["attributes"])
        )

    def test_inline_below(self) -> None:
        folder = support.fresh_folder(self.folder / "inline_below")
        given = folder / "given.onnx"
        onnx.save(self.full, str(given))
        self.relayout("everything outside", given, folder / "all", "--layout", "single")
        for label, source in (("stay", given), ("come", folder / "all" / "model.onnx")):
            out = folder / label
            self.relayout(label, source, out, "--layout", "single", "--inline-below", "10kB")
            lengths = [int(entry["length"]) for entry in support.external_entries(out / "model.onnx").values()]
            self.report.check(
                lengths and min(lengths) >= 10_000, f"{label}: small tensors are inline", str(lengths[:4])
            )
            self.report.check(
                all_values(onnx.load(str(out / "model.onnx"))) == all_values(self.full),
                f"{label}: python onnx loads the same tensors",
            )
            self.runtime.add(label, out / "model.onnx", self.other, self.full)

    def test_checkpoint_into_the_model(self) -> None:
        result = self.accept(
            "inline", self.graph, self.small.state_dict, self.small, "--layout", "inline", against=()
        )
        if result:
            entries = support.external_entries(result[0])
            self.report.check(not entries, "inline: nothing is external", str(entries)[:200])

    def test_checkpoint_beside_kept_weights(self) -> None:
        """Test that 0.1 MB of data that no key replaces stays in the graph, byte for byte."""
        model = onnx.ModelProto()
        model.CopyFrom(self.graph)
        kept = onnx.numpy_helper.from_array(np.arange(30_000, dtype=np.int32).reshape(100, 300), "kept")
        model.graph.initializer.append(kept)
        result = self.accept(
            "kept", model, self.small.state_dict, self.small, "--keep", "kept", against=()
        )
        if result:
            found = [t for t in onnx.load(str(result[0])).graph.initializer if t.name == "kept"]
            self.report.check(found == [kept], "kept: stays as it is")


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(GivenTest(parsed).run())
