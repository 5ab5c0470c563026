"""Tests of the names of a graph's outputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnx_ir")
pytest.importorskip("onnxscript")

X = torch.rand(3, 4)


class Boxes(NamedTuple):
    """The result of a detector."""

    boxes: Any
    scores: Any


class Calls(torch.nn.Module):
    """A module that applies a function to its input."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.fc(x))


def outputs(function: Callable[[Any], Any], **given: Any) -> list[str]:
    """Return the names of the outputs of a graph without weights."""
    made = oe.torch.skeleton(Calls(function).eval(), (X,), **given)
    return [value.name for value in made.model.graph.outputs]


def test_outputs_are_called_as_the_keys_of_a_dict() -> None:
    assert outputs(lambda x: {"logits": x + 1, "loss": x.sum()}) == ["logits", "loss"]


def test_outputs_are_called_as_the_fields_of_a_named_tuple() -> None:
    assert outputs(lambda x: Boxes(x + 1, x.sum(1))) == ["boxes", "scores"]


def test_an_output_inside_of_a_list_is_called_by_the_path_to_it() -> None:
    names = outputs(lambda x: {"layers": [x + 1, {"last": x + 2}]})
    assert names == ["layers.0", "layers.1.last"]


def test_a_place_in_a_tuple_is_not_a_name() -> None:
    assert outputs(lambda x: (x + 1, x * 2)) == ["add", "mul"]


def test_none_among_the_results_is_not_an_output() -> None:
    assert outputs(lambda x: {"nothing": None, "two": x * 2}) == ["two"]


def test_an_output_with_the_name_of_an_input_or_a_weight_is_told_apart() -> None:
    assert outputs(lambda x: {"x": x + 1, "fc.bias": x * 2}) == ["output.x", "output.fc.bias"]


def test_a_value_inside_of_the_graph_makes_way_for_an_output() -> None:
    assert outputs(lambda x: {"mul": (x + 1) * 2 + 3, "add": x * 4}) == ["mul", "add"]


def test_names_that_the_caller_gives_are_kept() -> None:
    given = {"onnx_options": {"output_names": ["mine", "thine"]}}
    assert outputs(lambda x: {"a": x + 1, "b": x * 2}, **given) == ["mine", "thine"]


def test_one_tensor_under_two_keys_is_two_outputs(tmp_path: Any) -> None:
    def twice(x: Any) -> Any:
        y = x + 1
        return {"first": y, "second": y}

    report = oe.torch.export(Calls(twice).eval(), (X,), tmp_path)
    assert report.verified
    assert len(set(outputs(twice))) == 2


def test_a_rewritten_module_has_the_same_names_whatever_its_input_sets_are(tmp_path: Any) -> None:
    pytest.importorskip("onnxruntime")

    def chosen(x: Any) -> Any:
        return {"chosen": x + 1 if x.sum() > 0 else x - 1, "total": x.sum()}

    module = Calls(chosen).eval()
    for number, sets in enumerate(([], [(-X,)], [(torch.rand(5, 4),), (-X,)])):
        path = tmp_path / str(number) / "model.onnx"
        report = oe.torch.export(module, (X,), path, input_sets=sets)
        assert report.verified
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(path)
        assert [each.name for each in session.get_outputs()] == ["chosen", "total"]
