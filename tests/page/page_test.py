"""Opens report pages in Chromium, clicks on them and checks what they show.

usage: page_test.py BIN_DIR WORK_DIR
"""

import base64
import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

from browser import Browser, installed

HOSTILE = [
    "<script>document.title='hacked'</script>",
    "</script><img src=x onerror=\"document.title='hacked'\">",
    "a.\"onload=\"alert(1)\" 'x'",
    "]]>.<![CDATA[x",
    "<!--.--> &amp; &#0; &lol;",
    "control.\x01\x1f\x7f\u0085\t\n\r",
    "beyond.\U0001f600\u202e\u2028\ufffe",
    "long." + "n" * 70_000,
    "deep" + ".d" * 5_000,
    "",
    ".",
    "a..b",
    "__proto__",
    "constructor.toString",
    "{}%s{0}${1}REPORT</script>",
]


def checkpoint(path: Path, shapes: dict) -> Path:
    """Return a safetensors file of zeros that takes no space on the disk."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + 4 * shape[0] * shape[1]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + offset)
    return path


def page_of(tool: Path, source: Path) -> Path:
    page = source.with_suffix(".html")
    subprocess.run([tool, source, "-q", "--html", page], check=True, timeout=300)
    return page


def page_with(report: dict, like: Path, page: Path) -> Path:
    """Return the page for another report, as Python's report.html() would make it."""
    data = json.dumps({"title": "out/model.onnx", "left_out": [], "report": report})
    data = data.replace("<", "\\u003c").replace("&", "\\u0026")
    start, mark, rest = like.read_text(encoding="utf-8").partition('type="application/json">')
    page.write_text(start + mark + data + rest[rest.index("</script>") :], encoding="utf-8")
    return page


def diagnosis(layers: int) -> dict:
    names = [""] + [f"layer.{n}{inner}" for n in range(layers) for inner in ("", ".query", ".dense", ".drop")]
    modules = []
    for name in names:
        status, times = ("NOINPUT", None) if name.endswith("drop") else ("OK", 0.004)
        if name == "layer.7.dense":
            status, times = "DISC", 532.0
        elif name in ("", "layer.7"):
            status, times = "OK CHILDC", 2.5
        modules.append({"name": name, "cls": "Linear", "status": status, "reason": "", "times": times})
    versions = {"torch": "2.13.0", "onnxruntime": "1.31.1"}
    told = {"ok": False, "first": "layer.7.dense", "wrong": ["layer.7.dense"], "versions": versions}
    return {**told, "sentence": "layer.7.dense <b>is</b> wrong", "modules": modules}


def names_in(browser: Browser, where: str) -> list:
    return browser.value(f"[...document.querySelectorAll({json.dumps(where)})].map((each) => each.innerText)")


def check_hostile_names(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.value("document.title") == page.with_suffix(".safetensors").name
    assert browser.value("document.scripts.length") == 2
    assert browser.value("document.querySelectorAll('img, iframe, object, [onload], [onerror]').length") == 0
    # The header forbids everything else, such as a script inside a name.
    browser.value("document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 1'}))")
    assert browser.value("document.title") == page.with_suffix(".safetensors").name
    rows = browser.value("[...document.querySelectorAll('tbody tr td:first-child')].map((each) => each.textContent)")
    assert set(HOSTILE) <= set(rows), set(HOSTILE) - set(rows)
    assert browser.value("document.getElementById('map').childElementCount") >= len(HOSTILE)


def check_inspection(browser: Browser, page: Path) -> None:
    browser.open(page)
    value = browser.value
    assert value("document.body.scrollWidth <= innerWidth")
    boxes = value("document.getElementById('map').childElementCount")
    # With keys: into the largest module, to the next box, and out.
    value("document.querySelector('#map .box').focus()")
    browser.press("Enter")
    assert names_in(browser, "#way button") == ["all", "model.layers"]
    browser.press("ArrowRight")
    assert value("document.activeElement === document.querySelector('#map').children[1]")
    told = value("document.getElementById('about').textContent")
    assert told.startswith("model.layers."), told
    browser.press("Escape")
    assert names_in(browser, "#way button") == ["all"]
    assert value("document.getElementById('map').childElementCount") == boxes
    # With the pointer: click on a module, then on the way back.
    value("document.querySelector('#map .zooms').click()")
    assert len(names_in(browser, "#way button")) == 2
    value("document.querySelector('#way button').click()")
    # The table is sorted both ways.
    title = "[...document.querySelectorAll('th button')].find((each) => each.textContent === 'bytes')"
    sizes = "[...document.querySelectorAll('tbody tr')].map((each) => each.cells[3].textContent)"
    value(f"{title}.click()")
    first = value(sizes)[0]
    assert value(f"{title}.parentElement.ariaSort") == "descending"
    value(f"{title}.click()")
    assert value(f"{title}.parentElement.ariaSort") == "ascending" and value(sizes)[0] != first
    # The search keeps matching entries and dims all others.
    value("{const e = document.getElementById('search'); e.value = 'LAYERS.3.'; e.oninput({target: e})}")
    assert all("layers.3." in each for each in names_in(browser, "tbody td:first-child"))
    assert value("document.querySelectorAll('#map .dim').length") > 0
    tree = names_in(browser, "#tree summary")
    assert any(each.startswith("3") for each in tree) and not any(each.startswith("4") for each in tree)


def check_diagnosis(browser: Browser, page: Path) -> None:
    browser.open(page)
    value = browser.value
    assert names_in(browser, "#badges span:not([hidden])") == ["something is wrong"]
    assert names_in(browser, "#verdict p") == ["layer.7.dense <b>is</b> wrong"]
    assert value("document.getElementById('bytes').hidden")
    # The page opens at the wrong module, and says so in words.
    (line,) = [each for each in names_in(browser, "#tree .leaf") if each.startswith("\u2260")]
    assert line.split("\n")[0] == "\u2260 dense" and "differs" in line, line
    assert "right itself" in names_in(browser, "#tree summary")[0]
    assert "torch: 2.13.0\nonnxruntime: 1.31.1" in names_in(browser, "#facts dd")
    value("document.getElementById('first').click()")
    assert value("document.activeElement.textContent").startswith("\u2260 dense")
    assert value("document.activeElement.querySelector('.swatch').className") == "swatch bad3"
    value("document.getElementById('fold').click()")
    assert value("document.querySelectorAll('#tree details[open]').length") <= 1
    value("document.getElementById('wrong').click()")
    wrong, modules = names_in(browser, "#tables h2")
    assert wrong == "wrong: 1" and modules.startswith("modules: 1 of ")
    assert [each.split("\n")[0] for each in names_in(browser, "#tree .leaf")] == ["\u2260 dense"]
    assert not any("layer.6" in each for each in names_in(browser, "#tree summary"))


def verification() -> dict:
    """Return a verification of three tensors, two of which share their place. One has two findings."""
    found = [{"code": code, "tensor": "a.weight", "file": "d", "message": f"told by {code}"} for code in ("one", "two")]
    names = [("a.weight", 0), ("b.weight", 64), ("b.tied", 64)]
    contents = [{"name": n, "dtype": "float32", "shape": [16], "nbytes": 64, "file": "d", "offset": at} for n, at in names]
    return {"ok": False, "findings": found, "tensors": 3, "contents": contents}


def check_verification(browser: Browser, page: Path) -> None:
    browser.open(page)
    value = browser.value
    assert names_in(browser, "#map .fail") == ["a.weight\n64 B"] and len(names_in(browser, "#map .tie")) == 2
    value("document.querySelector('#map .fail').focus()")
    assert "[16], 64 B, one, told by one" in value("document.getElementById('about').textContent")
    assert "3 tensors" in names_in(browser, "#tree summary")[0]
    assert names_in(browser, "h2")[2:] == ["findings: 2", "contents: 3"]


def check_looks(browser: Browser, page: Path, folder: Path) -> None:
    """Take pictures of the page in light, dark and printed form, which stay in the folder."""
    browser.open(page)
    papers = {}
    for scheme in ("light", "dark"):
        browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        papers[scheme] = browser.value("getComputedStyle(document.body).backgroundColor")
        picture = browser.send("Page.captureScreenshot", format="png")["data"]
        (folder / f"{page.stem}_{scheme}.png").write_bytes(base64.b64decode(picture))
    assert papers == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 23, 29)"}
    browser.send("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.value("getComputedStyle(document.getElementById('controls')).display") == "none"
    pdf = base64.b64decode(browser.send("Page.printToPDF", printBackground=False)["data"])
    (folder / f"{page.stem}.pdf").write_bytes(pdf)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 1
    browser.send("Emulation.setEmulatedMedia", media="", features=[])


def check_large(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert "20,000" in browser.value("document.getElementById('tables').textContent")
    assert browser.value("document.querySelectorAll('*').length") < 40_000


def main() -> int:
    bin_dir, work = (Path(each).resolve() for each in sys.argv[1:3])
    if installed() is None:
        print("skipped: no browser is installed in which pages could be opened (Debian's package: chromium)")
        return 77
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    tool = bin_dir / "inspect-external"
    hostile = page_of(tool, checkpoint(work / "hostile.safetensors", {name: [n + 1, 8] for n, name in enumerate(HOSTILE)}))
    layers = {f"model.layers.{n}.{part}.weight": [64 + n, 64] for n in range(8) for part in ("query", "mlp.up", "mlp.down")}
    plain = page_of(tool, checkpoint(work / "plain.safetensors", layers))
    experts = {f"model.layers.{n // 400}.experts.{n % 400}.weight": [16, 16] for n in range(20_000)}
    large = page_of(tool, checkpoint(work / "large.safetensors", experts))
    modules = page_with(diagnosis(250), plain, work / "modules.html")
    verified = page_with(verification(), plain, work / "verified.html")
    browser = Browser(work / "profile")
    try:
        for check, page in (
            (check_inspection, plain),
            (check_diagnosis, modules),
            (check_verification, verified),
            (check_large, large),
            (check_hostile_names, hostile),
        ):
            check(browser, page)
            refused = [each for each in browser.complaints() if "Security Policy" not in str(each)]
            assert not refused, refused
            assert check is check_hostile_names or not browser.complaints(), browser.complaints()
        for page in (plain, modules, verified, hostile):
            check_looks(browser, page, work)
    finally:
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
