"""Tensors in memory: what onnx reads of a saved model is what torch and numpy hold."""

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
    """A subclass whose tensors are ordinary storages."""


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
    again = oe.plan(graph, {f"module.{k}": t for k, t in state.items()})
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
        (torch.nn.Linear(2, 2), "state_dict"),
        (3, "int"),
        ({1: torch.ones(1)}, "name 1"),
        (b"bytes", "bytes"),
        ([None, 3], "int"),
    ],
    ids=["module", "number", "name", "bytes", "list"],
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
    report = oe.save(graph, tmp_path / "two", twice, overlay=True)
    assert saved_bytes(tmp_path / "two")["a"] == bytes_of_torch(ramp(2) + 1)
    assert [entry["key"] for entry in report.overlaid] == ["a"]


def test_an_open_checkpoint_is_taken_as_it_is(tiny: Path, tmp_path: Path) -> None:
    with oe.open_checkpoint(tiny / "checkpoint.pt") as checkpoint:
        oe.save(tiny / "graph.onnx", tmp_path / "ours", checkpoint)
        # It is still open, and may be used again.
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
