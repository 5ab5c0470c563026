"""Tests that graphs are compared with their modules, so that no size condition is baked in.

Nothing is rewritten here, so an export that bakes in a condition must fail.
"""

import functools
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

from onnx_external._base.notes import UNCHECKED, kind_of  # noqa: E402
from onnx_external.torch._guards import Guard, Input, Sizes  # noqa: E402

AUTO = torch.export.Dim.AUTO
SHAPES = ({0: AUTO, 1: AUTO},)
EVEN = (torch.rand(2, 8),)

export = functools.partial(oe.torch.export, rewrite=False)
skeleton = functools.partial(oe.torch.skeleton, rewrite=False)


class Long(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.shape[1] > 6:
            return x * 2
        return x + 1


class Odd(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x[:, ::2] if x.shape[1] % 2 == 0 else x[:, 1::2]


class One(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.shape[0] == 1:
            return x * 2
        return x - x.sum(0)


class Padded(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        pad = (4 - x.shape[1] % 4) % 4
        if pad > 0:
            x = torch.nn.functional.pad(x, (0, pad))
        return x.reshape(x.shape[0], -1, 4)


class Viewed(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.view(x.shape[0], -1, 4) + 1


class Harmless(torch.nn.Module):
    """A condition on a size whose branches have the same result."""

    def forward(self, x: Any) -> Any:
        if x.shape[1] > 6:
            return x + x
        return x * 2


def line_of(module: type, text: str) -> str:
    lines, first = inspect.getsourcelines(module)
    number = next(first + place for place, line in enumerate(lines) if text in line)
    return f"{__file__}:{number}"


@pytest.mark.parametrize(
    ("module", "guard", "line"),
    [
        (Long, r"x.size\(\)\[1\] > 6", "if x.shape[1] > 6"),
        (Odd, r"x.size\(\)\[1\] % 2\) == 0", "x.shape[1] % 2"),
        (One, r"x.size\(\)\[0\] != 1", "if x.shape[0] == 1"),
        (Padded, r"x.size\(\)\[1\] % 4", "if pad > 0"),
    ],
)
def test_a_test_on_a_size_is_refused_with_its_line(
    module: type, guard: str, line: str, tmp_path: Path
) -> None:
    """Check without further sets; the export makes other sizes, some of which violate the guard."""
    with pytest.raises(oe.ExportError, match=guard) as caught:
        export(module(), EVEN, tmp_path / "out/model.onnx", dynamic_shapes=SHAPES)
    assert line_of(module, line) in str(caught.value) and "input_sets=" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_guards_that_hold_for_all_sets_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    report = export(Long(), EVEN, path, input_sets=[(torch.rand(3, 12),)], fsync=False)
    assert report.checked == 2 and report.notes == []
    (guard,) = report.guards
    assert guard.startswith("x.size()[1] > 6") and line_of(Long, "if x.shape") in guard
    session = runtime.InferenceSession(str(path))  # sizes that differ between the sets are dynamic
    assert session.run(None, {"x": np.ones((5, 9), np.float32)})[0].shape == (5, 9)
    assert report.to_dict()["guards"] == [guard]


class Attending(torch.nn.Module):
    """A module for which torch assumes that sizes are not 1, while the graph allows 1."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids: Any) -> Any:
        return self.layer(self.embed(ids))


NAMED = ({0: "rows", 1: "words"},)


def test_a_size_that_a_set_has_and_the_graph_is_right_for_is_not_a_limit(tmp_path: Path) -> None:
    module, ids = Attending().eval(), torch.randint(20, (2, 7))
    unchecked = export(
        module, (ids,), tmp_path / "a/model.onnx", dynamic_shapes=NAMED, check=False, fsync=False
    )
    assert [each.partition(" (/")[0] for each in unchecked.guards] == [
        "rows != 1",
        "(8*words) != 8",
    ]
    one = torch.randint(20, (1, 3))
    report = export(module, (ids,), tmp_path / "b/model.onnx", input_sets=[(one,)], fsync=False)
    assert len(report.guards) == 1 and "ids.size()[1]" in report.guards[0]
    assert "ids.size()[0] != 1" not in str(report)
    # Generated sets also count, and are reported as generated.
    made = export(module, (ids,), tmp_path / "c/model.onnx", dynamic_shapes=NAMED, fsync=False)
    assert made.guards == [] and made.checked == made.made_sets + 1 > 2
    compared = f"compared: {made.checked} ({made.made_sets} of them made with other sizes)"
    assert compared in str(made)


def test_a_guard_is_a_limit_unless_it_rules_out_the_compared_size_alone() -> None:
    import sympy

    size, other = sympy.symbols("s0 s1", integer=True)
    inputs = [Input("x", (size, other))]
    call = ((torch.ones(1, 5),), {})

    def disproved(expression: Any, is_test: bool = False, call: Any = call) -> bool:
        sizes = Sizes(inputs, [Guard("", expression, is_test=is_test)])
        return bool(sizes.disproved(call))

    assert disproved(sympy.Ne(size, 1)) and disproved(sympy.Ne(8 * size, 8))
    assert not disproved(sympy.Ne(size, 1), is_test=True)
    assert not disproved(sympy.Ne(size, 2)) and not disproved(other > 6)
    assert not disproved(size > 1) and not disproved(sympy.Ne(5 * size, other))
    assert not disproved(sympy.Ne(size, 1), call=((torch.ones(1, 0),), {}))


def test_two_sizes_of_one_name_keep_their_own_words() -> None:
    import sympy

    size = sympy.Symbol("s0")
    sizes = Sizes([Input("x", (size,)), Input("y", (size,))])
    named = {"s0": "rows"}
    guard = Guard("x.size()[0] == y.size()[0]", None, "m.py:3: x + y")
    assert sizes.worded(guard, named) == "x.size()[0] == y.size()[0] (m.py:3: x + y)"
    assert sizes.worded(Guard("x.size()[0] > max.size()[0]", None), named) == (
        "rows > max.size()[0]"
    )


@pytest.mark.parametrize("check", [None, False])
@pytest.mark.parametrize("given", [(torch.ones(2, 5),), {"x": torch.ones(2, 5)}])
def test_a_set_that_takes_another_branch_is_refused(given: Any, check: Any, tmp_path: Path) -> None:
    """Check values for which both branches have the same result."""
    with pytest.raises(oe.ExportError, match=r"input set 2.*x.size\(\)\[1\] > 6"):
        export(
            Long(),
            (torch.ones(2, 8),),
            tmp_path / "model.onnx",
            input_sets=[(torch.ones(3, 9),), given],
            check=check,
        )
    with pytest.raises(oe.ExportError, match=r"input set 1 \(x: \[2, 5\]\)"):
        skeleton(Long(), EVEN, input_sets=[given])
    assert list(tmp_path.iterdir()) == []


def test_a_branch_with_the_same_result_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    report = export(Harmless(), EVEN, path, input_sets=[(torch.ones(2, 5),)], fsync=False)
    assert report.checked == 2
    assert any("input set 1 violates x.size()[1] > 6" in note for note in report.notes)


def test_sizes_that_the_module_itself_refuses_are_not_held_against_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    report = export(Viewed(), EVEN, path, dynamic_shapes=SHAPES, fsync=False)
    assert report.checked >= 2 and "x.size()[1]" in report.guards[0]


def test_a_graph_that_is_not_checked_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exported(name: str, module: Any = Long, **options: Any) -> Any:
        options = {"dynamic_shapes": SHAPES, "fsync": False, **options}
        return export(module, EVEN, tmp_path / name / "model.onnx", **options)

    linear = torch.nn.Linear(8, 3).eval()
    assert exported("off", Long(), check=False).notes == []
    made = exported("made", lambda: torch.nn.Linear(8, 3), weights=linear.state_dict())
    assert made.checked == 0 and kind_of(made.notes[0]) == UNCHECKED
    assert made.notes[0] in str(made)
    assert exported("other", lambda: torch.nn.Linear(8, 3), weights=linear).checked > 1
    with pytest.raises(oe.ExportError, match="no module has the values that weights="):
        exported("asked", lambda: linear, weights=linear.state_dict(), check=True)
    assert exported("training", torch.nn.Linear(8, 3).train()).checked > 1

    class Noise(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + torch.rand_like(x)

    assert "random" in exported("random", Noise()).notes[0]
    monkeypatch.setattr("onnx_external.torch._checking.missing_text", lambda name: "it is missing")
    assert exported("none", linear).notes == ["not checked: it is missing"]


def test_sizes_not_declared_dynamic_are_noted_as_fixed(tmp_path: Path) -> None:
    def exported(target: Any, **options: Any) -> Any:
        options = {"fsync": False, "check": False, "overwrite": True, **options}
        return export(target, torch.ones(2, 8), tmp_path / "model.onnx", **options)

    linear, fixed = torch.nn.Linear(8, 3).eval(), "all sizes are fixed as in the example; "
    report = exported(linear)
    (told,) = report.notes
    assert told.startswith(fixed) and "dynamic_shapes=" in told and "input_sets=" in told
    assert told in str(report)
    assert exported(lambda: torch.nn.Linear(8, 3), weights=linear).notes == [told]
    assert exported(linear, dynamic_shapes={}).notes == []
    assert exported(linear, dynamic_shapes=({0: "rows"},)).notes == []
    assert exported(linear, input_sets=[(torch.ones(3, 8),)]).notes == []
    program = torch.export.export(linear, (torch.ones(2, 8),))
    assert exported(program).notes == []


def test_a_graph_that_is_wrong_for_the_example_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a fault that no size condition explains, such as a wrong conversion."""
    from onnx_external.torch import _programs

    convert = _programs.converted

    def wrong(program: Any, **options: Any) -> Any:
        graph = convert(program, **options)
        for node in graph.model.graph:
            node.op_type = "Sub" if node.op_type == "Add" else node.op_type
        return graph

    monkeypatch.setattr(_programs, "converted", wrong)
    with pytest.raises(oe.ExportError, match=r"wrong for the example.*differs in 16 of 16"):
        export(Harmless(), EVEN, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_program_is_compared_with_itself_run_by_torch(tmp_path: Path) -> None:
    module = torch.nn.Linear(8, 3).eval()
    program = torch.export.export(module, EVEN, dynamic_shapes=({0: AUTO},), strict=False)
    path = tmp_path / "model.onnx"
    report = export(program, EVEN, path, input_sets=[(torch.rand(5, 8),)], fsync=False)
    assert report.checked == 2
    report = export(program, (), tmp_path / "own/model.onnx", fsync=False)
    assert report.checked == 1  # the example with which the program was traced


def test_input_sets_must_be_alike(tmp_path: Path) -> None:
    for sets in ([(*EVEN, *EVEN)], [{"y": EVEN[0]}], {"x": EVEN[0]}):
        with pytest.raises(oe.InvalidArgumentError, match="input_sets"):
            export(Long(), EVEN, tmp_path / "model.onnx", input_sets=sets)


def test_the_state_of_a_module_is_as_before(tmp_path: Path) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            return x + 1

    module = Counting().eval()
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    export(module, EVEN, tmp_path / "model.onnx", dynamic_shapes=SHAPES, fsync=False)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert module.calls.item() == 0


def test_sets_have_the_order_of_the_example() -> None:
    from onnx_external.torch._input_sets import calls_of

    def forward(x: Any, a: Any, b: Any) -> Any:
        return x + a - b

    module = torch.nn.Module()
    module.forward = forward
    x, a, b = (torch.ones(2) * n for n in range(3))
    given = [((x,), {"b": b, "a": a}), (x, a, b), {"b": b, "a": a, "x": x}]
    for args, kwargs in calls_of(module, (x,), {"a": a, "b": b}, given):
        assert len(args) == 1 and list(kwargs) == ["a", "b"]
        assert kwargs["a"] is a and kwargs["b"] is b


def test_numbers_of_a_module_are_expected_where_the_graph_has_an_output_for_each() -> None:
    from onnx_external._comparing.references import as_given

    value, number = np.ones(3, np.float32), np.array(2.0)
    wanted, got = {"y": value, "n": number}, {"a": value, "b": np.array(2.0, np.float32)}
    assert as_given(["a"], {"a": value}, wanted, {"n"}) == {"y": value}
    assert as_given(["a", "b"], got, wanted, {"n"})["n"].dtype == np.float32
    assert as_given(["a", "b"], got, wanted, ())["n"].dtype == np.float64
