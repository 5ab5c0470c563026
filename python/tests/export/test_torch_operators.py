"""Tests of operators on values, sizes and flags that the example of an export does not have."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

AUTO = torch.export.Dim.AUTO
NAN, INF = float("nan"), float("inf")


class Call(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def right_on(
    function: Callable[..., Any],
    sets: list[Any],
    folder: Path,
    shapes: Any = None,
    opset: int | None = None,
) -> None:
    """Export a function with the first set, and compare the graph with it on all sets."""
    path = folder / "model.onnx"
    options: dict[str, Any] = {"check": False, "fsync": False, "overwrite": True}
    if opset is not None:
        options["onnx_options"] = {"opset_version": opset}
    oe.torch.export(Call(function), sets[0], path, dynamic_shapes=shapes and (shapes,), **options)
    session = onnxruntime.InferenceSession(path)
    names = [each.name for each in session.get_inputs()]
    for each in sets:
        values = [tensor.numpy() for tensor in each]
        results = session.run(None, dict(zip(names, values, strict=True)))
        expected = torch.utils._pytree.tree_leaves(function(*each))
        for result, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(result), wanted, equal_nan=True)


def signs() -> Any:
    return torch.tensor([0.0, -0.0, 1.0, -1.0, 3.5, -2.0, INF, -INF, NAN])


def test_angles_are_right_on_the_axes_and_for_values_that_are_not_finite(tmp_path: Path) -> None:
    y, x = (each.flatten().contiguous() for each in torch.meshgrid(signs(), signs(), indexing="ij"))

    def angles(y: Any, x: Any) -> Any:
        return torch.atan2(y, x), torch.copysign(y, x), torch.copysign(y, -0.0), torch.signbit(x)

    right_on(angles, [(torch.randn(81), torch.randn(81)), (y, x)], tmp_path)


def test_logarithms_of_sums_neither_overflow_nor_vanish(tmp_path: Path) -> None:
    def logarithms(x: Any, y: Any) -> Any:
        both = torch.logaddexp(x, y), torch.logaddexp2(x, y)
        return *both, torch.nn.functional.logsigmoid(x), torch.logcumsumexp(x, 0)

    large = torch.tensor([-200.0, 0.0, 150.0, -90.0, 1e4, -1e4])
    infinite = torch.tensor([-INF, 3.0, -INF, INF, INF, -INF])
    sets = [(torch.randn(6), torch.randn(6)), (large, large.flip(0)), (large, large)]
    right_on(logarithms, [*sets, (infinite, torch.full((6,), -INF))], tmp_path)


def test_a_diagonal_ignores_the_elements_beside_it(tmp_path: Path) -> None:
    def diagonals(x: Any) -> Any:
        flat = torch.diagonal(x[0], 1), torch.diag(x[1], -2), torch.diagonal(x > 0, 9, 1, 2)
        return *flat, torch.diagonal(x, 1, -1, 0), torch.diagonal(x, -1, 0, 2).long()

    masked = torch.randn(3, 4, 5).masked_fill(~torch.eye(4, 5, dtype=torch.bool), -INF)
    shapes = {0: AUTO, 1: AUTO, 2: AUTO}
    right_on(
        diagonals, [(torch.randn(2, 4, 3),), (masked.nan_to_num(neginf=-9e9),)], tmp_path, (shapes,)
    )
    right_on(lambda x: torch.diagonal(x, 0, 1, 2), [(torch.randn(3, 4, 5),), (masked,)], tmp_path)


def running(x: Any) -> Any:
    products = x.cumprod(0), x.cumprod(-1, dtype=torch.float32)
    return *products, *x.cummax(1), *x.cummin(0)


def rows() -> Iterator[Any]:
    torch.manual_seed(0)
    for sizes in ((3, 4), (1, 7), (5, 2)):
        yield torch.randint(-3, 4, sizes)


def test_what_runs_through_a_dimension_follows_its_size(tmp_path: Path) -> None:
    right_on(running, [(each,) for each in rows()], tmp_path, ({0: AUTO, 1: AUTO},))
    bad = torch.tensor([[1.0, NAN, 3.0, -INF], [0.0, 2.0, 2.0, NAN]])
    right_on(running, [(torch.randn(2, 4),), (bad,)], tmp_path)


def chosen(x: Any, y: Any) -> Any:
    whole = x.amax(), x.amin(), torch.amax(x, (0, 1), keepdim=True), x.median()
    parts = *x.median(1), *x.median(0, keepdim=True), x.kthvalue(2, 1).values
    return *whole, *parts, torch.fmax(x, y), torch.fmin(x, y), x.masked_select(x > y[:1])


def test_elements_are_chosen_by_their_order(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sets = [(torch.randn(n, 5), torch.randn(n, 5)) for n in (4, 3, 7)]
    right_on(chosen, sets, tmp_path, ({0: AUTO}, {0: AUTO}))
    right_on(chosen, [(torch.randperm(20).view(4, 5), torch.zeros(4, 5).long())], tmp_path)


def test_nan_is_the_median_of_what_has_one_and_no_maximum_of_two(tmp_path: Path) -> None:
    x, y = torch.tensor([[1.0, NAN, 3.0], [2.0, 0.0, 1.0]]), torch.tensor([[NAN, NAN, 1.0]] * 2)

    def some(x: Any, y: Any) -> Any:
        return x.median(), *x.median(1), torch.fmax(x, y), torch.fmin(x, y)

    right_on(some, [(torch.randn(2, 3), torch.randn(2, 3)), (x, y)], tmp_path)


def integers(x: Any, y: Any) -> Any:
    product = torch.addmm(x, y, y, beta=2, alpha=3), torch.addmm(x, y[:, :0], y[:0], beta=2)
    return (
        *product,
        x.float().floor().long(),
        x.floor(),
        x.ceil(),
        x.round(),
        (x > 0) + (y > 1),
        x.trunc(),
    )


def test_what_onnx_has_for_floats_only_is_calculated_with_integers_and_bools(
    tmp_path: Path,
) -> None:
    right_on(integers, [(torch.arange(9).view(3, 3) - 4, torch.arange(9).view(3, 3))], tmp_path)
    empty = lambda x, y: torch.addmm(x, y[:, :0], y[:0], beta=0.5)  # noqa: E731
    right_on(empty, [(torch.randn(3, 3), torch.randn(3, 3))], tmp_path)


def quotients(x: Any, y: Any) -> Any:
    divide = torch.div
    floors = [divide(x, each, rounding_mode="floor") for each in (y, 0.1, -3)]
    return *floors, x // y, torch.floor_divide(x, 0.3), x % y, torch.remainder(x, 0.1), x % -7


def test_floats_are_divided_and_rounded_without_a_rounded_quotient(tmp_path: Path) -> None:
    x = torch.tensor([1.0, -1.0, 0.9, 1e6, -7.5, 0.3, 0.0, 5.0, 2.5])
    y = torch.tensor([0.1, 0.1, 0.3, 0.1, 2.5, -0.1, 2.0, INF, -INF])
    right_on(quotients, [(torch.randn(9), torch.randn(9)), (x, y)], tmp_path)


def test_powers_of_large_integers_are_exact(tmp_path: Path) -> None:
    def powers(x: Any) -> Any:
        return x**2, x**3, torch.pow(x, 1), x.square(), x.float() ** 2

    sets = [(torch.arange(4),), (torch.tensor([94906267, -3037000499, 2097151, 7]),)]
    right_on(powers, sets, tmp_path)


def test_a_bound_on_one_side_keeps_infinity_on_the_other(tmp_path: Path) -> None:
    def bounded(x: Any) -> Any:
        return x.clamp(min=-1), x.clamp_max(2), torch.clamp_min(x, x[0]), x.clamp_max(x[1])

    right_on(bounded, [(torch.randn(9),), (signs(),)], tmp_path)


@pytest.mark.parametrize("opset", [18, 23])
def test_attention_takes_queries_without_heads(tmp_path: Path, opset: int) -> None:
    def attend(x: Any, mask: Any) -> Any:
        attention = torch.nn.functional.scaled_dot_product_attention
        flat = attention(x[0], x[0], x[0], is_causal=True)
        return attention(x, x, x, attn_mask=mask), flat, attention(x, x[:, :2], x[:, :2])

    masks = torch.ones(3, 5, 5, dtype=torch.bool), torch.eye(5, dtype=torch.bool).expand(3, 5, 5)
    sets = [(torch.randn(3, 5, 4), each) for each in masks]
    right_on(attend, sets, tmp_path, opset=opset)


def test_infinite_and_nan_elements_are_found_for_all_types(tmp_path: Path) -> None:
    def tests(*given: Any) -> Any:
        return [test(x) for x in given for test in (torch.isnan, torch.isinf, torch.isfinite)]

    x = signs()
    sets = [(each, each.double() * 1e300, (each > 0).long(), each > 0) for each in (x[2:5], x)]
    right_on(tests, sets[:1], tmp_path)
    right_on(tests, sets[1:], tmp_path)


def test_unsigned_integers_stay_unsigned(tmp_path: Path) -> None:
    def bits(x: Any) -> Any:
        return x >> 1, x << 2, torch.bitwise_right_shift(x, x % 5), x >> x[0] % 3

    sets = [
        (torch.randint(0, 256, (6,)).to(torch.uint8),),
        (torch.tensor([255, 1, 0, 128] * 2)[:6],),
    ]
    sets[1] = (sets[1][0].to(torch.uint8),)
    right_on(bits, sets, tmp_path)
    right_on(bits, [(each[0].to(torch.int8),) for each in sets], tmp_path)


def test_a_stable_order_keeps_that_of_equal_elements(tmp_path: Path) -> None:
    def orders(x: Any) -> Any:
        least = torch.sort(x, stable=True), torch.sort(x, dim=0, descending=True, stable=True)
        return least, torch.argsort(x, dim=1, stable=True), torch.sort(x > 3, stable=True)

    sets = [(torch.randint(0, 9, (n, 40)),) for n in (4, 3)]
    right_on(orders, sets, tmp_path, ({0: AUTO},))


def test_elements_are_taken_and_written_by_their_places(tmp_path: Path) -> None:
    def moved(x: Any, at: Any) -> Any:
        added = x.scatter(1, at, x * 2, reduce="add"), x.scatter(0, at, 3.0, reduce="multiply")
        return *added, torch.take(x, at - 2), torch.hypot(x, x[:1] * 1e30)

    sets = [(torch.randn(n, 3), torch.randint(0, 3, (n, 2))) for n in (3, 5)]
    right_on(moved, sets, tmp_path, ({0: AUTO}, {0: AUTO}))

    def repeated(x: Any, counts: Any) -> Any:
        return torch.repeat_interleave(x, counts, dim=0, output_size=6)

    counts = [torch.tensor([1, 2, 3]), torch.tensor([0, 4, 2])]
    right_on(repeated, [(torch.randn(3, 2), each) for each in counts], tmp_path)


def test_only_dimensions_of_size_one_are_squeezed(tmp_path: Path) -> None:
    def squeezed(x: Any) -> Any:
        return x.squeeze(0), x.squeeze(-1), x.squeeze((0, 1)), x.squeeze((0, -2)), x[0].squeeze()

    sets = [(torch.randn(n, 1, 4),) for n in (3, 2)]
    right_on(squeezed, sets, tmp_path, ({0: AUTO},))
    right_on(lambda x: torch.searchsorted(x, 0.3), [(torch.randn(9).sort().values,)], tmp_path)


def test_softmax_is_calculated_in_the_type_that_is_asked_for(tmp_path: Path) -> None:
    def shares(x: Any) -> Any:
        softmax, logarithms = torch.nn.functional.softmax, torch.nn.functional.log_softmax
        some = softmax(x, -1, dtype=torch.float32), logarithms(x, 0, dtype=torch.float32)
        return *some, softmax(x[0, 0], 0, dtype=torch.float32)

    right_on(shares, [(torch.randn(3, 50).half(),), (torch.randn(3, 50).half() * 9,)], tmp_path)
    right_on(shares, [(torch.randint(0, 9, (2, 5)),)], tmp_path)


def test_results_of_float16_stay_float16_where_they_are_calculated_in_float32(
    tmp_path: Path,
) -> None:
    def found(x: Any) -> Any:
        total = x.sum(-1)
        numbers = x.abs(), total, x.amax(0), x.prod(), x.cumsum(1), total
        return *numbers, torch.cond(x.shape[0] > 2, torch.abs, torch.cos, (x,))

    right_on(found, [(torch.randn(n, 4).half(),) for n in (3, 2)], tmp_path, ({0: AUTO},))
