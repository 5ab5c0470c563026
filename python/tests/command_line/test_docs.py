"""Tests that the programs in the docs and in the package's docstring run."""

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import onnx_external

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = {
    "python": 8,
    "python-validate": 1,
}
EXPORT_PAGE = DOCS / "python-export.md"


def run_programs(text: str, tiny: Path, folder: Path) -> int:
    for name in ("graph.onnx", "checkpoint.pt"):
        shutil.copy(tiny / name, folder)
    programs = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for program in programs:
        result = subprocess.run(
            [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
        )
        assert result.returncode == 0, program + result.stderr
    return len(programs)


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run(page: str, tiny: Path, tmp_path: Path) -> None:
    text = (DOCS / f"{page}.md").read_text()
    if "import torch" in text:
        pytest.importorskip("torch", minversion="2.9")
        pytest.importorskip("onnxscript")
    if "import onnx\n" in text or page == "python-validate":
        pytest.importorskip("onnx")
    if page == "python-validate":
        pytest.importorskip("onnxruntime")
    assert run_programs(text, tiny, tmp_path) >= PAGES[page]


def test_the_programs_of_the_page_on_exporting_run(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", minversion="2.9")
    pytest.importorskip("onnxscript")
    assert run_programs(EXPORT_PAGE.read_text(), tiny, tmp_path) >= 2


def test_the_page_on_errors_has_all_exceptions() -> None:
    named = re.findall(r"^\| `(\w+Error)` \| `(\w+)`", (DOCS / "python.md").read_text(), re.M)
    public = (getattr(onnx_external, name) for name in dir(onnx_external) if "Error" in name)
    found = {each.__name__: {base.__name__ for base in each.__mro__} for each in public}
    del found["Error"]
    assert found.keys() == dict(named).keys()
    assert all(base in found[name] for name, base in named)


def test_the_program_of_the_readme_prints_the_output_below_it(tmp_path: Path) -> None:
    pytest.importorskip("torch", minversion="2.9")
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    text = (DOCS.parent / "README.md").read_text()
    shown = re.search(r"^```python\n(.*?)^```\n\nprints\n\n((?:    [^\n]*\n)+)", text, re.M | re.S)
    assert shown is not None
    command = [sys.executable, "-c", shown[1]]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout == textwrap.dedent(shown[2]), result.stderr


def test_the_docstring_s_program_runs(tiny: Path, tmp_path: Path) -> None:
    text = onnx_external.__doc__.replace("fc.weight", "module.transformer.wte.weight")
    assert run_programs(text, tiny, tmp_path) == 1
