"""Tests of branches chosen by a size, whose assumptions must not apply to the whole graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import onnx_external as oe  # noqa: E402

AUTO = torch.export.Dim.AUTO


class OneRow(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.shape[0] == 1:
            return x.expand(4, 4) * 2
        return x


class PaddedToFive(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        pad = 5 - x.shape[0]
        if pad > 0:
            x = torch.cat([x, x.new_zeros(pad, 4)])
        return x[:5]


class LastOrAll(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        start = max(0, x.shape[0] - 2)
        return x[start:] if start else x + 0.5


class Fours(torch.nn.Module):
    """A view that requires a multiple of four, inside nested conditions."""

    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        if n > 2:
            if n % 4 == 0:
                return x.view(n // 4, 4, 4).sum(1)
            return x[1:]
        return x


class Empty(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        if not n:
            return x.new_ones(1, 4)
        return x.cumsum(0)


class SameOrNot(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        if x.shape[0] == y.shape[0]:
            return x + y
        return torch.cat([x, y])


class Windows(torch.nn.Module):
    """Windows that are at most as long as the rows. Their size is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.window, self.shift = 4, 1

    def fit(self, n: int) -> None:
        if n <= self.window:
            self.window = n
            self.shift = 0

    def padded(self, x: Any) -> tuple[Any, int]:
        pad = (self.window - x.shape[0] % self.window) % self.window
        return torch.nn.functional.pad(x, (0, 0, 0, pad)), pad

    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        self.fit(n)
        y, pad = self.padded(x)
        if self.shift > 0:
            y = y.roll(-self.shift, 0)
        windows = y.view(y.shape[0] // self.window, self.window, 4)
        y = (windows + windows.mean(1, keepdim=True)).view(y.shape[0], 4)
        return y[:n].contiguous() if pad > 0 else y


class Padded(torch.nn.Module):
    """A tensor whose size depends on a condition, and a view that requires this size."""

    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        if n % 4 != 0:
            x = torch.nn.functional.pad(x, (0, 0, 0, 4 - n % 4))
        return x.view(x.shape[0] // 4, 4, 4).sum(1)


class Least(torch.nn.Module):
    """A condition on a size that another condition has chosen."""

    def forward(self, x: Any) -> Any:
        k = 4
        if x.shape[0] < 4:
            k = x.shape[0]
        if k > 2:
            return x[:k] + 1
        return x * 3


class FewRows(torch.nn.Module):
    """A branch for sizes 1 and 2 after a loop, where torch assumes 2."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))

    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        shift = torch.tanh(self.weight)
        most = max(torch.softmax(x, -1).mean(), shift.mean())
        last = self.weight
        for _ in range(1, n):
            last = torch.tanh(self.weight * most)
        return last, x if n > 2 else torch.softmax(x + shift, -1)


class Known(torch.nn.Module):
    """A condition inside a branch that has already decided it, so it is a plain Python value."""

    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        total = x.sum(0)
        kind = "double"
        if n == 2:
            kind = "same"
        if kind == "double":
            total = total * 2
        if n % 2 == 0:
            total = total + 1
        elif x.mean() < 0.7:
            other = "double"
            if total.max() < -0.05:
                other = "same"
            least = x[-1] + total
            if other == "double":
                least = least * 2
            return least.min()
        return total.sum()


def rows(*sizes: int) -> list[Any]:
    return [(torch.randn(each, 4),) for each in sizes]


def pairs(*sizes: tuple[int, int]) -> list[Any]:
    return [tuple(torch.randn(each, 4) for each in pair) for pair in sizes]


@pytest.mark.parametrize(
    ("module", "sets"),
    [
        (OneRow(), rows(3, 1, 2)),
        (OneRow(), rows(1, 3, 2)),
        (PaddedToFive(), rows(7, 3, 5, 1)),
        (LastOrAll(), rows(4, 1, 2, 3)),
        (Fours(), rows(7, 8, 1, 2, 4)),
        (Empty(), rows(3, 0, 1)),
        (SameOrNot(), pairs((3, 3), (2, 5), (4, 1))),
        (Windows(), rows(8, 3, 6, 4)),
        (Windows(), rows(3, 9, 4)),
        (Padded(), rows(8, 3, 6, 1)),
        (Padded(), rows(3, 8, 5)),
        (Least(), rows(6, 3, 2, 4)),
        (Least(), rows(1, 6, 3)),
        (SameOrNot(), pairs((2, 5), (3, 3), (1, 4))),
        (FewRows(), rows(3, 1, 2, 5)),
        (Known(), rows(3, 1, 2, 5, 4)),
    ],
)
def test_each_branch_is_right_whatever_the_example_takes(
    module: Any, sets: list[Any], tmp_path: Path
) -> None:
    report = oe.torch.export(module, sets[0], tmp_path / "model.onnx", input_sets=sets[1:])
    assert report.checked == len(sets)
    assert report.rewriting


class Halved(torch.nn.Module):
    """A branch with a view that requires an even size."""

    def forward(self, x: Any) -> Any:
        if x.shape[0] > 4:
            return x.view(2, -1, 4).sum(0)
        return x * 2


def test_what_a_branch_assumes_is_named_with_its_test(tmp_path: Path) -> None:
    sets = rows(6, 3, 8)
    report = oe.torch.export(Halved(), sets[0], tmp_path / "model.onnx", input_sets=sets[1:])
    assert any("where x.size()[0] > 4" in each for each in report.guards)


def test_what_is_decided_by_a_chosen_size_is_a_guard_on_the_inputs(tmp_path: Path) -> None:
    report = oe.torch.export(
        Least(), *rows(6), tmp_path / "model.onnx", input_sets=rows(3, 7), rewrite=True
    )
    assert any("(x.size()[0] if x.size()[0] < 4 else 4) > 2" in each for each in report.guards)


def test_what_a_test_leaves_out_of_a_size_is_not_computed() -> None:
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Where

    from onnx_external._tracing.evaluating import evaluated

    n, m = sympy.symbols("n m", integer=True)
    size = Where(sympy.Gt(m, 0), FloorDiv(n, m), n + 1)
    assert evaluated(size, {n: 7, m: 2}) == 3
    assert evaluated(size, {n: sympy.Integer(7), m: sympy.Integer(0)}) == 8
    assert evaluated(-size * 2 + n % 4, {n: 7, m: -2}) == -13
    with pytest.raises(KeyError):
        evaluated(size, {n: 7})


def test_what_a_module_writes_to_itself_is_put_back(tmp_path: Path) -> None:
    module = Windows()
    oe.torch.export(module, *rows(3), tmp_path / "model.onnx", input_sets=rows(2, 8))
    assert (module.window, module.shift) == (4, 1)


def test_another_set_is_traced_where_the_example_has_a_size_of_1() -> None:
    from onnx_external.torch._checking import WrongGraphError
    from onnx_external.torch._rewritten import ModuleWays

    calls = [(each, {}) for each in rows(1, 3)]

    def judge(call: Any) -> None:
        if call is calls[0]:
            raise WrongGraphError("the graph is wrong for input set 1")

    how: Any = {"rewrite": "auto"}
    ways: ModuleWays[Any] = ModuleWays(OneRow(), calls, how, lambda _: ways.example, judge)
    assert ways.right()[0] is calls[1]


class Baked(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.shape[0] > 0:
            return x.sum(0)
        return x.new_ones(4)


def test_a_test_for_no_rows_is_a_guard(tmp_path: Path) -> None:
    sets = rows(3, 0)
    with pytest.raises(oe.ExportError, match=r"x.size\(\)\[0\] != 0 .*if x.shape\[0\] > 0"):
        oe.torch.export(
            Baked(),
            sets[0],
            tmp_path / "model.onnx",
            input_sets=sets[1:],
            rewrite=False,
            check=False,
        )
    report = oe.torch.export(Baked(), sets[0], tmp_path / "model.onnx", input_sets=sets[1:])
    assert report.checked == 2 and not report.guards


def test_one_tensor_as_two_inputs_does_not_make_their_sizes_one(tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    sets = pairs((2, 5), (4, 4))
    report = oe.torch.export(SameOrNot(), (x, x), tmp_path / "model.onnx", input_sets=sets)
    assert report.checked == 3


class Fixed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, 4))

    def forward(self, x: Any) -> Any:
        return x * self.weight


def test_a_line_that_makes_a_size_a_number_is_named_with_both_remedies(tmp_path: Path) -> None:
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    with pytest.raises(oe.ExportError, match=r"test_rewriting_sizes.*x . self.weight") as caught:
        oe.torch.export(Fixed(), *rows(3), tmp_path / "model.onnx", dynamic_shapes=dynamic)
    assert "holds for all sizes, or leave the dimension out" in str(caught.value)
    report = oe.torch.export(
        Fixed(), *rows(3), tmp_path / "model.onnx", dynamic_shapes=({0: AUTO},)
    )
    assert report.guards[0].startswith("x.size()[0] == 3")


def test_nothing_of_torch_stays_changed(tmp_path: Path) -> None:
    from torch._higher_order_ops import cond
    from torch.fx.experimental import proxy_tensor
    from torch.fx.experimental.sym_node import SymNode

    kind = type(torch.ops.higher_order.cond)
    before = kind.__call__, SymNode.eq, proxy_tensor._sym_register, cond
    oe.torch.export(OneRow(), *rows(3), tmp_path / "model.onnx", input_sets=rows(1))
    assert before == (kind.__call__, SymNode.eq, proxy_tensor._sym_register, cond)
