"""Tests of the choice of modules for which an export is tried, with simulated outcomes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
nn = torch.nn

from onnx_external._diagnosis import export_diagnosing  # noqa: E402
from onnx_external._diagnosis.capturing import Captured, capture, method_of  # noqa: E402
from onnx_external._diagnosis.custom_operators import _function_of  # noqa: E402
from onnx_external._diagnosis.export_diagnosing import _Tree  # noqa: E402
from onnx_external._diagnosis.export_reports import ExportDiagnosis  # noqa: E402
from onnx_external._diagnosis.outcomes import Outcome  # noqa: E402

OK, FAIL, DISC, NONE = oe.Status.OK, oe.Status.FAIL, oe.Status.DISC, oe.Status.NONE
CHILDC, CUSTOM, NOINPUT = oe.Status.CHILDC, oe.Status.CUSTOM, oe.Status.NOINPUT


class Layer(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.Identity(), nn.Sequential(nn.ReLU())

    def forward(self, x: Any) -> Any:
        return x + self.inner(self.norm(x))


class Model(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head, self.unused = nn.Identity(), nn.Identity()

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class MadeUp:
    """Simulated attempts, which fail if they contain a failing module that is not replaced."""

    def __init__(self, fails: Sequence[str], status: Any = FAIL, unjudged: str = "") -> None:
        self.functions: dict[Any, Any] = {}
        self.fails, self.status, self.unjudged = fails, status, unjudged
        self.tried: list[tuple[str, list[str]]] = []

    def attempt(self, captured: Captured, instead: Sequence[Captured] = ()) -> Outcome:
        replaced = [each.name for each in instead]
        self.tried.append((captured.name, replaced))
        if self.unjudged in replaced:
            return Outcome(FAIL, "export", "no custom operator", unjudged=True)
        inside = f"{captured.name}." if captured.name else ""
        left = [
            name
            for name in self.fails
            if (name == captured.name or name.startswith(inside))
            and not any(f"{name}.".startswith(f"{each}.") for each in replaced)
        ]
        return Outcome(self.status, "export", f"because of {left[0]}") if left else Outcome()

    def dynamic_shapes(self, _: Captured) -> None:
        return None


@pytest.fixture
def captured(tmp_path: Path) -> list[Captured]:
    return capture(Model().eval(), [((torch.ones(2, 3),), {})], tmp_path, {})


def judged(captured: Any, attempts: Any, strategy: Any = "failing", opaque: Any = ()) -> Any:
    tree = _Tree(captured, attempts, strategy, opaque, None)
    return ExportDiagnosis("m", list(tree.judged()), exporter="export", strategy=strategy)


def statuses(report: Any) -> dict[str, Any]:
    return {each.name: each.status for each in report.modules}


def test_a_model_that_exports_is_tried_once(captured: Any) -> None:
    attempts = MadeUp([])
    report = judged(captured, attempts)
    assert report and attempts.tried == [("", [])]
    assert statuses(report)[""] == OK and statuses(report)["layers.0"] == NONE


def test_only_what_fails_is_looked_into_and_what_is_around_it_is_tried_again(captured: Any) -> None:
    attempts = MadeUp(["layers.1.inner"])
    report = judged(captured, attempts)
    assert attempts.tried == [
        ("", []),
        ("layers.0", []),
        ("layers.1", []),
        ("layers.1.norm", []),
        ("layers.1.inner", []),
        ("layers.1.inner.0", []),
        ("layers.1", ["layers.1.inner"]),
        ("head", []),
        ("", ["layers.1.inner"]),
    ]
    is_of = statuses(report)
    assert is_of["layers.1.inner"] == FAIL | CUSTOM and is_of["layers.0.inner"] == NONE
    assert is_of[""] == is_of["layers.1"] == OK | CHILDC
    assert is_of["layers"] == is_of["unused"] == NOINPUT
    assert [each.name for each in report.wrong] == ["layers.1.inner"]


def test_a_parent_may_fail_by_itself_beside_modules_in_it(captured: Any) -> None:
    report = judged(captured, MadeUp(["layers.0", "layers.0.inner", "head"], DISC))
    is_of = statuses(report)
    assert is_of["layers.0.inner"] == is_of["head"] == DISC | CUSTOM
    assert is_of["layers.0"] == DISC | CHILDC | CUSTOM and is_of[""] == OK | CHILDC
    assert [each.name for each in report.wrong] == ["layers.0.inner", "layers.0", "head"]
    root = report.modules[0]
    assert root.instead == ["layers.0", "head"]
    assert report.sentence.endswith("; 2 others as well.")


def test_always_also_looks_into_modules_that_export(captured: Any) -> None:
    attempts = MadeUp(["layers.1.inner"])
    report = judged(captured, attempts, "always")
    is_of = statuses(report)
    assert NONE not in is_of.values()
    assert is_of["layers.0.inner.0"] == OK and is_of["layers.1"] == OK | CHILDC
    # A module that fails only on its own does not prevent an export.
    alone = MadeUp([])
    alone.attempt = lambda each, _=(): Outcome(FAIL if each.name == "head" else OK)  # type: ignore
    report = judged(captured, alone, "always")
    assert report.ok and statuses(report)["head"] == FAIL
    assert report.sentence == "The model itself (Model) exports, although head would not by itself."


@pytest.mark.parametrize("opaque", ["layers.1.inner", "Sequential", nn.Sequential])
def test_opaque_modules_are_replaced_and_not_looked_into(opaque: Any, captured: Any) -> None:
    attempts = MadeUp(["layers.1.inner"])
    report = judged(captured, attempts, opaque=[opaque])
    assert report.ok and statuses(report)["layers.1.inner"] == CUSTOM
    assert statuses(report)[""] == OK | CHILDC and statuses(report)["layers.1.inner.0"] == NONE
    assert report.sentence.endswith("layers.1.inner.")
    assert len(attempts.tried) == 1


def test_local_judges_each_module_by_its_own_operations(
    captured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_diagnosing, "why_not", lambda *_: "")
    attempts = MadeUp(["layers.1.inner"])
    report = judged(captured, attempts, "local")
    assert ("", ["layers.0", "layers.1", "head"]) in attempts.tried
    assert ("layers.1", ["layers.1.norm", "layers.1.inner"]) in attempts.tried
    is_of = statuses(report)
    assert is_of["layers.1"] == OK | CHILDC | CUSTOM and is_of["head"] == OK | CUSTOM
    assert is_of["layers.1.inner"] == FAIL | CHILDC | CUSTOM
    assert [each.name for each in report.wrong] == ["layers.1.inner"]


def test_what_cannot_be_replaced_leaves_what_is_around_it_unjudged(captured: Any) -> None:
    report = judged(captured, MadeUp(["layers.1.inner"], unjudged="layers.1.inner"))
    is_of = statuses(report)
    assert is_of["layers.1.inner"] == FAIL and not is_of["layers.1"] & CHILDC
    assert [each.name for each in report.wrong] == ["layers.1.inner"]


def test_progress_counts_the_modules_that_are_called(captured: Any) -> None:
    seen: list[Any] = []
    tree = _Tree(captured, MadeUp(["head"]), "failing", (), lambda *each: seen.append(each))  # type: ignore[arg-type]
    tree.judged()
    assert seen[0] == ("", 1, 10) and ("head", 10, 10) in seen


@pytest.mark.parametrize("key", ["encoder", "Layer", Layer])
def test_a_method_is_chosen_by_name_class_or_name_of_the_class(key: Any) -> None:
    assert method_of(Layer(), "encoder", {key: "eval"}) == "eval"
    assert method_of(Layer(), "encoder", {"other": "eval"}) == "forward"
    with pytest.raises(oe.InvalidArgumentError, match="has no method 'encode'"):
        method_of(Layer(), "encoder", {key: "encode"})


@pytest.mark.parametrize("key", ["head", "Identity", nn.Identity])
def test_a_shape_function_is_found_by_name_class_or_name_of_the_class(
    key: Any, captured: Any
) -> None:
    head = next(each for each in captured if each.name == "head")
    assert _function_of(head, {key: max}) is max and _function_of(head, {"norm": max}) is None
