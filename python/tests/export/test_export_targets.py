"""Tests of the objects that can be exported, and of errors on inputs and sizes that do not fit."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


class Masked(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A module with two optional inputs, one of which is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 3)

    def forward(self, x: Any, mask: Any = None, scale: float = 1.0) -> Any:
        y = self.line(x) * scale
        return y if mask is None else y * mask[..., None]


def masked() -> Any:
    torch.manual_seed(0)
    return Masked().eval()


def calls_of(*given: Any) -> Any:
    from onnx_external.torch import _input_sets

    return _input_sets.calls_of(*given)


def x(rows: int = 2, length: int = 5) -> Any:
    return torch.rand(rows, length, 4)


def exported(target: Any, args: Any, path: Path, **options: Any) -> Any:
    return oe.torch.export(target, args, path, overwrite=True, fsync=False, **options)


def sizes(path: Path) -> list[Any]:
    import onnxruntime

    return list(onnxruntime.InferenceSession(str(path)).get_inputs()[0].shape)


def test_sizes_vary_by_the_sets_if_a_function_makes_the_module(tmp_path: Path) -> None:
    torch.save(masked().state_dict(), tmp_path / "weights.pt")
    path, given = tmp_path / "model.onnx", {"weights": tmp_path / "weights.pt"}
    exported(masked, (x(),), path, input_sets=[(x(3, 7),)], **given)
    assert sizes(path) == ["x_dim_0", "x_dim_1", 4]
    exported(masked, (x(),), path, dynamic_shapes={"x": {0: "rows"}}, **given)
    assert sizes(path) == ["rows", 5, 4]
    made = oe.torch.skeleton(masked, (x(),), input_sets=[{"x": x(3)}])
    assert list(made.model.graph.inputs[0].shape)[1:] == [5, 4]
    with pytest.raises(oe.ExportError, match=r"input set 1.*x\.size"):  # a line that fixes a size
        oe.torch.skeleton(lambda: Fixed().eval(), (x(),), input_sets=[(x(3),)], rewrite=False)


class Fixed(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return x * 2 if x.shape[0] < 3 else x


def test_a_function_may_return_a_module_that_has_its_weights(tmp_path: Path) -> None:
    module = masked()
    report = exported(lambda: module, (x(),), tmp_path / "model.onnx", input_sets=[(x(3),)])
    assert report.checked == 2 and report.complete


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (lambda: masked().forward, r"Masked\.forward takes \(x, mask, scale\).*module itself"),
        (lambda: "weights.pt", r"'weights\.pt' is a path.*weights='weights\.pt'"),
        (lambda: masked().state_dict(), "a state dict has no code.*weights=state_dict"),
        (lambda: lambda ids: ids, r"<lambda> takes \(ids\); a target is"),
        (lambda: torch.nn.Linear, r"Linear takes .*it is a class.*lambda: Linear\(\.\.\.\)"),
        (lambda: torch.jit.script(torch.nn.ReLU()), "TorchScript.*it was made"),
        (lambda: torch.jit.trace(masked(), (x(),)), "TorchScript.*it was made"),
        (lambda: None, "None is not a module"),
        (lambda: torch.ones(2), "a value of type Tensor is not a module"),
        (lambda: lambda: 5, r"<lambda>\(\) returned a value of type int, not a module"),
        (lambda: functools.partial(dict, a=1), "returned a value of type dict, not"),
    ],
)
def test_what_is_not_a_target_is_refused_with_what_may_be_one(
    target: Any, told: str, tmp_path: Path
) -> None:
    for call in (oe.torch.skeleton, functools.partial(exported, path=tmp_path / "model.onnx")):
        with pytest.raises(TypeError, match=rf"^target: .*{told}.*module in eval mode"):
            call(target(), (x(),))


def test_what_a_function_of_the_caller_raises_is_the_cause() -> None:
    def make() -> Any:
        raise KeyError("config")

    with pytest.raises(oe.ExportError, match=r"target: make\(\) raised KeyError") as caught:
        oe.torch.skeleton(make, (x(),))
    assert isinstance(caught.value.__cause__, KeyError)


def test_wrappers_that_train_or_compile_are_taken_off() -> None:
    wrapped = torch.nn.DataParallel(torch.compile(masked()))
    for target in (wrapped, lambda: wrapped):
        assert all(name.startswith("line.") for name in oe.torch.skeleton(target, (x(),)).slots)


def test_a_set_has_the_form_of_the_example_however_it_is_written() -> None:
    rows, mask = x(3), torch.ones(3, 5)

    def second(example: Any, sets: Any) -> Any:
        return calls_of(masked(), example, None, sets)[1]

    for sets in ([[rows]], (rows,), [{"x": rows}], [(rows, None)], [rows.numpy()], [((rows,), {})]):
        (found,), named = second((x(),), sets)
        assert torch.equal(found, rows) and named == {}
    assert second((x(), None), [(rows,)]) == ((rows, None), {})
    for given in ([rows, mask], (rows, mask), {"mask": mask, "x": rows}, ((rows,), {"mask": mask})):
        assert second((x(), mask[:2]), [given]) == ((rows, mask), {})
        found, named = second({"x": x(), "mask": mask[:2]}, [given])
        assert found == () and named == {"x": rows, "mask": mask}


class Summed(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, parts: Any) -> Any:
        return torch.stack(parts).sum(0)


def test_a_list_that_the_module_takes_stays_one(tmp_path: Path) -> None:
    parts = [x(3), x(3)]
    for sets in ([parts], [[parts]], [(parts,)]):
        assert calls_of(Summed(), ([x(), x()],), None, sets)[1] == ((parts,), {})
    report = exported(Summed(), ([x(), x()],), tmp_path / "model.onnx", input_sets=[parts])
    assert report.checked == 2


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        ([(x(3), torch.ones(3, 5), 2.0, 4)], "a set has 4 positional inputs"),
        ([(x(3),)], "no mask, which the example has"),
        ([{"x": x(3), "mask": torch.ones(3, 5), "ids": 1}], "ids, which the example lacks"),
        ([{"x": x(3)}], r"no mask, .*Masked takes \(x, mask, scale\)"),
        ([(x(3), None)], "mask is None in a set, and a value in the example"),
        ([(x(3), torch.ones(3, 5, dtype=torch.bool))], "mask is bool .* float32 "),
        (["inputs.npz"], "'inputs.npz' is not a set"),
        (x(3), "Tensor is not a list"),
        (7, "int is not a list"),
    ],
)
def test_a_set_that_does_not_fit_is_reported_by_the_names_of_its_arguments(
    sets: Any, told: str
) -> None:
    with pytest.raises(oe.InvalidArgumentError, match=f"^input_sets: .*{told}"):
        oe.torch.skeleton(masked(), (x(), torch.ones(2, 5)), input_sets=sets)


DIM = torch.export.Dim


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ({"input": {0: "b"}, "mask": None}, "does not get input and there is no entry for x"),
        ({"x": {0: "b"}}, "there is no entry for mask"),
        (({0: "b"},), r"1 entries for 2 inputs \(x, mask\)"),
        ({"x": {3: "b"}, "mask": None}, r"x has no dimension 3; .* 0 to 2"),
        ({"x": {-2: "b"}, "mask": None}, "x has no dimension -2; -2 from the end is 1"),
        ({"x": {"rows": 0}, "mask": None}, "x has no dimension 'rows'"),
        ({"x": [0, 1, 2], "mask": None}, r"x\[0\] is 2 in the example, not 0;.*\{0: 'batch'"),
        ({"x": ["b"], "mask": None}, "x has 1 entries for sizes; it has 3"),
        ({"x": {0: 2.5}, "mask": None}, r"x\[0\] is to be 2\.5"),
        ({"x": "rows", "mask": None}, "x has the entry 'rows'"),
        ({"x": {0: DIM("b", min=4, max=8)}, "mask": None}, "b ranges from 4 to 8"),
        (
            {"x": {0: "b", 1: "b"}, "mask": None},
            r"'b' is used for x\[0\], which is 2 .* x\[1\], .*is 5",
        ),
        ({"x": {0: "b"}, "mask": {1: DIM("b")}}, r"'b' is used for x\[0\], .* mask\[1\]"),
        ("rows", "'rows' has no entries"),
        (5, "5 has no entries"),
    ],
)
def test_sizes_that_do_not_fit_are_reported_by_the_input_and_the_dimension(
    shapes: Any, told: str
) -> None:
    for target in (masked(), masked):
        with pytest.raises(oe.InvalidArgumentError, match=f"^dynamic_shapes: .*{told}"):
            oe.torch.skeleton(target, (x(), torch.ones(2, 5)), dynamic_shapes=shapes)


def test_one_name_means_one_size_in_all_sets() -> None:
    square, other = torch.rand(4, 4, 4), torch.rand(3, 5, 4)
    with pytest.raises(oe.InvalidArgumentError, match=r"x\[0\], which is 3 in input set 1"):
        oe.torch.skeleton(
            masked(), (square,), input_sets=[(other,)], dynamic_shapes=({0: "n", 1: "n"},)
        )


def test_sizes_of_values_in_lists_and_dicts_are_found(tmp_path: Path) -> None:
    shapes = {"parts": [{0: "b"}, {0: "b"}]}
    report = exported(Summed(), ([x(), x()],), tmp_path / "model.onnx", dynamic_shapes=shapes)
    assert report.checked > 1
    with pytest.raises(oe.InvalidArgumentError, match=r"parts\[1\] has no dimension 7"):
        oe.torch.skeleton(Summed(), ([x(), x()],), dynamic_shapes={"parts": [None, {7: "b"}]})
    with pytest.raises(oe.InvalidArgumentError, match="parts has 2 values, not 1"):
        oe.torch.skeleton(Summed(), ([x(), x()],), dynamic_shapes={"parts": [None]})


class Stages(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A module with lists of layers that contain None or are empty."""

    def __init__(self) -> None:
        super().__init__()
        lines = [torch.nn.Linear(4, 4) for _ in range(6)]
        self.layers = torch.nn.ModuleList(lines[:3])
        self.more = torch.nn.ModuleList([*lines[3:], None])
        self.none = torch.nn.ModuleList()
        self.named = torch.nn.ModuleDict()
        self.named.add_module("gone", None)
        self.register_parameter("bias", None)
        self.register_buffer("mask", None)

    def forward(self, x: Any) -> Any:
        for one, other in zip(self.layers, self.more, strict=False):
            x = other(one(x).relu())
        for each in (*self.none, *filter(None, self.more)):
            x = each(x)
        return x if self.named["gone"] is None and self.mask is None else self.bias


def test_containers_may_have_none_in_them_or_nothing(tmp_path: Path) -> None:
    module = Stages().eval()
    report = exported(module, (x(),), tmp_path / "model.onnx", input_sets=[(x(3),)])
    assert report.checked == 2
    assert oe.diagnose_export(module, [(x(),)]).ok


def test_arrays_of_numpy_are_inputs_wherever_they_are(tmp_path: Path) -> None:
    given = x().numpy()
    for args in (given, (given,), {"x": given}, {"x": given, "mask": np.ones((2, 5), np.float32)}):
        ((found, named),) = calls_of(masked(), args, None, ())
        assert all(isinstance(each, torch.Tensor) for each in (*found, *named.values()))
    report = exported(Summed(), ([given, given],), tmp_path / "model.onnx", dynamic_shapes={})
    assert report.checked == 1
