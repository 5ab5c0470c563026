"""Some rows of docs/constructs.md are as the page says; the campaign `constructs` runs all."""

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


def rows_of_page() -> list[tuple[str, str]]:
    """The text of each row, and what the page says of our export."""
    row = r"^\| \[(.+?)\]\(\.\./tests/constructs/\w+\.py#L\d+\) \| (.+) \|"
    lines = re.findall(row, PAGE.read_text(), re.MULTILINE)
    return [(text, re.split(r" (?<!\\)\| ", cells)[0]) for text, cells in lines]


@pytest.mark.parametrize("name", NAMES)
def test_a_construct_exports_as_the_page_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ("torch", "onnxscript", "onnxruntime")
    if missing := [each for each in needed if find_spec(each) is None]:
        pytest.skip(f"not installed: {missing}")
    pytest.importorskip("torch", minversion="2.13")  # errors are spelled otherwise by older ones
    monkeypatch.syspath_prepend(str(SOURCES))
    import campaign  # type: ignore[import-not-found,unused-ignore]

    number = [each.__name__ for each in campaign.ROWS].index(name)
    (cell,) = campaign.cells(campaign.ROWS[number], [OURS])
    assert cell.split(":")[0] == rows_of_page()[number][1].split(":")[0]


def test_the_page_has_every_row() -> None:
    """Each class of the sources is a row of the page, in their order."""
    groups = re.findall(r'"(\w+)"', (SOURCES / "rows.py").read_text().split("GROUPS")[1])
    row = re.compile(r'^class \w+\(torch\.nn\.Module\):\n    """(.+)"""', re.MULTILINE)
    texts = [row.findall((SOURCES / f"{group}.py").read_text()) for group in groups]
    assert [text for text, _ in rows_of_page()] == [*chain.from_iterable(texts)]
