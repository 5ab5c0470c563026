"""Tests of the preconditions of an export, which are checked before anything is traced."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import commands
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("onnxscript")


class Untraced(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        raise AssertionError("it was run")


def leave_out(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make packages appear not to be installed."""
    monkeypatch.setattr(
        "onnx_external._base.packages.find_spec",
        lambda name: None if name in modules else find_spec(name),
    )


def test_all_functions_report_a_missing_package_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("onnx_external.transformers._checking")
    from onnx_external.torch._checking import why_not

    leave_out(monkeypatch, "onnxruntime", "onnx_ir", "transformers")
    told = "onnxruntime is not installed: pip install onnxruntime"
    assert why_not(None, None) == told
    assert transformers.Judging([], {}, None, 0, {})._why_not(None) == told
    with pytest.raises(oe.RunError, match=f": {told}$"):
        oe.validate(tmp_path / "model.onnx", tmp_path / "other.onnx")
    for words in (["export", tmp_path, "-o", tmp_path / "out"], ["diagnose", tmp_path]):
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
        done = commands.run(*words)
        names = "onnx-ir, transformers are not installed: pip install onnx-ir transformers\n"
        assert done.returncode == 1 and done.stderr.endswith(names), done.stderr


def test_a_missing_package_is_named_before_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out(monkeypatch, "onnxscript")
    module, x = Untraced().eval(), torch.ones(2)
    told = "^torch.onnx: onnxscript is not installed: pip install onnxscript$"
    with pytest.raises(oe.ExportError, match=told):
        oe.torch.export(module, x, tmp_path / "model.onnx")
    with pytest.raises(oe.ExportError, match=told):
        oe.torch.skeleton(module, x)
    with pytest.raises(oe.ExportError, match=told):
        oe.diagnose_export(module, x)


@pytest.mark.parametrize("path", ["out", "out/model.onnx"])
def test_an_existing_model_is_reported_before_the_trace(path: str, tmp_path: Path) -> None:
    model = tmp_path / "out/model.onnx"
    model.parent.mkdir()
    model.write_bytes(b"kept")
    with pytest.raises(oe.ExistsError) as caught:
        oe.torch.export(Untraced().eval(), torch.ones(2), tmp_path / path)
    assert str(caught.value) == f"{model}: exists\n  overwrite=True: replaces it"
    with pytest.raises(oe.ExistsError) as of_save:
        oe.save(oe.torch.skeleton(torch.nn.Linear(1, 1), torch.ones(1, 1)), model)
    assert str(of_save.value) == str(caught.value) and model.read_bytes() == b"kept"


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was begun")


def refused(*_: Any) -> Any:
    raise oe.ExportError("begun")


def folder_of(path: Path, **more: Any) -> Path:
    """Return a folder of which only the config is read."""
    path.mkdir()
    config = {"model_type": "bert", "architectures": ["BertModel"], **more}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("there", "more", "options"),
    [
        ("model.onnx", {}, {}),
        ("decode.onnx", {}, {"graphs": "two"}),
        ("encoder_model.onnx", {"is_encoder_decoder": True}, {}),
        ("config.json", {}, {}),
    ],
)
def test_existing_graphs_are_reported_before_a_folder_is_loaded(
    there: str,
    more: dict[str, Any],
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporting = pytest.importorskip("onnx_external.transformers._exporting")
    from onnx_external._commands import export as command

    folder, out = folder_of(tmp_path / "bert", **more), tmp_path / "out"
    out.mkdir()
    (out / there).write_text("mine")
    monkeypatch.setattr(exporting, "load", never)
    with pytest.raises(oe.ExistsError, match=rf"{there}: exists\n?.*overwrite=True"):
        oe.transformers.export(folder, out, **options)
    with pytest.raises(AssertionError, match="it was begun"):
        oe.transformers.export(folder, out, overwrite=True, **options)
    monkeypatch.setattr(command, "_run", never)  # which imports torch and transformers
    words = [f"--{name}={value}" for name, value in options.items()]
    done = commands.run("export", folder, "-o", out, *words)
    assert done.returncode == 1 and f"{out}/{there}: exists" in done.stderr
    assert "--overwrite" in done.stderr and (out / there).read_text() == "mine"


def test_a_missing_folder_is_reported_before_torch_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external._commands import export as command

    monkeypatch.setattr(command, "_run", never)  # which imports torch and transformers
    done = commands.run("export", tmp_path / "none", "-o", tmp_path / "out")
    assert done.returncode == 1 and f"{tmp_path}/none: not a folder; export takes" in done.stderr


@pytest.mark.parametrize(
    ("config", "dtype", "told"),
    [
        ({"dtype": "bfloat16"}, None, False),
        ({"dtype": "bfloat16"}, "float32", False),
        ({"dtype": "float32"}, "bfloat16", True),
        ({}, None, False),
    ],
)
def test_bfloat16_is_reported_before_a_folder_is_loaded(
    config: dict[str, Any],
    dtype: Any,
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporting = pytest.importorskip("onnx_external.transformers._exporting")
    from onnx_external._commands import export as command

    folder, out = folder_of(tmp_path / "bert", **config), tmp_path / "out"
    monkeypatch.setattr(exporting, "load", never)
    with pytest.raises(AssertionError, match="it was begun"):
        oe.transformers.export(folder, out, dtype=dtype)
    assert [each.levelname for each in caplog.records] == ["WARNING"] * told
    assert ("the model computes in bfloat16, " in caplog.text) == told
    monkeypatch.setattr(command, "_run", refused)
    words = [] if dtype is None else ["--dtype", dtype]
    done = commands.run("export", folder, "-o", out, *words)
    first = "note: the model computes in bfloat16, for which ONNX Runtime's CPU provider lacks"
    assert done.stderr.startswith(first) == told and "begun" in done.stderr
    assert ("leave --dtype bfloat16 out to compute" in done.stderr) == told


def test_bfloat16_is_reported_before_a_module_is_traced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = Untraced().eval()
    module.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    with pytest.raises(oe.ExportError, match="it was run"):
        oe.torch.export(module, torch.ones(2), tmp_path / "model.onnx", rewrite=False)
    (warning,) = [each for each in caplog.records if each.name == "onnx_external"]
    told = "the module computes in bfloat16, for which ONNX Runtime's CPU provider lacks operators"
    assert told in warning.getMessage() and "module.float()" in warning.getMessage()
    linear = torch.nn.Linear(2, 2).eval().bfloat16()
    x = torch.ones(1, 2, dtype=torch.bfloat16)
    report = oe.torch.export(linear, x, tmp_path / "model.onnx", fsync=False, check=False)
    assert told in report.notes[0]


@pytest.mark.parametrize("check", [None, True])
def test_a_module_that_onnx_runtime_cannot_load_is_refused(
    tmp_path: Path, check: bool | None
) -> None:
    pytest.importorskip("onnxruntime")
    linear = torch.nn.Linear(2, 2).eval().bfloat16()
    x = torch.ones(1, 2, dtype=torch.bfloat16)
    why = r"cannot load the model.*module\.float\(\).*nothing is saved.*check=False saves it"
    with pytest.raises(oe.ExportError, match=why):
        oe.torch.export(linear, x, tmp_path / "model.onnx", fsync=False, check=check)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("T5ForConditionalGeneration", {}, True),
        ("LlamaForCausalLM", {"graphs": "two"}, True),
        ("LlamaForCausalLM", {}, False),
        ("T5EncoderModel", {}, False),
    ],
)
def test_weights_inside_of_several_graphs_are_refused_before_a_folder_is_loaded(
    kind: str,
    options: dict[str, Any],
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporting = pytest.importorskip("onnx_external.transformers._exporting")
    more = {"architectures": [kind], "is_encoder_decoder": kind.startswith("T5")}
    folder = folder_of(tmp_path / "model", **more)
    monkeypatch.setattr(exporting, "load", never)
    kinds: Any = oe.InvalidArgumentError if told else AssertionError
    words = "a layout other than inline" if told else "it was begun"
    with pytest.raises(kinds, match=words):
        oe.transformers.export(folder, tmp_path / "out", layout="inline", **options)
    if told:
        given = [f"--{name}={value}" for name, value in options.items()]
        done = commands.run("export", folder, "-o", tmp_path / "out", "--layout=inline", *given)
        assert done.returncode == 1 and "a layout other than inline" in done.stderr
