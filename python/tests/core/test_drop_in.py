"""Tests of the drop-in for a widely copied function, in cases where the original is wrong."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import bytes_of_torch, onnx, places, saved_bytes, value
from graphs import open_graph as any_graph

import onnx_external as oe

torch = pytest.importorskip("torch")


def open_graph(slots: dict[str, tuple[str, tuple[int, ...]]]) -> Any:
    """Return a graph as exporters wrote it for this function, with each weight as an input."""
    return any_graph(slots, as_inputs=True)


def save(folder: Path, model: Any, *weights: Any) -> Path:
    """Call the function with positional arguments only, as its users do."""
    oe.save_model_with_external_data(str(folder), "model.onnx", "initializers", weights, model)
    return folder


def checkpoint(folder: Path, tensors: dict[str, Any], name: str = "c.pt") -> str:
    folder.mkdir(exist_ok=True)
    torch.save(tensors, folder / name)
    return str(folder / name)


def forms(tensors: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for name, tensor in tensors.items()
    }


def ramp(*shape: int) -> Any:
    return torch.arange(float(np.prod(shape))).reshape(shape) + 1


def test_the_first_call_puts_the_same_files_into_the_same_places(tmp_path: Path) -> None:
    tensors = {"encoder.weight": ramp(3, 4), "encoder.bias": ramp(3)}
    graph = open_graph(forms({k.replace(".", "_"): t for k, t in tensors.items()}))
    out = save(tmp_path / "out", graph, checkpoint(tmp_path, tensors))
    for name, tensor in tensors.items():
        path = out / "initializers" / name.replace(".", "_")
        assert path.read_bytes() == bytes_of_torch(tensor)
    assert (out / "model.onnx").is_file()


def test_a_checkpoint_may_be_a_stream_as_for_torch_load(tmp_path: Path) -> None:
    tensors = {"w": ramp(3, 4), "b": ramp(3)}
    stream = io.BytesIO()
    stream.write(b"before")
    torch.save(tensors, stream)
    stream.seek(6)
    graph = open_graph(forms(tensors))
    oe.save_model_with_external_data(tmp_path / "out", "model.onnx", "data", stream, graph)
    assert saved_bytes(tmp_path / "out") == {name: bytes_of_torch(t) for name, t in tensors.items()}
    with open(checkpoint(tmp_path, tensors), "rb") as file:
        out = save(tmp_path / "several", graph, file)
    assert saved_bytes(out) == saved_bytes(tmp_path / "out")


def test_a_stream_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (2,))})
    with pytest.raises(oe.FormatError, match=r"^torch_load_paths \(a stream\): "):
        save(tmp_path / "out", graph, io.BytesIO(b"no checkpoint"))
    with pytest.raises(TypeError, match="expected a binary stream"):
        save(tmp_path / "out", graph, io.StringIO("text"))
    assert not (tmp_path / "out").exists()


def test_1_views_have_the_length_of_their_values(tmp_path: Path) -> None:
    base = ramp(8, 4)
    tensors = {"row": base[2], "wide": ramp(1, 4).expand(6, 4), "turned": base.t()}
    out = save(tmp_path / "out", open_graph(forms(tensors)), checkpoint(tmp_path, tensors))
    for name, (location, offset, length) in places(out).items():
        assert length == len(bytes_of_torch(tensors[name]))
        assert offset + length <= (out / location).stat().st_size
    assert saved_bytes(out) == {name: bytes_of_torch(t) for name, t in tensors.items()}


def test_2_a_name_is_matched_at_its_dots(tmp_path: Path) -> None:
    # The old rule confuses "xfc1.weight" with "fc1.weight", and "s" with any name that ends with
    # "s".
    graph = open_graph({"xfc1.weight": ("float32", (2,)), "bias": ("float32", (2,))})
    with pytest.raises(oe.Error):
        save(tmp_path / "out", graph, checkpoint(tmp_path, {"fc1.weight": ramp(2), "s": ramp(2)}))
    assert not (tmp_path / "out").exists()


def test_3_the_result_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    names = [f"{module}.{kind}" for module in ("a", "b", "c") for kind in ("weight", "bias")]
    tensors = {f"model.{name}": ramp(2) + number for number, name in enumerate(names)}
    graph = open_graph({name: ("float32", (2,)) for name in names})
    onnx.save(graph, tmp_path / "graph.onnx")
    weights = checkpoint(tmp_path, tensors)
    program = (
        "import sys, onnx, onnx_external as oe; oe.save_model_with_external_data("
        "sys.argv[1], 'model.onnx', 'initializers', (sys.argv[2],), onnx.load(sys.argv[3]))"
    )
    for seed in ("0", "1", "2"):
        command = [sys.executable, "-c", program, tmp_path / seed, weights, tmp_path / "graph.onnx"]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
        assert saved_bytes(tmp_path / seed) == {
            name: bytes_of_torch(tensors[f"model.{name}"]) for name in names
        }


@pytest.mark.parametrize("order", [1, -1])
def test_4_an_equal_name_wins_whatever_the_order(order: int, tmp_path: Path) -> None:
    tensors = {"decoder.weight": ramp(2), "weight": ramp(2) + 5}
    graph = open_graph(forms(tensors))
    given = dict(list(tensors.items())[::order])
    out = save(tmp_path / "out", graph, checkpoint(tmp_path, given))
    assert saved_bytes(out) == {name: bytes_of_torch(t) for name, t in tensors.items()}


def test_5_the_caller_s_inputs_stay_inputs(tmp_path: Path) -> None:
    graph = open_graph({"fc.weight": ("float32", (2,)), "x": ("float32", (2,))})
    graph.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "batch"
    out = save(tmp_path / "out", graph, checkpoint(tmp_path, {"fc.weight": ramp(2)}))
    assert [given.name for given in onnx.load(out / "model.onnx").graph.input] == ["x"]
    # The old rule fills the caller's input "x" with a key whose name ends with "x".
    with pytest.raises(oe.Error):
        weights = checkpoint(tmp_path, {"fc.weight": ramp(2), "fc.max": ramp(2) + 7})
        save(tmp_path / "other", graph, weights)


def test_6_tensors_without_a_place_are_refused_and_other_values_are_not_tensors(
    tmp_path: Path,
) -> None:
    graph = open_graph({"fc.weight": ("float32", (2,))})
    with pytest.raises(oe.MappingError) as caught:
        save(
            tmp_path / "out",
            graph,
            checkpoint(tmp_path, {"fc.weight": ramp(2), "fc.extra": ramp(3)}),
        )
    assert caught.value.unexpected == ["fc.extra"]
    training = {"state_dict": {"fc.weight": ramp(2)}, "epoch": 3, "args": {"lr": 0.1}}
    out = save(tmp_path / "out", graph, checkpoint(tmp_path, training))
    assert saved_bytes(out) == {"fc.weight": bytes_of_torch(ramp(2))}


def test_7_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    graph = open_graph({"fc.weight": ("float32", (2,)), "fc.bias": ("float32", (2,))})
    with pytest.raises(oe.MappingError) as caught:
        save(tmp_path / "out", graph, checkpoint(tmp_path, {"fc.weight": ramp(2)}))
    assert caught.value.missing == ["fc.bias"]


def test_8_a_filled_input_is_no_longer_an_input(tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (2,))})
    out = save(tmp_path / "out", graph, checkpoint(tmp_path, {"w": ramp(2)}))
    assert not onnx.load(out / "model.onnx").graph.input
    assert [given.name for given in graph.graph.input] == ["w"]  # the caller's graph is unchanged


@pytest.mark.parametrize("other", [ramp(3), ramp(2, 1), ramp(2).long(), ramp(2).double()])
def test_9_shape_and_type_are_compared(other: Any, tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (2,))})
    with pytest.raises(oe.Error, match="'w'") as caught:
        save(tmp_path / "out", graph, checkpoint(tmp_path, {"w": other}))
    assert caught.value.code == "mismatch"


def test_10_tied_weights_are_one_file(tmp_path: Path) -> None:
    weight = ramp(8, 4)
    tensors = {"embed.weight": weight, "head.weight": weight}
    out = save(tmp_path / "out", open_graph(forms(tensors)), checkpoint(tmp_path, tensors))
    assert len(set(places(out).values())) == 1
    assert sum(1 for path in (out / "initializers").iterdir() if path.suffix != ".json") == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_11_types_that_numpy_lacks_are_saved(dtype: str, tmp_path: Path) -> None:
    tensors = {"w": ramp(2, 3).to(getattr(torch, dtype))}
    out = save(tmp_path / "out", open_graph(forms(tensors)), checkpoint(tmp_path, tensors))
    assert saved_bytes(out)["w"] == bytes_of_torch(tensors["w"])


def test_12_a_shape_stays_inside_of_the_model(tmp_path: Path) -> None:
    tensors = {"shape": torch.tensor([2, 3]), "w": ramp(2, 3)}
    out = save(tmp_path / "out", any_graph(forms(tensors)), checkpoint(tmp_path, tensors))
    assert places(out).keys() == {"w"}
    assert saved_bytes(out)["shape"] == bytes_of_torch(tensors["shape"])


def test_13_no_name_leaves_the_folder(tmp_path: Path) -> None:
    names = ["../../evil", "/tmp/evil", "a/../../b", "CON", "x" * 300, "w", "W"]
    tensors = {name: ramp(3) + number for number, name in enumerate(names)}
    out = save(tmp_path / "out", open_graph(forms(tensors)), checkpoint(tmp_path, tensors))
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    inside = ("c.pt", "out")
    assert all(path == inside[0] or path.startswith(inside[1]) for path in found)
    assert len({path.lower() for path in found}) == len(found)
    assert saved_bytes(out) == {name: bytes_of_torch(t) for name, t in tensors.items()}


@pytest.mark.parametrize("place", ["", "model.onnx", "..", "a/../../b"])
def test_13_a_place_that_is_not_a_folder_of_its_own_is_refused(place: str, tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (2,))})
    weights = checkpoint(tmp_path, {"w": ramp(2)})
    with pytest.raises(oe.Error):
        oe.save_model_with_external_data(
            str(tmp_path / "out"), "model.onnx", place, (weights,), graph
        )
    assert not (tmp_path / "out").exists()


def test_14_a_save_that_fails_leaves_the_old_model_whole(tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (2,))})
    out = save(tmp_path / "out", graph, checkpoint(tmp_path, {"w": ramp(2)}))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(oe.Error):
        save(out, graph, checkpoint(tmp_path, {"w": ramp(5)}))
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_14_data_may_be_read_from_what_is_replaced(tmp_path: Path) -> None:
    graph = open_graph({"w": ("float32", (1024,))})
    out = save(tmp_path / "out", graph, checkpoint(tmp_path, {"w": ramp(1024)}))
    location = places(out)["w"][0]
    mapped = np.memmap(out / location, np.float32, "r")
    out = save(out, graph, {"w": mapped})
    assert saved_bytes(out)["w"] == bytes_of_torch(ramp(1024))
    assert not (out / location).exists() and len(list(out.glob("initializers*"))) == 1


def test_15_two_keys_for_one_name_are_refused(tmp_path: Path) -> None:
    graph = open_graph({"a_b_c": ("float32", (2,))})
    twins = {"a.b_c": ramp(2), "a_b.c": ramp(2) + 1}
    with pytest.raises(oe.Error):
        save(tmp_path / "out", graph, checkpoint(tmp_path, twins))
    with pytest.raises(oe.Error, match="overlay"):
        save(
            tmp_path / "out",
            graph,
            checkpoint(tmp_path, {"a.b_c": ramp(2)}),
            checkpoint(tmp_path, {"a.b_c": ramp(2) + 1}, "d.pt"),
        )


def test_16_safetensors_are_known_by_their_content_and_shards_by_their_index(
    tiny: Path, tmp_path: Path
) -> None:
    graph = onnx.load(tiny / "graph.onnx")
    renamed = tmp_path / "weights.SAFETENSORS.bin"
    renamed.write_bytes((tiny / "model.safetensors").read_bytes())
    one = save(tmp_path / "one", graph, str(renamed))
    index = next((tiny / "sharded_bin").glob("*.index.json"))
    two = save(tmp_path / "two", graph, str(index))
    assert saved_bytes(one) == saved_bytes(two) != {}


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.touch, (self.marker,))


def test_17_nothing_in_a_checkpoint_is_executed(tmp_path: Path) -> None:
    weights = checkpoint(tmp_path, {"w": ramp(2), "callback": Evil(tmp_path / "executed")})
    out = save(tmp_path / "out", open_graph({"w": ("float32", (2,))}), weights)
    assert saved_bytes(out)["w"] == bytes_of_torch(ramp(2))
    assert not (tmp_path / "executed").exists()


def test_18_tensors_of_a_file_are_not_held_in_memory(tmp_path: Path) -> None:
    weights = checkpoint(tmp_path, {f"w{i}": torch.zeros(1 << 22) for i in range(16)})
    graph = open_graph({f"w{i}": ("float32", (1 << 22,)) for i in range(16)})
    onnx.save(graph, tmp_path / "graph.onnx")
    program = (
        "import sys, resource, onnx, onnx_external as oe; graph = onnx.load(sys.argv[3]);"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "oe.save_model_with_external_data("
        "sys.argv[1], 'model.onnx', 'initializers', (sys.argv[2],), graph);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    command = [sys.executable, "-c", program, tmp_path / "out", weights, tmp_path / "graph.onnx"]
    grown = int(subprocess.run(command, check=True, capture_output=True).stdout)
    assert grown < 64 << 10  # KiB, of 256 MiB of tensors


def test_19_external_data_of_the_given_model_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(1024, dtype=np.int64).reshape(32, 32)
    graph = any_graph({"fc.weight": ("float32", (2,))})
    tensor = onnx.numpy_helper.from_array(array, "val_3")
    graph.graph.initializer.append(tensor)
    graph.graph.node.append(onnx.helper.make_node("Identity", ["val_3"], ["y"]))
    graph.graph.output.append(value("y", "int64", (32, 32)))
    onnx.save(graph, tmp_path / "g.onnx", save_as_external_data=True, location="g.data")
    bare = onnx.load(tmp_path / "g.onnx", load_external_data=False)
    weights = checkpoint(tmp_path, {"fc.weight": ramp(2)})
    with pytest.raises(oe.NotFoundError):  # the path is relative to the current folder
        save(tmp_path / "out", bare, weights)
    monkeypatch.chdir(tmp_path)
    out = save(tmp_path / "out", bare, weights)
    assert saved_bytes(out)["val_3"] == array.tobytes()


def test_20_bytes_are_little_endian(tmp_path: Path) -> None:
    array = np.arange(6, dtype=">f4")
    out = save(tmp_path / "out", open_graph({"w": ("float32", (6,))}), {"w": array})
    assert saved_bytes(out)["w"] == array.astype("<f4").tobytes()


def test_21_locations_are_plain_posix_paths(tmp_path: Path) -> None:
    tensors = {"a.weight": ramp(3), "b/weight": ramp(4)}
    out = save(tmp_path / "out", open_graph(forms(tensors)), checkpoint(tmp_path, tensors))
    for location, _, _ in places(out).values():
        folder, name = location.split("/")
        assert folder == "initializers" and name and "\\" not in location and "." != name[0]


def test_onnx_runtime_runs_what_was_saved(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    tensors = {"a.weight": ramp(3), "b.weight": ramp(4)}
    out = save(tmp_path / "out", open_graph(forms(tensors)), checkpoint(tmp_path, tensors))
    session = runtime.InferenceSession(str(out / "model.onnx"))
    for output, tensor in zip(session.run(None, {}), tensors.values(), strict=True):
        np.testing.assert_array_equal(output, tensor.numpy())
