"""Tests that the package saves and verifies like the commands."""

import copy
import filecmp
import json
import os
import pickle
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

COMMANDS = Path(sysconfig.get_path("scripts"))


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def large_checkpoint(folder: Path, megabytes: int) -> tuple[Path, Path]:
    """Return a checkpoint (safetensors) and a graph with one large weight."""
    onnx = pytest.importorskip("onnx")
    shape = [megabytes, 1 << 18]
    header = {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, megabytes << 20]}}
    text = json.dumps(header).encode()
    checkpoint = folder / "large.safetensors"
    with open(checkpoint, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for _ in range(megabytes):
            stream.write(os.urandom(1 << 20))
    node = onnx.helper.make_node("Identity", ["w"], ["y"])
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [value("w", 1, shape)], [value("y", 1, shape)])
    onnx.save(onnx.helper.make_model(graph), folder / "large.onnx")
    return folder / "large.onnx", checkpoint


def test_a_save_writes_the_same_bytes_as_the_command(tiny: Path, tmp_path: Path) -> None:
    graph, checkpoint = tiny / "graph.onnx", tiny / "checkpoint.pt"
    report = oe.save(graph, tmp_path / "ours" / "model.onnx", checkpoint)
    command = [COMMANDS / "save-external", graph, checkpoint, "-o", tmp_path / "theirs"]
    named = ["--layout", "single", "--data-name", "model.onnx.data"]
    subprocess.run([*command, *named, "-q"], check=True)
    names = files_of(tmp_path / "ours")
    assert names == files_of(tmp_path / "theirs") != []
    match = filecmp.cmpfiles(tmp_path / "ours", tmp_path / "theirs", names, shallow=False)
    assert match == (names, [], [])
    assert report.verified and len(report.tensors) == 17


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dtype", {"dtype": "float16"}),
        ("dtype", {"dtype": "slot"}),
        ("prefix", {"mapping": oe.Mapping(prefix="model.")}),
        ("rename", {"mapping": oe.Mapping(rename="s/a/b/")}),
        ("ignore", {"mapping": oe.Mapping(ignore="x")}),
    ],
)
def test_what_says_how_weights_fill_a_graph_is_refused_without_weights(
    name: str, options: dict[str, Any], tiny: Path, tmp_path: Path
) -> None:
    oe.save(tiny / "graph.onnx", tmp_path / "model.onnx", tiny / "checkpoint.pt")
    with pytest.raises(
        oe.InvalidArgumentError, match=f"{name}: applies only to the weights of a checkpoint"
    ):
        oe.save(tmp_path / "model.onnx", tmp_path / "again" / "model.onnx", **options)
    assert not (tmp_path / "again").exists()


def test_a_report_prints_as_a_line(tiny: Path, tmp_path: Path) -> None:
    report = oe.save(tiny / "graph.onnx", tmp_path / "model.onnx", tiny / "checkpoint.pt")
    told = f"{tmp_path / 'model.onnx'}: tensors: 17, data files: 1, bytes: 4,"
    assert str(report).startswith(told)
    assert str(report).endswith("; saved, complete, verified")


def test_a_report_is_the_command_s_document(tiny: Path, tmp_path: Path) -> None:
    graph, checkpoint = tiny / "graph.onnx", tiny / "checkpoint.pt"
    report = oe.save(graph, tmp_path / "model.onnx", checkpoint, layout="per-tensor")
    command = [COMMANDS / "save-external", graph, checkpoint, "-o", tmp_path, "--overwrite"]
    printed = json.loads(
        subprocess.run([*command, "--json"], check=True, capture_output=True).stdout
    )
    document = report.to_dict()
    assert document.keys() == printed.keys()
    assert [t["slot"] for t in document["tensors"]] == [t["slot"] for t in printed["tensors"]]
    assert report.tensors[0].key == printed["tensors"][0]["key"]


def test_a_report_can_be_pickled_and_copied(tiny: Path, tmp_path: Path) -> None:
    for copy_of in copy.copy, copy.deepcopy, lambda report: pickle.loads(pickle.dumps(report)):
        report = oe.plan(tiny / "graph.onnx", weights=tiny / "checkpoint.pt")
        other = copy_of(report)
        assert other == report
        assert other.tensors == report.tensors
        assert other.to_dict() == report.to_dict()


@pytest.mark.parametrize("form", ["path", "bytes", "proto"])
def test_a_graph_is_a_file_its_bytes_or_a_message(form: str, tiny: Path, tmp_path: Path) -> None:
    graph: object = tiny / "graph.onnx"
    if form == "bytes":
        graph = (tiny / "graph.onnx").read_bytes()
    if form == "proto":
        graph = pytest.importorskip("onnx").load(tiny / "graph.onnx", load_external_data=False)
    report = oe.save(graph, tmp_path, tiny / "checkpoint.pt")  # type: ignore[arg-type]
    assert report.model == str(tmp_path / "model.onnx")
    assert oe.verify(tmp_path, tiny / "checkpoint.pt").ok


def test_a_model_s_own_weights_get_another_layout(tiny: Path, tmp_path: Path) -> None:
    oe.save(tiny / "graph.onnx", tmp_path / "a", tiny / "checkpoint.pt", layout="inline")
    report = oe.save(
        tmp_path / "a/model.onnx",
        tmp_path / "b",
        layout="shards",
        files=oe.Layout(max_shard_size="2KB"),
    )
    assert len({tensor.file for tensor in report.tensors} - {None}) > 1
    assert oe.verify(tmp_path / "b", tiny / "checkpoint.pt").ok


def test_a_dry_run_writes_nothing(tiny: Path, tmp_path: Path) -> None:
    plan = oe.plan(
        tiny / "graph.onnx", path=tmp_path / "out/model.onnx", weights=tiny / "checkpoint.pt"
    )
    assert plan.dry_run and not plan.verified and len(plan.tensors) == 17
    assert files_of(tmp_path) == []
    assert plan.save(tmp_path / "elsewhere/m.onnx").model == str(tmp_path / "elsewhere/m.onnx")
    assert not (tmp_path / "out").exists()
    assert plan.save().model == str(tmp_path / "out/model.onnx")


def test_the_old_function_replaces_and_keeps_its_places(tiny: Path, tmp_path: Path) -> None:
    graph = (tiny / "graph.onnx").read_bytes()
    for _ in range(2):
        oe.save_model_with_external_data(
            tmp_path, "m.onnx", "weights", [str(tiny / "checkpoint.pt")], graph
        )
    assert (tmp_path / "m.onnx").exists()
    assert oe.verify(tmp_path / "m.onnx", tiny / "checkpoint.pt").ok


def test_the_data_file_is_named_as_in_torch_or_as_asked(tiny: Path, tmp_path: Path) -> None:
    graph, checkpoint = tiny / "graph.onnx", tiny / "checkpoint.pt"
    for names, options in {
        ("net.onnx.data", "net.manifest.json"): {},
        ("w.1.bin", "net.1.manifest.json"): {
            "files": oe.Layout(data_name="w.bin"),
            "overwrite": True,
        },
        ("net.onnx.2.data", "net.2.manifest.json"): {"overwrite": True},
    }.items():
        oe.save(graph, tmp_path / "net.onnx", checkpoint, **options)
        assert files_of(tmp_path) == sorted(["net.onnx", *names])
    with pytest.raises(oe.Error, match="applies only to data in files next to the model"):
        oe.save(
            graph,
            tmp_path / "b",
            checkpoint,
            layout="per-tensor",
            files=oe.Layout(data_name="w.bin"),
        )
    with pytest.raises(oe.Error, match="is reserved for models"):
        oe.save(graph, tmp_path / "b", checkpoint, files=oe.Layout(data_name="w.onnx"))


def test_a_changed_byte_is_a_finding(tiny: Path, tmp_path: Path) -> None:
    oe.save(tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt")
    data = bytearray((tmp_path / "model.onnx.data").read_bytes())
    data[5] ^= 1
    (tmp_path / "model.onnx.data").write_bytes(data)
    report = oe.verify(tmp_path)
    assert not report and report.findings[0].code == "crc-differs"
    verdict, *findings = str(report).splitlines()
    assert verdict.startswith(f"{tmp_path}: external tensors: 17, bytes: ")
    assert verdict.endswith("; findings: 2")  # the embedding is tied
    assert [each[:26] for each in findings] == [
        "crc-differs: 'transformer.",
        "crc-differs: 'lm_head.weig",
    ]
    against = oe.verify(tmp_path, tiny / "checkpoint.pt")
    assert "bytes-differ" in {finding.code for finding in against.findings}
    assert against.to_dict()["ok"] is False


def test_an_unfinished_mapping_names_both_sides(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(oe.MappingError) as caught:
        oe.save(
            tiny / "graph.onnx",
            tmp_path / "out",
            tiny / "checkpoint.pt",
            mapping=oe.Mapping(rename="s/ln_1/ln_9/"),
        )
    assert "transformer.h.0.ln_1.weight" in caught.value.missing
    assert (caught.value.code, caught.value.kind) == ("not-found", "missing")
    assert [item.name for item in caught.value.lists["missing"]] == caught.value.missing
    assert files_of(tmp_path) == []


def test_unused_keys_are_unexpected(tiny: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    name = "transformer.h.0.ln_1.weight"  # the module of this weight also has a bias
    node = onnx.helper.make_node("Identity", [name], ["y"])
    graph = onnx.helper.make_graph([node], "g", [value(name, 1, [8])], [value("y", 1, [8])])
    with pytest.raises(oe.MappingError) as caught:
        oe.save(onnx.helper.make_model(graph), tmp_path, tiny / "checkpoint.pt")
    assert caught.value.missing == []
    assert caught.value.unexpected == ["module.transformer.h.0.ln_1.bias"]
    assert caught.value.kind == "unused" and list(caught.value.lists) == ["unused"]
    assert any(remedy.option == "unmatched" for remedy in caught.value.remedies)


def test_an_existing_model_is_not_replaced_unasked(tiny: Path, tmp_path: Path) -> None:
    oe.save(tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt")
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        oe.save(tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt")
    assert isinstance(caught.value, oe.ExistsError)
    oe.save(tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt", overwrite=True)


@pytest.mark.parametrize(
    ("keyword", "value", "kind"),
    [
        ("layout", "piles", ValueError),
        ("layout", 3, TypeError),
        ("threads", "two", TypeError),
        ("max_shard_size", "3 bananas", ValueError),
        ("dtype", "int8", ValueError),
        ("rename", "no expression", ValueError),
        ("map", {"slot": {1, 2}}, TypeError),
        ("align", 7, ValueError),
        ("colour", "red", TypeError),
    ],
)
def test_a_wrong_argument_is_named(
    keyword: str, value: object, kind: type[Exception], tiny: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {keyword: value}
    if keyword in oe.Mapping.__dataclass_fields__:
        given = {"mapping": oe.Mapping(**given)}
    elif keyword in oe.Layout.__dataclass_fields__:
        given = {"files": oe.Layout(**given)}
    with pytest.raises(kind, match=None if keyword in ("rename", "align") else keyword):
        oe.save(tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt", **given)
    assert files_of(tmp_path) == []


def test_a_map_is_the_document_of_a_map_file(tiny: Path, tmp_path: Path) -> None:
    key = "module.transformer.wpe.weight"
    last = {"key": key, "recipe": [{"slice": [0, 4, 8]}]}
    document = {
        "derived": {"turned": {"concat": [last, last], "dim": 0, "recipe": ["transpose"]}},
        "map": {"transformer.wpe.weight": "turned"},
    }
    graph, checkpoint = tiny / "graph.onnx", tiny / "checkpoint.pt"
    model = tmp_path / "model.onnx"
    how = oe.Mapping(map=document, unmatched="skip")
    report = oe.save(graph, model, checkpoint, mapping=how)
    assert report.derived == document["derived"]
    (tensor,) = [one for one in report.tensors if one.slot == "transformer.wpe.weight"]
    assert (tensor.key, tensor.rule) == ("turned", "map")
    with oe.open_checkpoint(checkpoint) as opened:
        wanted = np.concatenate([opened[key].numpy()[4:8]] * 2).T
    data = (tmp_path / str(tensor.file)).read_bytes()
    assert data[tensor.offset : tensor.offset + tensor.length] == wanted.tobytes()
    assert oe.verify(model, checkpoint, mapping=how).ok


def test_a_map_of_another_form_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(oe.FormatError, match="slot 'slot'"):
        oe.save(
            tiny / "graph.onnx",
            tmp_path,
            tiny / "checkpoint.pt",
            mapping=oe.Mapping(map={"slot": 1}),
        )


@pytest.mark.parametrize("model", [None, 3, [1], object()])
def test_a_model_of_another_kind_is_a_type_error(model: object, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="model"):
        oe.save(model, tmp_path)  # type: ignore[arg-type]


def test_bytes_that_are_not_a_model_are_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(oe.FormatError):
        oe.save(b"\xff\xff\xff", tmp_path, tiny / "checkpoint.pt")


def test_progress_is_called_in_the_calling_thread(tiny: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int, int]] = []

    def note(phase: str, done: int, total: int) -> None:
        seen.append((phase, done, total, threading.get_ident()))

    oe.save(tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt", progress=note)
    assert seen and {entry[3] for entry in seen} == {threading.get_ident()}
    assert all(0 <= done <= total for _, done, total, _ in seen)


def test_an_exception_of_the_callback_stops_the_save(tmp_path: Path) -> None:
    graph, checkpoint = large_checkpoint(tmp_path, 300)

    def refuse(phase: str, done: int, total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        oe.save(graph, tmp_path / "out", checkpoint, progress=refuse)
    assert not (tmp_path / "out").exists()


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    graph, checkpoint = large_checkpoint(tmp_path, 600)
    paths = [str(path) for path in (graph, tmp_path / "out", checkpoint)]
    program = f"import onnx_external as oe; print('go', flush=True); oe.save(*{paths!r})"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "go\n"
        time.sleep(0.15)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    if process.returncode != 0:  # otherwise, the save had already ended
        assert "KeyboardInterrupt" in errors
        assert not (tmp_path / "out").exists()


def test_two_threads_may_save_at_once(tiny: Path, tmp_path: Path) -> None:
    reports: dict[int, oe.SaveReport] = {}

    def work(number: int) -> None:
        reports[number] = oe.save(
            tiny / "graph.onnx", tmp_path / str(number), tiny / "checkpoint.pt"
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(report.verified for report in reports.values()) and len(reports) == 4


def test_a_process_may_fork_before_and_after(tiny: Path, tmp_path: Path) -> None:
    oe.save(tiny / "graph.onnx", tmp_path / "parent", tiny / "checkpoint.pt")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            oe.save(tiny / "graph.onnx", tmp_path / "child", tiny / "checkpoint.pt")
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert oe.verify(tmp_path / "child").ok


def test_the_module_runs_the_commands(tiny: Path) -> None:
    command = [sys.executable, "-m", "onnx_external", "inspect", tiny / "checkpoint.pt", "--json"]
    printed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert printed == oe.inspect(tiny / "checkpoint.pt").to_dict()
    wrong = subprocess.run([sys.executable, "-m", "onnx_external", "dance"], capture_output=True)
    assert wrong.returncode == 2


def test_digests_of_an_inspection_are_those_of_the_bytes(tiny: Path) -> None:
    import hashlib

    inspection = oe.inspect(tiny / "model.safetensors", sha256=True)
    with oe.open_checkpoint(tiny / "model.safetensors") as checkpoint:
        for tensor in inspection.tensors:
            assert tensor.sha256 == hashlib.sha256(checkpoint[tensor.name].tobytes()).hexdigest()
    some = oe.inspect(tiny / "model.safetensors", filter="wpe")
    assert 0 < len(some.tensors) < len(inspection.tensors)


def test_onnx_runtime_reads_what_was_saved(tiny: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    oe.save(tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    inputs = {
        i.name: np.zeros([d if isinstance(d, int) else 1 for d in i.shape], np.int64)
        for i in session.get_inputs()
    }
    assert all(np.isfinite(output).all() for output in session.run(None, inputs))


def test_a_dry_run_without_a_path_looks_at_no_folder(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"in the way")
    assert oe.plan(tiny / "graph.onnx", weights=tiny / "checkpoint.pt").dry_run
    with pytest.raises(oe.ExistsError):
        oe.plan(tiny / "graph.onnx", path=".", weights=tiny / "checkpoint.pt")
    with pytest.raises(TypeError, match="path"):
        oe.save(tiny / "graph.onnx", None, tiny / "checkpoint.pt")
