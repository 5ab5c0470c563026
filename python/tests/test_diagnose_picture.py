"""The picture of a diagnosis."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from onnx_external.diagnosis import diagnosing
from onnx_external.diagnosis.command import main
from onnx_external.diagnosis.picture import SVG_START, picture
from onnx_external.diagnosis.picture_text import shortened, text_width, wrapped
from onnx_external.diagnosis.reports import Diagnosis, ModuleDiagnosis, Status
from onnx_external.validation.comparing import Comparison

OK, DISC, CHILDC = Status.OK, Status.DISC, Status.CHILDC
SVG = "{http://www.w3.org/2000/svg}"


def compared(max_abs: float | None, beyond: int = 0, **more: Any) -> Comparison:
    """A float32 output whose tolerance at the largest difference is 0.001."""
    found = dict(dtype="float32", expected_dtype="float32", shape=[2, 5], expected_shape=[2, 5])
    figures = dict(elements=10, beyond=beyond, atol=1e-4, rtol=9e-4, max_abs=max_abs)
    at = dict(max_abs_at=[0, 1], actual=1.5, expected=1.0)
    return Comparison("linear", **{**found, **figures, **at, **more})


def made(name: str, status: Status, *figures: Comparison, **more: Any) -> ModuleDiagnosis:
    return ModuleDiagnosis(name, more.pop("cls", "Linear"), status, sets=[[*figures]], **more)


def layers(count: int, wrong: str | None = None) -> Diagnosis:
    modules = [made("", OK | CHILDC if wrong else OK, compared(1e-6), cls="Model")]
    for number in range(count):
        modules.append(made(f"layers.{number}", OK, compared(1e-6), cls="Layer"))
        for name in ("query", "key", "value", "norm"):
            modules.append(made(f"layers.{number}.{name}", OK, compared(1e-7)))
    for order, each in enumerate(modules):
        each.order = order
        if each.name == wrong:
            each.status, each.sets = DISC, [[compared(0.5, beyond=3)]]
    return Diagnosis("somewhere/out/model.onnx", modules)


def boxes(text: str) -> dict[str, Any]:
    """The element of each module, by the name in its tooltip."""
    found = {}
    for group in ElementTree.fromstring(text).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None:
            found[(title.text or "").partition("\n")[0]] = group
    return found


def place(rect: Any) -> tuple[float, ...]:
    return tuple(float(rect.get(key)) for key in ("x", "y", "width", "height"))


def box(group: Any) -> tuple[float, ...]:
    return place(group.find(f"{SVG}rect"))


def shade(group: Any) -> str:
    return str(group.find(f"{SVG}rect").get("class"))


def words(group: Any) -> str:
    return " ".join(text for each in group.iter(f"{SVG}text") for text in each.itertext())


def test_every_module_is_a_box_with_its_name_and_tooltip() -> None:
    report = layers(3)
    found = boxes(report.svg())
    assert set(found) == {each.name or "(model)" for each in report.modules}
    told = found["layers.1.key"].find(f"{SVG}title").text
    assert told.split("\n")[:4] == ["layers.1.key", "Linear", "OK", "linear: float32 [2, 5]"]
    assert words(found["layers.1.key"]).startswith("key Linear < 0.001 \u00d7")
    assert words(found["layers.1"]).startswith("layers.1 Layer")


def test_a_module_is_beside_those_inside_of_it() -> None:
    found = boxes(layers(3).svg())
    x, y, width, height = box(found["layers.1"])
    inside = [box(found[f"layers.1.{name}"]) for name in ("query", "key", "value", "norm")]
    assert [each[0] for each in inside] == [x + width] * 4
    assert inside[0][1] == y and sum(each[3] for each in inside) == height
    assert box(found["layers.2"])[1] == y + height
    assert box(found["(model)"])[3] == 3 * height


def test_the_first_wrong_module_has_a_frame_and_is_named_above() -> None:
    report = layers(3, "layers.1.key")
    root = ElementTree.fromstring(report.svg())
    frames = [each for each in root.iter(f"{SVG}rect") if each.get("id") == "first"]
    found = boxes(report.svg())
    assert [place(each) for each in frames] == [box(found["layers.1.key"])]
    link = root.find(f"{SVG}a")
    assert link is not None and link.get("href") == "#first"
    assert "layers.1.key (Linear)" in "".join(link.itertext())
    assert "somewhere" not in (root.findtext(f"{SVG}title") or "")
    assert words(found["layers.1.key"]).startswith("\u2260 key")
    assert 'id="first"' not in layers(3).svg() and "href" not in layers(3).svg()


def test_the_color_follows_the_difference_as_a_multiple_of_the_tolerance() -> None:
    sound = [made(f"s{size}", OK, compared(size)) for size in (0.0, 1e-5, 1e-4, 1e-3)]
    wrong = [made(f"w{size}", DISC, compared(size, 1)) for size in (0.002, 0.02, 0.2, 2.0)]
    found = boxes(picture(Diagnosis("m", [*sound, *wrong])))
    assert [shade(found[each.name])[-1] for each in [*sound, *wrong]] == list("abcdefgh")
    assert [words(found[each.name]).split()[-4:-2] for each in wrong[:2]] == [
        ["2", "\u00d7"],
        ["20", "\u00d7"],
    ]


@pytest.mark.parametrize(
    ("worst", "told"),
    [
        (compared(0.0, 1, nan=1), "not finite"),
        (compared(None, 10), "not finite"),
        (compared(3.0, 1, atol=0.0, rtol=0.0, dtype="int64", expected_dtype="int64"), "differs"),
        (compared(None, 1, atol=0.0, rtol=0.0, actual="a", expected="b"), "differs"),
        (compared(1e-4, 1), "> 1 \u00d7"),
        (compared(0.5, 1, expected="(0.6+0.8j)"), "500 \u00d7"),
        (compared(2e6, 1), "2e+09 \u00d7"),
        (Comparison("r", problem="shapes differ: [1], expected [2]"), "shapes differ: [1]"),
    ],
)
def test_a_difference_without_a_usual_size_is_told(worst: Comparison, told: str) -> None:
    found = boxes(picture(Diagnosis("m", [made("one", DISC, worst)])))
    assert told in words(found["one"]) and shade(found["one"])[-1] in "efgh"


def test_what_fails_or_was_not_compared_has_its_reason_and_stripes() -> None:
    modules = [
        made("fails", Status.FAIL, step="load", reason="no operator"),
        made("silent", Status.NOINPUT, reason="it was not called"),
        made("outer", OK | CHILDC),
        made("outer.inner", Status.FAIL, reason="no such operator"),
    ]
    text = picture(Diagnosis("m", modules))
    found = boxes(text)
    assert words(found["fails"]) == "! fails Linear load: no operator"
    assert "it was not called" in words(found["silent"])
    assert text.count("<pattern ") == 2
    assert shade(found["outer"]) != shade(found["outer.inner"]) == shade(found["fails"])
    bars = found["outer"].findall(f"{SVG}path")
    assert len(bars) == 1 and bars[0].get("class") in shade(found["fails"])
    legend = re.findall(r">([^<]*): 1<", text) + re.findall(r">(fails): 2<", text)
    assert legend == ["not compared", "a module inside is wrong", "fails"]


def test_a_bar_says_that_a_module_inside_is_wrong() -> None:
    modules = [
        made("", OK | CHILDC, compared(0.5, 3)),
        made("list", Status.NOINPUT, reason="it was not called"),
        made("list.0", DISC | CHILDC, compared(0.002, 1)),
        made("list.0.inner", DISC | Status.CUSTOM, compared(0.5, 3)),
        made("list.1", OK, compared(1e-7)),
        made("list.1.inner", OK, compared(1e-7)),
    ]
    found = boxes(picture(Diagnosis("m", modules)))
    bars = {name: [each.get("class") for each in found[name].iter(f"{SVG}path")] for name in found}
    outer = ["(model)", "list", "list.0"]
    assert [name for name, each in bars.items() if each] == outer
    assert {*bars["(model)"]} == {*bars["list"]} == {shade(found["list.0.inner"]).split()[-1]}
    shades = [shade(found[name])[-1] for name in [*outer, "list.0.inner", "list.1"]]
    assert shades == ["i", "n", "e", "g", "b"]


def test_hostile_names_are_escaped_and_shortened() -> None:
    names = [
        "<script>alert(1)</script>",
        "a&b\"'",
        "\x00\x1b[31m\ufffe\uffff\u202eevil\ud800",
        "line\nbreak",
        "n" * 100_000,
        "\u65e5\u672c\u8a9e" * 500,
        "..",
        "x..y.",
    ]
    modules = [made(name, DISC, compared(0.5, 1), cls=name[:500]) for name in names]
    modules += [made("f", Status.FAIL, reason="<b>" + "r" * 5000 + "\x07")]
    text = picture(Diagnosis("<&>/\ud800.onnx", modules))
    root = ElementTree.fromstring(text.encode("utf-8"))
    assert {each.tag for each in root.iter()} == {
        SVG + tag for tag in ("svg", "title", "style", "pattern", "rect", "path", "text", "tspan")
    } | {SVG + "g", SVG + "a"}
    assert len(boxes(text)) == len(names) + 1 and "\\x1b[31m\ufffd\ufffd\ufffdevil" in text
    assert len(text) < 40_000


def test_equal_reports_give_equal_pictures_without_foreign_references() -> None:
    text = layers(20, "layers.7.value").svg()
    assert text == layers(20, "layers.7.value").svg() and text.startswith(SVG_START)
    assert "script" not in text and re.findall(r'(?:href|src)="([^"]*)"', text) == ["#first"]
    assert text.count("://") == 1  # the name space


def test_a_large_model_has_an_overview_and_few_bytes() -> None:
    large, small = layers(100, "layers.50.key"), layers(3)
    text = large.svg()
    assert "All modules" in text and "All modules" not in small.svg()
    assert len(large.modules) == 501 and len(text) < 600 * 501
    assert words(boxes(text)["(model)"]).count("(model)") > 5  # a screen has one


@pytest.mark.parametrize("depth", [0, 1, 3000])
def test_a_tree_of_any_depth_is_drawn(depth: int) -> None:
    modules = [made(".".join(["m"] * number), OK) for number in range(depth)]
    root = ElementTree.fromstring(picture(Diagnosis("m", modules)))
    assert len(root.findall(f"{SVG}g/{SVG}title")) == depth
    assert float(root.get("width", "0")) < 400 * max(depth, 4)


def test_text_is_cut_where_it_does_not_fit() -> None:
    assert shortened("abcdef", 1000) == "abcdef" and shortened("abcdef", 3) == ""
    for middle in (False, True):
        short = shortened("model.layers.0.self_attn.q_proj", 80, middle)
        assert "\u2026" in short and text_width(short) <= 80
        assert short.startswith("mod") and short.endswith("proj") is middle
    lines = wrapped("some words " * 30, 120, 3)
    assert len(lines) == 3 and all(text_width(line) <= 120 for line in lines)
    assert lines[-1].endswith("\u2026") and wrapped("", 100, 3) == [""]


def test_the_command_writes_the_picture_and_replaces_pictures_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = layers(2, "layers.1.key")
    runs = []
    monkeypatch.setattr(diagnosing, "diagnose", lambda *_, **__: runs.append(1) or report)
    path = tmp_path / "found.svg"
    line = ["model.onnx", "--against", "folder", "--json", "--svg", str(path)]
    assert main(line) == 1 and path.read_text(encoding="utf-8") == report.svg()
    assert json.loads(capsys.readouterr().out)["first"] == "layers.1.key"
    assert main(line) == 1 and "exists; --overwrite replaces it" in capsys.readouterr().err
    path.write_text(SVG_START + ">old</svg>")
    assert main([*line, "--overwrite"]) == 1 and path.read_text(encoding="utf-8") == report.svg()
    path.write_text("weights")
    assert main([*line, "--overwrite"]) == 1 and path.read_text() == "weights"
    assert "not a picture of a diagnosis" in capsys.readouterr().err
    assert main([*line[:-1], str(tmp_path / "nowhere" / "found.svg")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert len(runs) == 2 and [each.name for each in tmp_path.iterdir()] == ["found.svg"]
