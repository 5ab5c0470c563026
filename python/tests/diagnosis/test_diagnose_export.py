"""Tests of finding the modules that prevent the export of a model."""

import inspect
import json
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import commands
import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("onnxscript")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
nn = torch.nn

OK, FAIL, DISC = oe.Status.OK, oe.Status.FAIL, oe.Status.DISC
CHILDC, CUSTOM, NOINPUT = oe.Status.CHILDC, oe.Status.CUSTOM, oe.Status.NOINPUT


class Branches(nn.Module):  # type: ignore[misc,name-defined]
    """A module whose control flow depends on values."""

    line = inspect.currentframe().f_lineno + 8  # type: ignore[union-attr]
    """Of the condition."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return self.linear(x) * 2
        return self.linear(x)


class Decomposes(nn.Module):  # type: ignore[misc,name-defined]
    """A module for which ONNX has no operator."""

    def forward(self, x: Any) -> Any:
        return x + torch.linalg.svdvals(x)[..., :1, None]


class Counts(nn.Module):  # type: ignore[misc,name-defined]
    """A module that turns a size into a Python number."""

    def forward(self, x: Any) -> Any:
        return x * int(x.shape[1])


class Layer(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(8), inner

    def forward(self, x: Any) -> Any:
        return x + self.inner(self.norm(x))


class Model(nn.Module):  # type: ignore[misc,name-defined]
    """Three layers, one of which contains another module, and a module that is not called."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        made = [nn.Linear(8, 8), inner, nn.Linear(8, 8)]
        self.layers = nn.ModuleList(Layer(each) for each in made)
        self.head, self.unused = nn.Linear(8, 4), nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def sets() -> list[Any]:
    torch.manual_seed(5)
    return [(torch.randn(2, 5, 8),), (torch.randn(3, 7, 8),)]


def statuses(report: Any) -> dict[str, Any]:
    return {each.name: each.status for each in report.modules}


def found(report: Any, name: str) -> Any:
    return next(each for each in report.modules if each.name == name)


@pytest.mark.parametrize("exporter", ["export", "onnx", "torchscript"])
def test_a_sound_model_exports_as_a_whole(exporter: str) -> None:
    report = oe.diagnose_export(Model(nn.Linear(8, 8)).eval(), sets(), exporter=exporter)
    assert report and report.first is None and report.wrong == []
    assert report.sentence == "The model itself (Model) exports."
    assert found(report, "").status == OK and len(found(report, "").sets) == 2
    assert found(report, "layers.1").status == oe.Status.NONE
    assert "was not tried" in found(report, "layers.1").reason
    assert report.tree().splitlines()[1].split()[:3] == ["(model)", "Model", "right"]
    assert len(report.tree().splitlines()) == 2


@pytest.fixture(scope="module")
def branches() -> Any:
    """Return the diagnosis of a model with one module that branches on values."""
    found = {}

    def report(exporter: str) -> Any:
        if exporter not in found:
            model = Model(Branches()).eval()
            found[exporter] = oe.diagnose_export(model, sets(), exporter=exporter)
        return found[exporter]

    return report


@pytest.mark.parametrize("exporter", ["export", "onnx"])
def test_a_module_that_branches_on_values_is_named(exporter: str, branches: Any) -> None:
    report = branches(exporter)
    assert not report and report.first.name == "layers.1.inner"
    is_of = statuses(report)
    assert is_of["layers.1.inner"] == FAIL | CUSTOM
    assert is_of[""] == is_of["layers.1"] == OK | CHILDC
    assert is_of["layers.0"] == is_of["layers.1.norm"] == is_of["layers.1.inner.linear"] == OK
    assert is_of["layers.0.inner"] == oe.Status.NONE and is_of["unused"] == NOINPUT
    assert report.first.step == "export"
    assert report.first.reason.startswith("GuardOnDataDependentSymNode: Could not guard on")
    assert report.first.reason.endswith("in forward: if x.sum() > 0:")
    assert "test_diagnose_export.py" in report.first.reason
    assert report.sentence.startswith(
        "The first module that does not export is layers.1.inner (Branches): export: Guard"
    )
    assert found(report, "").instead == ["layers.1.inner"]


def test_the_tree_shows_what_was_tried_and_why_it_failed(branches: Any) -> None:
    report = branches("export")
    lines = [line.split() for line in report.tree().splitlines()]
    assert lines.pop(0) == ["module", "status", "difference"]
    assert [line[:2] for line in lines] == [
        ["(model)", "Model"],
        ["layers", "ModuleList"],
        ["0", "Layer"],
        ["1", "Layer"],
        ["norm", "LayerNorm"],
        ["inner", "Branches"],
        ["export:", "GuardOnDataDependentSymNode:"],
        ["at", f"test_diagnose_export.py:{Branches.line},"],
        ["varies:", "x[0],"],
        ["rewriting", "mends"],
        ["linear", "Linear"],
        ["2", "Layer"],
        ["head", "Linear"],
        ["unused", "Linear"],
    ]
    assert lines[1] == ["layers", "ModuleList"] and lines[5][2:5] == ["fails,", "replaced", "-"]
    assert lines[5][5:] == ["float32[2|3,5|7,8]", "->", "float32[2|3,5|7,8]"]
    assert " ".join(lines[-1][2:]) == "not compared - it was not called"
    document = json.loads(json.dumps(report.to_dict()))
    assert document["first"] == "layers.1.inner" and document["wrong"] == ["layers.1.inner"]
    assert (document["exporter"], document["strategy"]) == ("export", "failing")
    inner = next(each for each in document["modules"] if each["name"] == "layers.1.inner")
    assert inner["status"] == "FAIL CUSTOM" and inner["dynamic"] == ["x[0]", "x[1]"]
    assert "Branches" in report.html()


def test_an_operator_that_onnx_lacks_fails_when_it_is_converted() -> None:
    report = oe.diagnose_export(Model(Decomposes()).eval(), sets())
    first = report.first
    assert (first.name, first.step, first.status) == ("layers.1.inner", "convert", FAIL | CUSTOM)
    assert "No ONNX function found for aten._linalg_svd.default" in first.reason
    assert first.reason.endswith("return x + torch.linalg.svdvals(x)[..., :1, None]")
    assert found(report, "").status == OK | CHILDC
    assert oe.diagnose_export(Model(Decomposes()).eval(), sets(), exporter="export").ok


def test_an_operator_with_a_translation_of_ones_own_converts() -> None:
    def first_singular_value(x: Any, full_matrices: Any = False, compute_uv: Any = False) -> Any:
        from onnxscript import opset18 as op

        return op.ReduceSum(x), op.ReduceSum(x), op.ReduceSum(x)

    table = {torch.ops.aten._linalg_svd.default: first_singular_value}
    options = {"custom_translation_table": table, "opset_version": 20, "input_names": ["a"]}
    model = Model(Decomposes()).eval()
    report = oe.diagnose_export(model, sets(), onnx_options=options, run=False)
    assert report.ok, report.sentence
    with pytest.raises(oe.InvalidArgumentError, match='exporter="onnx"'):
        oe.diagnose_export(model, sets(), onnx_options=options, exporter="export")


def test_a_module_that_an_older_opset_cannot_express_is_found() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.GELU(), nn.LayerNorm(4)).eval()
    report = oe.diagnose_export(model, [(torch.ones(3, 2),)], onnx_options={"opset_version": 9})
    assert report.ok, report.sentence
    report = oe.diagnose_export(model, [(torch.ones(3, 2),)], onnx_options={"opset_version": 8})
    assert not report.ok and "opset 8 cannot express this model: Erf" in str(report)
    assert [found(report, name).status.name == "OK" for name in ("0", "1")] == [True, False]


def test_input_sets_with_another_text_are_left_out() -> None:
    class Scaled(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, mode: str) -> Any:
            return x * 2 if mode == "twice" else x

    x = torch.ones(3, 2)
    report = oe.diagnose_export(Scaled().eval(), [(x, "twice"), (x[:2], "once")], exporter="export")
    assert report.ok
    assert "or strings are left out" in found(report, "").notes[0]


def test_a_size_that_became_a_number_is_found() -> None:
    report = oe.diagnose_export(Model(Counts()).eval(), sets(), exporter="export")
    assert (report.first.name, report.first.step) == ("layers.1.inner", "export")
    assert "specialized it to be a constant (5)" in report.first.reason
    assert oe.diagnose_export(Model(Counts()).eval(), sets(), exporter="export", dynamic=False).ok


def test_what_computes_something_else_when_it_is_exported_is_named() -> None:
    one, other = torch.rand(2, 5, 8) + 1, -torch.rand(3, 7, 8) - 1
    model = nn.Sequential(nn.Identity(), Branches()).eval()
    report = oe.diagnose_export(model, [one, other], exporter="torchscript")
    assert statuses(report) == {"": OK | CHILDC, "0": OK, "1": DISC | CUSTOM, "1.linear": OK}
    assert report.sentence.startswith(
        "The first module that computes something else when it is exported is 1 (Branches): 168 of "
    )
    assert oe.diagnose_export(model, [one, other], exporter="torchscript", run=False).ok


class Joins(nn.Module):  # type: ignore[misc,name-defined]
    """A module whose output sizes are sums and products of those of its inputs."""

    def forward(self, x: Any, other: Any, *, times: int = 1) -> Any:
        assert x.sum() != 123
        joined = torch.cat([x, other], 1)
        return {"flat": joined.reshape(-1, 8) * times, "kept": [None, x.transpose(1, 2)], "n": 3}


class UsesJoins(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.linear = inner, nn.Linear(8, 8)

    def forward(self, x: Any, other: Any) -> Any:
        got = self.inner(x, other, times=2)
        again = self.inner(other, x, times=3)
        assert got["kept"][0] is None and got["n"] == 3
        return self.linear(got["flat"]), got["kept"][1] + 1, again["flat"].sum()


def pairs() -> list[Any]:
    sizes = [(2, 5, 4), (3, 7, 9), (4, 6, 2)]
    return [(torch.randn(b, m, 8), torch.randn(b, n, 8)) for b, m, n in sizes]


@pytest.mark.parametrize("exporter", ["export", "onnx"])
def test_shapes_of_a_custom_operator_are_guessed_from_the_sets(exporter: str) -> None:
    report = oe.diagnose_export(UsesJoins(Joins()).eval(), pairs(), exporter=exporter)
    assert statuses(report)["inner"] == FAIL | CUSTOM, report.tree()
    assert statuses(report)[""] == OK | CHILDC, report.tree()
    assert len(found(report, "").sets) == 3
    assert "called several times" in report.tree()


class Says(nn.Module):  # type: ignore[misc,name-defined]
    """A module that returns a tensor together with a size or another value."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: Any, config: Any) -> Any:
        assert x.sum() != 123
        return x * config.factor, {"n": self.what(x), "none": None}


class UsesSays(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, what: Any) -> None:
        super().__init__()
        self.says = Says(what)

    def forward(self, x: Any) -> Any:
        x, more = self.says(x, types.SimpleNamespace(factor=2))
        return x.reshape(more["n"], -1) + 1


def test_arguments_of_any_class_and_results_that_are_sizes_are_handled() -> None:
    model = UsesSays(lambda x: x.shape[1] * 4).eval()
    report = oe.diagnose_export(model, sets(), exporter="export")
    assert statuses(report) == {"": OK | CHILDC, "says": FAIL | CUSTOM}, report.tree()
    assert "Unsupported input type" in report.first.reason
    odd = {5: 16, 7: 56}
    model = UsesSays(lambda x: odd.get(x.shape[1], 1)).eval()
    report = oe.diagnose_export(model, sets(), exporter="export")
    assert statuses(report) == {"": FAIL, "says": FAIL}
    told = found(report, "").reason
    assert told.startswith("no custom operator can replace says (Says)")
    assert told.endswith("its result contains a value that is 16, 56 in the input sets")
    assert [each.name for each in report.wrong] == ["says"]


class Shrinks(nn.Module):  # type: ignore[misc,name-defined]
    """A module whose output size depends on the square of a size."""

    def forward(self, x: Any) -> Any:
        assert x.sum() != 123
        return x.repeat_interleave(x.shape[1] ** 2 - 20, 1)


def test_a_shape_that_nothing_fits_needs_a_shape_function() -> None:
    model = nn.Sequential(Shrinks(), nn.Linear(8, 8)).eval()
    report = oe.diagnose_export(model, sets(), exporter="export")
    assert statuses(report)["0"] == statuses(report)[""] == FAIL
    assert [each.name for each in report.wrong] == ["0"]
    told = found(report, "").reason
    assert "dimension 1 of its output 0 is 25, 203 in the input sets" in told
    assert "shape_functions" in told
    calls = []

    def shape(output: int, x: Any) -> Any:
        calls.append(output)
        return (x.shape[0], x.shape[1] * (x.shape[1] ** 2 - 20), x.shape[2])

    known = oe.diagnose_export(model, sets(), exporter="export", shape_functions={"0": shape})
    assert statuses(known)[""] == OK | CHILDC
    assert set(calls) == {0}


def test_opaque_modules_are_not_looked_into() -> None:
    model = Model(Branches()).eval()
    report = oe.diagnose_export(model, sets(), exporter="export", opaque="layers.1.inner")
    assert report.ok and statuses(report)["layers.1.inner"] == CUSTOM
    assert statuses(report)[""] == OK | CHILDC
    assert statuses(report)["layers.1.inner.linear"] == oe.Status.NONE
    assert report.sentence.endswith("with custom operators for layers.1.inner.")


def test_local_judges_each_module_by_its_own_operations() -> None:
    model = Model(Branches()).eval()
    report = oe.diagnose_export(model, sets(), exporter="export", strategy="local")
    is_of = statuses(report)
    assert is_of["layers.0"] == is_of["layers.1"] == OK | CHILDC | CUSTOM
    assert is_of["layers.1.inner"] == FAIL | CHILDC | CUSTOM and is_of["head"] == OK | CUSTOM
    assert report.first.name == "layers.1.inner" and report.wrong == [report.first]
    assert found(report, "layers.1").instead == ["layers.1.norm", "layers.1.inner"]


def test_a_module_that_fails_only_by_itself_keeps_nothing_from_being_exported() -> None:
    class Configured(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, config: Any) -> Any:
            return x * config.factor

    class Uses(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Configured()

        def forward(self, x: Any) -> Any:
            return self.inner(x, types.SimpleNamespace(factor=2))

    report = oe.diagnose_export(Uses().eval(), sets(), exporter="export", strategy="always")
    assert statuses(report) == {"": OK, "inner": FAIL} and report.ok and report.first is None
    assert report.sentence == (
        "The model itself (Uses) exports, although inner would not by itself."
    )


def test_another_method_than_forward_is_exported() -> None:
    class Encoder(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Branches()

        def encode(self, x: Any, scale: int = 1) -> Any:
            return self.inner(x) * scale

    class Uses(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = Encoder()

        def forward(self, x: Any) -> Any:
            return self.encoder.encode(x, scale=3)

    model = Uses().eval()
    traced = {"encoder": "encode"}
    report = oe.diagnose_export(model, sets(), exporter="export", traced_method=traced)
    assert statuses(report)["encoder"] == OK | CHILDC
    assert statuses(report)["encoder.inner"] == FAIL | CUSTOM
    report = oe.diagnose_export(model, sets(), exporter="export")
    assert statuses(report)["encoder"] == NOINPUT and report.first.name == "encoder.inner"
    report = oe.diagnose_export(model, sets(), exporter="export", traced_method={"Branches": ""})
    assert statuses(report)["encoder.inner"] == NOINPUT and report.first.name == ""
    assert "not traced" in found(report, "encoder.inner").reason
    calls = [((x,), {"scale": 2}) for (x,) in sets()]
    alone = oe.diagnose_export(
        Encoder().eval(), calls, exporter="onnx", traced_method={"": "encode"}, opaque=["inner"]
    )
    assert alone.ok and statuses(alone)[""] == OK | CHILDC


def test_dynamic_shapes_are_what_torch_takes() -> None:
    class Takes(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, many: Any, n: int, *rest: Any, mask: Any = None) -> Any:
            return x.reshape(n, -1) + many["a"][0].sum() + rest[0] * mask

    def made(n: int) -> Any:
        args = (torch.randn(n, 4), {"a": [torch.randn(3, n)], "b": None}, n, torch.randn(n, 4))
        return args, {"mask": torch.ones(n, 1)}

    model = Takes().eval()
    report = oe.diagnose_export(model, [made(5), made(7)], exporter="export")
    assert report.ok, report.tree()
    shapes = report.dynamic_shapes("")
    assert list(shapes) == ["x", "many", "n", "rest", "mask"] and 1 in shapes["many"]["a"][0]
    assert found(report, "").dynamic == ["x[0]", "many.a.0[1]", "n", "rest.0[0]", "mask[0]"]
    args, kwargs = made(6)
    program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
    args, kwargs = made(9)
    assert program.module()(*args, **kwargs).shape == (9, 4)
    assert oe.diagnose_export(model, [made(5)], exporter="export").dynamic_shapes() is None
    with pytest.raises(oe.InvalidArgumentError, match="'other' is not a module"):
        report.dynamic_shapes("other")


class Cache:
    """Two tensors that grow like the caches of language models."""

    def __init__(self, keys: Any = None) -> None:
        self.keys = keys

    def update(self, keys: Any) -> Any:
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], 1)
        return self.keys


class Caches(nn.Module):  # type: ignore[misc,name-defined]
    """A module that modifies its arguments."""

    def forward(self, x: Any, cache: Any, seen: Any, places: Any) -> Any:
        assert x.sum() != 123
        seen.append(x.sum())
        places["last"] = x[:, -1]
        keys = cache.update(x)
        x.add_(1)
        return keys.mean(1, keepdim=True), None


class UsesCaches(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Caches(), Caches()

    def forward(self, x: Any) -> Any:
        x, cache, seen, places = x * 2, Cache(), [], {}
        first, _ = self.one(x, cache, seen, places)
        second, _ = self.two(x, cache, seen, places)
        return first + second + x, cache.keys, seen[0] * seen[1], places["last"]


@pytest.fixture
def registered() -> Any:
    pytree = torch.utils._pytree
    pytree.register_pytree_node(
        Cache,
        lambda each: ([] if each.keys is None else [each.keys], None),
        lambda given, _: Cache(*given),
        serialized_type_name="Cache",
    )
    yield
    pytree._deregister_pytree_node(Cache)


@pytest.mark.usefixtures("registered")
def test_caches_and_tensors_that_are_changed_in_place_are_followed() -> None:
    report = oe.diagnose_export(UsesCaches().eval(), sets(), exporter="export")
    is_of = statuses(report)
    assert is_of["one"] == is_of["two"] == FAIL | CUSTOM
    assert is_of[""] == OK | CHILDC, report.tree()
    assert (
        found(report, "two").dynamic[0] == "x[0]" and "cache.0[1]" in found(report, "two").dynamic
    )


class Keeps(nn.Module):  # type: ignore[misc,name-defined]
    """A module with state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))
        self.inner = Branches()

    def forward(self, x: Any) -> Any:
        self.steps.add_(1)
        return self.inner(x) + self.steps


def test_the_state_of_a_model_stays_unchanged() -> None:
    model = nn.Sequential(Keeps(), nn.Linear(8, 8)).eval()
    report = oe.diagnose_export(model, sets(), exporter="export")
    assert statuses(report)["0"] == statuses(report)[""] == OK | CHILDC, report.tree()
    assert float(model[0].steps) == 0
    local = oe.diagnose_export(model, sets(), exporter="export", strategy="local")
    assert [each.name for each in local.wrong] == ["0.inner"] and float(model[0].steps) == 0


def test_progress_names_the_modules_and_may_stop_the_work() -> None:
    model, seen = Model(Branches()).eval(), []

    def stop(*given: Any) -> None:
        seen.append(given)
        if len(seen) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oe.diagnose_export(model, sets(), exporter="export", progress=stop)
    assert seen == [("", 1, 12), ("layers.0", 2, 12)]
    assert all("forward" not in vars(each) for each in model.modules())


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(oe.ReadWriteError, match="No space left on device; the folder is in TMPDIR"):
        oe.diagnose_export(Model(Branches()).eval(), sets())


def test_nothing_is_left_behind() -> None:
    model = Model(Branches()).eval()
    before = {name: dict(vars(each)) for name, each in model.named_modules()}
    spaces = set(torch._C._dispatch_get_all_op_names())
    for exporter in ("export", "torchscript", "onnx"):
        first = oe.diagnose_export(model, sets(), exporter=exporter)
        if exporter == "torchscript":
            again = oe.diagnose_export(model, sets(), exporter=exporter)
            assert statuses(first) == statuses(again)
    assert {name: dict(vars(each)) for name, each in model.named_modules()} == before
    assert not any(each.training for each in model.modules())
    left = set(torch._C._dispatch_get_all_op_names()) - spaces
    assert not [name for name in left if name.startswith("onnx_external")]

    def broken(x: Any) -> Any:
        raise ValueError("broken")

    model.head.forward = broken
    with pytest.raises(oe.RunError, match="Model cannot run input set 0: ValueError: broken"):
        oe.diagnose_export(model, sets())
    assert vars(model.head)["forward"] is broken
    assert all("forward" not in vars(each) for each in model.layers.modules())


def test_bad_input_is_refused(tmp_path: Path) -> None:
    model = Model(Branches()).eval()

    def refused(match: str, *args: Any, **kwargs: Any) -> None:
        with pytest.raises(oe.InvalidArgumentError, match=match):
            oe.diagnose_export(*args, **kwargs)

    refused("expected a torch module", 7, sets())
    refused("at least one set", model)
    refused("at least one set", model, [])
    refused("exporter: 'onnxx' is not one of 'export', 'onnx'", model, sets(), exporter="onnxx")
    refused("strategy: 'some' is not one of 'always'", model, sets(), strategy="some")
    refused("opaque: 'layers.9' is neither", model, sets(), opaque=["layers.9"])
    refused("traced_method: 'Nothing' is neither", model, sets(), traced_method={"Nothing": "x"})
    refused("has no method 'encode'", model, sets(), traced_method={"head": "encode"})
    refused("the model itself", model, sets(), opaque=[""])
    refused("the model itself", model, sets(), traced_method={"": ""})
    refused("only used with a transformers folder", model, sets(), task="text-generation")
    refused("training mode", Model(Branches()), sets())
    with pytest.raises(oe.NotFoundError, match="not a folder with a transformers config"):
        oe.diagnose_export(tmp_path)
    with pytest.raises(oe.RunError, match="cannot run input set 1: TypeError"):
        oe.diagnose_export(model, [*sets()[:1], {"y": torch.ones(2)}])


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers", minversion="5.20")


def llama(transformers: Any) -> Any:
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return transformers.LlamaForCausalLM(config).eval()


def texts() -> list[Any]:
    ids = [torch.randint(0, 96, size) for size in ((2, 6), (3, 9))]
    return [{"input_ids": each, "attention_mask": torch.ones_like(each)} for each in ids]


class Gated(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x) * 2 if x.sum() > 0 else self.inner(x)


def test_the_one_module_of_a_llama_that_fails_is_named(transformers: Any) -> None:
    model = llama(transformers)
    report = oe.diagnose_export(model, texts(), exporter="export")
    assert report.ok and statuses(report)[""] == OK
    model.model.layers[1].mlp = Gated(model.model.layers[1].mlp).eval()
    report = oe.diagnose_export(model, texts(), exporter="export")
    is_of = statuses(report)
    assert [each.name for each in report.wrong] == ["model.layers.1.mlp"], report.tree()
    assert is_of["model.layers.1.mlp"] == FAIL | CUSTOM and is_of["model.layers.0"] == OK
    for around in ("", "model", "model.layers.1"):
        assert is_of[around] == OK | CHILDC
        assert found(report, around).instead == ["model.layers.1.mlp"]
    wrong = [name for name, each in is_of.items() if each & (FAIL | DISC)]
    assert wrong == ["model.layers.1.mlp"]
    local = oe.diagnose_export(model, texts(), exporter="export", strategy="local")
    assert [each.name for each in local.wrong] == ["model.layers.1.mlp"], local.tree()


def test_a_folder_is_diagnosed_graph_by_graph(
    transformers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama(transformers).save_pretrained(tmp_path)
    done = commands.run("diagnose", tmp_path, "--exporter", "onnx")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The model itself (LlamaForCausalLM) exports.\n")
    assert done.stdout.splitlines()[3].startswith("(model) LlamaForCausalLM  right")
    from transformers.models.llama.modeling_llama import LlamaMLP

    forward = LlamaMLP.forward

    def branches(self: Any, x: Any) -> Any:
        return forward(self, x) if x.sum() > 0 else -forward(self, x)

    monkeypatch.setattr(LlamaMLP, "forward", branches)
    report = oe.diagnose_export(tmp_path, exporter="export")
    assert [each.name for each in report.wrong] == [f"model.layers.{i}.mlp" for i in range(2)]
    assert report.model == f"{tmp_path} (model)"
    assert statuses(report)[""] == OK | CHILDC
    assert report.sentence.endswith("; 1 other as well; rewriting mends it.")


def test_a_cache_of_a_window_is_compared_as_it_is_traced(transformers: Any, tmp_path: Path) -> None:
    config = transformers.Gemma3TextConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=4,
        max_position_embeddings=64,
    )
    transformers.Gemma3ForCausalLM(config).eval().save_pretrained(tmp_path)
    report = oe.diagnose_export(tmp_path, exporter="export")
    assert report.ok, report.tree()


def test_the_command_refuses_what_does_not_go_together(tmp_path: Path) -> None:
    def told(code: int, *more: str) -> str:
        done = commands.run("diagnose", *more)
        assert done.returncode == code and not done.stdout
        return done.stderr

    refused = told(1, str(tmp_path))
    assert "diagnose: error:" in refused and "config.json" in refused
    assert "--against FOLDER" in told(2, "model.onnx")
    assert "cannot be combined with --against" in told(
        2, "m.onnx", "-a", str(tmp_path), "--exporter", "onnx"
    )


class Numpy(torch.nn.Module):
    """A module that leaves torch for numpy. torch.onnx.export can trace it with strict=True."""

    def forward(self, x: Any) -> Any:
        return x + torch.from_numpy(np.sin(x.numpy()))


def test_what_the_exporter_traces_strictly_is_not_blamed() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), Numpy()).eval()
    report = oe.diagnose_export(module, [(torch.ones(2, 4),), (torch.ones(3, 4),)])
    assert report and "strict=True" in found(report, "").notes[0]
    assert len(found(report, "").sets) == 2


def test_what_only_the_default_of_torch_export_refuses_says_so() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), Numpy()).eval()
    report = oe.diagnose_export(module, [(torch.ones(2, 4),)], exporter="export")
    assert not report and report.first.name == "1" and "numpy()" in report.first.reason
    assert any("strict=True traces it" in note for note in report.first.notes)
    assert "strict=True traces it" in report.tree()


class Pair(NamedTuple):
    """A single argument that consists of several values."""

    first: Any
    second: Any


def test_sizes_inside_of_named_tuples_and_ordered_dicts_vary() -> None:
    from onnx_external._tracing.dynamic_dimensions import guessed_shapes

    def forward(pair: Pair, parts: OrderedDict[str, Any]) -> None: ...

    rows = [torch.zeros(2, 3), torch.zeros(5, 3)]
    calls = [((Pair(each, 7), OrderedDict(a=each)), {}) for each in rows]
    varies = {0: torch.export.Dim.DYNAMIC}
    found = guessed_shapes(forward, calls)
    assert found == {"pair": Pair(varies, None), "parts": OrderedDict(a=varies)}
    assert type(found["parts"]) is OrderedDict  # torch.export compares the types of containers
