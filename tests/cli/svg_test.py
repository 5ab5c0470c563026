"""The picture of inspect-external --svg: well-formed whatever the names hold, bounded, never in the way.

usage: svg_test.py BIN_DIR WORK_DIR
"""

import json
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import onnx
from onnx import TensorProto, helper

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    "a.\"onload=\"alert(1)\" 'x'",
    "]]>.<![CDATA[x",
    "<!--.--> &amp; &#0; &lol;",
    "control.\x01\x08\x0b\x1f\x7f\u0085\t\n\r",
    "not-xml.\ufffe\uffff\ufffd",
    "beyond.\U0001f600\u202e\u2028",
    "long." + "n" * 70_000,
    "deep" + ".d" * 5_000,
    "",
    ".",
    "</svg><svg onload='alert(1)'>.w",
    "{}%s{0}",
]
MAX_PICTURE = 6_000_000


def save(path: Path, shapes: dict, dtype: str = "F32", size: int = 4) -> Path:
    """A safetensors file of zeros that takes no room on the disk."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        count = size
        for dim in shape:
            count *= dim
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + count]}
        offset += count
    text = json.dumps(header).encode()
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + offset)
    return path


def run(tool: Path, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def draw(tool: Path, source: Path) -> tuple:
    """The picture as text and as a tree. Drawn twice: the same both times."""
    picture = source.with_suffix(".svg")
    for extra in ([], ["--overwrite"]):
        done = run(tool, source, "-q", "--svg", picture, *extra)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
        text = picture.read_bytes().decode()
        if extra:
            assert text == before, "two pictures of one file differ"
        before = text
    assert not list(source.parent.glob(".*tmp")), "a temporary file was left"
    assert len(text) < MAX_PICTURE, len(text)
    return text, ET.fromstring(text)


def check_inert(root) -> None:
    """Nothing but shapes and text; nothing that runs or points outside."""
    allowed = {SVG + name for name in ("svg", "title", "style", "rect", "text", "tspan")}
    for element in root.iter():
        assert element.tag in allowed, element.tag
        for name, value in element.attrib.items():
            assert not name.startswith("on") and "href" not in name, name
            assert "url(" not in value and "script" not in value, value
    styles = [element.text for element in root.iter(SVG + "style")]
    assert len(styles) == 1 and "url" not in styles[0] and "@" not in styles[0], styles


def tooltips(root) -> list:
    return [rect.find(SVG + "title").text for rect in root.iter(SVG + "rect") if len(rect)]


def check_hostile_names(tool: Path, work: Path) -> None:
    text, root = draw(tool, save(work / "hostile.safetensors", {name: [8] for name in HOSTILE}))
    check_inert(root)
    tips = tooltips(root)
    assert any(tip.startswith("<script>alert(1)</script>\n") for tip in tips), tips
    assert any(tip.startswith("control.\\x01\\x08\\x0b\\x1f\\x7f\\xc2\\x85\\x09") for tip in tips)
    assert all(len(tip) < 400 for tip in tips), "a long name was not cut"
    assert "<script" not in text and "<!" not in text and "<?" not in text


def check_hostile_file_name(tool: Path, work: Path) -> None:
    _, root = draw(tool, save(work / "<script>&\"'\x01\ufffe.safetensors", {"w": [8]}))
    check_inert(root)
    assert root.find(SVG + "title").text.startswith("<script>&\"\\x27\\x01\ufffd.safetensors: ")


def check_areas(tool: Path, work: Path) -> None:
    """Boxes beside each other are as large as their tensors, and say so."""
    sizes = {"a": 400, "b": 300, "c": 200, "d": 100}
    _, root = draw(tool, save(work / "areas.safetensors", {name: [n] for name, n in sizes.items()}))
    areas = {}
    for rect in root.iter(SVG + "rect"):
        if len(rect):
            name, kind, size = rect.find(SVG + "title").text.split("\n")
            areas[name] = float(rect.get("width")) * float(rect.get("height"))
            assert kind == f"float32 [{sizes[name]}]", kind
            assert size.endswith(f", {sizes[name] / 10:.2f} %"), size
    whole = sum(areas.values())
    assert {name: round(1000 * area / whole) for name, area in areas.items()} == sizes, areas


def check_many(tool: Path, work: Path) -> None:
    for name, shapes in {
        "flat": {f"t{i}": [2] for i in range(100_000)},
        "nested": {f"model.layers.{i // 50}.part{i % 50}.weight": [2 + i % 50] for i in range(20_000)},
        "long": {f"{i}{'n' * 300}.w{j}": [3] for i in range(5_000) for j in range(4)},
    }.items():
        _, root = draw(tool, save(work / f"{name}.safetensors", shapes))
        check_inert(root)
        tips = tooltips(root)
        assert 1_000 < len(tips) <= 10_000, (name, len(tips))
        assert name != "flat" or any(tip.startswith("90001 more\n") for tip in tips)


def check_empty(tool: Path, work: Path) -> None:
    for name, shapes, says in (
        ("none", {}, "no tensors"),
        ("nothing", {"a": [0], "b": [0, 4]}, "no tensor has bytes"),
    ):
        _, root = draw(tool, save(work / f"{name}.safetensors", shapes))
        assert says in [text.text for text in root.iter(SVG + "text")], name


def check_model(tool: Path, work: Path) -> None:
    """An ONNX model whose data lies outside, and one that declares more than there is."""
    for name, dims in (("model", [16]), ("huge", [1 << 60])):
        tensors = []
        for i in range(5):
            tensor = TensorProto(name=f"/layer.{i}/weight", data_type=TensorProto.FLOAT, dims=dims)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", f"{name}.data"), ("offset", str(64 * i))):
                tensor.external_data.add(key=key, value=value)
            tensors.append(tensor)
        (work / f"{name}.data").write_bytes(bytes(320))
        graph = helper.make_graph([], "g", [], [], initializer=tensors)
        path = work / f"{name}.onnx"
        path.write_bytes(helper.make_model(graph).SerializeToString())
        _, root = draw(tool, path)
        check_inert(root)
        assert any(tip.startswith("/layer.0/weight\nfloat32") for tip in tooltips(root)), name


def check_files_are_safe(tool: Path, work: Path) -> None:
    """Nothing is replaced but a picture, and that only when asked."""
    source = save(work / "safe.safetensors", {"w": [8]})
    content = source.read_bytes()
    for target, extra, says in (
        (source, [], "exists; --overwrite replaces it"),
        (source, ["--overwrite"], "exists, and is not a picture of inspect-external"),
        (work, ["--overwrite"], "exists, and is not a picture of inspect-external"),
        (work / "nowhere" / "a.svg", [], "No such file or directory"),
    ):
        done = run(tool, source, "--svg", target, *extra)
        assert done.returncode == 1 and done.stdout == "" and says in done.stderr, done
        assert source.read_bytes() == content
    link = work / "link.svg"
    link.symlink_to(work / "behind.svg")
    done = run(tool, source, "--svg", link)
    assert done.returncode == 1 and not (work / "behind.svg").exists(), done
    done = run(tool, work / "absent.pt", "--svg", work / "absent.svg")
    assert done.returncode == 1 and not (work / "absent.svg").exists(), done


def main() -> int:
    tool = Path(sys.argv[1]).resolve() / "inspect-external"
    work = Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for check in (
        check_hostile_names,
        check_hostile_file_name,
        check_areas,
        check_many,
        check_empty,
        check_model,
        check_files_are_safe,
    ):
        check(tool, work.resolve())
        print("ok", check.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
