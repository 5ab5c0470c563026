"""Tests that the steps of two pages print the output below them. `REBLESS=1` updates the pages."""

import os
from pathlib import Path

import pytest
from printed import masked, run_page

DOCS = Path(__file__).resolve().parents[3] / "docs"
STEPS = {"guide": 15, "consumers": 6}
MOST_LINES = 300


@pytest.mark.parametrize("page", STEPS)
def test_the_steps_of_a_page_print_the_output_below_them(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", minversion="2.11")
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    text = (DOCS / f"{page}.md").read_text()
    found, steps = run_page(text)
    if os.environ.get("REBLESS"):
        (DOCS / f"{page}.md").write_text(found)
    assert steps >= STEPS[page] and masked(found) == masked(text)


def test_what_readme_shows_is_what_is_printed() -> None:
    shown = (DOCS.parent / "README.md").read_text().split("## First steps")[0]
    lines = [line[4:] for line in shown.splitlines() if line.startswith("    ")]
    printed = (DOCS / "guide.md").read_text()
    printed += (DOCS.parent / "examples" / "find_wrong_layer.out").read_text()
    assert len(lines) > 20
    assert not [line for line in lines if line[:4] != ">>> " and line not in printed]


def test_the_guide_is_short() -> None:
    assert len((DOCS / "guide.md").read_text().splitlines()) <= MOST_LINES
