"""Tests of the content of reports as HTML pages. tests/page opens pages in a browser."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe
from onnx_external._commands import diagnose as command
from onnx_external._commands import validate as validate_command
from onnx_external._comparing.comparing import Comparison
from onnx_external._diagnosis import diagnosing
from onnx_external._diagnosis.reports import Diagnosis, ModuleDiagnosis, Status
from onnx_external._saving.reports import inspection
from onnx_external._validation import validating
from onnx_external._validation.reports import ComparedOutput, GraphValidation, Validation

START = "<!DOCTYPE html>\n<!-- A report of onnx-external. -->\n"


def compared(max_abs: float | None, beyond: int = 0, **more: Any) -> Comparison:
    """Return a float32 output whose tolerance at the largest difference is 0.001."""
    found = dict(dtype="float32", expected_dtype="float32", shape=[2, 5], expected_shape=[2, 5])
    figures = dict(elements=10, beyond=beyond, atol=1e-4, rtol=9e-4, max_abs=max_abs)
    at = dict(max_abs_at=[0, 1], actual=1.5, expected=1.0)
    return Comparison("linear", **{**found, **figures, **at, **more})


def wrong(name: str, *figures: Comparison) -> Diagnosis:
    status = Status.DISC
    return Diagnosis("out/model.onnx", [ModuleDiagnosis(name, "Linear", status, sets=[[*figures]])])


def data_of(page: str) -> dict[str, Any]:
    assert page.startswith(START)
    text = page.partition('type="application/json">')[2].partition("</script>")[0]
    assert not {*text} & {*"<>&"}
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_page_holds_the_report_as_its_dict_says_it() -> None:
    report = wrong("layers.1.key", compared(0.5, 3))
    data = data_of(report.html())
    assert data["title"] == "out/model.onnx" and data["left_out"] == []
    assert data["report"] == report.to_dict() and report.html("mine").count('"title": "mine"') == 1
    assert data["report"]["modules"][0]["times"] == pytest.approx(500)
    document = {"format": "pickle", "tensors": [], "bytes": 0, "files": 1, "file_bytes": 9}
    assert data_of(inspection(json.dumps(document)).html())["report"] == document


def test_hostile_names_stay_data() -> None:
    names = [
        "</script><script>alert(1)</script>",
        "<!--",
        "a&b\"'",
        "\x00\x1b\u2028\ud800",
        "n" * 100_000,
    ]
    for name in names:
        report = wrong(name, compared(0.5, 1))
        report.model = name
        assert data_of(report.html())["report"]["first"] == name


@pytest.mark.parametrize(
    ("worst", "times"),
    [
        (compared(0.0), 0.0),
        (compared(1e-5), 0.01),
        (compared(0.02, 1), 20.0),
        (compared(0.0, 1, nan=1), math.inf),
        (compared(None, 10), math.inf),
        (compared(3.0, 1, atol=0.0, rtol=0.0, dtype="int64"), math.inf),
        (compared(1e-4, 1), math.nextafter(1.0, 2.0)),
        (compared(0.5), 1.0),
        (compared(0.5, 1, expected="(0.6+0.8j)"), 500.0),
        (Comparison("r", problem="shapes differ: [1], expected [2]"), math.inf),
    ],
)
def test_a_difference_is_a_multiple_of_the_tolerance(worst: Comparison, times: float) -> None:
    assert worst.times == pytest.approx(times)


def test_the_command_writes_the_page_and_replaces_pages_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = wrong("layers.1.key", compared(0.5, 3))
    runs = []
    monkeypatch.setattr(diagnosing, "diagnose", lambda *_, **__: runs.append(1) or report)
    path = tmp_path / "found.html"
    line = ["model.onnx", "--against", "folder", "--json", "--html", str(path)]
    assert command.main(line) == 1 and path.read_text(encoding="utf-8") == report.html()
    assert json.loads(capsys.readouterr().out)["first"] == "layers.1.key"
    assert command.main(line) == 1 and f"{path}: exists" in capsys.readouterr().err
    path.write_text(START + "old")
    assert command.main([*line, "--overwrite"]) == 1
    assert path.read_text(encoding="utf-8") == report.html()
    path.write_text("weights")
    assert command.main([*line, "--overwrite"]) == 1 and path.read_text() == "weights"
    assert "was not written by onnx-external" in capsys.readouterr().err
    assert command.main([*line[:-1], str(tmp_path / "nowhere" / "found.html")]) == 1
    assert "nowhere" in capsys.readouterr().err
    assert len(runs) == 2 and [each.name for each in tmp_path.iterdir()] == ["found.html"]


def test_validate_writes_a_page_of_its_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = ComparedOutput(**vars(compared(0.5, 3)), set="set 0")
    graph = GraphValidation("model", "out/model.onnx", "folder", [], outputs=[output])
    monkeypatch.setattr(validating, "validate", lambda *_, **__: Validation([graph]))
    path = tmp_path / "outputs.html"
    assert validate_command.main(["out/model.onnx", "-q", "--html", str(path)]) == 1
    data = data_of(path.read_text(encoding="utf-8"))
    assert data["title"] == "out/model.onnx"
    assert data["report"]["graphs"][0]["outputs"][0]["times"] == pytest.approx(500)


def test_the_page_of_a_verification_has_the_tensors_of_the_model(
    tiny: Path, tmp_path: Path
) -> None:
    saved = oe.save(tiny / "graph.onnx", tmp_path, tiny / "checkpoint.pt")
    for given in (tmp_path, saved.model):  # a folder stands for its model
        report = oe.verify(given)
        data = data_of(report.html())
        contents = data["report"].pop("contents")
        assert data["title"] == str(given) and data["report"] == report.to_dict()
        assert {each["name"] for each in contents} == {each.slot for each in saved.tensors}
    Path(saved.model).unlink()
    assert "contents" not in data_of(report.html("gone"))["report"]
