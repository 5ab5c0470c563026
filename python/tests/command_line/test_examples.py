"""Tests that each example prints the output in the file next to it.

`REBLESS=1` updates these files.
"""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from printed import masked, output_of

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NEEDED = ("torch", "transformers", "tokenizers", "onnx", "onnxscript", "onnxruntime")
SCRIPTS = {path.stem: path for path in EXAMPLES.glob("*.py") if path.stem != "small_llama"}
MOST_LINES = 90
AFTER = {"generate_text": "larger_than_memory"}  # examples that use the output of another example


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture
def at_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        pytest.skip(f"not installed: {missing}")
    pytest.importorskip("torch", minversion="2.11")
    pytest.importorskip("transformers", minversion="5.20")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", ["example"])


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize("name", sorted(SCRIPTS, key=lambda name: (name in AFTER, name)))
def test_an_example_prints_the_output_beside_it(name: str, folder: Path) -> None:
    if (before := AFTER.get(name)) and not (folder / f"{before}.done").exists():
        output_of(SCRIPTS[before])
    found, beside = output_of(SCRIPTS[name]), EXAMPLES / f"{name}.out"
    (folder / f"{name}.done").touch()
    if os.environ.get("REBLESS"):
        beside.write_text(found)
    assert masked(found) == masked(beside.read_text())


def test_every_example_is_short_and_listed() -> None:
    page = (EXAMPLES / "README.md").read_text()
    listed = re.findall(r"\]\(([\w/]+)\.(?:py|cc)\)", page)
    programs = {path.stem for path in EXAMPLES.glob("*.py")}
    programs |= {f"cpp/{path.stem}" for path in EXAMPLES.glob("cpp/*.cc")}
    assert {*listed} == programs
    sources = [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("cpp/*.cc")]
    lines = {path.name: len(path.read_text().splitlines()) for path in sources}
    assert not {name: number for name, number in lines.items() if number > MOST_LINES}


def test_numbers_that_vary_are_not_compared_and_others_are() -> None:
    assert masked("1.5e-08 in 2 sets\n") == masked("0.0e+00 in 2 sets\n")
    assert masked("2 sets") != masked("3 sets") and masked("a: True") != masked("a: False")
