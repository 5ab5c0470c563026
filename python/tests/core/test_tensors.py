"""Tests that onnx reads the values of tensors in memory correctly from a saved model."""

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import bytes_of_numpy, bytes_of_torch, open_graph, places, saved_bytes

import onnx_external as oe

torch = pytest.importorskip("torch")


def name_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def graph_for(tensors: dict[str, Any]) -> Any:
    return open_graph({name: (name_of(t), tuple(t.shape)) for name, t in tensors.items()})


def ramp(*shape: int, dtype: Any = None) -> Any:
    count = int(np.prod(shape))
    return torch.arange(count).reshape(shape).to(dtype or torch.float32)


class Plain(torch.Tensor):
    """A subclass whose tensors have ordinary storages."""


STRIDED: dict[str, Callable[[], Any]] = {
    "contiguous": lambda: ramp(3, 4),
    "transposed": lambda: ramp(3, 4).t(),
    "permuted": lambda: ramp(2, 3, 4).permute(2, 0, 1),
    "row": lambda: ramp(5, 4)[2],
    "every second": lambda: ramp(6, 4)[::2, 1:],
    "expanded": lambda: ramp(1, 4).expand(3, 4),
    "scalar": lambda: torch.tensor(3.5),
    "empty": lambda: torch.empty(0, 3),
    "parameter": lambda: torch.nn.Parameter(ramp(3, 4)),
    "conjugated": lambda: torch.complex(ramp(3), ramp(3) + 1).conj(),
    "negated": lambda: torch.complex(ramp(3), ramp(3) + 1).conj().imag,
    "plain subclass": lambda: ramp(3, 4).as_subclass(Plain),
    "diagonal": lambda: ramp(4, 4).diagonal(),
    "channels last": lambda: ramp(2, 3, 4, 5).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("form", STRIDED)
@pytest.mark.parametrize("layout", ["single", "per-tensor", "inline"])
def test_every_view_of_torch_is_saved_as_its_values(form: str, layout: str, tmp_path: Path) -> None:
    tensors = {"w": STRIDED[form](), "other": ramp(2)}
    oe.save(graph_for(tensors), tmp_path, tensors, layout=layout)
    assert saved_bytes(tmp_path) == {name: bytes_of_torch(t) for name, t in tensors.items()}
    assert oe.verify(tmp_path, tensors).ok


DTYPES = [
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128",
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint16 uint32 uint64",
    "float8_e8m0fnu",
]


@pytest.mark.parametrize("dtype", " ".join(DTYPES).split())
def test_every_type_of_torch_that_onnx_has_is_saved(dtype: str, tmp_path: Path) -> None:
    if not hasattr(torch, dtype):
        pytest.skip(f"torch {torch.__version__} has no {dtype}")
    tensors = {"w": torch.arange(1, 7).reshape(2, 3).to(torch.float32).to(getattr(torch, dtype))}
    oe.save(graph_for(tensors), tmp_path, tensors)
    assert saved_bytes(tmp_path)["w"] == bytes_of_torch(tensors["w"])


def test_a_state_dict_is_a_checkpoint(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4))
    state = module.state_dict()
    graph = open_graph({k: (name_of(t), tuple(t.shape)) for k, t in state.items() if t.dim()})
    report = oe.save(graph, tmp_path, state)
    assert {t.slot: t.rule for t in report.tensors} == dict.fromkeys(
        (k for k, t in state.items() if t.dim()), "exact"
    )
    assert report.verified
    again = oe.plan(graph, weights={f"module.{k}": t for k, t in state.items()})
    assert {tensor.rule for tensor in again.pairs} == {"prefix-removed"}


NUMPY: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "contiguous": lambda: np.arange(12.0).reshape(3, 4),
    "transposed": lambda: np.arange(12.0).reshape(3, 4).T,
    "reversed": lambda: np.arange(12.0)[::-1],
    "turned": lambda: np.arange(12.0).reshape(3, 4)[::-1, ::-2],
    "big-endian": lambda: np.arange(12, dtype=">f4").reshape(3, 4),
    "big-endian integers": lambda: np.arange(12, dtype=">i2")[::3],
    "a field": lambda: np.zeros(5, [("a", "u1"), ("b", "<f4")])["b"],
    "scalar": lambda: np.float32(2.5),
    "zero-dimensional": lambda: np.array(2.5, np.float16),
    "empty": lambda: np.empty((3, 0), np.float32),
    "read-only": lambda: np.frombuffer(bytes(range(32)), np.float32),
    "broadcast": lambda: np.broadcast_to(np.arange(4.0), (3, 4)),
    "booleans": lambda: np.array([True, False, True]),
    "fortran": lambda: np.asfortranarray(np.arange(12.0).reshape(3, 4)),
}


@pytest.mark.parametrize("form", NUMPY)
def test_every_array_of_numpy_is_saved_as_its_values(form: str, tmp_path: Path) -> None:
    array = NUMPY[form]()
    graph = open_graph({"w": (array.dtype.name, array.shape)})
    oe.save(graph, tmp_path, {"w": array})
    assert saved_bytes(tmp_path)["w"] == bytes_of_numpy(np.asarray(array))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_arrays_of_ml_dtypes_are_saved(name: str, tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.linspace(-2, 2, 12).astype(getattr(ml_dtypes, name)).reshape(3, 4)[:, ::-1]
    oe.save(open_graph({"w": (name, array.shape)}), tmp_path, {"w": array})
    assert saved_bytes(tmp_path)["w"] == np.ascontiguousarray(array).tobytes()


class OnlyDLPack:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class OnlyArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.arange(6.0)


@pytest.mark.parametrize(
    ("tensor", "dtype"),
    [
        (OnlyDLPack(ramp(6)), "float32"),
        (OnlyDLPack(ramp(6, dtype=torch.bfloat16)), "bfloat16"),
        (OnlyArray(), "float64"),
    ],
    ids=["dlpack", "dlpack-bfloat16", "array"],
)
def test_other_libraries_tensors_are_taken(tensor: Any, dtype: str, tmp_path: Path) -> None:
    oe.save(open_graph({"w": (dtype, (6,))}), tmp_path, {"w": tensor})
    expected = ramp(6).to(getattr(torch, dtype))
    assert saved_bytes(tmp_path)["w"] == bytes_of_torch(expected)


def test_tied_tensors_are_stored_once(tmp_path: Path) -> None:
    weight = ramp(64, 64)
    tensors = {
        "a": weight,
        "b": torch.nn.Parameter(weight),
        "view": weight.view(64, 64),
        "transposed": weight.t(),
        "copy": weight.clone(),
    }
    oe.save(graph_for(tensors), tmp_path, tensors)
    found = places(tmp_path)
    assert found["a"] == found["b"] == found["view"]
    assert len({found[name] for name in ("a", "transposed", "copy")}) == 3
    assert saved_bytes(tmp_path)["transposed"] == bytes_of_torch(weight.t())


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(3)


def freed() -> Any:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "meta": (lambda: torch.empty(3, device="meta"), oe.FormatError, "meta device"),
    "fake": (fake, oe.FormatError, "FakeTensor"),
    "sparse": (lambda: torch.eye(3).to_sparse(), oe.FormatError, "to_dense"),
    "sparse csr": (lambda: torch.eye(3).to_sparse_csr(), oe.FormatError, "to_dense"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        oe.FormatError,
        "dequantize",
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        oe.FormatError,
        "nested",
    ),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
        oe.FormatError,
        "nested",
    ),
    "functional": (
        lambda: torch._to_functional_tensor(torch.ones(3)),
        oe.FormatError,
        "functional",
    ),
    "uninitialized": (
        lambda: torch.nn.parameter.UninitializedParameter(),
        oe.FormatError,
        "uninitialized",
    ),
    "freed": (freed, oe.FormatError, "freed"),
    "zero tensor": (lambda: torch._efficientzerotensor(3), oe.FormatError, "plain"),
    "masked": (lambda: np.ma.masked_array([1.0], [True]), oe.FormatError, "filled"),
    "complex32": (lambda: torch.ones(3, dtype=torch.complex32), oe.Error, "complex32"),
    "packed by torch": (lambda: torch.empty(3, dtype=torch.int4), oe.FormatError, "int4"),
    "strings": (lambda: np.array(["a"]), oe.FormatError, "str"),
    "objects": (lambda: np.array([object()]), oe.FormatError, "object"),
    "dates": (lambda: np.array(["2020-01-01"], "datetime64[D]"), oe.FormatError, "datetime64"),
    "number": (lambda: 3, TypeError, "int"),
    "none": (lambda: None, TypeError, "NoneType"),
    "list": (lambda: [1.0, 2.0], TypeError, "list"),
    "nested dict": (lambda: {"a": torch.ones(1)}, TypeError, 'checkpoint\\["the.weight"\\]'),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_saved_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    make, error, text = REFUSED[kind]
    tensors = {"fine": torch.ones(2), "the.weight": make()}
    graph = open_graph({"fine": ("float32", (2,)), "the.weight": ("float32", (3,))})
    with pytest.raises(error, match=text) as caught:
        oe.save(graph, tmp_path / "out", tensors)
    assert "the.weight" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_distributed_tensor_is_refused(tmp_path: Path) -> None:
    import torch.distributed as dist

    if not dist.is_available():
        pytest.skip("torch was built without distributed")
    tensor_module = pytest.importorskip("torch.distributed.tensor")
    store = dist.HashStore()
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    try:
        mesh = dist.device_mesh.DeviceMesh("cpu", [0])
        sharded = tensor_module.distribute_tensor(torch.ones(4), mesh, [tensor_module.Shard(0)])
        with pytest.raises(oe.FormatError, match=r"'w'.*full_tensor"):
            oe.save(open_graph({"w": ("float32", (4,))}), tmp_path, {"w": sharded})
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (3, "int"),
        ({1: torch.ones(1)}, "name 1"),
        (b"bytes", "bytes"),
        ([None, 3], "int"),
    ],
    ids=["number", "name", "bytes", "list"],
)
def test_weights_of_another_kind_are_a_type_error(weights: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=text):
        oe.save(open_graph({"w": ("float32", (1,))}), tmp_path, weights)


def test_weights_in_pieces_are_one_checkpoint(tiny: Path, tmp_path: Path) -> None:
    pieces = [{"a": ramp(2)}, {"b": np.ones(3, np.float32)}]
    graph = open_graph({"a": ("float32", (2,)), "b": ("float32", (3,))})
    oe.save(graph, tmp_path / "one", pieces)
    assert saved_bytes(tmp_path / "one") == {
        "a": bytes_of_torch(ramp(2)),
        "b": np.ones(3, np.float32).tobytes(),
    }
    twice = [{"a": ramp(2)}, {"a": ramp(2) + 1, "b": ramp(3)}]
    with pytest.raises(oe.Error, match="overlay") as caught:
        oe.save(graph, tmp_path / "two", twice)
    assert caught.value.code == "ambiguous"
    report = oe.save(graph, tmp_path / "two", twice, mapping=oe.Mapping(overlay=True))
    assert saved_bytes(tmp_path / "two")["a"] == bytes_of_torch(ramp(2) + 1)
    assert [entry["key"] for entry in report.overlaid] == ["a"]


def test_an_open_checkpoint_is_taken_as_it_is(tiny: Path, tmp_path: Path) -> None:
    with oe.open_checkpoint(tiny / "checkpoint.pt") as checkpoint:
        oe.save(tiny / "graph.onnx", tmp_path / "ours", checkpoint)
        # The checkpoint is still open and can be used again.
        assert oe.verify(tmp_path / "ours", checkpoint).ok
    oe.save(tiny / "graph.onnx", tmp_path / "path", tiny / "checkpoint.pt")
    names = sorted(path.name for path in (tmp_path / "path").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "ours").iterdir()) and len(names) > 1
    for name in names:
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "path" / name).read_bytes()
    with pytest.raises(ValueError, match="closed"):
        oe.save(tiny / "graph.onnx", tmp_path / "closed", checkpoint)


def test_tensors_of_a_checkpoint_can_be_mixed_with_others(tiny: Path, tmp_path: Path) -> None:
    with oe.open_checkpoint(tiny / "checkpoint.pt") as checkpoint:
        first = next(iter(checkpoint))
        mixed = {**checkpoint, first: torch.full(checkpoint[first].shape, 2.0)}
        oe.save(tiny / "graph.onnx", tmp_path, mixed)
        report = oe.verify(tmp_path, mixed)
    assert report.ok and report.compared
    slot = first.removeprefix("module.")
    assert set(np.frombuffer(saved_bytes(tmp_path)[slot], np.float32)) == {2.0}


def test_a_replaced_file_is_read_as_it_was_opened(tmp_path: Path) -> None:
    torch.save({"w": ramp(256)}, tmp_path / "c.pt")
    with oe.open_checkpoint(tmp_path / "c.pt") as checkpoint:
        tensors = dict(checkpoint)
        torch.save({"w": ramp(256) + 1}, tmp_path / "new.pt")
        os.replace(tmp_path / "new.pt", tmp_path / "c.pt")
        oe.save(open_graph({"w": ("float32", (256,))}), tmp_path / "out", tensors)
    assert saved_bytes(tmp_path / "out")["w"] == bytes_of_torch(ramp(256))


def test_extra_tensors_fill_what_the_checkpoint_lacks(tmp_path: Path) -> None:
    slots = {"w": ("float32", (4,)), "inv_freq": ("float32", (2,)), "mask": ("bool", (3,))}
    graph = open_graph(slots)
    torch.save({"mask": torch.tensor([True, False, True])}, tmp_path / "mask.pt")
    extra = {"inv_freq": np.ones(2, np.float32), "mask": tmp_path / "mask.pt"}
    report = oe.save(graph, tmp_path / "out", {"w": ramp(4)}, extra=extra)
    assert {tensor.slot: tensor.key for tensor in report.tensors} == {
        "w": "w",
        "inv_freq": "inv_freq",
        "mask": "mask",
    }
    assert saved_bytes(tmp_path / "out")["inv_freq"] == np.ones(2, np.float32).tobytes()
    with pytest.raises(oe.MappingError) as caught:
        oe.save(graph, tmp_path / "less", {"w": ramp(4)}, extra={"mask": tmp_path / "mask.pt"})
    assert caught.value.missing == ["inv_freq"]


def test_an_extra_tensor_goes_before_a_key_of_its_name(tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (4,)), "b": ("float32", (4,))})
    weights = {"w": ramp(4), "b": ramp(4)}
    oe.save(graph, tmp_path, weights, extra={"b": ramp(4) + 5})
    assert saved_bytes(tmp_path)["b"] == bytes_of_torch(ramp(4) + 5)
    assert oe.verify(tmp_path, [{"w": ramp(4)}, {"b": ramp(4) + 5}]).ok


def test_tensors_that_are_dropped_meanwhile_are_kept_alive(tmp_path: Path) -> None:
    graph = open_graph({f"w{i}": ("float32", (1 << 20,)) for i in range(16)})
    tensors = {f"w{i}": torch.full((1 << 20,), float(i)) for i in range(16)}

    def drop(phase: str, done: int, total: int) -> None:
        tensors.clear()
        gc.collect()

    oe.save(graph, tmp_path, tensors, progress=drop, fsync=False)
    assert not tensors
    for name, data in saved_bytes(tmp_path).items():
        assert set(np.frombuffer(data, np.float32)) == {float(name[1:])}


def test_a_tensor_that_changes_meanwhile_is_found(tmp_path: Path) -> None:
    tensor = torch.zeros(1 << 26)
    stop = threading.Event()

    def change() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            tensor[:: 1 << 12] = step
            time.sleep(0)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with pytest.raises(oe.MismatchError):
            graph = open_graph({"w": ("float32", (1 << 26,))})
            oe.save(graph, tmp_path / "out", {"w": tensor}, fsync=False)
    finally:
        stop.set()
        thread.join()
    assert not (tmp_path / "out").exists()


# --- types of less than a byte ---


NARROW = {"int4": 22, "uint4": 21, "float4_e2m1fn": 23, "int2": 26, "uint2": 25}
FORMS: dict[str, Callable[[Any], Any]] = {
    "C": lambda a: a,
    "transposed": lambda a: a.T.copy().T,
    "reversed": lambda a: a[::-1],
    "every second": lambda a: a[:, ::2],
    "scalar": lambda a: a[0, 0],
    "empty": lambda a: a[:0],
}


def narrow(name: str) -> Any:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    if not hasattr(ml_dtypes, name):
        pytest.skip(f"this ml_dtypes has no {name}")
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "int2": (-2, 2), "uint2": (0, 4)}.get(
        name, (-6, 6)
    )
    values = np.random.default_rng(5).integers(low, high, (7, 5)).astype(np.float32)
    return values.astype(getattr(ml_dtypes, name))


def packed(array: Any, bits: int) -> bytes:
    """Pack the elements, the first one in the lowest bits."""
    out = bytearray((array.size * bits + 7) // 8)
    for place, value in enumerate(np.ascontiguousarray(array).reshape(-1).view(np.uint8)):
        out[place * bits // 8] |= (int(value) & ((1 << bits) - 1)) << (place * bits % 8)
    return bytes(out)


def narrow_graph(name: str, shape: tuple[int, ...]) -> Any:
    from graphs import onnx

    kind, value = NARROW[name], onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Identity", ["w"], ["y"])
    graph = onnx.helper.make_graph(
        [node], "g", [], [value("y", kind, shape)], value_info=[value("w", kind, shape)]
    )
    return onnx.helper.make_model(graph)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("form", FORMS)
def test_types_of_less_than_a_byte_are_packed(name: str, form: str, tmp_path: Path) -> None:
    array = np.asarray(FORMS[form](narrow(name)))
    graph = narrow_graph(name, array.shape)
    wanted = {"w": packed(array, 2 if "2" in name[:5] and "4" not in name else 4)}
    oe.save(graph, tmp_path / "weights", {"w": array})
    oe.save(graph, tmp_path / "extra", {}, extra={"w": array}, layout="inline")
    with oe.Writer(tmp_path / "writer") as writer:
        writer.add("w", array)
        writer.finish(graph)
    for folder in ("weights", "extra", "writer"):
        assert saved_bytes(tmp_path / folder) == wanted
        assert oe.verify(tmp_path / folder).ok
    if array.size:
        assert oe.verify(tmp_path / "weights", {"w": array}).ok
        other = array.copy()
        other.reshape(-1).view(np.uint8)[-1] ^= 1
        assert not oe.verify(tmp_path / "weights", {"w": other}).ok


@pytest.mark.parametrize("name", NARROW)
def test_lazy_tensors_of_less_than_a_byte_fill_slots(name: str, tmp_path: Path) -> None:
    ir = pytest.importorskip("onnx_ir")
    array = narrow(name)
    kind = ir.DataType(NARROW[name])
    lazy = ir.LazyTensor(lambda: ir.Tensor(array), dtype=kind, shape=ir.Shape([7, 5]), name="w")
    for folder, tensor in (("lazy", lazy), ("plain", ir.Tensor(array, name="w"))):
        oe.save(narrow_graph(name, (7, 5)), tmp_path / folder, {"w": tensor})
        assert saved_bytes(tmp_path / folder) == {"w": packed(array, 4 if "4" in name else 2)}


def test_a_type_of_less_than_a_byte_fits_no_other(tmp_path: Path) -> None:
    with pytest.raises(oe.MappingError, match=r"w.*INT4 \[7, 5\]"):
        oe.save(narrow_graph("uint4", (7, 5)), tmp_path, {"w": narrow("int4")})
    with pytest.raises(oe.Error, match="w"):
        oe.save(narrow_graph("int4", (5, 7)), tmp_path, {"w": narrow("int4")})


# --- objects of the caller that fail ---


class Asks:
    """An array whose attributes raise or are wrong."""

    def __init__(self, **parts: Any) -> None:
        self._parts = parts

    dtype = property(lambda self: self._part("dtype", 1))
    shape = property(lambda self: self._part("shape", (3,)))
    nbytes = property(lambda self: self._part("nbytes", 12))

    def _part(self, name: str, usual: Any) -> Any:
        part = self._parts.get(name, usual)
        if isinstance(part, BaseException):
            raise part
        return part

    def tobytes(self) -> Any:
        return self._part("tobytes", bytes(12))


class RaisesArray:
    def __array__(self, *given: Any, **more: Any) -> Any:
        raise ZeroDivisionError("not today")


class RaisesDlpack:
    def __dlpack__(self, **given: Any) -> Any:
        raise ZeroDivisionError("not today")

    def __dlpack_device__(self) -> Any:
        return 1, 0


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text either")


FAILING: dict[str, Callable[[], Any]] = {
    "__array__ raises": RaisesArray,
    "__dlpack__ raises": RaisesDlpack,
    "dtype raises": lambda: Asks(dtype=ZeroDivisionError("not today")),
    "dtype is text": lambda: Asks(dtype="float"),
    "dtype is unknown": lambda: Asks(dtype=999),
    "dtype is nothing": lambda: Asks(dtype=None),
    "shape raises": lambda: Asks(shape=RuntimeError("not today")),
    "shape raises what has no text": lambda: Asks(shape=Unprintable()),
    "shape is nothing": lambda: Asks(shape=None),
    "shape has a -1": lambda: Asks(shape=(-1,)),
    "shape has a None": lambda: Asks(shape=(None,)),
    "shape is huge": lambda: Asks(shape=(1 << 40, 1 << 40)),
    "shape is beyond all": lambda: Asks(shape=(1 << 70,)),
    "shape is of text": lambda: Asks(shape=("n",)),
    "nbytes is nothing": lambda: Asks(nbytes=None),
    "nbytes is negative": lambda: Asks(nbytes=-1),
    "nbytes is huge": lambda: Asks(nbytes=1 << 65),
    "nbytes is text": lambda: Asks(nbytes="12"),
    "tobytes gives less": lambda: Asks(tobytes=bytes(8)),
    "tobytes gives more": lambda: Asks(tobytes=bytes(16)),
    "tobytes gives nothing": lambda: Asks(tobytes=None),
    "tobytes gives text": lambda: Asks(tobytes="abc"),
    "tobytes raises": lambda: Asks(tobytes=ZeroDivisionError("not today")),
    "tobytes raises what has no text": lambda: Asks(tobytes=Unprintable()),
    "tobytes raises half a character": lambda: Asks(tobytes=ValueError("\udc80")),
    "recursion": lambda: Asks(tobytes=RecursionError("deep")),
}


@pytest.mark.parametrize("kind", FAILING)
def test_errors_in_the_callers_object_are_reported_with_the_tensors_name(
    kind: str, tmp_path: Path
) -> None:
    graph = open_graph({"the.weight": ("float32", (3,))})
    for save in (
        lambda: oe.save(graph, tmp_path / "out", {"the.weight": FAILING[kind]()}),
        lambda: oe.save(graph, tmp_path / "out", {}, extra={"the.weight": FAILING[kind]()}),
    ):
        with pytest.raises((oe.Error, TypeError), match=r"the\.weight") as caught:
            save()
        assert "\n" not in str(caught.value).partition("\n  ")[0]
    with oe.Writer(tmp_path / "writer") as writer:
        with pytest.raises((oe.Error, TypeError), match=r"the\.weight"):
            writer.add("the.weight", FAILING[kind]())
        writer.add("the.weight", np.ones(3, np.float32))
        writer.finish(graph)
    assert not (tmp_path / "out").exists()


def test_an_interruption_in_the_callers_object_is_one(tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (3,))})
    for part in ("shape", "tobytes"):
        with pytest.raises(KeyboardInterrupt):
            oe.save(graph, tmp_path / "out", {"w": Asks(**{part: KeyboardInterrupt()})})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a\udc80b", "\ud800"])
def test_half_a_character_in_a_name_is_reported(name: str, tmp_path: Path) -> None:
    graph, array = open_graph({"w": ("float32", (3,))}), np.ones(3, np.float32)
    shown = ascii(name)[1:-1].replace("\\", r"\\")
    with pytest.raises(oe.InvalidArgumentError, match=shown):
        oe.save(graph, tmp_path / "out", {name: array})
    with pytest.raises(oe.InvalidArgumentError, match=shown):
        oe.save(graph, tmp_path / "out", {}, extra={name: array})
    with oe.Writer(tmp_path / "writer") as writer, pytest.raises(oe.Error, match=shown):
        try:
            writer.add(name, array)
        finally:
            writer.add("w", array)
            writer.finish(graph)


def test_names_that_are_not_text_are_reported(tmp_path: Path) -> None:
    graph, array = open_graph({"w": ("float32", (3,))}), np.ones(3, np.float32)
    with pytest.raises(TypeError, match=r"weights: the name 5 is not a str"):
        oe.save(graph, tmp_path / "out", {5: array})  # type: ignore[dict-item]
    with oe.Writer(tmp_path / "writer") as writer:
        with pytest.raises(TypeError, match="the name 5 is not a str"):
            writer.add(5, array)  # type: ignore[arg-type]
        writer.add("w", array)
        writer.finish(graph)


class SavesItself(Asks):
    def __init__(self, save: Callable[[Any], Any]) -> None:
        super().__init__()
        self.save, self.calls = save, 0

    def tobytes(self) -> bytes:
        self.calls += 1
        self.save(self)
        return bytes(12)


def test_a_tensor_that_saves_itself_is_an_immediate_error(tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (3,))})
    folder = iter(range(100))
    tensor = SavesItself(lambda it: oe.save(graph, tmp_path / f"inner{next(folder)}", {"w": it}))
    with pytest.raises(oe.Error, match=r"'w'.*depends on itself"):
        oe.save(graph, tmp_path / "out", {"w": tensor})
    assert tensor.calls == 1 and not list(tmp_path.iterdir())


def test_a_tensor_may_save_another_one(tmp_path: Path) -> None:
    graph, other = open_graph({"w": ("float32", (3,))}), {"w": Asks()}
    tensor = SavesItself(lambda _: oe.save(graph, tmp_path / "inner", other))
    assert oe.save(graph, tmp_path / "out", {"w": tensor}).verified
    assert oe.verify(tmp_path / "inner").ok


@pytest.mark.parametrize("use", ["add", "finish", "save"])
def test_a_tensor_that_uses_its_writer_is_an_immediate_error(use: str, tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (3,)), "v": ("float32", (3,))})
    writer = oe.Writer(tmp_path / "out")
    uses: dict[str, Callable[[Any], Any]] = {
        "add": lambda _: writer.add("v", np.ones(3, np.float32)),
        "finish": lambda _: writer.finish(graph),
        "save": lambda it: oe.save(graph, tmp_path / "inner", {"w": it, "v": it}),
    }
    with writer:
        with pytest.raises(oe.Error, match=r"'w'.*(uses the writer|depends on itself)"):
            writer.add("w", SavesItself(uses[use]))
        writer.add("w", np.ones(3, np.float32))
        writer.add("v", np.ones(3, np.float32))
        writer.finish(graph)
    assert oe.verify(tmp_path / "out").ok
