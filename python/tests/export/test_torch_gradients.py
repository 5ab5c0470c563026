"""Tests of modules whose forward computes gradients."""

from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


class Energy(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = torch.nn.Linear(3, 4), torch.nn.SiLU(), torch.nn.Linear(4, 2)
        self.net = torch.nn.Sequential(*layers)


class Forces(Energy):
    def forward(self, x: Any) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            energy = torch.nn.functional.mish(self.net(x)).sum()
            (force,) = torch.autograd.grad(energy, x)
        return energy.detach(), -force


class Rows(Energy):
    def forward(self, x: Any) -> Any:
        return torch.func.vmap(torch.func.grad(lambda row: self.net(row).sum()))(x)


class Jacobians(Energy):
    def forward(self, x: Any) -> Any:
        return torch.func.vmap(torch.func.jacrev(self.net))(x)


@pytest.mark.parametrize("kind", [Forces, Rows, Jacobians])
def test_gradients_are_traced_as_the_operators_that_compute_them(kind: Any, tmp_path: Path) -> None:
    path, sets = tmp_path / "model.onnx", [(torch.rand(5, 3),)]
    module = kind().eval()
    report = oe.torch.export(module, torch.rand(2, 3), path, input_sets=sets, fsync=False)
    assert report.checked == 2 and "computes gradients" in report.notes[0]
    assert oe.validate(path, module, torch.rand(7, 3)).ok
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


class Backward(Energy):
    def forward(self, x: Any) -> Any:
        with torch.enable_grad():
            x = x.clone().requires_grad_(True)
            self.net(x).sum().backward()
        return x.grad


class Chooses(Forces):
    def forward(self, x: Any) -> Any:
        energy, force = super().forward(x)
        return force if energy.sum() > 0 else -force


def test_gradients_that_cannot_be_traced_are_named_as_the_cause() -> None:
    for kind, told in (
        (Backward, r"forward computes gradients: .*backward\(\)"),
        (Chooses, "rewritten, the module does not run"),
    ):
        with pytest.raises(oe.ExportError, match=told):
            oe.torch.skeleton(kind().eval(), torch.rand(2, 3))
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


@pytest.mark.parametrize("offset", [0, 1, -1, 2])
def test_a_diagonal_is_filled_in_without_writing(offset: int) -> None:
    from onnx_external.torch._gradients import _diagonal_scatter

    for first, second in ((0, 1), (1, 2), (2, 0), (-1, -3)):
        given = torch.rand(3, 4, 5)
        source = torch.rand(given.diagonal(offset, first, second).shape)
        wanted = torch.diagonal_scatter(given, source, offset, first, second)
        assert torch.equal(_diagonal_scatter(given, source, offset, first, second), wanted)
