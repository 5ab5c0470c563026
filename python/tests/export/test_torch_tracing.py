"""Tests of tracing and converting modules like torch.onnx, but without its mistakes."""

import dataclasses
import gc
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

AUTO = torch.export.Dim.AUTO
SHAPES = ({0: AUTO, 1: AUTO},)


def outputs(model: Path, *given: Any) -> Any:
    session = runtime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    feed = {name: each.numpy() for name, each in zip(names, given, strict=True)}
    return session.run(None, feed)[0]


def assert_right(model: Path, module: Any, *sets: Any) -> None:
    for given in sets:
        with torch.no_grad():
            want = module(*given).numpy()
        np.testing.assert_allclose(outputs(model, *given), want, atol=1e-5)


class Recurrent(torch.nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer(3, 4, batch_first=True, bidirectional=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0]


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU])
def test_the_length_of_a_recurrent_layer_s_sequence_varies(layer: Any, tmp_path: Path) -> None:
    module = Recurrent(layer).eval()
    path = tmp_path / "model.onnx"
    oe.torch.export(module, (torch.randn(2, 5, 3),), path, dynamic_shapes=SHAPES, fsync=False)
    assert_right(path, module, (torch.randn(3, 9, 3),), (torch.randn(1, 1, 3),))


def test_a_recurrent_layer_varies_that_torch_has_traced_before(tmp_path: Path) -> None:
    module, given = Recurrent(torch.nn.LSTM).eval(), (torch.randn(2, 5, 3),)
    with torch.no_grad():
        torch.export.export(module, given)  # the operator now has its kernels
        path = tmp_path / "model.onnx"
        oe.torch.export(module, given, path, dynamic_shapes=SHAPES, fsync=False)
    assert_right(path, module, (torch.randn(3, 9, 3),))
    assert not torch.ops.aten.lstm.input._dispatch_cache


def test_an_example_of_one_row_leaves_the_rows_variable(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 4).eval()
    path = tmp_path / "model.onnx"
    oe.torch.export(module, (torch.ones(1, 3),), path, dynamic_shapes=({0: AUTO},), fsync=False)
    assert_right(path, module, (torch.randn(1, 3),), (torch.randn(5, 3),))


class Sum(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x + y


class Encoder(torch.nn.Module):
    """A layer in which torch treats sizes of 1 differently."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class Special(torch.nn.Module):
    """A module that computes something else for a single row."""

    def forward(self, x: Any) -> Any:
        return x * 2 if x.shape[0] == 1 else x + 1


def test_a_module_whose_trace_excludes_sizes_of_1_is_traced_for_others(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Encoder().eval()
    shapes = {"x": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}}
    report = oe.torch.export(module, (torch.rand(2, 7, 8),), tmp_path, dynamic_shapes=shapes)
    assert len(report.notes) == 1 and "traced for sizes of 2 and more" in report.notes[0]
    sizes = ((3, 11), (2, 2), (1, 5), (5, 1))
    assert_right(tmp_path / "model.onnx", module, *((torch.rand(*size, 8),) for size in sizes))


def test_a_module_that_computes_something_else_for_one_row_is_not_traced_for_others(
    tmp_path: Path,
) -> None:
    shapes = {"x": {0: torch.export.Dim("rows")}}
    with pytest.raises(oe.ExportError, match="Constraints violated"):
        oe.torch.export(Special(), (torch.rand(3, 4),), tmp_path, dynamic_shapes=shapes)


def test_a_module_without_parameters_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "out/model.onnx"
    report = oe.torch.export(
        Sum(), (torch.ones(2, 3), torch.ones(2, 3)), path, dynamic_shapes=SHAPES * 2
    )
    assert_right(path, Sum(), (torch.randn(4, 5), torch.randn(4, 5)))
    assert report.sources == {} and report.save.tensors == [] and report.save.complete
    with pytest.raises(oe.ExistsError):
        oe.torch.export(Sum(), (torch.ones(2, 3), torch.ones(2, 3)), path)


def test_another_way_of_tracing_is_noted(tmp_path: Path) -> None:
    """Check a single row that is broadcast, which is not a dynamic size."""
    path = tmp_path / "model.onnx"
    given = (torch.ones(2, 3), torch.ones(1, 3))
    report = oe.torch.export(Sum(), given, path, dynamic_shapes=SHAPES * 2)
    assert_right(path, Sum(), (torch.randn(4, 5), torch.randn(1, 5)))
    assert any("sizes of 1" in note for note in report.notes)


class CondInLoop(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        def goes_on(i: Any, state: Any) -> Any:
            return (i < 4) & (state.sum() < 100)

        def body(i: Any, state: Any) -> Any:
            larger = state.sum() > 2
            return i + 1, torch.cond(larger, lambda s: s * 2, lambda s: s + 1, (state,))

        return torch.while_loop(goes_on, body, (torch.zeros((), dtype=torch.int64), x))[1]


def test_a_condition_inside_of_a_loop_is_loaded_by_onnx_runtime(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    oe.torch.export(CondInLoop(), (torch.rand(2, 3),), path, fsync=False)
    assert_right(path, CondInLoop(), (torch.rand(2, 3),), (torch.rand(2, 3) / 9,))


class Volumes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = torch.nn.Conv3d(3, 4, 2, bias=False)

    def forward(self, x: Any) -> Any:
        return self.patch(x).relu()


@pytest.mark.parametrize("optimize", [True, False])
def test_a_conv3d_without_bias_is_loaded_by_onnx_runtime(optimize: bool, tmp_path: Path) -> None:
    module, given = Volumes().eval(), (torch.randn(1, 3, 4, 4, 4),)
    path = tmp_path / "model.onnx"
    oe.torch.export(module, given, path, optimize=optimize, fsync=False)
    assert_right(path, module, given)
    assert oe.diagnose_export(module, [given]).ok


def _state_of_torch() -> Any:
    from torch._decomp import global_decomposition_table
    from torch.fx.experimental import _config
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.onnx._internal.exporter import _ir_passes

    tables = {kind: dict(table) for kind, table in global_decomposition_table.items()}
    kernels = [
        dict(operator.py_kernels)
        for operator in (torch.ops.aten.lstm.input, torch.ops.aten.gru.input)
    ]
    methods = dict(vars(ShapeEnv)), _ir_passes.add_opset_imports
    modes = torch.is_grad_enabled(), _config.backed_size_oblivious
    return tables, kernels, methods, modes


def test_an_export_leaves_torch_as_it_was(tmp_path: Path) -> None:
    class Refused(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.sum() if x.sum() > 0 else x

    given = (torch.ones(2, 5, 3),)
    module = Recurrent(torch.nn.LSTM).eval()
    oe.torch.skeleton(module, given, dynamic_shapes=SHAPES)  # torch registers its classes
    before = _state_of_torch()
    oe.torch.skeleton(module, given, dynamic_shapes=SHAPES)
    assert _state_of_torch() == before
    for rewrite, reason in ((False, "cannot trace"), ("auto", "dimensions in one branch")):
        with pytest.raises(oe.ExportError, match=reason):
            oe.torch.skeleton(Refused(), given, dynamic_shapes=SHAPES, rewrite=rewrite)
        assert _state_of_torch() == before


class Halves(torch.nn.Module):
    """A module that returns half of its rows, rounded up."""

    def forward(self, x: Any) -> Any:
        return x[: -(-x.shape[0] // 2)] + x.shape[1] // 2


def test_negative_sizes_are_divided_as_python_divides(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    sets = [(torch.randn(rows, 3),) for rows in (3, 4, 5, 1)]
    oe.torch.export(Halves(), sets[0], path, dynamic_shapes=SHAPES, rewrite=False)
    assert_right(path, Halves(), *sets)


def test_torch_keeps_no_results_while_sizes_vary() -> None:
    from torch._dynamo import config

    from onnx_external.torch._tracing import trace

    told = mock.Mock()  # a list would be restored after the trace

    class Asking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            told(config.fake_tensor_cache_enabled)
            return x + 1

    before = config.fake_tensor_cache_enabled
    trace(Asking(), (torch.ones(3),), None, ({0: torch.export.Dim.AUTO},))
    trace(Asking(), (torch.ones(3),), None, None)
    kept = [each.args[0] for each in told.call_args_list]
    assert set(kept[:1]) == {False} and kept[-1] == before == config.fake_tensor_cache_enabled


def test_an_export_asks_torch_once_for_its_operators_and_seldom_searches_for_cycles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch._export import utils

    found = mock.Mock(side_effect=utils._materialize_cpp_cia_ops)
    monkeypatch.setattr(utils, "_materialize_cpp_cia_ops", found)
    told = mock.Mock()

    class Asking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            told(gc.get_threshold())
            return x + 1

    before = gc.get_threshold()
    oe.torch.export(Asking(), torch.ones(3), tmp_path / "model.onnx", check=False)
    assert found.call_count == 1 and utils._materialize_cpp_cia_ops is found
    assert told.call_args.args[0][0] >= 50_000 and gc.get_threshold() == before


def test_results_of_halves_are_as_exact_as_halves() -> None:
    from onnx_external._comparing.checked_runs import difference
    from onnx_external._comparing.inputs import Given
    from onnx_external._comparing.reconsidering import Outputs
    from onnx_external._comparing.references import RecordedReference
    from onnx_external.torch._checking import half_types

    class Half(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (x.half() * 3).float()

    x = torch.full((2, 3), 1.00048)  # 1 in float16
    assert half_types(torch.export.export(Half(), (x,))) == ["float16"]
    assert half_types(torch.export.export(Sum(), (x, x))) == []
    got, wanted = {"y": x.numpy() * 3}, {"y": Half()(x).numpy()}
    for types, told in (([], "differs"), (["float16"], "")):
        outputs = Outputs(["y"], got, types=types)
        compared = outputs.judged(RecordedReference(), Given({}), "set", wanted)
        assert told in difference(compared) and bool(told) == bool(difference(compared))


def test_only_what_may_be_rounding_is_told_to_be_a_matter_of_the_tolerance() -> None:
    from onnx_external._comparing.checked_runs import difference
    from onnx_external._comparing.comparing import compare

    def told(*got: float, atol: float = 0.0) -> bool:
        wanted, given = (torch.tensor(each).numpy() for each in ([0.0, 100.0], got))
        return "if this is rounding" in difference([compare("y", given, wanted, atol, 0.0)])

    assert told(1e-6, 100.0) and told(0.0, 100.0001) and told(0.5, 100.0, atol=0.1)
    assert not told(0.0, 101.0) and not told(1e-6, float("nan"))


def test_lists_of_two_lengths_are_refused_in_words(tmp_path: Path) -> None:
    class Total(torch.nn.Module):
        def forward(self, parts: Any) -> Any:
            return sum(parts)

    sets = [([torch.ones(3)] * count,) for count in (2, 4)]
    with pytest.raises(oe.InvalidArgumentError, match="has 4 values in its lists"):
        oe.torch.export(Total(), sets[0], tmp_path / "model.onnx", input_sets=sets[1:])


def test_what_is_none_in_one_set_only_is_refused_in_words(tmp_path: Path) -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: Any, mask: Any = None) -> Any:
            return x if mask is None else x * mask

    x = torch.ones(3)
    with pytest.raises(oe.InvalidArgumentError, match="mask is None in a set, and a value in the"):
        oe.torch.export(Masked(), (x, x), tmp_path / "model.onnx", input_sets=[(x, None)])


def test_the_error_says_what_helps_against_its_reason(tmp_path: Path) -> None:
    class Product(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.lgamma()

    class Own:
        pass

    for given, way in ((torch.ones(3), "custom_translation_table"), (Own(), "register_class")):
        with pytest.raises(oe.ExportError, match=way) as caught:
            oe.torch.export(Product(), (given,), tmp_path / "model.onnx")
        assert str(caught.value).count("cannot") == 1


@dataclasses.dataclass
class Counted:
    values: Any
    count: Any


def test_numbers_beside_tensors_are_outputs(tmp_path: Path) -> None:
    class Counts(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return 2**40 + 1, Counted(x * 2, 0.1), {"some": True, "none": None, "rows": len(x)}

    path, module, x = tmp_path / "model.onnx", Counts().eval(), torch.ones(2, 3)
    oe.register_class(Counted, ["values", "count"])
    try:
        report = oe.torch.export(module, x, path, input_sets=[torch.ones(5, 3)], fsync=False)
        assert report.checked == 2
        assert oe.validate(path, module, x).ok
    finally:
        oe.unregister_class(Counted)
    many, _, tenth, some, rows = runtime.InferenceSession(str(path)).run(None, {"x": x.numpy()})
    assert (many, tenth, some, rows) == (2**40 + 1, np.float32(0.1), True, 2)
    assert (many.dtype, tenth.dtype, some.dtype) == ("int64", "float32", "bool")


def test_a_number_that_differs_from_call_to_call_is_noted(tmp_path: Path) -> None:
    class Calls(torch.nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * 2, self.calls

    report = oe.torch.export(Calls().eval(), torch.ones(2), tmp_path / "model.onnx")
    assert any("something else when it is called again" in each for each in report.notes)


@pytest.mark.parametrize("given", ["twice", 1e300])
def test_what_no_output_can_be_is_refused_by_its_value(given: Any, tmp_path: Path) -> None:
    class Gives(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2, given

    with pytest.raises(oe.ExportError, match=f"returns {re.escape(repr(given))}"):
        oe.torch.export(Gives().eval(), torch.ones(2), tmp_path / "model.onnx")


def test_a_text_that_differs_between_the_sets_is_refused(tmp_path: Path) -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: Any, mode: str) -> Any:
            return x * 2 if mode == "twice" else x

    x, path = torch.ones(2), tmp_path / "model.onnx"
    named = {"x": x, "mode": "twice"}
    for args, other in (((x, "twice"), (x, "once")), (named, named | {"mode": "once"})):
        with pytest.raises(oe.InvalidArgumentError, match="a string is not an input of a graph"):
            oe.torch.export(Scaled().eval(), args, path, input_sets=[other])


def test_a_tensor_of_another_form_in_a_set_is_refused_by_its_name(tmp_path: Path) -> None:
    x, path = torch.ones(2, 3), tmp_path / "model.onnx"
    for other, told in ((x[0], "float32 with 1 dimension"), (x.double(), "float64 with 2 dim")):
        with pytest.raises(oe.InvalidArgumentError, match=f"input_sets: input is {told}"):
            oe.torch.export(torch.nn.Linear(3, 3).eval(), x, path, input_sets=[(other,)])


def test_an_argument_called_like_a_buffer_leaves_the_buffer_its_name(tmp_path: Path) -> None:
    class Shifted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.tensor([1.0, 2.0, 3.0]))

        def forward(self, x: Any, shift: Any) -> Any:
            return x * self.shift + shift

    module, given, path = Shifted(), (torch.ones(3), torch.ones(3)), tmp_path / "model.onnx"
    oe.torch.export(module, given, path, fsync=False)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["x", "input.shift"]
    assert_right(path, module, (torch.randn(3), torch.randn(3)))
