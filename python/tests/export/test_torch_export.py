"""Tests of exports without weights: skeletons, the weights that fill them, and errors."""

import functools
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

AUTO = torch.export.Dim.AUTO
SHAPES = ({0: AUTO, 1: AUTO},)


class Net(torch.nn.Module):
    """A module with tied weights, a BatchNorm, a buffer computed in __init__, and a constant."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, width)
        self.square = torch.nn.Linear(width, width)
        self.wide = torch.nn.Linear(width, 3 * width)
        self.narrow = torch.nn.Linear(3 * width, width, bias=False)
        self.norm = torch.nn.BatchNorm1d(width)
        self.head = torch.nn.Linear(width, 50, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("places", torch.arange(64.0) / 64, persistent=False)
        self.scale = torch.tensor([0.5, 2.0])

    def forward(self, ids: Any) -> Any:
        hidden = self.words(ids) + self.places[: ids.shape[1], None]
        hidden = self.square(hidden).relu() * self.scale[0]
        hidden = self.narrow(self.wide(hidden).relu()) + hidden
        hidden = self.norm(hidden.transpose(1, 2)).transpose(1, 2)
        return self.head(hidden)


def trained(width: int = 16) -> Any:
    torch.manual_seed(0)
    net = Net(width).eval()
    for value in net.state_dict().values():
        if value.is_floating_point():
            value.uniform_(0.1, 1.0)
    return net


def make() -> Any:
    return Net().eval()


def ids(rows: int = 2, length: int = 7) -> Any:
    return torch.randint(0, 50, (rows, length))


def differences(model: Path, net: Any) -> list[float]:
    """Return the differences between ONNX Runtime and torch for two input sizes."""
    session = runtime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    found = []
    for given in (ids(), ids(3, 11)):
        got = session.run(None, {session.get_inputs()[0].name: given.numpy()})[0]
        want = net(given).detach().numpy()
        found.append(float(np.abs(got - want).max() / np.abs(want).max()))
    return found


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Return a checkpoint of the trained module."""
    torch.save(trained().state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


TARGETS: dict[str, Callable[[], Any]] = {
    "function": lambda: make,
    "module": lambda: make(),
    "program": lambda: torch.export.export(make(), (ids(),), dynamic_shapes=SHAPES),
    "converted": lambda: torch.onnx.export(
        make(), (ids(),), dynamic_shapes=SHAPES, optimize=False, verbose=False
    ),
}


@functools.cache
def made(target: str) -> Any:
    """Return a target, which exports do not change."""
    return TARGETS[target]()


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_what_was_exported_computes_what_torch_computes(
    target: str, optimize: bool, saved: Path, tmp_path: Path
) -> None:
    given = made(target)
    path = tmp_path / "out/model.onnx"
    report = oe.torch.export(
        given, (ids(),), path, weights=saved, dynamic_shapes=SHAPES, optimize=optimize, fsync=False
    )
    assert max(differences(path, trained())) < 1e-5
    assert report.save.verified
    assert oe.verify(path, saved, mapping=oe.Mapping(map=ties(report))).ok
    origins = {name: source.origin for name, source in report.sources.items()}
    assert origins["wide.weight.transposed"] == "checkpoint" and origins["places"] == "init"
    assert report.left == {"Transpose of a weight": 1, "BatchNormalization": 1}  # the tied one
    assert "constant" in origins.values()
    assert json.loads(json.dumps(report.to_dict()))["sources"]["places"]["origin"] == "init"


@functools.cache
def tied() -> str:
    """Return one of the two names of a tied weight."""
    return next(iter(oe.torch.skeleton(trained(), (ids(),)).ties))


@pytest.mark.parametrize("text", [None, "[1]", "no JSON"])
def test_a_file_that_is_not_a_map_is_refused_by_its_name(text: str | None, tmp_path: Path) -> None:
    weights = trained().state_dict()
    del weights[tied()]  # the tied weight is still there
    path = tmp_path / "a.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(oe.Error, match=r"a\.json"):
        oe.torch.export(
            trained(), (ids(),), tmp_path / "m.onnx", weights=weights, mapping=oe.Mapping(map=path)
        )


def ties(report: Any) -> dict[str, str]:
    return ties_of(report.save)


def ties_of(report: Any) -> dict[str, str]:
    return {tensor.slot: tensor.key for tensor in report.tensors if tensor.rule == "map"}


def test_the_command_fills_a_skeleton(saved: Path, tmp_path: Path) -> None:
    made = oe.torch.skeleton(make, (ids(),), dynamic_shapes=SHAPES)
    made.save(tmp_path / "graph.onnx")
    with pytest.raises(FileExistsError):
        made.save(tmp_path / "graph.onnx")
    command = [sys.executable, "-m", "onnx_external", "save", tmp_path / "graph.onnx", saved]
    subprocess.run([*command, "-o", tmp_path / "out", "-q"], check=True)
    assert max(differences(tmp_path / "out/model.onnx", trained())) < 1e-5


def test_a_skeleton_has_typed_slots_and_no_weights() -> None:
    net = make()
    made = oe.torch.skeleton(net, (ids(),))
    weights = net.state_dict()
    for slot in made.slots.values():
        assert slot.dtype == "FLOAT" and slot.shape == tuple(weights[slot.name].shape)
    assert {"words.weight", "head.weight"} & made.slots.keys()
    assert made.slots["norm.running_mean"].kind == "buffer"
    assert made.left == {"Transpose of a weight": 4, "BatchNormalization": 1}
    assert sum(value.nbytes for value in values(made)) < 1000


def values(made: Any) -> list[Any]:
    found = [value.const_value for value in made.model.graph.initializers.values()]
    return [value for value in found if value is not None]


def test_weights_take_the_place_of_their_transposes(saved: Path, tmp_path: Path) -> None:
    made = oe.torch.skeleton(
        make, (ids(),), dynamic_shapes=SHAPES, transpose_weights=True, optimize=True
    )
    assert made.slots["wide.weight.transposed"].shape == (16, 48)
    assert made.left["Transpose of a weight"] == 1  # the tied weight, which a Gather also reads
    made.save(tmp_path / "graph.onnx")
    for graph in (made, tmp_path / "graph.onnx"):
        report = oe.save(graph, tmp_path / "model.onnx", saved, fsync=False, overwrite=True)
        recipes = {tensor.slot: tensor.recipe for tensor in report.tensors}
        for name in ("square", "wide", "narrow"):  # including small square matrices
            assert recipes[f"{name}.weight.transposed"] == ["transpose"]
        assert recipes["head.weight"] == []
        assert max(differences(tmp_path / "model.onnx", trained())) < 1e-5
        assert oe.verify(tmp_path / "model.onnx", saved, mapping=oe.Mapping(map=ties_of(report))).ok


def test_a_saved_model_whose_weights_are_transposed_takes_others(
    saved: Path, tmp_path: Path
) -> None:
    oe.torch.export(
        make,
        (ids(),),
        tmp_path / "old/model.onnx",
        weights=make().state_dict(),
        dynamic_shapes=SHAPES,
        fsync=False,
    )
    oe.save(tmp_path / "old/model.onnx", tmp_path / "model.onnx", saved, fsync=False)
    assert max(differences(tmp_path / "model.onnx", trained())) < 1e-5


def test_linked_weights_are_as_the_checkpoint_has_them(tmp_path: Path) -> None:
    oe_safetensors = pytest.importorskip("safetensors.torch")
    state = {name: value.clone() for name, value in trained().state_dict().items()}
    del state["words.weight"]
    oe_safetensors.save_file(state, tmp_path / "weights.safetensors")
    options: Any = dict(weights=tmp_path / "weights.safetensors", layout="link", fsync=False)
    options["dynamic_shapes"] = SHAPES
    path = tmp_path / "model.onnx"
    with pytest.raises(oe.InvalidArgumentError, match=r"layout='link'.*single"):
        oe.torch.export(make, (ids(),), path, files=oe.Layout(transpose_weights=True), **options)
    report = oe.torch.export(make, (ids(),), path, **options)
    assert report.left["Transpose of a weight"] == 4 and report.save.linked_bytes
    assert max(differences(path, trained())) < 1e-5


def test_a_module_on_meta_needs_the_values_that_it_lost(saved: Path, tmp_path: Path) -> None:
    net = make().to("meta")
    with pytest.raises(oe.InvalidArgumentError, match=r"places.*extra") as caught:
        oe.torch.export(net, (ids(),), tmp_path / "out/model.onnx", weights=saved)
    assert "Linear" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert all(value.device.type == "meta" for value in net.parameters())  # the module is unchanged
    oe.torch.export(
        net,
        (ids(),),
        tmp_path / "model.onnx",
        weights=saved,
        extra={"places": torch.arange(64.0) / 64},
        dynamic_shapes=SHAPES,
        fsync=False,
    )
    assert max(differences(tmp_path / "model.onnx", trained())) < 1e-5


def test_values_of_another_shape_are_refused() -> None:
    with pytest.raises(oe.InvalidArgumentError, match=r"places.*64.*63"):
        oe.torch.skeleton(make, (ids(),), extra={"places": torch.zeros(63)})
    with pytest.raises(oe.InvalidArgumentError, match="no nowhere"):
        oe.torch.skeleton(make, (ids(),), extra={"nowhere": torch.zeros(1)})


def test_a_constant_without_data_is_refused_by_name() -> None:
    class Lost(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, 4))
            self.hidden = [self.weight[0]]  # unregistered, and made from a weight

        def forward(self, x: Any) -> Any:
            return x @ self.weight + self.hidden[0]

    with pytest.raises(oe.InvalidArgumentError, match=r"hidden: .* neither"):
        oe.torch.skeleton(Lost, (torch.ones(2, 4),))

    class Meta(Net):
        def __init__(self) -> None:
            super().__init__()
            self.scale = self.scale.to("meta")

        def forward(self, ids: Any) -> Any:
            return super().forward(ids) + self.scale.sum().to(device="cpu")

    with pytest.raises(oe.InvalidArgumentError, match="scale"):
        oe.torch.skeleton(lambda: Meta().eval(), (ids(),))


def test_a_program_whose_weights_were_folded_is_refused() -> None:
    program = torch.onnx.export(make(), (ids(),), verbose=False)
    with pytest.raises(oe.InvalidArgumentError, match="optimize=False"):
        oe.torch.skeleton(program)


def test_what_torch_cannot_trace_is_one_line_of_ours(
    saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Branches(Net):
        def forward(self, ids: Any) -> Any:
            if ids.sum() > 3:
                return self.words(ids)
            return self.head(self.words(ids))

    line = inspect.getsourcelines(Branches.forward)[1] + 1
    with pytest.raises(oe.ExportError, match="cannot trace") as caught:
        path = tmp_path / "out/model.onnx"
        oe.torch.export(lambda: Branches().eval(), (ids(),), path, weights=saved)
    text = str(caught.value)
    assert f"{__file__}:{line}, in forward: if ids.sum() > 3:" in text
    assert "torch.where" in text and "oe.diagnose_export(module, inputs)" in text
    assert "\n" not in text and caught.value.__cause__ is not None
    assert list(tmp_path.iterdir()) == [saved]
    assert capfd.readouterr() == ("", "")  # without torch's long output


class Normed(torch.nn.Sequential):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))


class DropsByItself(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.5, self.training)


def test_a_module_in_training_mode_is_an_error_that_names_eval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x, path = Normed().train(), torch.rand(3, 4), tmp_path / "model.onnx"
    before = {name: each.clone() for name, each in module.state_dict().items()}
    told = r"Normed is in training mode, .* 1 \(BatchNorm1d\) computes .* call its eval\(\)"
    with monkeypatch.context() as patch:
        patch.setattr(Normed, "forward", None)  # the error comes before the module runs
        with pytest.raises(oe.InvalidArgumentError, match=told):
            oe.torch.export(module, (x,), path, rewrite=True)
        with pytest.raises(oe.InvalidArgumentError, match=told):
            oe.torch.skeleton(module, (x,))
        with pytest.raises(oe.InvalidArgumentError, match=r"lambda: Normed\(\)\.eval\(\)"):
            oe.torch.skeleton(Normed, (x,))
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())
    with pytest.raises(oe.InvalidArgumentError, match=r"in training mode, .*dropout.* computes"):
        oe.torch.skeleton(DropsByItself(), (x,))
    # Training mode is accepted if it is intended, or makes no difference.
    program = torch.export.export(DropsByItself().train(), (x,))
    assert oe.torch.skeleton(program, (x,)).model.graph[0].op_type == "Dropout"
    oe.torch.skeleton(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0)), (x,))
    report = oe.torch.export(module.eval(), (x,), path, dynamic_shapes={})
    assert report.complete and report.verified
    assert str(report).endswith("verified; input sets on which it was compared: 1")


def test_a_program_in_training_mode_is_an_error_that_names_eval(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def saved(module: Any, x: Any) -> Any:
        caplog.clear()
        program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
        report = oe.save(program, tmp_path / "model.onnx", overwrite=True, fsync=False)
        assert [each.getMessage() for each in caplog.records if each.name == "onnx_external"] == (
            report.notes
        )
        assert report.to_dict().get("notes", []) == report.notes
        return report.notes

    class Two(torch.nn.Module):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            self.line, self.drop = torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)
            self.norm = torch.nn.BatchNorm1d(4, **options)

        def forward(self, x: Any) -> Any:
            return self.norm(self.drop(self.line(x)))

    x = torch.rand(3, 4)
    (note,) = saved(Two().train(), x)
    assert "dropout" in note and "batch_norm" in note and "module.eval() before" in note
    assert saved(Two().eval(), x) == []
    assert saved(Two(track_running_stats=False).eval(), x) == []  # batch statistics in both
    (note,) = saved(torch.nn.LSTM(4, 4, num_layers=2, dropout=0.5).train(), x)
    assert "aten.lstm.input" in note
    assert saved(torch.nn.LSTM(4, 4, num_layers=2).train(), x) == []
    assert saved(torch.nn.Linear(4, 4).train(), x) == []


def test_an_uninitialized_module_is_an_error_with_a_fix(tmp_path: Path) -> None:
    def lazy() -> Any:
        return torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyBatchNorm1d())

    for target in (lazy, lazy()):
        with pytest.raises(oe.ExportError, match=r"'0\.weight'.*LazyLinear.*run the module once"):
            oe.torch.skeleton(target, (torch.ones(2, 4),))
    with pytest.raises(oe.ExportError, match=r"'0\.weight'.*run the module once"):
        oe.torch.export(lazy().eval(), (torch.ones(2, 4),), tmp_path / "model.onnx")
    with pytest.raises(oe.Error, match=r"'0\.weight'.*run the module once"):
        oe.diagnose_export(lazy().eval(), [(torch.ones(2, 4),)])
    with pytest.raises(oe.Error, match=r"'0\.weight'.*run the module once"):
        oe.plan("graph.onnx", weights=lazy().state_dict())
    module = lazy().eval()
    module(torch.ones(2, 4))
    assert oe.torch.skeleton(module, (torch.ones(2, 4),)).slots["0.weight"].shape == (3, 4)


def test_operators_that_do_not_convert_are_reported_with_the_users_line() -> None:
    class Fourier(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.eigvals(x).real

    with pytest.raises(oe.ExportError, match="cannot convert") as caught:
        oe.torch.skeleton(Fourier(), (torch.eye(3),))
    assert f"{__file__}:" in str(caught.value) and "eigvals(x).real" in str(caught.value)


def test_a_key_that_is_missing_leaves_nothing(saved: Path, tmp_path: Path) -> None:
    state = torch.load(saved)
    del state["wide.bias"]
    torch.save(state, saved)
    with pytest.raises(oe.MappingError) as caught:
        oe.torch.export(make, (ids(),), tmp_path / "out/model.onnx", weights=saved)
    assert caught.value.missing == ["wide.bias"]
    assert list(tmp_path.iterdir()) == [saved]


def test_one_of_the_names_of_a_tied_weight_is_enough(saved: Path, tmp_path: Path) -> None:
    for name in ("words.weight", "head.weight"):
        state = torch.load(saved)
        del state[name]
        torch.save(state, tmp_path / "one.pt")
        path = tmp_path / name / "model.onnx"
        oe.torch.export(
            make, (ids(),), path, weights=tmp_path / "one.pt", dynamic_shapes=SHAPES, fsync=False
        )
        assert max(differences(path, trained())) < 1e-5


def test_weights_may_be_an_open_checkpoint_or_in_memory(saved: Path, tmp_path: Path) -> None:
    state = torch.load(saved)
    del state["words.weight"]
    with oe.open_checkpoint(saved) as checkpoint:
        for name, weights in (("dict", state), ("open", checkpoint), ("list", [state])):
            path = tmp_path / name / "model.onnx"
            oe.torch.export(
                make, (ids(),), path, weights=weights, dynamic_shapes=SHAPES, fsync=False
            )
            assert max(differences(path, trained())) < 1e-5


def test_values_that_are_kept_are_the_module_s(saved: Path, tmp_path: Path) -> None:
    net = trained()
    net.norm.running_mean.fill_(3.0)
    path = tmp_path / "model.onnx"
    report = oe.torch.export(
        net, (ids(),), path, weights=saved, keep=["norm.running_mean"], dynamic_shapes=SHAPES
    )
    assert report.sources["norm.running_mean"].origin == "init"
    assert max(differences(path, net)) < 1e-5


def test_parameters_of_a_built_module_take_no_memory() -> None:
    def anonymous() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("RssAnon"))
        return int(line.split()[1]) << 10

    def make_large() -> Any:
        net = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(32)))  # 2 GiB
        net[3].weight = net[2].weight
        return net

    before = anonymous()
    net = oe.torch.build(make_large)
    assert net[3].weight is net[2].weight and net[0].weight.device.type == "cpu"
    assert float(net[5].weight.sum()) == 0.0
    made = oe.torch.skeleton(net, (torch.ones(1, 4096),))
    assert len(made.slots) == 63 and len(made.SerializeToString()) < 1 << 20
    assert anonymous() - before < 300 << 20


def test_nothing_of_torch_is_imported_unasked() -> None:
    program = "import sys, onnx_external as oe; assert 'torch' not in sys.modules; oe.torch.build"
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="nothing"):
        oe.nothing  # noqa: B018


def test_products_with_untouched_matrices_are_zeros_that_nothing_computes() -> None:
    from onnx_external.torch._untouched import ZeroProducts, untouched

    bias, real = torch.randn(512), torch.randn(512, 300)
    weight = untouched((512, 300), torch.float32)
    given = torch.full((2, 5, 300), torch.nan)  # NaN, which a multiplication by zero would keep
    linear = torch.nn.functional.linear
    for each in (given, given[:, -1:], given[0]):
        with torch.no_grad(), ZeroProducts():
            made, added, computed = (
                linear(each, weight),
                linear(each, weight, bias),
                linear(each, real),
            )
        assert torch.equal(made, torch.zeros(*each.shape[:-1], 512))
        assert torch.equal(added, bias.expand(*each.shape[:-1], 512))
        assert computed.isnan().all()


def test_a_checked_export_runs_one_job_for_the_check_and_one_for_the_save(
    tmp_path: Path, jobs: list[bool]
) -> None:
    path, net = tmp_path / "model.onnx", trained()
    report = oe.torch.export(net, (ids(),), path, dynamic_shapes=SHAPES)
    assert jobs == [False, False] and report.checked
    slots = {tensor.slot for tensor in report.save.tensors}
    assert {"square.weight.transposed", "wide.weight.transposed", "head.weight"} <= slots
    assert max(differences(path, net)) < 1e-5


def test_views_of_one_buffer_are_planned_once_for_the_check_and_the_save(
    tmp_path: Path, jobs: list[bool]
) -> None:
    buffer = torch.rand(32, 16)
    twin = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)).eval()
    twin[0].weight, twin[1].weight = (torch.nn.Parameter(each) for each in buffer.chunk(2))
    report = oe.torch.export(twin, (torch.rand(2, 3, 16),), tmp_path / "model.onnx")
    assert jobs == [True, False, False] and report.checked
    slots = {tensor.slot for tensor in report.save.tensors}
    assert {"0.weight.transposed", "1.weight.transposed"} <= slots
