"""Tests of writing tensors one by one."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import bytes_of_numpy, onnx, open_graph, places, saved_bytes

import onnx_external as oe


def arrays(count: int = 5, shape: tuple[int, ...] = (64, 32)) -> dict[str, np.ndarray[Any, Any]]:
    return {f"layer.{i}.weight": np.full(shape, i, np.float32) for i in range(count)}


def graph_of(tensors: dict[str, np.ndarray[Any, Any]], as_inputs: bool = False) -> Any:
    return open_graph({n: (a.dtype.name, a.shape) for n, a in tensors.items()}, as_inputs)


@pytest.mark.parametrize("layout", ["single", "per-tensor", "shards"])
@pytest.mark.parametrize("as_inputs", [False, True])
def test_tensors_that_come_one_by_one_are_saved(
    layout: str, as_inputs: bool, tmp_path: Path
) -> None:
    tensors = arrays()
    size = 20_000 if layout == "shards" else None
    with oe.Writer(
        tmp_path / "model.onnx", layout=layout, files=oe.Layout(max_shard_size=size)
    ) as writer:
        for name, array in tensors.items():
            writer.add(name, array.copy())
        assert not (tmp_path / "model.onnx").exists()
        assert writer.finish(graph_of(tensors, as_inputs)) == tmp_path / "model.onnx"
    assert saved_bytes(tmp_path) == {name: bytes_of_numpy(array) for name, array in tensors.items()}
    assert (
        len({place[0] for place in places(tmp_path).values()})
        == {
            "single": 1,
            "per-tensor": 5,
            "shards": 3,
        }[layout]
    )
    assert not onnx.load(tmp_path / "model.onnx").graph.input
    assert oe.verify(tmp_path, tensors).ok


def test_every_kind_of_tensor_may_be_added(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors: dict[str, Any] = {
        "strided": torch.arange(4096.0).reshape(64, 64).t(),
        "reversed": np.arange(4096.0)[::-1],
        "bfloat16": torch.arange(64).bfloat16(),
        "scalar": np.float32(3),
    }
    forms = {n: (str(t.dtype).removeprefix("torch."), tuple(t.shape)) for n, t in tensors.items()}
    with oe.Writer(tmp_path) as writer:
        for name, tensor in tensors.items():
            writer.add(name, tensor)
        writer.finish(open_graph(forms))
    saved = saved_bytes(tmp_path)
    assert saved["strided"] == tensors["strided"].contiguous().numpy().tobytes()
    assert saved["reversed"] == tensors["reversed"].tobytes()
    assert saved["bfloat16"] == tensors["bfloat16"].view(torch.int16).numpy().tobytes()
    assert saved["scalar"] == tensors["scalar"].tobytes()


@pytest.mark.parametrize("form", ["proto", "ir", "bytes", "path"])
def test_what_was_added_takes_the_place_of_the_model_s_data(form: str, tmp_path: Path) -> None:
    tensors = arrays(2)
    model = graph_of(tensors)
    for name, array in (*tensors.items(), ("other", np.ones(100, np.float32))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array + 7, name))
    model.graph.initializer[0].doc_string = "the first"
    given: Any = model
    if form == "ir":
        given = pytest.importorskip("onnx_ir").serde.deserialize_model(model)
    elif form == "bytes":
        given = model.SerializeToString()
    elif form == "path":
        given = tmp_path / "given.onnx"
        given.write_bytes(model.SerializeToString())
    before = model.SerializeToString()
    with oe.Writer(tmp_path / "out") as writer:
        for name, array in tensors.items():
            writer.add(name, array)
        writer.finish(given)
    assert model.SerializeToString() == before
    saved = saved_bytes(tmp_path / "out")
    assert saved.pop("other") == np.full(100, 8, np.float32).tobytes()
    assert saved == {name: bytes_of_numpy(array) for name, array in tensors.items()}
    assert places(tmp_path / "out").keys() == tensors.keys()


def test_an_exception_removes_everything(tmp_path: Path) -> None:
    with pytest.raises(LookupError), oe.Writer(tmp_path / "out") as writer:
        writer.add("w", np.ones(1 << 20, np.float32))
        raise LookupError
    assert not (tmp_path / "out").exists()


def test_a_writer_that_is_not_finished_says_so(tmp_path: Path) -> None:
    with (
        pytest.raises(oe.InvalidArgumentError, match="finish"),
        oe.Writer(tmp_path / "out") as writer,
    ):
        writer.add("w", np.ones(10, np.float32))
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="closed"):
        writer.add("v", np.ones(10, np.float32))


def test_an_option_that_a_writer_does_not_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(oe.InvalidArgumentError, match="dedup is not for a Writer"):
        oe.Writer(tmp_path / "out", files=oe.Layout(dedup="off"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "tensor", "error"),
    [
        ("w", np.ones(4, np.float32), oe.InvalidArgumentError),  # the second tensor with this name
        ("v", "text", TypeError),
        ("v", np.array(["a"]), oe.FormatError),
    ],
    ids=["twice", "no tensor", "strings"],
)
def test_a_tensor_that_is_refused_leaves_the_others(
    name: str, tensor: object, error: type[Exception], tmp_path: Path
) -> None:
    tensors = {"w": np.ones(64, np.float32)}
    with oe.Writer(tmp_path) as writer:
        writer.add("w", tensors["w"])
        with pytest.raises(error, match=f"[\"']{name}[\"']"):
            writer.add(name, tensor)
        writer.finish(graph_of(tensors))
    assert saved_bytes(tmp_path) == {"w": tensors["w"].tobytes()}


def test_a_tensor_without_a_place_in_the_graph_is_refused(tmp_path: Path) -> None:
    with pytest.raises(oe.Error) as caught, oe.Writer(tmp_path / "out") as writer:
        writer.add("w", np.ones((3, 4), np.float32))
        model = open_graph({"v": ("float32", (2,))})
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
        )
        writer.finish(model)
    assert caught.value.code == "mismatch" and "'w'" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    tensors = arrays(1)
    for overwrite in (False, True):
        with oe.Writer(tmp_path, overwrite=overwrite) as writer:
            writer.add(*next(iter(tensors.items())))
            writer.finish(graph_of(tensors))
    with pytest.raises(oe.ExistsError):
        oe.Writer(tmp_path)


def test_several_threads_may_add(tmp_path: Path) -> None:
    tensors = arrays(64)
    names = iter(list(tensors))
    lock = threading.Lock()

    with oe.Writer(tmp_path) as writer:

        def work() -> None:
            while True:
                with lock:
                    name = next(names, None)
                if name is None:
                    return
                writer.add(name, tensors[name])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.finish(graph_of(tensors))
    assert saved_bytes(tmp_path) == {name: bytes_of_numpy(a) for name, a in tensors.items()}


def test_a_child_leaves_its_parent_s_writer_alone(tmp_path: Path) -> None:
    tensors = arrays(2)
    with oe.Writer(tmp_path) as writer:
        writer.add("layer.0.weight", tensors["layer.0.weight"])
        child = os.fork()
        if child == 0:
            writer.close()
            os._exit(0)
        os.waitpid(child, 0)
        writer.add("layer.1.weight", tensors["layer.1.weight"])
        writer.finish(graph_of(tensors))
    assert len(saved_bytes(tmp_path)) == 2


def test_a_lazy_tensor_s_exception_arrives(tmp_path: Path) -> None:
    ir = pytest.importorskip("onnx_ir")

    def fail() -> Any:
        raise LookupError("nothing there")

    lazy = ir.LazyTensor(fail, dtype=ir.DataType.FLOAT, shape=ir.Shape([4]), name="l")
    with pytest.raises(oe.Error, match="'w'") as caught, oe.Writer(tmp_path / "out") as writer:
        writer.add("w", lazy)
    assert isinstance(caught.value.__cause__, LookupError)
    assert not (tmp_path / "out").exists()
