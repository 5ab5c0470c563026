"""Tests of repairs to a graph of torch.onnx, which would be wrong, rejected, or crash a runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")
onnx_ir = pytest.importorskip("onnx_ir")

DYNAMIC = ({0: torch.export.Dim.DYNAMIC},)


def run(model: Any, **given: Any) -> Any:
    data = model if isinstance(model, str) else onnx_ir.to_proto(model).SerializeToString()
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


class KeptForTwo(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.shape[0] == 2:
            y = x
        else:
            y = x * 2
        return y


def test_a_branch_for_one_size_does_not_fix_the_size(tmp_path: Path) -> None:
    path, sets = tmp_path / "model.onnx", [(torch.rand(n, 3),) for n in (3, 2, 5)]
    report = oe.torch.export(
        KeptForTwo(), sets[0], path, dynamic_shapes=DYNAMIC, input_sets=sets[1:], fsync=False
    )
    assert report.checked == 3
    for (x,) in sets:
        np.testing.assert_allclose(run(str(path), x=x.numpy()), KeptForTwo()(x).numpy())


def test_a_graph_that_does_not_take_the_example_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external.torch import _mending

    monkeypatch.setattr(_mending, "_forget_sizes_of_branches", lambda model: None)
    with pytest.raises(oe.ExportError, match=r"input x has the shape \[3, 3\]"):
        oe.torch.export(
            KeptForTwo(), (torch.rand(3, 3),), tmp_path / "model.onnx", dynamic_shapes=DYNAMIC
        )
    assert not list(tmp_path.iterdir())


NESTED = """
<ir_version: 10, opset_import: ["" : 20]>
main (float[N] x, bool q) => (float[N] y) <float zero = {0}, float[2] w = {1, 2}> {
  s = ReduceSum<keepdims = 0>(w)
  c = Greater(s, zero)
  y = If (c) <
    then_branch = outer () => (float[N] a) {
      m = ReduceMax<keepdims = 0>(w)
      d = Greater(m, zero)
      a = If (d) <then_branch = yes () => (float[N] b) {
          z = If (q) <then_branch = p () => (float[N] e) { e = Exp(x) },
                      else_branch = r () => (float[N] f) { f = Abs(x) }>
          b = Neg(z)
        }, else_branch = no () => (float[N] g) { g = Identity(x) }>
    },
    else_branch = other () => (float[N] h) { h = Identity(x) }
  >
}
"""


def test_a_test_on_weights_in_a_branch_of_another_depends_on_an_input() -> None:
    from onnx_external.torch._mending import mend

    model = onnx_ir.from_onnx_text(NESTED)
    mend(model)
    nodes = {node.outputs[0].name: node for node in model.graph.all_nodes()}
    assert nodes["y"].inputs[0].name == "c"  # a single condition of this kind does no harm
    both = nodes["a"].inputs[0].producer()
    assert [both.op_type, both.inputs[0].name] == ["And", "d"]
    assert nodes["z"].inputs[0].name == "q"
    x = np.array([-1, 2], np.float32)
    np.testing.assert_allclose(run(model, x=x, q=np.array(False)), -np.abs(x))


class Spare(torch.nn.Module):
    """A module with one weight that is used only in dead code, and an unused weight."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle, self.spare = (torch.nn.Parameter(torch.rand(3)) for _ in range(3))

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            x = x * self.used
            idle = int((self.idle > 0.5).sum())  # noqa: F841
        return x


@pytest.mark.parametrize("given", [False, True])
def test_weights_without_effect_are_left_out(given: bool, tmp_path: Path) -> None:
    module, path = Spare().eval(), tmp_path / "model.onnx"
    sets = [(torch.ones(2, 3),), (-torch.ones(2, 3),)]
    weights = module.state_dict() if given else None
    report = oe.torch.export(
        module, sets[0], path, weights=weights, input_sets=sets[1:], fsync=False
    )
    assert report.save is not None
    assert [tensor.slot for tensor in report.save.tensors] == ["used"]


def test_a_key_that_the_module_does_not_have_is_refused(tmp_path: Path) -> None:
    module = Spare().eval()
    weights = {**module.state_dict(), "more": torch.ones(3)}
    with pytest.raises(oe.MappingError, match="'more'"):
        oe.torch.export(module, (torch.ones(2, 3),), tmp_path / "model.onnx", weights=weights)


class Any_(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.stack([x.any(), (x > 0).any(0).any(), x.bool().any(dim=(0, 1)), x.all()])


def test_any_of_a_batch_of_size_zero_is_false(tmp_path: Path) -> None:
    path, sets = tmp_path / "model.onnx", [torch.rand(3, 2), torch.rand(0, 2), torch.zeros(1, 2)]
    oe.torch.export(Any_(), (sets[0],), path, dynamic_shapes=DYNAMIC, check=False, fsync=False)
    for x in sets:
        np.testing.assert_array_equal(run(str(path), x=x.numpy()), Any_()(x).numpy())


class Vector(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any, v: Any) -> Any:
        return x.t() @ v, self.linear(x).permute(1, 0).double() @ v.double(), v @ x


def test_a_transposed_matrix_times_a_vector_is_right_on_onnx_runtime(tmp_path: Path) -> None:
    path, sets = tmp_path / "model.onnx", [(torch.rand(n, 4), torch.rand(n)) for n in (3, 4, 1)]
    report = oe.torch.export(
        Vector(), sets[0], path, dynamic_shapes=DYNAMIC * 2, input_sets=sets[1:], fsync=False
    )
    assert report.checked == 3


class Mask(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.where(x > 0, x > 1, x.new_zeros(1) == 0), torch.where(x > 0, x, -x)


def test_a_choice_between_bools_runs_on_onnx_runtime(tmp_path: Path) -> None:
    x = torch.tensor([[-1.0, 0.5, 2.0]])
    report = oe.torch.export(Mask(), (x,), tmp_path / "model.onnx", fsync=False)
    assert report.checked == 1
    assert run(str(tmp_path / "model.onnx"), x=x.numpy()).tolist() == [[True, False, True]]
