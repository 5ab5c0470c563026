"""Tests of models in memory: a save stores their content, and leaves the objects unchanged."""

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import bytes_of_torch, helper, onnx, open_graph, places, saved_bytes

import onnx_external as oe

ir = pytest.importorskip("onnx_ir")
torch = pytest.importorskip("torch")


class Tied(torch.nn.Module):
    """An embedding that is also the output layer, and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(300, 64)
        self.project = torch.nn.Linear(64, 64)
        self.head = torch.nn.Linear(64, 300, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.linspace(1, 2, 300), persistent=False)

    def forward(self, ids: Any) -> Any:
        return self.head(torch.relu(self.project(self.embed(ids)))) * self.scale


IDS = torch.arange(6).reshape(2, 3)


@functools.cache
def exported(optimize: bool = False) -> tuple[Any, Any]:
    """Return a module and its exported program. No save changes them, so they are made once."""
    if not hasattr(torch.onnx, "ONNXProgram") or not hasattr(torch.onnx.ONNXProgram, "model_proto"):
        pytest.skip(f"torch {torch.__version__} has no torch.export exporter")
    pytest.importorskip("onnxscript")
    module = Tied().eval()
    program = torch.onnx.export(module, (IDS,), dynamo=True, optimize=optimize, verbose=False)
    assert program is not None
    return module, program


def output_of(path: Path, ids: Any = IDS) -> np.ndarray[Any, Any]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path))
    output: np.ndarray[Any, Any] = session.run(None, {session.get_inputs()[0].name: ids.numpy()})[0]
    return output


def assert_close(ours: np.ndarray[Any, Any], theirs: Any) -> None:
    reference = theirs.detach().numpy()
    assert np.abs(ours - reference).max() <= 1e-4 * np.abs(reference).max()


@pytest.mark.parametrize("layout", ["single", "per-tensor", "shards", "inline"])
@pytest.mark.parametrize("optimize", [False, True])
def test_a_program_is_saved_and_runs(layout: str, optimize: bool, tmp_path: Path) -> None:
    module, program = exported(optimize)
    before = program.model_proto.SerializeToString()
    report = oe.save(program, tmp_path / "model.onnx", layout=layout)
    assert report.verified
    assert program.model_proto.SerializeToString() == before
    assert_close(output_of(tmp_path / "model.onnx"), module(IDS))
    assert oe.verify(tmp_path).ok


def test_a_program_takes_new_weights(tmp_path: Path) -> None:
    new, (old, program) = Tied().eval(), exported()
    before = copy.deepcopy(old)
    oe.save(program, tmp_path / "new.onnx", new.state_dict())
    assert_close(output_of(tmp_path / "new.onnx"), new(IDS))
    # The buffer that is not in the state dict keeps its values, unless "extra" has others.
    oe.save(program, tmp_path / "extra.onnx", new.state_dict(), extra={"scale": torch.ones(300)})
    new.scale = torch.ones(300)
    assert_close(output_of(tmp_path / "extra.onnx"), new(IDS))
    oe.save(program, tmp_path / "only.onnx", extra={"scale": torch.ones(300)})
    before.scale = torch.ones(300)
    assert_close(output_of(tmp_path / "only.onnx"), before(IDS))


def test_a_tied_weight_of_a_program_is_stored_once(tmp_path: Path) -> None:
    weight = torch.randn(64, 64)
    values = [ir.Value(name=name) for name in ("a", "b")]
    for value, tensor in zip(values, (weight, torch.nn.Parameter(weight)), strict=True):
        value.const_value = ir.tensor_adapters.TorchTensor(tensor)
    model = model_of(values)
    oe.save(model, tmp_path)
    assert len(set(places(tmp_path).values())) == 1


def test_a_module_on_the_meta_device_is_a_graph_without_weights(tmp_path: Path) -> None:
    real = Tied().eval()
    with torch.device("meta"):
        module = Tied().eval()
    program = torch.onnx.export(
        module, (IDS.to("meta"),), dynamo=True, optimize=False, verbose=False
    )
    with pytest.raises(oe.FormatError, match=r"'(embed|head|project).*no data.*weights="):
        oe.save(program, tmp_path / "none")
    oe.save(program, tmp_path / "model.onnx", real.state_dict(), extra={"scale": real.scale})
    assert_close(output_of(tmp_path / "model.onnx"), real(IDS))


# --- onnx_ir ---


def model_of(initializers: list[Any], nodes: list[Any] | None = None, **facts: Any) -> Any:
    """Return an onnx_ir model in which Identity nodes read the initializers."""
    given = list(nodes or [])
    for value in initializers:
        if value.type is None:
            value.type = ir.TensorType(value.const_value.dtype)
            value.shape = ir.Shape(tuple(value.const_value.shape))
        given.append(ir.node("Identity", [value]))
    outputs = [node.outputs[0] for node in given]
    for number, output in enumerate(outputs):
        output.name = f"out{number}"
        if output.type is None:
            output.type, output.shape = initializers[0].type, ir.Shape([None])
    graph = ir.Graph(
        [], outputs, nodes=given, initializers=initializers, opset_imports={"": 21}, name="g"
    )
    return ir.Model(graph, ir_version=10, **facts)


def initializer(name: str, tensor: Any) -> Any:
    value = ir.Value(name=name)
    value.const_value = tensor
    return value


def lazily(tensor: Any, calls: list[int]) -> Any:
    def evaluate() -> Any:
        calls.append(1)
        return tensor

    return ir.LazyTensor(evaluate, dtype=tensor.dtype, shape=tensor.shape, name="lazy")


class Doubled(ir.Tensor):  # type: ignore[misc]
    """A subclass that returns other bytes than it stores."""

    def numpy(self) -> np.ndarray[Any, Any]:
        return np.asarray(self.raw) * 2

    def tobytes(self) -> bytes:
        return self.numpy().tobytes()

    def tofile(self, file: Any) -> None:
        file.write(self.tobytes())


def tensors_of_every_class(folder: Path) -> dict[str, Any]:
    import ml_dtypes

    array = np.arange(1024, dtype=np.float32).reshape(32, 32)
    (folder / "data.bin").write_bytes(b"\7" * 64 + array.tobytes())
    (folder / "deeper").mkdir()
    (folder / "deeper/more.bin").write_bytes((array + 1).tobytes())
    proto = onnx.numpy_helper.from_array(array + 2, "proto")
    typed = helper.make_tensor("typed", 1, [32, 32], (array + 3).ravel())
    shape = ir.Shape([32, 32])
    external = ir.ExternalTensor(
        "data.bin", 64, 4096, ir.DataType.FLOAT, shape=shape, name="e", base_dir=folder
    )
    elsewhere = ir.ExternalTensor(
        "more.bin", 0, 4096, ir.DataType.FLOAT, shape=shape, name="x", base_dir=folder / "deeper"
    )
    int4 = (np.arange(1024) % 16 - 8).astype(np.int8).reshape(32, 32)
    return {
        "array": ir.tensor(array),
        "transposed array": ir.tensor(array.T),
        "torch": ir.tensor(torch.from_numpy(array) + 4),
        "torch transposed": ir.tensor((torch.from_numpy(array) + 4).t()),
        "bfloat16": ir.tensor(torch.from_numpy(array).bfloat16()),
        "float8": ir.tensor(torch.from_numpy(array).to(torch.float8_e4m3fn)),
        "external": external,
        "elsewhere": elsewhere,
        "lazy": lazily(ir.tensor(array + 5), []),
        "lazy torch": lazily(ir.tensor(torch.from_numpy(array.T) + 6), []),
        "int4": ir.Tensor(int4.astype(ml_dtypes.int4), dtype=ir.DataType.INT4),
        "packed": ir.PackedTensor(
            np.arange(512, dtype=np.uint8), dtype=ir.DataType.UINT4, shape=[32, 32]
        ),
        "proto": ir.serde.TensorProtoTensor(proto),
        "typed": ir.serde.TensorProtoTensor(typed),
        "strings": ir.tensor(["a", "b"]),
        "doubled": Doubled(array),
        "small": ir.tensor(np.float32(3)),
        "empty": ir.tensor(np.empty((0, 3), np.float32)),
    }


@pytest.mark.parametrize("layout", ["single", "per-tensor", "inline"])
def test_every_class_of_onnx_ir_is_saved_as_its_values(layout: str, tmp_path: Path) -> None:
    tensors = tensors_of_every_class(tmp_path)
    model = model_of([initializer(name, tensor) for name, tensor in tensors.items()])
    before = ir.serde.serialize_model(model).SerializeToString()
    oe.save(model, tmp_path / "out", layout=layout)
    assert ir.serde.serialize_model(model).SerializeToString() == before
    assert {value.const_value is tensors[name] for name, value in initializers(model)} == {True}
    saved = dict(initializers(ir.load(tmp_path / "out/model.onnx")))
    assert saved.keys() == tensors.keys()
    for name, tensor in tensors.items():
        ours = saved[name].const_value
        assert (ours.dtype, tuple(ours.shape)) == (tensor.dtype, tuple(tensor.shape)), name
        np.testing.assert_array_equal(ours.numpy(), tensor.numpy(), err_msg=name)
    assert oe.verify(tmp_path / "out").ok


def initializers(model: Any) -> Any:
    return model.graph.initializers.items()


def test_a_lazy_tensor_is_made_once(tmp_path: Path) -> None:
    calls: list[int] = []
    lazy = lazily(ir.tensor(np.arange(4096.0)), calls)
    oe.save(model_of([initializer("w", lazy), initializer("same", lazy)]), tmp_path)
    assert calls == [1]
    assert len(set(places(tmp_path).values())) == 1


@pytest.mark.parametrize("layout", ["single", "inline"])
def test_a_verification_makes_lazy_tensors_one_by_one(layout: str, tmp_path: Path) -> None:
    arrays = {f"w{i}": np.arange(4096.0) + i for i in range(4)}
    calls: list[int] = []
    lazy = {name: lazily(ir.tensor(array), calls) for name, array in arrays.items()}
    oe.save(
        open_graph({name: ("float64", (4096,)) for name in lazy}), tmp_path, arrays, layout=layout
    )
    assert oe.verify(tmp_path, lazy).ok
    assert len(calls) == 4
    lazy["w2"] = lazily(ir.tensor(arrays["w2"][::-1].copy()), calls)
    findings = oe.verify(tmp_path, lazy).findings
    assert [finding.tensor for finding in findings] == ["w2"]


@pytest.mark.parametrize("error", [ValueError("no more"), MemoryError(), RuntimeError("gone")])
def test_what_a_lazy_tensor_raises_arrives(error: Exception, tmp_path: Path) -> None:
    def fail() -> Any:
        raise error

    lazy = ir.LazyTensor(fail, dtype=ir.DataType.FLOAT, shape=ir.Shape([256]), name="l")
    fine = initializer("fine", ir.tensor(np.zeros(1 << 20, np.float32)))
    with pytest.raises(oe.Error, match="'w'") as caught:
        oe.save(model_of([fine, initializer("w", lazy)]), tmp_path / "out")
    assert caught.value.__cause__ is error
    assert not (tmp_path / "out").exists()


def test_a_lazy_tensor_may_stop_the_program(tmp_path: Path) -> None:
    def stop() -> Any:
        raise KeyboardInterrupt

    lazy = ir.LazyTensor(stop, dtype=ir.DataType.FLOAT, shape=ir.Shape([256]), name="l")
    with pytest.raises(KeyboardInterrupt):
        oe.save(model_of([initializer("w", lazy)]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", [255, 257])
def test_a_lazy_tensor_of_another_size_is_refused(given: int, tmp_path: Path) -> None:
    lazy = ir.LazyTensor(
        lambda: ir.tensor(np.zeros(given, np.float32)),
        dtype=ir.DataType.FLOAT,
        shape=ir.Shape([256]),
        name="l",
    )
    with pytest.raises(oe.Error, match="'w'") as caught:
        oe.save(model_of([initializer("w", lazy)]), tmp_path / "out")
    assert isinstance(caught.value.__cause__, ValueError)
    assert not (tmp_path / "out").exists()


def test_external_data_outside_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret").write_bytes(bytes(4096))
    for base in (tmp_path / "inner", tmp_path / "inner" / "other"):
        tensors = [
            ir.ExternalTensor(
                location,
                0,
                4096,
                ir.DataType.FLOAT,
                shape=ir.Shape([1024]),
                name="w",
                base_dir=folder,
            )
            for location, folder in (("fine", tmp_path / "inner"), ("../secret", base))
        ]
        (tmp_path / "inner/fine").write_bytes(bytes(4096))
        model = model_of([initializer(f"w{i}", tensor) for i, tensor in enumerate(tensors)])
        with pytest.raises(oe.Error, match="w1"):
            oe.save(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tensor_of_unknown_shape_is_refused(tmp_path: Path) -> None:
    lazy = ir.LazyTensor(
        lambda: ir.tensor(np.zeros(4, np.float32)),
        dtype=ir.DataType.FLOAT,
        shape=ir.Shape(["N", 2]),
        name="l",
    )
    value = initializer("w", lazy)
    value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["N", 2])
    with pytest.raises(oe.FormatError, match=r"'w'.*\[N, 2\]"):
        oe.save(model_of([value]), tmp_path / "out")


# --- everything in a model that is not a tensor ---


def rich_proto() -> Any:
    """Return a model with subgraphs, a function, constants, and metadata everywhere."""
    number = iter(range(100))

    def weight(name: str, shape: tuple[int, ...] = (16, 16)) -> Any:
        array = np.full(shape, next(number), np.float32)
        tensor = onnx.numpy_helper.from_array(array, name)
        tensor.doc_string = f"about {name}"
        entry = tensor.metadata_props.add()
        entry.key, entry.value = "where", name
        return tensor

    form = helper.make_tensor_value_info
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "inner.w"], ["y"])],
        "inner",
        [],
        [form("y", 1, [16, 16])],
        [weight("inner.w")],
    )
    otherwise = helper.make_graph(
        [
            helper.make_node("Constant", [], ["k"], value=weight("k")),
            helper.make_node("Add", ["x", "k"], ["z"]),
        ],
        "otherwise",
        [],
        [form("z", 1, [16, 16])],
    )
    nodes = [
        helper.make_node("If", ["condition"], ["a"], then_branch=inner, else_branch=otherwise),
        helper.make_node("Twice", ["a"], ["b"], domain="mine"),
        helper.make_node("Add", ["b", "w"], ["c"], name="add", doc_string="adds"),
    ]
    nodes[2].metadata_props.add(key="scope", value="module.add")
    graph = helper.make_graph(
        nodes,
        "outer",
        [form("x", 1, [16, 16]), form("condition", 9, [])],
        [form("c", 1, [16, 16])],
        [weight("w"), weight("small", (2,))],
        doc_string="a graph",
        value_info=[form("w", 1, [16, 16])],
    )
    graph.value_info[0].metadata_props.add(key="kind", value="PARAMETER")
    twice = helper.make_function(
        "mine",
        "Twice",
        ["p"],
        ["q"],
        [
            helper.make_node("Constant", [], ["two"], value=weight("two", ())),
            helper.make_node("Mul", ["p", "two"], ["q"]),
        ],
        [helper.make_opsetid("", 21)],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    model = helper.make_model(
        graph, opset_imports=imports, functions=[twice], ir_version=10, producer_name="me"
    )
    model.metadata_props.add(key="note", value="kept")
    return model


def without_data(model: Any) -> Any:
    """Return a copy without the data of tensors and without external_data entries."""
    import copy

    bare = copy.deepcopy(model)

    def strip(graph: Any) -> None:
        for tensor in graph.initializer:
            # onnx_ir writes the properties of a TensorProto twice.
            props = {entry.key: entry.value for entry in tensor.metadata_props}
            tensor.ClearField("metadata_props")
            for key, text in props.items():
                tensor.metadata_props.add(key=key, value=text)
            for field in ("raw_data", "float_data", "external_data", "data_location"):
                tensor.ClearField(field)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    strip(attribute.g)

    strip(bare.graph)
    return bare


@pytest.mark.parametrize("form", ["proto", "ir", "bytes", "path"])
@pytest.mark.parametrize("layout", ["single", "per-tensor", "inline"])
def test_everything_else_of_a_model_survives(form: str, layout: str, tmp_path: Path) -> None:
    proto = rich_proto()
    given: Any = proto
    if form == "ir":
        given = ir.serde.deserialize_model(proto)
        proto = ir.serde.serialize_model(given)  # onnx_ir adds value_info
    elif form == "bytes":
        given = proto.SerializeToString()
    elif form == "path":
        given = tmp_path / "given.onnx"
        given.write_bytes(proto.SerializeToString())
    before = proto.SerializeToString(deterministic=True)
    oe.save(given, tmp_path / "out", layout=layout)
    assert proto.SerializeToString(deterministic=True) == before
    bare = onnx.load(tmp_path / "out/model.onnx", load_external_data=False)
    assert without_data(bare) == without_data(proto)
    whole = onnx.load(tmp_path / "out/model.onnx")
    assert (
        onnx.numpy_helper.to_array(whole.graph.initializer[0]).max()
        == onnx.numpy_helper.to_array(proto.graph.initializer[0]).max()
    )
    runtime = pytest.importorskip("onnxruntime")
    results = []
    for model in (str(tmp_path / "out/model.onnx"), proto.SerializeToString()):
        session = runtime.InferenceSession(model)
        for condition in (True, False):
            feed = {"x": np.ones((16, 16), np.float32), "condition": np.array(condition)}
            results.append(session.run(None, feed)[0])
    np.testing.assert_array_equal(results[:2], results[2:])


def test_fields_that_onnx_does_not_know_survive(tmp_path: Path) -> None:
    proto = rich_proto()
    unknown = b"\xfa\x7d\x02hi" + b"\xf8\x7d\x96\x01" + b"\xfd\x7d\1\2\3\4" + b"\xf9\x7d" + b"8" * 8
    group = b"\xfb\x7d\x08\x05\xfc\x7d"
    for message in (proto, proto.graph, proto.graph.initializer[0], proto.graph.node[0]):
        message.MergeFromString(unknown + group)
    oe.save(proto, tmp_path)
    saved = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    for message in (saved, saved.graph, saved.graph.initializer[0], saved.graph.node[0]):
        # protobuf serializes the fields that it knows first.
        assert unknown + group in message.SerializeToString()


def test_a_proto_s_raw_data_is_taken_tensor_by_tensor(tmp_path: Path) -> None:
    arrays = {f"w{i}": np.full((64, 64), i, np.float32) for i in range(8)}
    nodes = [helper.make_node("Identity", [name], [f"y{name}"]) for name in arrays]
    form = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [],
        [form(f"y{name}", 1, [64, 64]) for name in arrays],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    from onnx_external._sources.graphs import given_models

    model = helper.make_model(graph, ir_version=10)
    given = given_models({"model.onnx": model}, None, False)
    ((_, skeleton, _),) = given.graphs
    assert len(given.tensors) == 8 and isinstance(skeleton, bytes) and len(skeleton) < 4096
    oe.save(model, tmp_path)
    assert saved_bytes(tmp_path) == {name: array.tobytes() for name, array in arrays.items()}


def test_raw_data_of_a_wrong_size_is_refused(tmp_path: Path) -> None:
    model = rich_proto()
    model.graph.initializer[0].raw_data = bytes(1000)
    with pytest.raises(oe.Error, match="'w'"):
        oe.save(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["ModelProto", "onnx_ir.Model"])
def test_a_model_s_own_data_is_recognized_in_its_old_weights(form: str, tmp_path: Path) -> None:
    """Check two kinds of models whose data is produced anew each time."""
    noise = np.random.default_rng(1)
    old = {name: noise.random((40, 30), dtype=np.float32) for name in ("a.weight", "b.weight")}
    new = {name: array + 1 for name, array in old.items()}
    model = open_graph({"val_1": ("float32", (40, 30)), "val_2": ("float32", (30, 40))})
    held = {"val_1": old["a.weight"], "val_2": old["b.weight"].T.copy()}
    for name, array in held.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    del model.graph.value_info[:]
    given = model if form == "ModelProto" else ir.from_proto(model)
    oe.save(given, tmp_path, new, mapping=oe.Mapping(learn_map=old))
    saved = saved_bytes(tmp_path)
    assert saved["val_1"] == new["a.weight"].tobytes()
    assert saved["val_2"] == new["b.weight"].T.tobytes()


def test_the_package_s_own_word_is_not_a_location(tmp_path: Path) -> None:
    model = rich_proto()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    tensor.external_data.add(key="location", value="*loose*")
    with pytest.raises(oe.FormatError, match="'w'"):
        oe.save(model, tmp_path / "out")


@pytest.mark.parametrize("form", ["proto", "ir"])
def test_external_data_of_a_model_in_memory_is_found(form: str, tmp_path: Path) -> None:
    oe.save(rich_proto(), tmp_path / "first")
    path = tmp_path / "first/model.onnx"
    model = onnx.load(path, load_external_data=False) if form == "proto" else ir.load(path)
    base = tmp_path / "first" if form == "proto" else None
    oe.save(model, tmp_path / "second", files=oe.Layout(base_dir=base))
    assert saved_bytes(tmp_path / "second") == saved_bytes(tmp_path / "first")
    if form == "proto":
        with pytest.raises(oe.NotFoundError):
            oe.save(model, tmp_path / "third")


def test_a_module_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"oe\.torch\.export\(module, args, path\)"):
        oe.save(Tied(), tmp_path)


def test_a_plan_holds_its_arguments_and_carries_them_out(tmp_path: Path) -> None:
    state = Tied().state_dict()
    program = exported.__wrapped__()[1]  # no other reference exists
    how = oe.Layout(transpose_weights=False)
    plan = oe.plan(program, path=tmp_path / "model.onnx", weights=state, files=how)
    assert plan.dry_run and not list(tmp_path.iterdir())
    assert {pair.slot: pair.key for pair in plan.pairs}["project.weight"] == "project.weight"
    expected = bytes_of_torch(state["project.weight"])
    del program, state
    report = plan.save()
    assert report.verified and not report.dry_run
    assert saved_bytes(tmp_path)["project.weight"] == expected
    sizes = {name: (tmp_path / name).stat().st_size for name in plan.files}
    assert sizes == plan.files
    with pytest.raises(oe.ExistsError):
        plan.save()
    assert plan.save(tmp_path / "elsewhere").verified
