"""Tests of the tables that the commands print."""

import pytest

import onnx_external as oe
from onnx_external._base.tables import highlighted, table, wrapped
from onnx_external._diagnosis.reports import Diagnosis, ModuleDiagnosis, ValueForm

ROWS = [
    ["name", "empty", "form"],
    ["model.layers.11.mlp.up_proj", "", "float32[2,8]"],
    ["b", "", ""],
]


def test_columns_are_as_wide_as_their_cells_and_empty_ones_are_left_out() -> None:
    assert table(ROWS) == [
        "name                         form",
        "model.layers.11.mlp.up_proj  float32[2,8]",
        "b",
    ]
    assert table(ROWS[:1]) == [""] and table([]) == []


def test_a_table_fits_a_terminal_where_its_cells_can_be_shortened() -> None:
    lines = table(ROWS, columns=30)
    assert lines[1] == "model.l...p_proj  float32[2,8]"
    assert table(ROWS, columns=100) == table(ROWS)
    assert max(map(len, table(ROWS, columns=1))) == 26  # two cells of twelve


def test_a_container_that_is_not_called_does_not_look_wrong() -> None:
    form = [ValueForm("x", "float32", [[2, 8]])]
    found = Diagnosis(
        "model.onnx",
        [
            ModuleDiagnosis("", "Model", oe.Status.OK, order=1, inputs=form, outputs=form),
            ModuleDiagnosis("layers", "ModuleList", oe.Status.NOINPUT, reason="it was not called"),
            ModuleDiagnosis("layers.0", "Linear", oe.Status.OK, order=0, inputs=form, outputs=form),
            ModuleDiagnosis("unused", "Linear", oe.Status.NOINPUT, reason="it was not called"),
        ],
    )
    lines = [line.split() for line in found.tree().splitlines()]
    assert lines[2] == ["layers", "ModuleList"]
    assert lines[3][:4] == ["0", "Linear", "right", "-"]
    assert " ".join(lines[4]) == "unused Linear not compared - it was not called"
    assert max(map(len, found.tree(columns=54).splitlines())) <= 54


def test_a_status_is_printed_in_words() -> None:
    ok, disc, fail, childc, custom = (
        oe.Status[each] for each in ("OK", "DISC", "FAIL", "CHILDC", "CUSTOM")
    )
    assert [each.words for each in (ok, ok | childc, disc | childc, fail | custom)] == [
        "right",
        "right itself",
        "differs itself",
        "fails, replaced",
    ]
    assert (oe.Status.NOINPUT | childc).words == "not compared" and oe.Status.NONE.words == ""


def test_only_branches_with_a_wrong_module_are_shown_if_asked_for() -> None:
    ok, wrong = oe.Status.OK, oe.Status.DISC
    names = {"": ok | oe.Status.CHILDC, "a": ok, "b": wrong, "b.c": wrong, "b.d": ok}
    found = Diagnosis("m.onnx", [ModuleDiagnosis(name, "M", each) for name, each in names.items()])
    lines = found.tree(only_wrong=True).splitlines()
    assert [line.split()[0] for line in lines] == ["module", "(model)", "b", "c"]


def test_shapes_are_shortened_before_names() -> None:
    lines = table([["module", ""], ["a.module.with.a.name", "float32[2|3,8|13,64] -> f"]], 36)
    assert lines[1].startswith("a.module.with.a.name  ") and len(lines[1]) <= 36


def test_a_sentence_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The first module that goes wrong is encoder.layers.11.attention.output (Linear)."
    lines = wrapped(text, 40).splitlines()
    assert max(map(len, lines)) <= 40 and " ".join(lines) == text
    assert wrapped(text, None) == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert highlighted("x", True) == "\x1b[31mx\x1b[0m" and highlighted("x", False) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert highlighted("x", True) == "x"
