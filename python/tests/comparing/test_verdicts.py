"""Tests of wrong outputs: next to masks or huge values, without comparison, random numbers."""

import json
import re
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest

import onnx_external as oe
from onnx_external._comparing.comparing import compare

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

LOWEST = float(np.finfo(np.float32).min)
HALF = float(np.finfo(np.float16).min)
FILLS = [
    (LOWEST,), (-np.inf,), (-1e9,), (-1e4,), (1e9,), (-1e9, -np.inf), (-1e9, -2e9),
    (-1e4, -1e9, LOWEST),
]  # fmt: skip


def masked(values: Any, mask: Any, fill: Any, added: bool) -> Any:
    """Return the values in float32, with masked ones replaced by `fill` or with `fill` added."""
    with np.errstate(over="ignore"):
        return np.where(mask, values + fill if added else fill, values).astype(np.float32)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("fills", FILLS)
def test_a_mask_does_not_hide_differences_in_the_rest(fills: Any, share: float) -> None:
    random = np.random.default_rng([len(fills), round(100 * share)])
    for size, added in ((1e-3, False), (1.0, False), (1.0, True), (30.0, True)):
        values = size * random.standard_normal((8, 40)).astype(np.float32)
        mask, fill = random.random((8, 40)) < share, random.choice(fills, (8, 40))
        want = masked(values, mask, fill, added)
        rounded = values + 1e-6 * size * random.standard_normal((8, 40)).astype(np.float32)
        assert compare("y", masked(rounded, mask, fill, added), want).ok
        assert not compare("y", masked(values * np.float32(1.02), mask, fill, added), want).ok
        other = random.permutation(values.reshape(-1)).reshape(8, 40)
        assert not compare("y", masked(other, mask, fill, added), want).ok


def test_what_both_sides_mask_is_counted_and_what_one_masks_is_found() -> None:
    random = np.random.default_rng(3)
    for fill in (LOWEST, -1e9, -1e4, 1e9):
        want = random.standard_normal((4, 16)).astype(np.float32)
        want[:, 12:] = fill
        found = compare("y", want, want)
        assert found.ok and found.masked == 16 and found.scale is not None and found.scale < 3
        for place, value in (((0, 0), fill), ((0, 15), 1.0)):
            got = want.copy()
            got[place] = value
            found = compare("y", got, want)
            assert found.beyond == 1 and found.first_at == list(place)
            assert found.masked == 15 + (place == (0, 0))
    ordinary = random.standard_normal((4, 16)).astype(np.float32)
    assert compare("y", ordinary, ordinary).masked == 0


def test_each_of_the_largest_differences_has_its_own_place() -> None:
    want = np.array([[1000, 2, 3], [4, 5, 6]], np.float32)
    got = want + np.array([[8, 0, 0], [0, 1, 0]], np.float32)
    found = compare("y", got, want)
    assert (found.max_abs, found.max_abs_at, found.actual, found.expected) == (
        8,
        [0, 0],
        1008,
        1000,
    )
    assert found.max_rel is not None and round(found.max_rel, 6) == 0.2
    assert found.max_rel_at == [1, 1] and found.first_at == [0, 0]


def test_a_mask_may_be_the_lowest_number_of_each_type() -> None:
    want = np.array([[1, 2, 3, LOWEST]], np.float32)
    narrow = np.array([[1, 2, 3, HALF]], np.float16)
    assert compare("y", narrow, want).ok and compare("y", want, narrow).ok
    assert not compare("y", np.array([[1, 2, 3, HALF]], np.float32), want).ok
    narrow[0, 3] = 3
    assert compare("y", narrow, want).first_at == [0, 3]
    half = np.array([0.5, 2, -3, HALF, HALF, HALF], np.float16)
    assert not compare("y", half * np.array([1.2, 1.2, 1.2, 1, 1, 1], np.float16), half).ok


@pytest.mark.parametrize("giant", [1e3, 1e5, 1e8])
def test_a_few_giants_do_not_hide_differences_in_the_rest(giant: float) -> None:
    random = np.random.default_rng(5)
    want = random.standard_normal((16, 64)).astype(np.float32)
    places = random.choice(want.size, 5, replace=False)
    giants = (giant * random.uniform(1, 3, 5)).astype(np.float32)
    for factor, ok in ((1.0, True), (1.02, False)):
        got = (want * np.float32(factor)).astype(np.float32)
        for array in (got, want):
            array.reshape(-1)[places] = giants
        assert compare("y", got, want).ok == ok


def test_what_is_left_of_giants_may_be_off_as_much_as_they_are() -> None:
    # A row of (x + 1e6) - 1e6 in float32, and its huge values, which differ by one step.
    want = np.array([[1e6, 2e6, 0.25, 0.5, -0.125, 0.75], [1, 2, -1, 0.5, 0.25, 3]], np.float32)
    got = want + np.array([[0.0625, 0.125, 0.0625, 0, 0.0625, 0], [0] * 6], np.float32)
    assert compare("y", got, want).ok
    got[1, 2] += 0.0625  # a row without huge values
    assert compare("y", got, want).first_at == [1, 2]
    got = want.copy()
    got[0, 2] += 0.0625  # the huge values in this row are equal
    assert not compare("y", got, want).ok


def test_zeros_and_small_values_have_a_scale_of_their_own() -> None:
    random = np.random.default_rng(7)
    sparse = np.maximum(random.standard_normal((64, 64)) - 2.2, 0).astype(np.float32)
    assert not compare("y", sparse * np.float32(1.02), sparse).ok
    assert compare("y", sparse + np.float32(1e-7), sparse).ok
    powers = np.exp(random.standard_normal((4, 50_000)))
    small = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    assert small.max() < 1e-2
    assert not compare("y", small * np.float32(1.02), small).ok
    assert compare("y", small * np.float32(1.000001), small).ok
    nothing = np.zeros((3, 3), np.float32)
    assert compare("y", nothing + np.float32(1e-7), nothing).ok
    assert not compare("y", nothing + np.float32(1e-5), nothing).ok
    only = np.array([0, 0, -1e9, -1e9], np.float32)
    assert not compare("y", np.array([0, 5e2, -1e9, -1e9], np.float32), only).ok
    assert compare("y", only[2:], only[2:]).ok


def test_without_elements_or_numbers_nothing_agrees() -> None:
    for array in (np.empty((0, 3)), np.full(3, np.nan), np.empty(0, np.int64)):
        found = compare("y", array, array)
        assert found.is_empty and not found.ok and found.problem is None
    assert not compare("y", np.empty(0), np.empty((0, 1))).ok
    found = compare("y", np.array([np.nan, 1]), np.array([np.nan, 1]))
    assert found.ok and not found.is_empty


def model_of(
    nodes: list[Any], forms: dict[str, Any], outputs: list[str], functions: Any = (), **values: Any
) -> Any:
    """Return a float model in which each name has either a shape or a value."""
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in forms.items()}
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    inputs = [info for name, info in infos.items() if name not in outputs]
    graph = helper.make_graph(nodes, "g", inputs, [infos[n] for n in outputs], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions)


def twice(factor: float = 2, rows: Any = "rows") -> Any:
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"])]
    return model_of(nodes, {"x": [rows, 3], "y": [rows, 3]}, ["y"], factor=np.float32(factor))


def command(*arguments: Any) -> Any:
    return commands.run("validate", *arguments)


def test_a_model_of_which_nothing_was_compared_is_not_ok(tmp_path: Path) -> None:
    report = oe.validate(twice(), twice(3), dims={"rows": 0})
    assert not report.ok and "nothing was compared of y" in report.sentence
    document = report.to_dict()
    assert document["ok"] is False and document["sentence"] == report.sentence
    infinite = np.full((2, 3), np.inf, np.float32)
    report = oe.validate(twice(), {"y": infinite}, np.zeros((2, 3), np.float32))
    output = json.loads(json.dumps(report.to_dict(), allow_nan=False))["graphs"][0]["outputs"][0]
    assert (output["expected"], output["times"], output["beyond"]) == ("inf", "inf", 6)
    report = oe.validate(twice(), twice(), dims={"rows": [0, 2]})
    assert report.ok and report.sentence.endswith("in some sets, 1 had nothing to compare")
    report = oe.validate(twice(), twice(), [])
    assert not report.ok and report.sentence == "nothing was compared: there was no input set"
    nan = {"x": np.full((2, 3), np.nan, np.float32)}
    assert not oe.validate(twice(), twice(3), nan).ok
    onnx.save(twice(), tmp_path / "model.onnx")
    done = command(tmp_path / "model.onnx", "-a", tmp_path / "model.onnx", "--dim", "rows=0")
    assert done.returncode == 1 and "nothing was compared of y" in done.stdout
    done = command(tmp_path / "model.onnx", "-a", tmp_path / "model.onnx", "--dim", "rows=0", "-q")
    assert done.returncode == 1 and "nothing was compared of y" in done.stdout


def test_empty_sequences_prove_nothing() -> None:
    y = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    nodes = [helper.make_node("SequenceEmpty", [], ["y"], dtype=1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    report = oe.validate(model, model)
    assert not report.ok and "nothing was compared of y" in report.sentence


def test_sizes_that_the_model_fixes_are_not_given() -> None:
    fixed = twice(rows=2)
    with pytest.raises(oe.InvalidArgumentError, match=r"dimension 0 of input x at 2 \(\[2, 3\]"):
        oe.validate(fixed, fixed, dims={"x[0]": 4})
    with pytest.raises(oe.InvalidArgumentError, match=r"'rows'; the model fixes all: x \[2, 3\]"):
        oe.validate(fixed, fixed, dims={"rows": 4})
    with pytest.raises(oe.InvalidArgumentError, match="dimension 1 of input x at 3"):
        oe.validate(twice(), twice(), dims={"rows": 2, "x[1]": 4})
    assert oe.validate(twice(), twice(), dims={"x[0]": 4}).ok
    for wrong in (-1, [], [2, -1]):
        with pytest.raises(oe.InvalidArgumentError, match=r"rows: .* is neither a size nor"):
            oe.validate(twice(), twice(), dims={"rows": wrong})
    with pytest.raises(oe.InvalidArgumentError, match="0 is not a number of sets"):
        oe.validate(fixed, fixed, sets=0)
    x = np.ones((2, 3), np.float32)
    for more in ({"dims": {"rows": 4}}, {"ranges": {"x": (0, 1)}}, {"sets": 2}):
        with pytest.raises(oe.InvalidArgumentError, match="only apply to generated inputs"):
            oe.validate(twice(), twice(), x, **more)


def drawing(name: str) -> Any:
    """Return a model whose output y is random."""
    forms = {"x": [2, 300], "y": [2, 300]}
    like = ["x"], ["y"]
    on = dict(ratio=np.float32(0.5), on=np.array(True))
    if name == "Dropout":
        return model_of([helper.make_node(name, ["x", "ratio", "on"], ["y"])], forms, ["y"], **on)
    if name == "Bernoulli":
        half = model_of(
            [helper.make_node(name, ["half"], ["b"]), helper.make_node("Mul", ["x", "b"], ["y"])],
            forms, ["y"], half=np.full((2, 300), 0.5, np.float32),
        )  # fmt: skip
        return half
    if name == "Multinomial":
        return model_of(
            [
                helper.make_node(name, ["x"], ["m"], sample_size=300),
                helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
            ],
            forms, ["y"],
        )  # fmt: skip
    if name == "subgraph":
        branch = helper.make_graph(
            [helper.make_node("RandomNormalLike", ["x"], ["r"], name="inner")], "b", [],
            [helper.make_tensor_value_info("r", TensorProto.FLOAT, [2, 300])],
        )  # fmt: skip
        node = helper.make_node("If", ["on"], ["y"], then_branch=branch, else_branch=branch)
        return model_of([node], forms, ["y"], on=np.array(True))
    if name == "function":
        imports = [helper.make_opsetid("", 21)]
        inner = [helper.make_node("RandomUniformLike", ["a"], ["b"], name="inner")]
        function = helper.make_function("own", "Draw", ["a"], ["b"], inner, imports)
        return model_of([helper.make_node("Draw", *like, domain="own")], forms, ["y"], [function])
    if name.endswith("Like"):
        return model_of([helper.make_node(name, *like)], forms, ["y"])
    return model_of([helper.make_node(name, [], ["y"], shape=[2, 300])], forms, ["y"])


OPERATORS = {
    "Dropout": "Dropout", "Bernoulli": "Bernoulli", "Multinomial": "Multinomial",
    "RandomNormal": "RandomNormal", "RandomUniform": "RandomUniform",
    "RandomNormalLike": "RandomNormalLike", "RandomUniformLike": "RandomUniformLike",
    "subgraph": "RandomNormalLike (inner)", "function": "RandomUniformLike (Draw: inner)",
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_what_draws_random_numbers_is_named_as_the_cause(name: str) -> None:
    model = drawing(name)
    x = np.ones((2, 300), np.float32)
    report = oe.validate(model, {"y": np.full((2, 300), 7.0, np.float32)}, {"x": x})
    assert not report.ok and report.graphs[0].draws[0].startswith(OPERATORS[name])
    assert "The cause may be random numbers, drawn by" in report.sentence
    assert OPERATORS[name] in report.sentence
    assert json.dumps(report.to_dict()["graphs"][0]["draws"])
    same = oe.validate(model, model, {"x": x})  # two sessions of ONNX Runtime may draw the same
    assert "random numbers" in same.sentence and OPERATORS[name] in same.sentence


def test_a_model_that_agrees_by_chance_is_reported_to_draw_random_numbers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Mul", ["r", "none"], ["zero"]),
        helper.make_node("Add", ["x", "zero"], ["y"]),
    ]
    model = model_of(nodes, {"x": [2, 3], "y": [2, 3]}, ["y"], none=np.float32(0))
    onnx.save(model, tmp_path / "model.onnx")
    done = command(tmp_path / "model.onnx", "-a", tmp_path / "model.onnx")
    assert done.returncode == 0 and "random numbers are drawn by" in done.stdout


def test_a_dropout_that_is_off_draws_nothing() -> None:
    forms = {"x": [2, 3], "y": [2, 3]}
    for inputs in (["x"], ["x", "ratio"], ["x", "", "off"], ["x", "none", "on"]):
        model = model_of(
            [helper.make_node("Dropout", inputs, ["y"])], forms, ["y"],
            ratio=np.float32(0.5), none=np.float32(0), off=np.array(False), on=np.array(True),
        )  # fmt: skip
        report = oe.validate(model, model)
        assert report.ok and not report.graphs[0].draws


def test_a_wrong_row_has_a_mark_and_the_last_line_names_the_output(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "f"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    for name, factor in (("one", 1.0), ("other", 1.5)):
        forms = {"x": [2, 3], "y": [2, 3], "z": [2, 3]}
        onnx.save(model_of(nodes, forms, ["y", "z"], f=np.float32(factor)), tmp_path / name)
    done = command(tmp_path / "one", "-a", tmp_path / "other")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert re.fullmatch(r"1 of 2 outputs does not agree: y, by 0\.\d+ at most", lines[-1])
    marked = [line for line in lines if line.startswith("! ")]
    assert len(marked) == 1 and " y " in marked[0] and "beyond" in marked[0]


class Doubled:
    """Creates torch modules that return 2 * x in several ways, if torch is installed."""

    @staticmethod
    def made(change: Any) -> Any:
        torch = pytest.importorskip("torch")

        class Made(torch.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, x: Any) -> Any:
                return change(torch, x)

        return Made().eval()


def test_a_reference_that_draws_random_numbers_is_named() -> None:
    module = Doubled.made(lambda torch, x: torch.nn.functional.dropout(2 * x, 0.5))
    x = np.ones((4, 3), np.float32)
    report = oe.validate(twice(), module, x)
    assert not report.ok and "Made, as two runs differ" in report.sentence
    torch = pytest.importorskip("torch")
    program = torch.export.export(module, (torch.ones(4, 3),))
    report = oe.validate(twice(rows=4), program)
    assert not report.ok and "dropout.default" in report.graphs[0].draws[0]
    training = torch.nn.Sequential(torch.nn.Dropout())
    with pytest.raises(oe.InvalidArgumentError, match=r"training mode.* call its eval\(\)"):
        oe.validate(twice(), training, x)
    sound = torch.export.export(training.eval(), (torch.ones(4, 3),))
    assert not oe.validate(twice(1.0, rows=4), sound).graphs[0].draws


def test_diagnose_looks_beside_masks_and_names_what_draws(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.onnx"
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["t"]),
        helper.make_node("Where", ["mask", "t", "fill"], ["y"]),
    ]
    mask = np.arange(12).reshape(4, 3) % 3 > 0
    for fill in (LOWEST, -1e9, -np.inf):
        values = dict(factor=np.float32(2), mask=mask, fill=np.float32(fill))
        onnx.save(model_of(nodes, {"x": [4, 3], "y": [4, 3]}, ["y"], **values), path)
        for factor in (2.0, 2.1):

            def module(_: Any, x: Any, factor: float = factor, fill: float = fill) -> Any:
                return torch.where(torch.tensor(mask), x * factor, fill)

            report = oe.diagnose(path, Doubled.made(module), torch.randn(4, 3))
            assert report.ok == (factor == 2)
    onnx.save(twice(), path)
    drawn = Doubled.made(lambda torch, x: torch.nn.functional.dropout(2 * x, 0.1))
    report = oe.diagnose(path, drawn, torch.ones(64, 3))
    assert not report.ok and "random numbers, which are drawn" in report.remarks[-1]


def test_diagnose_says_that_nothing_was_compared(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    onnx.save(twice(), tmp_path / "model.onnx")
    sound = Doubled.made(lambda _, x: 2 * x)
    report = oe.diagnose(tmp_path / "model.onnx", sound, torch.ones(0, 3))
    assert not report.ok and "no output of the model itself was compared" in report.sentence
    other = Doubled.made(lambda _, x: (2 * x).T)  # with another shape
    assert not oe.diagnose(tmp_path / "model.onnx", other, torch.ones(2, 3)).ok


def test_a_size_that_is_not_known_is_asked_for_once(tmp_path: Path) -> None:
    told = "its sizes are not known; give sizes for rows: "
    with pytest.raises(oe.InvalidArgumentError) as caught:
        oe.validate(twice(), twice())
    assert str(caught.value).endswith(f"{told}dims={{NAME: SIZE}}")
    onnx.save(twice(), tmp_path / "model.onnx")
    done = command(tmp_path / "model.onnx", "-a", tmp_path / "model.onnx")
    assert done.returncode and f"{told}--dim NAME=SIZE\n" in done.stderr


def test_the_command_says_how_to_find_the_module(tmp_path: Path, capsys: Any) -> None:
    from onnx_external._commands.validate import _print_next

    onnx.save(twice(), tmp_path / "model.onnx")
    report = oe.validate(tmp_path / "model.onnx", twice(3), dims={"rows": 2})
    _print_next(report, str(tmp_path))
    assert not capsys.readouterr().out
    (tmp_path / "config.json").write_text("{}")
    _print_next(report, str(tmp_path))
    told = f"module: onnx-external diagnose {tmp_path}/model.onnx --against {tmp_path}"
    assert told in capsys.readouterr().out
