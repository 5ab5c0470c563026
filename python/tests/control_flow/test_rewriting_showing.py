"""Tests of the diffs of rewritten functions, and of the folder with these functions."""

import ast
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import rewriting_cases  # noqa: E402
from rewriting_functions import all_keys, changed, source  # noqa: E402

from onnx_external._control_flow.finding.observing import observe  # noqa: E402
from onnx_external._control_flow.rewriter import Rewriting  # noqa: E402
from onnx_external._control_flow.showing import Change, dump, shown, untaken  # noqa: E402


# fmt: off
def commented(x: Any,   # what comes
              times: int = 3) -> Any:
    """Say something."""
    # before the loop
    for n in range( times ):  # rounds

        # the test
        if x.sum() > n:
            x = x - 1   # less

            # more
            x  =  x * 2
    text = """two
    lines"""
    return x, text
# fmt: on


def change(function: Any, keys: Any = None) -> Change:
    keys = all_keys(function) if keys is None else keys
    made = changed(function, keys)
    return shown(source(function), made.tree, made.count)


def test_what_stays_keeps_its_text_and_its_comments() -> None:
    test = next(each for each in all_keys(commented) if each.endswith(":8") and "range" not in each)
    made = change(commented, [test])
    assert made.count == 1
    assert made.diff.splitlines()[2:] == [
        "@@ -5,11 +5,13 @@",
        "     for n in range( times ):  # rounds",
        " ",
        "         # the test",
        "-        if x.sum() > n:",
        "+        def then_1(x=x):",
        "             x = x - 1   # less",
        " ",
        "             # more",
        "             x  =  x * 2",
        "+            return (x,)",
        "+        x, = rt.if_(x.sum() > n, then_1, lambda: (x,), ('x',))",
        '     text = """two',
        '     lines"""',
        "     return x, text",
    ]


@pytest.mark.parametrize(
    "function",
    [*rewriting_cases.CASES, *rewriting_cases.METHODS],
    ids=lambda each: each.__qualname__,
)
def test_what_is_shown_is_python(function: Any) -> None:
    made = change(function)
    ast.parse(made.after)
    assert "__oe_rt__" not in made.diff
    assert ".py:" not in made.after
    same = shown(source(function), changed(function, ()).tree, 0)
    assert same.diff == ""


def test_a_lambda_is_shown() -> None:
    double = lambda x: x * 2 if x > 1 else x  # noqa: E731
    made = change(double)
    assert made.after == "lambda x: rt.ifexp(x > 1, lambda: x * 2, lambda: x)\n"
    assert made.before == "lambda x: x * 2 if x > 1 else x\n"


def test_a_folder_has_a_diff_and_the_source_of_each(tmp_path: Path) -> None:
    changes = [change(rewriting_cases.plain), change(rewriting_cases.plain)]
    changes.append(change(lambda x: x if x > 1 else 2))
    files = [each.name for each in dump(changes, tmp_path / "new")]
    name = "test_rewriting_showing.test_a_folder_has_a_diff_and_the_source_of_each._locals_._lambda"
    assert files == [
        "rewriting_cases.plain.diff",
        "rewriting_cases.plain.py",
        "rewriting_cases.plain-2.diff",
        "rewriting_cases.plain-2.py",
        f"{name}.diff",
        f"{name}.py",
    ]
    assert (tmp_path / "new" / files[0]).read_text() == changes[0].diff
    assert (tmp_path / "new" / files[1]).read_text() == changes[0].after


class Net(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            x = x + 1
        for row in x:
            x = x + row
        return x


def test_outcomes_that_no_input_set_has_are_named() -> None:
    observed = observe(Net(), [((torch.ones(2),), {})])
    line = Net.forward.__code__.co_firstlineno
    assert untaken(observed) == [
        f"test_rewriting_showing.py:{line + 1}: no input set makes this condition False (if)",
        f"test_rewriting_showing.py:{line + 3}: no input set runs this `for` zero times",
        f"test_rewriting_showing.py:{line + 3}: no input set runs this `for` once",
    ]


def test_a_rewriting_is_printed_in_lines_and_says_where_the_diff_is() -> None:
    made = Rewriting(
        [Change("M.forward", "/a/m.py", 3, 1, "if x:\n", "rt.if_(x)\n")],
        ["m.py:4"],
        ["m.py:9: the assert is left out"],
        ["m.py:4: no input set makes this condition False (if)"],
    )
    assert str(made).splitlines() == [
        "rewritten functions: 1",
        "  M.forward (/a/m.py:3)",
        "rewritten lines:",
        "  m.py:4",
        "notes:",
        "  m.py:9: the assert is left out",
        "paths that no input set takes:",
        "  m.py:4: no input set makes this condition False (if)",
        "changes[0].diff shows the changes in the first function",
    ]
    assert str(Rewriting()) == "nothing was rewritten"
    assert made.to_dict()["changes"][0]["diff"] == made.changes[0].diff
