"""Tests some rows of docs/constructs.md. The campaign `constructs` tests all rows."""

import inspect
import re
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "constructs.md"
SOURCES = ROOT / "tests" / "constructs"
NAMES = (
    "ANamedTuple", "Nested", "AnInteger", "StarArguments", "AKeyword", "AListOfSomeLength",
    "ASizeAsOutput", "AParameterOut", "TestOnATensor", "TestOnASize", "BranchesOfTwoTypes",
    "LoopOverRows", "WriteByIndex", "WriteToAView", "NoRows", "EqualByChance", "InTrainingMode",
    "ByAttention", "SortedValues", "Float16", "HookOrNone", "ComplexParameter",
)  # fmt: skip
OURS = 4
"""Of the exporters of a row; on the page it is the first."""


def rows_of_page() -> dict[str, set[str]]:
    """Return the results that the page states for our export, by construct."""
    page = PAGE.read_text().split("<!-- constructs -->")[1].split("<!-- end of constructs -->")[0]
    right, others = page.split("\nThese constructs are not right with every exporter:\n")
    found: dict[str, set[str]] = {}
    for texts in re.findall(r"^\| [\w ]+ \| (.+) \|$", right, re.MULTILINE)[1:]:
        found |= {text: {"right"} for text in texts.split("; ")}
    for texts, cell in re.findall(r"^\| (.+?) \| (\S+) \| ", others, re.MULTILINE):
        for text in texts.split("; "):
            found.setdefault(text, set()).add(cell.strip("`"))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_construct_exports_as_the_page_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ("torch", "onnxscript", "onnxruntime")
    if missing := [each for each in needed if find_spec(each) is None]:
        pytest.skip(f"not installed: {missing}")
    pytest.importorskip("torch", minversion="2.13")  # older versions have other error messages
    monkeypatch.syspath_prepend(str(SOURCES))
    import campaign  # type: ignore[import-not-found,unused-ignore]

    (cls,) = (each for each in campaign.ROWS if each.__name__ == name)
    (cell,) = campaign.cells(cls, [OURS])
    assert cell.split(":")[0] in rows_of_page()[inspect.getdoc(cls) or ""]


def test_the_page_has_every_row() -> None:
    """Check that each class of the sources is on the page."""
    groups = re.findall(r'"(\w+)"', (SOURCES / "rows.py").read_text().split("GROUPS")[1])
    row = re.compile(r'^class \w+\(torch\.nn\.Module\):\n    """(.+)"""', re.MULTILINE)
    texts = [row.findall((SOURCES / f"{group}.py").read_text()) for group in groups]
    assert {*chain.from_iterable(texts)} <= rows_of_page().keys()
