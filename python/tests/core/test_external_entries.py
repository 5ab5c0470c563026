"""Tests of every spelling of external data with save, verify, cut, inspect and ONNX Runtime."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import onnx_external as oe  # noqa: E402

WEIGHT = np.arange(64, dtype=np.float32).reshape(8, 8)
X = np.ones((2, 8), np.float32)
DATA = b"\7" * 64 + WEIGHT.tobytes()
SHA1 = hashlib.sha1(DATA).hexdigest()

OFFSET = ("offset", "64")
LENGTH = ("length", "256")
WHOLE = [("location", "w.bin"), OFFSET, LENGTH]

Entries = list[tuple[str, str]]


def at(location: str) -> Entries:
    return [("location", location), OFFSET, LENGTH]


def numbers(offset: str, length: str) -> Entries:
    return [("location", "w.bin"), ("offset", offset), ("length", length)]


# Entries that ONNX Runtime loads, and that save, verify, cut and inspect accept with these remarks.
TAKEN: dict[str, tuple[Entries, set[str]]] = {
    "plain": (WHOLE, set()),
    "no length": ([("location", "w.bin"), OFFSET], {"no-length"}),
    "length 0": (numbers("64", "0"), {"zero-length"}),
    "length 00": (numbers("64", "00"), {"zero-length"}),
    "leading zeros": (numbers("0064", "00256"), set()),
    "an offset that is not aligned": (
        [("location", "odd.bin"), ("offset", "3"), LENGTH],
        set(),
    ),
    "prepacked weights": ([*WHOLE, ("prepacked_0", "MatMul+1|0;8;1")], {"prepacked"}),
    "two prepacked weights": (
        [*WHOLE, ("prepacked_0", "a|0;8;1"), ("prepacked_1", "b|8;8;1")],
        {"prepacked"},
    ),
    "an offset twice": ([*WHOLE, OFFSET], {"twin-keys"}),
    "a checksum": ([*WHOLE, ("checksum", SHA1)], set()),
    "a checksum in capitals": ([*WHOLE, ("checksum", SHA1.upper())], set()),
    "a checksum of another kind": ([*WHOLE, ("checksum", "0" * 64)], {"other-checksum"}),
    "./w": (at("./w.bin"), set()),
    ".//w": (at(".//w.bin"), set()),
    "d//w": (at("d//w.bin"), set()),
    "d/./w": (at("d/./w.bin"), set()),
    "./d///./w": (at("./d///./w.bin"), set()),
    "w..bin": (at("w..bin"), {"dots"}),
    "#w": (at("#w.bin"), set()),
    "a blank": (at("w w.bin"), set()),
    "a hard link": (at("hard.bin"), {"hard-links"}),
}

# Entries that onnx reads and ONNX Runtime rejects. They are read as in onnx.
TAKEN_AS_BY_ONNX: dict[str, tuple[Entries, set[str]]] = {
    "basepath": ([*WHOLE, ("basepath", "/elsewhere")], {"basepath"}),
    "an empty basepath": ([*WHOLE, ("basepath", "")], {"basepath"}),
    "a location twice": ([("location", "w.bin"), *WHOLE], {"twin-keys"}),
}

# Entries that everything rejects, with a word from the error and from its remedy.
EXPORT, BY_ONNX, RENAME, COPY = "export the model again", "onnx.load(", "setattr(e", "cp "
REFUSED: dict[str, tuple[Entries, str, str]] = {
    "an unknown key": ([*WHOLE, ("packed", "zstd")], "'packed' is unknown", BY_ONNX),
    "an empty key": ([*WHOLE, ("", "")], "'' is unknown", BY_ONNX),
    "two locations": ([("location", "v.bin"), *WHOLE], "different values", BY_ONNX),
    "two offsets": ([*WHOLE, ("offset", "0")], "different values", BY_ONNX),
    "no location": ([OFFSET, LENGTH], "no location", EXPORT),
    "an empty location": (at(""), "'location' has no value", EXPORT),
    "an empty offset": (numbers("", "256"), "'offset' has no value", EXPORT),
    "an empty checksum": ([*WHOLE, ("checksum", "")], "'checksum' has no value", EXPORT),
    "a plus": (numbers("+64", "256"), "offset '+64'", BY_ONNX),
    "a blank in front": (numbers(" 64", "256"), "offset ' 64'", BY_ONNX),
    "a blank behind": (numbers("64", "256 "), "length '256 '", BY_ONNX),
    "a newline": (numbers("64\n", "256"), "offset", BY_ONNX),
    "hexadecimal": (numbers("0x40", "256"), "offset '0x40'", EXPORT),
    "a fraction": (numbers("64.0", "256"), "offset '64.0'", EXPORT),
    "a minus": (numbers("-64", "256"), "offset '-64'", EXPORT),
    "2^63": (numbers(str(2**63), "256"), "offset", EXPORT),
    "2^64 more": (numbers(str(2**64 + 64), "256"), "offset", EXPORT),
    "a range past 2^63": (numbers(str(2**63 - 1), "256"), "2^63", EXPORT),
    "a shorter length": (numbers("64", "252"), "length is 252", EXPORT),
    "a longer length": (numbers("64", "260"), "length is 260", EXPORT),
    "past the end": (numbers("128", "256"), "the file", ""),
    "..": (at("../dir/w.bin"), '".."', RENAME),
    "out of the folder": (at("../secret.bin"), '".."', RENAME),
    "out and in again": (at("d/../w.bin"), '".."', RENAME),
    "absolute": (at("ABSOLUTE/w.bin"), "absolute", RENAME),
    "a backslash": (at("d\\w.bin"), "plain name", RENAME),
    "a control character": (at("a\nb.bin"), "plain name", RENAME),
    "a slash at the end": (at("w.bin/"), "plain name", RENAME),
    "NUL": (at("w.bin\0"), "plain name", RENAME),
    "memory of ONNX Runtime": (at("*/_ORT_MEM_ADDR_/*"), "address in the memory", EXPORT),
    "a link": (at("link.bin"), "symbolic link", COPY),
    "a link out": (at("out.bin"), "symbolic link", COPY),
    "a FIFO": (at("fifo"), "not a regular file", ""),
    "a device": (at("zero"), "symbolic link", COPY),
    "a folder": (at("d"), "folder", ""),
}


def write_model(path: Path, entries: Entries) -> Path:
    tensor = TensorProto(
        name="w", data_type=1, dims=WEIGHT.shape, data_location=TensorProto.EXTERNAL
    )
    for key, value in entries:
        tensor.external_data.add(key=key, value=value.replace("ABSOLUTE", str(path.parent)))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [2, 8])],
        [helper.make_tensor_value_info("y", 1, [2, 8])],
        [tensor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "dir"
    names = ["w.bin", "v.bin", "d/w.bin", "w..bin", "#w.bin", "w w.bin", "a\nb.bin", "hard.bin"]
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(DATA)
    (tmp_path / "secret.bin").write_bytes(DATA)
    (folder / "odd.bin").write_bytes(b"odd" + WEIGHT.tobytes())
    os.link(folder / "hard.bin", tmp_path / "other name")
    links = {"link.bin": "w.bin", "out.bin": "../secret.bin", "zero": "/dev/zero"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "fifo")
    return folder


def run(path: Path) -> np.ndarray[Any, Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": X})[0])


def kinds(remarks: list[dict[str, Any]]) -> set[str]:
    return {remark["kind"] for remark in remarks}


def check_taken(model: Path, remarks: set[str]) -> None:
    """Save, verify, cut and inspect take it, and the saved model is right."""
    saved = oe.save(model, model.parent / "out")
    assert kinds(saved.remarks) == remarks - {"hard-links", "hub-link"}
    np.testing.assert_array_equal(run(model.parent / "out/model.onnx"), X @ WEIGHT)
    written = onnx.load(model.parent / "out/model.onnx", load_external_data=False)
    keys = [entry.key for entry in written.graph.initializer[0].external_data]
    assert keys == ["location", "offset", "length"]
    verified = oe.verify(model)
    assert verified.ok
    assert kinds(verified.remarks) == remarks
    assert all(remark["first"] == "w" for remark in verified.remarks)
    (tensor,) = oe.inspect(model, sha256=True).tensors
    assert tensor.problem is None
    assert tensor.sha256 == hashlib.sha256(WEIGHT.tobytes()).hexdigest()
    oe.cut(model, model.parent / "piece.onnx", inputs=["x"], outputs=["y"])


@pytest.mark.parametrize("spelling", TAKEN)
def test_what_onnx_runtime_loads_is_taken_by_all(folder: Path, spelling: str) -> None:
    entries, remarks = TAKEN[spelling]
    model = write_model(folder / "m.onnx", entries)
    np.testing.assert_array_equal(run(model), X @ WEIGHT)
    check_taken(model, remarks)
    np.testing.assert_array_equal(run(folder / "piece.onnx"), X @ WEIGHT)


@pytest.mark.parametrize("spelling", TAKEN_AS_BY_ONNX)
def test_what_onnx_alone_reads_is_taken_by_all_and_remarked(folder: Path, spelling: str) -> None:
    entries, remarks = TAKEN_AS_BY_ONNX[spelling]
    model = write_model(folder / "m.onnx", entries)
    with pytest.raises(Exception, match="model format error"):
        run(model)
    loaded = onnx.load(model).graph.initializer[0]
    np.testing.assert_array_equal(numpy_helper.to_array(loaded), WEIGHT)
    check_taken(model, remarks)


@pytest.mark.parametrize("spelling", REFUSED)
def test_what_is_refused_is_refused_by_all_with_a_way_out(folder: Path, spelling: str) -> None:
    entries, what, way_out = REFUSED[spelling]
    model = write_model(folder / "m.onnx", entries)
    piece = folder / "piece.onnx"
    calls: list[Callable[[], Any]] = [
        lambda: oe.save(model, folder / "out"),
        lambda: oe.cut(model, piece, inputs=["x"], outputs=["y"]),
    ]
    for call in calls:
        with pytest.raises(oe.Error) as caught:
            call()
        assert "'w'" in str(caught.value)
        assert what in str(caught.value)
        assert way_out in str(caught.value)
    assert not (folder / "out").exists()
    assert not piece.exists()
    findings = oe.verify(model).findings
    assert [finding.tensor for finding in findings if finding.tensor] == ["w"]
    assert what in findings[-1].message
    try:
        (tensor,) = oe.inspect(model, sha256=True).tensors
        assert tensor.problem is not None
        assert what in tensor.problem
    except oe.Error as error:  # detected when the file is opened
        assert what in str(error)


def test_cut_alone_needs_no_data(folder: Path) -> None:
    model = write_model(folder / "m.onnx", at("none.bin"))
    with pytest.raises(oe.Error, match=r"'w': .*none\.bin"):
        oe.save(model, folder / "out")
    assert [finding.code for finding in oe.verify(model).findings] == ["missing-file"]
    oe.cut(model, folder / "piece.onnx", inputs=["x"], outputs=["y"])


def test_data_inside_and_outside_of_a_model_is_refused_by_all(folder: Path) -> None:
    path = write_model(folder / "m.onnx", WHOLE)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].raw_data = (WEIGHT + 1).tobytes()
    path.write_bytes(model.SerializeToString())
    for call in (
        lambda: oe.save(path, folder / "out"),
        lambda: oe.cut(path, folder / "piece.onnx", inputs=["x"], outputs=["y"]),
    ):
        with pytest.raises(oe.Error, match=r"the model also contains data for it; .*onnx\.load\("):
            call()
    assert [finding.code for finding in oe.verify(path).findings] == ["inline-and-external"]
    assert oe.inspect(path).tensors[0].problem is not None


@pytest.mark.parametrize("below", ["", "onnx", "onnx/fp16"])
def test_links_of_the_hubs_cache_are_followed_inside_of_it_only(tmp_path: Path, below: str) -> None:
    cache = tmp_path / "models--a--b"
    folder = cache / "snapshots" / "0123abcd" / below
    folder.mkdir(parents=True)
    (cache / "blobs").mkdir()
    (tmp_path / "secret").write_bytes(DATA)
    up = os.path.relpath(cache, folder)
    (cache / "blobs" / "beef").write_bytes(DATA)
    write_model(cache / "blobs" / "cafe", at("model.onnx_data"))
    (folder / "model.onnx").symlink_to(f"{up}/blobs/cafe")
    (folder / "model.onnx_data").symlink_to(f"{up}/blobs/beef")
    np.testing.assert_array_equal(run(folder / "model.onnx"), X @ WEIGHT)
    check_taken(folder / "model.onnx", {"hub-link"})
    for target in (f"{up}/../secret", str(tmp_path / "secret"), f"{up}/blobs/../../secret"):
        (folder / "model.onnx_data").unlink()
        (folder / "model.onnx_data").symlink_to(target)
        with pytest.raises(oe.Error, match="symbolic link"):
            oe.save(folder / "model.onnx", tmp_path / "out")


def test_a_private_file_from_elsewhere_is_not_read_through_a_hard_link(folder: Path) -> None:
    folder.chmod(0o755)
    (folder.parent / "secret.bin").chmod(0o600)
    os.link(folder.parent / "secret.bin", folder / "planted.bin")
    model = write_model(folder / "m.onnx", at("planted.bin"))
    with pytest.raises(oe.Error, match=r"2 hard links.*copy it: cp FILE"):
        oe.save(model, folder / "out")
    assert [finding.code for finding in oe.verify(model).findings] == ["bad-file-kind"]


def test_a_save_never_writes_through_a_hard_link(folder: Path) -> None:
    kept = folder / "kept"
    kept.mkdir()
    oe.save(write_model(folder / "m.onnx", WHOLE), folder / "out")
    for file in [*(folder / "out").rglob("*")]:
        if file.is_file():
            os.link(file, kept / file.name)
    before = {file.name: file.read_bytes() for file in kept.iterdir()}
    other = numpy_helper.from_array(WEIGHT + 1, "w")
    model = onnx.load(folder / "m.onnx", load_external_data=False)
    model.graph.initializer[0].CopyFrom(other)
    oe.save(model, folder / "out", overwrite=True)
    assert {file.name: file.read_bytes() for file in kept.iterdir()} == before


def test_a_model_from_memory_whose_data_is_elsewhere_says_how_to_find_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(folder / "m.onnx", WHOLE)
    monkeypatch.chdir(folder.parent)
    model = onnx.load(path, load_external_data=False)
    for given in (model, path.read_bytes()):
        with pytest.raises(oe.Error, match=r"'w': .*base_dir=. in Python.*the model's path"):
            oe.save(given, folder / "none")
        assert oe.save(
            given, folder / "out", files=oe.Layout(base_dir=folder), overwrite=True
        ).verified


def test_data_that_onnx_has_only_marked_as_external_is_in_the_message(folder: Path) -> None:
    model = onnx.load(write_model(folder / "m.onnx", WHOLE))
    onnx.external_data_helper.convert_model_to_external_data(model, size_threshold=0)
    oe.save(model, folder / "out")
    np.testing.assert_array_equal(run(folder / "out/model.onnx"), X @ WEIGHT)


# --- names that occur twice in a graph ---


def twin_models() -> dict[str, tuple[Any, str]]:
    """Return models with two values of one name in a branch of an If, and the second kind."""

    def sparse(name: str) -> Any:
        values = helper.make_tensor(name, 1, [2], [5.0, 5.0])
        return helper.make_sparse_tensor(values, helper.make_tensor("", 7, [2], [0, 1]), [2])

    first = numpy_helper.from_array(np.full(2, 1, np.float32), "w")
    second = numpy_helper.from_array(np.full(2, 10, np.float32), "w")
    constant = helper.make_node("Constant", [], ["w"], name="n", value=second)

    def model(initializers: Any, sparse_ones: Any = (), nodes: Any = (), outer: Any = ()) -> Any:
        info = helper.make_tensor_value_info
        branch = helper.make_graph(
            [*nodes, helper.make_node("Add", ["x", "w"], ["o"])],
            "branch",
            [],
            [info("o", 1, [2])],
            initializers,
            sparse_initializer=sparse_ones,
        )
        other = helper.make_graph(
            [helper.make_node("Neg", ["x"], ["p"])], "other", [], [info("p", 1, [2])]
        )
        choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
        graph = helper.make_graph(
            [choice], "g", [info("x", 1, [2]), info("c", 9, [])], [info("y", 1, [2])], outer
        )
        opset = helper.make_opsetid("", 17)
        return helper.make_model(graph, opset_imports=[opset], ir_version=8)

    return {
        "dense": (model([first, second]), "and an initializer inside the model"),
        "sparse": (model([first], [sparse("w")]), "and a sparse initializer"),
        "both sparse": (model([], [sparse("w"), sparse("w")]), "and a sparse initializer"),
        "output": (model([first], [], [constant]), "and the output of node 'n' of type 'Constant'"),
        "outer": (model([first], outer=[second]), ""),
    }


@pytest.mark.parametrize("kind", ["dense", "sparse", "both sparse", "output"])
def test_a_name_twice_in_a_subgraph_is_refused_before_any_work(tmp_path: Path, kind: str) -> None:
    model, second = twin_models()[kind]
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(Exception):  # noqa: B017
        ort.InferenceSession(path)
    where = r"'w': the name occurs twice in the graph 'branch', 'then_branch' of a node"
    for given in (path, model):
        with pytest.raises(oe.Error, match=where) as caught:
            oe.save(given, tmp_path / "out")
        assert second in str(caught.value)
    with pytest.raises(oe.Error, match=where):
        oe.cut(path, tmp_path / "piece.onnx", inputs=["x"], outputs=["y"])
    assert sorted(tmp_path.iterdir()) == [path]
    assert "duplicate-name" in {finding.code for finding in oe.verify(path).findings}
    listed = oe.inspect(path).tensors  # only dense initializers
    assert any(second in (tensor.problem or "") for tensor in listed) == bool(listed)


def test_a_name_of_an_outer_graph_may_be_used_again(tmp_path: Path) -> None:
    model, _ = twin_models()["outer"]
    oe.save(model, tmp_path / "out")
    assert oe.verify(tmp_path / "out").ok
    session = ort.InferenceSession(tmp_path / "out/model.onnx")
    (result,) = session.run(None, {"x": np.zeros(2, np.float32), "c": np.array(True)})
    np.testing.assert_array_equal(result, [1, 1])
