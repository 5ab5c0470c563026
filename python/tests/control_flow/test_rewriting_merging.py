"""Tests of merging the results of branches and iterations: exported, and compared on all sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import onnx_external as oe  # noqa: E402
from onnx_external._base.errors import RewriteError  # noqa: E402

UP, DOWN, LONG = torch.ones(3, 2), -torch.ones(2, 2), torch.full((5, 2), 2.0)


def _exported(module: Any, tmp_path: Path, *sets: Any) -> Any:
    first, *more = sets
    return oe.torch.export(
        module.eval(), (first,), str(tmp_path / "model.onnx"), input_sets=[(each,) for each in more]
    )


class LoopThatNoSetReaches(torch.nn.Module):
    """A module whose loop over rows is found only by the trace, where a size became a number."""

    def forward(self, x: Any) -> Any:
        rows = x.shape[0]
        found = [x[0]]
        if x.sum() > 1000:
            for row in x + 1:
                found.append(torch.zeros(rows, 2)[rows // 2] + row)
        return torch.stack(found).sum(0)


def test_a_loop_that_no_input_set_reaches_is_rewritten(tmp_path: Path) -> None:
    report = _exported(LoopThatNoSetReaches(), tmp_path, UP, DOWN)
    assert report.checked == 2
    assert len(report.rewriting.places) == 2


class ReturnsSeveralFromALoop(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        total = x[0]
        for row in x:
            total = total + row
            if total.sum() > 4:
                return total, row * 2
        return total - 1, total


def test_a_tuple_is_returned_out_of_a_loop(tmp_path: Path) -> None:
    assert _exported(ReturnsSeveralFromALoop(), tmp_path, UP, DOWN, LONG).checked == 3


class BindsForAFunctionInOneBranch(torch.nn.Module):
    """A module with a variable that an inner function reads, so it is a cell, not a local name."""

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            many = int((x > 1).sum())
            inner = lambda: x[:1] * many  # noqa: E731
            if x.sum() > 8:
                return inner()
        return x[:1]


def test_a_variable_of_a_closure_may_be_set_in_one_branch(tmp_path: Path) -> None:
    assert _exported(BindsForAFunctionInOneBranch(), tmp_path, UP, DOWN, LONG).checked == 3


class AppendsInBranches(torch.nn.Module):
    """A module whose branches each have a list with a tensor-dependent length."""

    def forward(self, x: Any) -> Any:
        found = [x[0]]
        mode = "double"
        if x.sum() > 0:
            if x.max() > 1:
                mode = "same"
            if mode == "double":
                found.append(x[-1] * 2)
        if x.min() > -0.5:
            found.append(x[-1])
        return torch.stack(found).mean(0)


def test_a_list_may_grow_in_branches_of_branches(tmp_path: Path) -> None:
    assert _exported(AppendsInBranches(), tmp_path, UP, DOWN, LONG, LONG - 2).checked == 4


class ScansWithASize(torch.nn.Module):
    """A module whose loop reads a size that is not a dimension of its operands."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: Any) -> Any:
        rows = x.shape[0]
        return torch.stack([row * (self.weight.sum() * rows) for row in x])


def test_an_iteration_of_a_scan_may_read_a_size(tmp_path: Path) -> None:
    report = _exported(ScansWithASize(), tmp_path, UP, DOWN, LONG)
    assert report.checked == 3


class MasksPadding(torch.nn.Module):
    """A module like FSMT: its caller passes on the None or tensor that a function returns."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def mask(self, x: Any) -> Any:
        self.calls += 1
        found = x > 1
        if not found.any():
            found = None
        return found

    def prepared(self, x: Any) -> Any:
        return x * 2, self.mask(x)

    def forward(self, x: Any) -> Any:
        doubled, mask = self.prepared(x + 0)
        if mask is None:
            return doubled - 1
        return doubled.masked_fill(mask, 0)


def test_a_call_that_gives_none_or_a_tensor_is_split_at_its_callers(tmp_path: Path) -> None:
    report = _exported(MasksPadding(), tmp_path, UP, LONG)
    assert report.checked == 2
    names = {each.name for each in report.rewriting.changes}
    assert names == {"MasksPadding.mask", "MasksPadding.prepared", "MasksPadding.forward"}


class WritesBeforeTheTest(torch.nn.Module):
    """A module whose function would write twice if it were run again."""

    def mask(self, x: Any) -> Any:
        x += 1
        if x.sum() > 5:
            return None
        return x

    def forward(self, x: Any) -> Any:
        y = x * 1
        mask = self.mask(y)
        return y if mask is None else y + mask


def test_a_call_that_writes_before_its_test_is_not_split(tmp_path: Path) -> None:
    with pytest.raises(RewriteError, match=r"py:\d+:\d+: .* writes to a tensor before the cond"):
        _exported(WritesBeforeTheTest(), tmp_path, UP, DOWN)


class GivesNumbers(torch.nn.Module):
    def forward(self, x: Any, n: Any) -> Any:
        many = int(n)
        return x * many, many + 1, x.sum().item() / 2


def test_numbers_that_a_module_gives_are_compared(tmp_path: Path) -> None:
    """Check numbers that Python computes in float64 and the graph in float32."""
    report = oe.torch.export(
        GivesNumbers(),
        (UP, torch.tensor(3)),
        str(tmp_path / "model.onnx"),
        input_sets=[(DOWN, torch.tensor(4))],
    )
    assert report.checked == 2
    assert not any("not checked" in each for each in report.notes)


class CallsInABranchThatNoSetReaches(torch.nn.Module):
    def helper(self, x: Any) -> Any:
        if x.max() > 2:
            return x - 1
        return x

    def forward(self, x: Any) -> Any:
        if x.sum() > 1000:
            return self.helper(x) * 2
        return x


def test_a_function_that_no_input_set_calls_is_rewritten(tmp_path: Path) -> None:
    report = _exported(CallsInABranchThatNoSetReaches(), tmp_path, UP, DOWN)
    assert report.checked == 2
    assert len(report.rewriting.changes) == 2
