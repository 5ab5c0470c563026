"""Tests of outputs that differ without being wrong: rounding of zero, ties in any order."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.9")

from onnx_external._comparing.comparing import Comparison  # noqa: E402
from onnx_external._comparing.inputs import Given  # noqa: E402
from onnx_external._comparing.reconsidering import ROUNDING, TIES, Outputs  # noqa: E402
from onnx_external._comparing.references import ModuleReference  # noqa: E402

nn = torch.nn


def judged(
    module: Any, args: tuple[Any, ...], got: list[Any], atol: float | None = None
) -> list[Comparison]:
    """Compare the results of a model with those of a module."""
    reference, given = ModuleReference(module.eval()), Given({}, call=(args, {}))
    wanted = reference.outputs(given, "set")
    names = [f"y{number}" for number in range(len(got))]
    outputs = Outputs(names, dict(zip(names, got, strict=True)), atol)
    return outputs.judged(reference, given, "set", wanted)


def given_by(module: Any, *args: Any) -> list[Any]:
    with torch.no_grad():
        result = module.eval()(*args)
    every = result if isinstance(result, tuple) else (result,)
    return [each.numpy().copy() for each in every]


def seeded(seed: int = 0) -> None:
    torch.manual_seed(seed)


class Centred(nn.Module):  # type: ignore[misc,name-defined]
    """Returns means of empty tensors, and the difference of two equal heads."""

    def __init__(self, size: float = 1.0) -> None:
        super().__init__()
        self.first, self.norm, self.size = nn.Linear(6, 16), nn.LayerNorm(16), size
        self.second = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.first(x)) * self.size
        other = nn.functional.linear(y.double(), self.second.weight.double()).float()
        return self.second(y), y.mean(-1), self.second(y) - self.second.bias - other


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_what_is_zero_but_for_rounding_may_be_rounded_otherwise(size: float) -> None:
    seeded()
    module, x = Centred(size), torch.randn(5, 6)
    got = given_by(module, x)
    random = np.random.default_rng(0)
    for place in (1, 2):
        rounding = 5e-8 * size * random.standard_normal(got[place].shape)
        got[place] = rounding.astype(np.float32)
    found = judged(module, (x,), got)
    assert all(each.ok for each in found)
    assert ROUNDING in (found[1].note, found[2].note) and not found[0].note
    assert not all(each.ok for each in judged(module, (x,), got, atol=1e-9 * size))
    for place in range(3):
        wrong = [each.copy() for each in got]
        wrong[place][0] += 1e-3 * size
        assert [each.ok for each in judged(module, (x,), wrong)].count(False) >= 1


def test_a_small_slice_that_is_left_of_large_values_may_be_rounded_otherwise() -> None:
    class Rest(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            large = x * 300
            return torch.cat([large, (large + 2 * x) - large], -1)

    seeded()
    x = torch.randn(12, 4)
    for dtype, step in ((torch.float32, 2e-5), (torch.float16, 0.1)):
        got = given_by(Rest(), x.to(dtype))
        got[0][:, 4:] += step * np.sign(got[0][:, 4:])
        (found,) = judged(Rest(), (x.to(dtype),), got)
        assert found.ok
        got[0][:, 4:] += 40 * step
        assert not judged(Rest(), (x.to(dtype),), got)[0].ok


class Top(nn.Module):  # type: ignore[misc,name-defined]
    """Returns the indices of the largest values, most of which are equal."""

    def forward(self, x: Any) -> Any:
        return torch.relu(x - 0.6).topk(5, -1)


def another_order(module: Any, x: Any) -> list[Any]:
    """Return the values, with equal ones in reverse order."""
    values, places = given_by(module, x)
    scores = torch.relu(x - 0.6).flip(-1).sort(dim=-1, descending=True, stable=True)
    other = x.shape[-1] - 1 - scores.indices[:, : places.shape[1]].numpy()
    assert (other != places).any()
    return [values, other]


def test_equal_values_may_be_in_any_order() -> None:
    seeded()
    x = torch.randn(6, 20)
    got = another_order(Top(), x)
    found = judged(Top(), (x,), got)
    assert [each.ok for each in found] == [True, True]
    assert found[1].note == TIES and not found[0].note


def test_places_of_other_values_are_wrong() -> None:
    seeded()
    x = torch.randn(6, 20)
    got = another_order(Top(), x)
    largest = int(x[0].argmax())
    for wrong in (largest, 20, -1, int(got[1][0, 3])):  # wrong, invalid, or a duplicate
        changed = [got[0], got[1].copy()]
        changed[1][0, 4] = wrong
        assert not judged(Top(), (x,), changed)[1].ok
    rolled = [got[0], np.roll(got[1], 1, 0)]
    assert not judged(Top(), (x,), rolled)[1].ok


class Padded(nn.Module):  # type: ignore[misc,name-defined]
    """Returns boxes sorted by their scores, many of which are 0."""

    def forward(self, boxes: Any, count: Any) -> Any:
        scores = boxes[..., 0].sigmoid() * (torch.arange(boxes.shape[1]) < count[:, None])
        values, places = scores.sort(1, descending=True)
        return values, boxes.gather(1, places[..., None].expand(-1, -1, 4))


def test_what_is_taken_at_places_of_equal_values_may_be_in_the_order_of_onnx() -> None:
    seeded()
    boxes, count = torch.randn(3, 40, 4), torch.tensor([3, 9, 1])
    scores = boxes[..., 0].sigmoid() * (torch.arange(40) < count[:, None])
    values, places = scores.sort(dim=1, descending=True, stable=True)
    taken = boxes.gather(1, places[..., None].expand(-1, -1, 4)).numpy()
    got = [values.numpy(), taken]
    assert all(each.ok for each in judged(Padded(), (boxes, count), got))
    for row in (0, 39):  # the row of a unique score, and of a 0
        wrong = [got[0], taken.copy()]
        wrong[1][0, row] += 0.01
        assert not judged(Padded(), (boxes, count), wrong)[1].ok


def test_a_place_of_a_value_that_is_equal_but_for_rounding_is_right() -> None:
    class Best(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x.argmax(-1), x.max(-1, keepdim=True).indices, x.min(0).indices

    x = torch.tensor([[0.1, 0.7, 0.7 + 1e-7], [0.9, 0.2, 0.1]])
    best, largest, least = given_by(Best(), x)
    assert best.tolist() == [2, 0] and least.tolist() == [0, 1, 1]
    other = [np.array([1, 0]), np.array([[1], [0]]), least]
    assert all(each.ok for each in judged(Best(), (x,), other))
    for wrong in (np.array([0, 0]), np.array([2, 1])):
        assert not judged(Best(), (x,), [wrong, largest, least])[0].ok
    assert not judged(Best(), (x,), [best, largest, np.array([1, 1, 1])])[2].ok


def test_a_second_check_leaves_a_module_unchanged() -> None:
    class Counting(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x.mean(-1) - x.sum(-1) / x.shape[-1]

    module, x = Counting(), torch.randn(4, 7)
    got = [np.full(4, 3e-8, np.float32)]
    with torch.no_grad():
        judged(module, (x,), got)
    assert float(module.calls) == 1  # the call by judged() itself
