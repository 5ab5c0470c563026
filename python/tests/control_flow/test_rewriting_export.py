"""Tests of oe.torch.export for modules whose control flow depends on tensors or sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
onnx_ir = pytest.importorskip("onnx_ir")

import onnx_external as oe  # noqa: E402
from onnx_external._base.errors import RewriteError  # noqa: E402
from onnx_external._base.notes import kind_of  # noqa: E402
from onnx_external._diagnosis.export_reports import MENDED  # noqa: E402
from onnx_external.torch._programs import TraceError  # noqa: E402

UP = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.25, 4.0]])
COLUMNS = ({1: torch.export.Dim.DYNAMIC},)
SETS = [(torch.ones(3, 2),), (-torch.ones(4, 2),), (torch.full((2, 2), 90.0),)]


class Decides(torch.nn.Module):
    """A module with a condition, a loop over rows, a while loop, and an early return."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        y = self.linear(x) if x.sum() > 0 else x - 1
        for row in x:
            y = y + row
        while y.sum() < 10:
            y = y + 1
        if y.max() > 100:
            return y
        return y * 2


class BySize(torch.nn.Module):
    """A module with nested conditions on a size."""

    def forward(self, x: Any) -> Any:
        if x.shape[1] > 6:
            return x[:, :2] * 2
        if x.shape[1] % 2:
            return x[:, :2] + 1
        return x[:, :2]


class Plain(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.relu(x)


class OtherTypes(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return x
        return x.to(torch.int64)


class Asserts(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        assert x.sum() > 0, "positive"
        return x * 2


def state(module: Any) -> dict[str, Any]:
    """Return the state that an export must not change."""
    from torch.utils import _pytree as pytree

    functions = [type(module).forward, torch.nn.Module.__setattr__, torch.fx.Graph.create_node]
    return {
        "codes": [each.__code__ for each in functions],
        "globals": set(globals()),
        # transformers modules that are imported meanwhile register classes once.
        "nodes": {each for each in pytree.SUPPORTED_NODES if "transformers" not in each.__module__},
        "functions": torch.overrides._len_torch_function_stack(),
        "grad": torch.is_grad_enabled(),
        "module": {name: id(value) for name, value in vars(module).items()},
        "parameters": {name: id(each) for name, each in module.named_parameters()},
    }


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    torch.export.export(torch.nn.Linear(1, 1), (torch.ones(1, 1),))


def test_a_module_with_tests_and_loops_is_exported_in_one_call(tmp_path: Path) -> None:
    module = Decides()
    before = state(module)
    report = oe.torch.export(module, SETS[0], tmp_path / "model.onnx", input_sets=SETS[1:])
    assert state(module) == before
    assert report.checked == 3
    assert [each.name for each in report.rewriting.changes] == ["Decides.forward"]
    diff = report.rewriting.changes[0].diff
    assert "-        for row in x:" in diff.replace("-    for", "-        for")
    assert "rt.while_" in diff
    assert any("zero times" in each for each in report.rewriting.unreached)
    assert report.to_dict()["rewriting"]["changes"][0]["diff"] == diff
    assert "rewritten functions: 1; paths that no input set takes: " in str(report)
    assert oe.verify(tmp_path / "model.onnx").ok


def test_a_class_whose_source_is_missing_is_named(tmp_path: Path) -> None:
    text = "def forward(self, x):\n    return x + 1 if x.sum() > 0 else x - 1"
    made: dict[str, Any] = {}
    exec(text, made)
    module = type("Typed", (torch.nn.Module,), made)()
    with pytest.raises(oe.ExportError) as caught:
        oe.torch.export(module, (torch.ones(2),), tmp_path / "model.onnx")
    told = str(caught.value)
    assert told.startswith("define the class in a file so that its control flow can be rewritten (")
    assert "forward: its source is not found); otherwise: torch.export cannot trace" in told
    assert told.count("Could not guard") == 1


def test_tests_on_sizes_that_differ_among_the_sets_are_rewritten(tmp_path: Path) -> None:
    sets = [(torch.ones(2, size),) for size in (9, 4, 3)]
    report = oe.torch.export(BySize(), sets[0], tmp_path / "model.onnx", input_sets=sets[1:])
    assert report.checked == 3
    assert report.rewriting


def test_a_baked_test_is_found_by_other_sizes_and_rewritten(tmp_path: Path) -> None:
    report = oe.torch.export(
        BySize(), (torch.ones(2, 9),), tmp_path / "model.onnx", dynamic_shapes=COLUMNS
    )
    assert report.rewriting
    assert report.checked > 1


def test_what_exports_plainly_is_left_alone(tmp_path: Path) -> None:
    report = oe.torch.export(Plain(), (torch.ones(2, 2),), tmp_path / "model.onnx")
    assert not report.rewriting


def test_rewriting_can_be_switched_off(tmp_path: Path) -> None:
    with pytest.raises(oe.ExportError, match="test_rewriting_export"):
        oe.torch.export(
            Decides(), SETS[0], tmp_path / "model.onnx", input_sets=SETS[1:], rewrite=False
        )
    assert not list(tmp_path.iterdir())


def test_results_of_other_types_are_refused_by_their_line(tmp_path: Path) -> None:
    module = OtherTypes()
    before = state(module)
    with pytest.raises(RewriteError, match=r"test_rewriting_export\.py:\d+.*int64") as raised:
        oe.torch.export(module, SETS[0], tmp_path / "model.onnx", input_sets=SETS[1:2])
    assert "float32" in str(raised.value)
    assert state(module) == before
    assert not list(tmp_path.iterdir())


def test_what_no_input_set_reaches_can_be_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RewriteError, match=r"test_rewriting_export\.py:\d+: .*zero times.*input_sets="
    ):
        oe.torch.export(
            Decides(), SETS[0], tmp_path / "model.onnx", input_sets=SETS[1:], unreached="refuse"
        )
    assert not list(tmp_path.iterdir())
    with pytest.raises(oe.InvalidArgumentError, match="unreached"):
        oe.torch.export(Decides(), SETS[0], tmp_path / "model.onnx", unreached="fail")


def test_assertions_on_tensors_are_left_out_with_a_note(tmp_path: Path) -> None:
    report = oe.torch.export(Asserts(), SETS[0], tmp_path / "model.onnx")
    assert any("an assertion" in each for each in report.notes)


def test_assertions_on_tensors_can_be_refused(tmp_path: Path) -> None:
    with pytest.raises(RewriteError, match="an assertion depends on the value of a tensor"):
        oe.torch.export(Asserts(), SETS[0], tmp_path / "model.onnx", asserts="refuse")


def test_a_skeleton_is_made_of_a_rewritten_module() -> None:
    made = oe.torch.skeleton(Decides(), SETS[0], input_sets=SETS[1:])
    nodes = onnx_ir.traversal.RecursiveGraphIterator(made.model.graph)
    assert {node.op_type for node in nodes} >= {"If", "Scan", "Loop"}


@pytest.mark.parametrize("options", [{"rewrite": "always"}, {"asserts": "keep"}])
def test_unknown_ways_are_refused(options: Any, tmp_path: Path) -> None:
    with pytest.raises(oe.InvalidArgumentError, match=r"expected|is not one of"):
        oe.torch.export(Plain(), SETS[0], tmp_path / "model.onnx", **options)


def test_patches_rewrite_a_module_for_torch_export(tmp_path: Path) -> None:
    module = Decides()
    before = state(module)
    with oe.torch.patches(module, SETS, dump=str(tmp_path / "dump")) as patches:
        program = torch.export.export(module, SETS[0], strict=False)
    assert state(module) == before
    assert "rt.for_" in patches.diffs["Decides.forward"]
    assert patches.involved(program)["Decides.forward"]
    assert any(each.suffix == ".diff" for each in (tmp_path / "dump").iterdir())


def test_patches_say_what_the_rewriting_left_out() -> None:
    with oe.torch.patches(Asserts(), SETS[:1]) as patches:
        torch.export.export(Asserts(), SETS[0], strict=False)
    assert any("an assertion" in each for each in patches.notes)


def test_a_diagnosis_says_that_rewriting_mends_a_module() -> None:
    report = oe.diagnose_export(torch.nn.Sequential(Plain(), Decides()).eval(), SETS[:2])
    wrong = {each.name: each for each in report.wrong}
    assert list(wrong) == ["1"]
    assert wrong["1"].rewriting.startswith("rewriting mends it: test_rewriting_export.py:")
    assert kind_of(wrong["1"].rewriting) == MENDED
    assert "rewriting mends it" in report.sentence
    assert "rewriting mends it" in report.tree()


def test_a_diagnosis_says_why_rewriting_does_not_mend_a_module() -> None:
    report = oe.diagnose_export(OtherTypes().eval(), SETS[:2])
    assert "rewriting does not mend it" in report.tree()
    assert "int64" in report.wrong[0].rewriting


class Fills(torch.nn.Module):
    """A module with constants in branches, which an optimizer folds."""

    def forward(self, x: Any) -> Any:
        scale = torch.full((2,), 3.0) if x.sum() > 0 else torch.zeros(2)
        return x * scale


def test_constants_of_branches_are_not_weights(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), Fills())
    report = oe.torch.export(module, SETS[0], tmp_path / "model.onnx", input_sets=SETS[1:])
    assert report.checked == 3
    assert len(report.save.tensors) == 2


class AsksWhetherItIsExported(torch.nn.Module):
    """A module that skips a needed step while it is exported."""

    def forward(self, x: Any) -> Any:
        mask = None
        if not torch.compiler.is_compiling():
            mask = torch.ones(x.shape[0])
        y = x * mask[:, None]
        return y + 1 if y.sum() > 0 else y - 1


def test_code_that_fails_since_it_is_exported_is_told_that_it_is_not(tmp_path: Path) -> None:
    before = torch.compiler.is_compiling
    report = oe.torch.export(
        AsksWhetherItIsExported(), SETS[0], tmp_path / "m.onnx", input_sets=[SETS[1]]
    )
    assert report.checked == 2
    assert any("is_compiling() and is_exporting() return False" in each for each in report.notes)
    assert torch.compiler.is_compiling is before


class AsksForNothing(torch.nn.Module):
    """A module that checks whether it is being exported, but does the same in both cases."""

    def forward(self, x: Any) -> Any:
        y = x + 1 if torch.compiler.is_compiling() else 1 + x
        return y + 1 if y.sum() > 0 else y - 1


def test_code_that_asks_and_does_not_fail_is_told_the_truth(tmp_path: Path) -> None:
    report = oe.torch.export(AsksForNothing(), SETS[0], tmp_path / "m.onnx", input_sets=[SETS[1]])
    assert report.checked == 2 and report.rewriting and not report.notes


class Converts(torch.nn.Module):
    """A module that converts a submodule to the type it already has."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        self.linear = self.linear.to(torch.float32)
        return self.linear(x)


def test_a_conversion_that_changes_nothing_is_exported(tmp_path: Path) -> None:
    report = oe.torch.export(Converts(), SETS[0], tmp_path / "m.onnx", input_sets=[SETS[1]])
    assert report.checked == 2 and not report.rewriting


class Contains(torch.nn.Module):
    """A module that applies `in` to a tensor among tensors, and to a number among sizes."""

    def forward(self, x: Any) -> Any:
        y = x[:, :2]
        if 3 in x.shape:
            y = y + 1
        if x.sum() not in (y.sum(), x.max()):
            y = y * 2
        return y


def test_in_is_rewritten_for_sizes_and_for_tensors(tmp_path: Path) -> None:
    sets = [(torch.ones(2, 3),), (torch.ones(2, 2),), (torch.eye(2, 4) - 0.5,)]
    report = oe.torch.export(
        Contains(), sets[0], tmp_path / "m.onnx", dynamic_shapes=COLUMNS, input_sets=sets[1:]
    )
    assert report.checked == 3


def test_a_graph_that_the_optimizer_cannot_take_is_saved_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Any) -> None:
        raise ValueError("no luck")

    monkeypatch.setattr(torch.onnx.ONNXProgram, "optimize", fails)
    report = oe.torch.export(Plain(), SETS[0], tmp_path / "m.onnx", input_sets=[SETS[1]])
    assert report.checked == 2
    assert any("not optimized: torch's optimizer fails: no luck" in each for each in report.notes)


class LooksUpByText(torch.nn.Module):
    """A module that chooses a submodule by the text of a tensor's value."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict({f"part_{n}": torch.nn.Linear(2, 2) for n in range(2)})

    def forward(self, x: Any) -> Any:
        for index in (x.sum(0) > 0).nonzero():
            x = self.parts[f"part_{index[0]}"](x)
        return x


def test_a_lookup_by_the_text_of_a_tensor_is_a_test_for_each_item(tmp_path: Path) -> None:
    sets = [(torch.tensor([[1.0, -1.0]]),), (torch.ones(1, 2),), (-torch.ones(1, 2),)]
    report = oe.torch.export(LooksUpByText(), (SETS[0][0],), tmp_path / "m.onnx", input_sets=sets)
    assert report.checked == 4


class LooksUpOne(torch.nn.Module):
    """A module that calls submodule 0 or 2, as an input says."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict({f"part_{n}": torch.nn.Linear(2, 2) for n in (0, 2)})

    def forward(self, x: Any, number: Any) -> Any:
        return self.parts[f"part_{number}"](x)


def test_a_graph_that_looks_up_a_missing_item_stops(tmp_path: Path) -> None:
    import onnxruntime

    path, x = str(tmp_path / "m.onnx"), torch.ones(1, 2)
    sets = [(x, torch.tensor(0)), (x, torch.tensor(2))]
    assert oe.torch.export(LooksUpOne(), sets[0], path, input_sets=sets[1:]).checked == 2
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for number in (-1, 1, 3):
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, {"x": x.numpy(), "number": torch.tensor(number).numpy()})


class LooksUpByName(LooksUpByText):
    """A module like LooksUpByText, in which a variable hides the origin of the text."""

    def forward(self, x: Any) -> Any:
        for index in (x.sum(0) > 0).nonzero():
            name = f"part_{index[0]}"
            x = self.parts[name](x)
        return x


def test_a_lookup_by_the_text_of_a_tensor_is_refused_with_its_line(tmp_path: Path) -> None:
    words = r"test_rewriting_export.py:\d+: an item is looked up by the text of a tensor"
    with pytest.raises(RewriteError, match=words):
        oe.torch.export(LooksUpByName(), SETS[0], tmp_path / "m.onnx", input_sets=[SETS[1]])


class Counts(torch.nn.Module):
    """A module that counts its calls in a buffer, a tensor attribute, and a tensor in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.mean = torch.zeros(3)

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.calls.clamp_(max=2)
        y = x / self.calls
        if y.sum() > 0:
            y = y * 2
        return y


def test_what_is_written_in_place_is_put_back_after_each_run(tmp_path: Path) -> None:
    module, sets = Counts().eval(), [(UP,), (-UP,)]
    path = tmp_path / "model.onnx"
    report = oe.torch.export(module, sets[0], path, input_sets=sets[1:], fsync=False)
    assert report.checked == 2 and report.rewriting
    assert module.calls == 0
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for (x,) in sets:
        wanted = Counts()(x).numpy()
        np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], wanted, rtol=1e-6)


def test_tensors_that_are_not_buffers_are_also_restored() -> None:
    from onnx_external._control_flow.runtime.outer import state_kept

    module = Counts()
    held = [module.mean, torch.ones(2)]
    module.held = held
    with state_kept(module), torch.no_grad():
        module(UP)
        module.mean.add_(1)
        held[1].zero_()
        module.calls = module.calls + 5
    assert module.calls == 0 and not module.mean.any() and held[1].all()


class Halves(torch.nn.Module):
    """A module that modifies a weight when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.linear.weight.mul_(0.5)
        y = self.linear(x)
        return y if y.sum() > 0 else -y


def test_a_module_that_writes_to_a_weight_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(
        oe.ExportError, match=r"the parameter linear\.weight is written to in place"
    ):
        oe.torch.export(Halves(), (UP,), tmp_path / "model.onnx", input_sets=[(-UP,)], fsync=False)
    assert not list(tmp_path.iterdir())


class TensorOrNone(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else None


class Chooses(torch.nn.Module):
    """A module that can be exported, although its submodule alone cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.part = TensorOrNone()

    def forward(self, x: Any) -> Any:
        found = self.part(x)
        y = x - 1 if found is None else found
        return y if y.max() > 3 else y + 1


def test_a_diagnosis_says_that_a_model_exports_though_its_modules_do_not() -> None:
    report = oe.diagnose_export(Chooses().eval(), SETS[:2])
    assert report.sentence.startswith(
        "oe.torch.export exports the whole model by rewriting its control flow. Without "
        "that, the first module that does not export is part (TensorOrNone)"
    )


class Hooked(torch.nn.Module):
    """A module for which ONNX has no operator. Its submodule has a hook, and can be exported."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.Linear(2, 2)
        self.part.register_forward_hook(lambda module, args, result: result * 3)

    def forward(self, x: Any) -> Any:
        y = self.part(x)
        return torch.linalg.svdvals(y) if y.sum() > 0 else y[:, 0]


def test_a_module_with_a_hook_is_right_in_a_diagnosis() -> None:
    report = oe.diagnose_export(Hooked().eval(), SETS[:1])
    assert [each.name for each in report.wrong] == [""]


def test_code_that_decides_by_values_has_a_kind_of_error(tmp_path: Path) -> None:
    with pytest.raises(oe.ExportError, match="GuardOnDataDependentSymNode") as refused:
        oe.torch.export(Decides(), SETS[0], tmp_path / "model.onnx", rewrite=False)
    assert (refused.value.kind, refused.value.code) == ("by-values", "unsupported")
    assert isinstance(refused.value, TraceError)


def test_the_obstacle_that_rewriting_does_not_mend_is_named(tmp_path: Path) -> None:
    with pytest.raises(oe.ExportError) as refused:
        oe.torch.export(Hooked(), SETS[0], tmp_path / "model.onnx", input_sets=SETS[1:])
    assert str(refused.value).startswith("torch.onnx cannot convert the program: ")
    assert str(refused.value).endswith("its control flow was rewritten before")


class Writes(torch.nn.Module):
    """A greedy decoder that stops at a value or at a length."""

    def forward(self, x: Any) -> Any:
        written: list[Any] = []
        state = x[0]
        while len(written) < x.shape[0]:
            state = torch.tanh(state + x.mean(0))
            if state.sum() < 0:
                break
            written.append(state)
        return torch.stack(written) if written else x * 2


def test_a_decoder_writes_until_it_is_as_long_as_its_input(tmp_path: Path) -> None:
    options: Any = {"max_iterations": 8, "fsync": False, "overwrite": True}
    path, sets = tmp_path / "model.onnx", [(torch.rand(3, 4),), (-torch.rand(2, 4),)]
    report = oe.torch.export(Writes(), sets[0], path, input_sets=sets[1:], **options)
    assert report.checked == 2
    assert "the loop ends after at most 8 iterations" in str(report)


def test_the_caller_says_what_is_rounding(tmp_path: Path) -> None:
    module, args = torch.nn.Sequential(torch.nn.GELU(), torch.nn.Softmax(-1)), (torch.rand(8, 99),)
    path = tmp_path / "model.onnx"
    with pytest.raises(oe.ExportError, match="if this is rounding, set atol="):
        oe.torch.export(module.eval(), args, path, atol=0.0, rtol=0.0)
    assert oe.torch.export(module.eval(), args, path, atol=1e-6).checked
