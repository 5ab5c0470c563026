"""What the commands show as tables."""

import onnx_external as oe
from onnx_external._diagnosis.reports import Diagnosis, ModuleDiagnosis, ValueForm
from onnx_external._tables import table

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
    assert lines[3][:4] == ["0", "Linear", "OK", "-"]
    assert lines[4] == ["unused", "Linear", "NOINPUT", "-", "it", "was", "not", "called"]
    assert max(map(len, found.tree(columns=50).splitlines())) <= 50
