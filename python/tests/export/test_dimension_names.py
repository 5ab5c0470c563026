"""Tests of the names of dynamic dimensions in a graph."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
onnx_ir = pytest.importorskip("onnx_ir")
pytest.importorskip("onnxscript")

from torch.export import Dim  # noqa: E402

from onnx_external.torch._dimension_names import give_names, name_sizes  # noqa: E402

Shapes = Mapping[str, Sequence[Any]]
X, Y = torch.rand(3, 5, 8), torch.rand(3, 4)


class Layers(torch.nn.Module):
    """Several inputs, one of them in a dict; some output sizes are computed, one from a value."""

    def forward(self, x: Any, more: Any) -> Any:
        rows = torch.nonzero(more["y"].sum(1) > 1)
        return torch.cat([x, x]), x.flatten(0, 1), more["y"] + 1, rows


def dims(**given: Any) -> list[list[Any]]:
    """Return the dimensions of the inputs and outputs of a graph without weights."""
    made = oe.torch.skeleton(Layers(), (X, {"y": Y}), **given)
    values = (*made.model.graph.inputs, *made.model.graph.outputs)
    return [[getattr(dim, "value", dim) for dim in value.shape] for value in values]


def graph(inputs: Shapes, outputs: Shapes) -> Any:
    """Return an onnx_ir graph without nodes."""

    def values(shapes: Shapes) -> list[Any]:
        return [onnx_ir.Value(name=name, shape=onnx_ir.Shape(s)) for name, s in shapes.items()]

    made = onnx_ir.Graph(values(inputs), values(outputs), nodes=[])
    return onnx_ir.Model(made, ir_version=10)


def shown(model: Any) -> dict[str, list[Any]]:
    values = (*model.graph.inputs, *model.graph.outputs)
    return {value.name: [getattr(dim, "value", dim) for dim in value.shape] for value in values}


@pytest.mark.parametrize("kind", [Dim, str])
def test_sizes_have_the_names_that_dynamic_shapes_gives_them(kind: Any) -> None:
    shapes = {"x": {0: kind("rows"), 1: kind("words")}, "more": {"y": {0: kind("pairs")}}}
    assert dims(dynamic_shapes=shapes) == [
        ["rows", "words", 8],
        ["pairs", 4],
        ["2*rows", "words", 8],
        ["rows*words", 8],
        ["pairs", 4],
        ["nonzero_dim_0", 1],
    ]


def test_other_sizes_are_called_after_the_input_or_output_that_has_them_first() -> None:
    vary = ({0: Dim.AUTO, 1: Dim.DYNAMIC}, {"y": (Dim.AUTO, None)})
    assert dims(dynamic_shapes=vary) == [
        ["x_dim_0", "x_dim_1", 8],
        ["more_y_dim_0", 4],
        ["2*x_dim_0", "x_dim_1", 8],
        ["x_dim_0*x_dim_1", 8],
        ["more_y_dim_0", 4],
        ["nonzero_dim_0", 1],
    ]


def test_sizes_that_a_trace_needs_to_be_equal_have_one_name() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    vary = ({0: Dim.AUTO}, {0: "rows"})
    made = oe.torch.skeleton(Sum(), (Y, Y + 1), dynamic_shapes=vary)
    assert {dim for each in shown(made.model).values() for dim in each} == {"rows", 4}


def test_a_program_that_torch_traced_has_such_names_too(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.ReLU(), (Y,), dynamic_shapes=({0: Dim("rows")},))
    oe.torch.export(program, (Y,), tmp_path / "model.onnx", check=False)
    made = oe.torch.skeleton(program)
    assert shown(made.model) == {"input": ["input_dim_0", 4], "relu": ["input_dim_0", 4]}


def test_an_onnx_program_keeps_the_names_that_it_has() -> None:
    options: dict[str, Any] = {"dynamo": True, "optimize": False, "verbose": False}
    shapes = ({0: "s1"},)
    program = torch.onnx.export(torch.nn.ReLU().eval(), (Y,), dynamic_shapes=shapes, **options)
    assert shown(oe.torch.skeleton(program).model)["input"] == ["s1", 4]


def test_sizes_that_are_not_a_dimension_are_numbered_and_expressions_are_short() -> None:
    made = graph({"x": ["2*s5", "s7"], "x_dim_1": ["s8", 1]}, {"y": ["((s7//10)) - 1", "s7*s6*s8"]})
    name_sizes(made, {"s8": "x_dim_1"})
    assert shown(made) == {
        "x": ["2*size_1", "x_dim_1_"],
        "x_dim_1": ["x_dim_1", 1],
        "y": ["x_dim_1_ // 10 - 1", "size_2*x_dim_1*x_dim_1_"],
    }


def test_names_are_exchanged_at_once_and_numbers_are_numbers() -> None:
    made = graph({"x": ["s1", "s2", "32", None]}, {"y": ["s1 +"]})
    give_names(made, {"s1": "s2", "s2": "s1"})
    assert shown(made) == {"x": ["s2", "s1", 32, None], "y": ["s2 +"]}


def names_of_transformers(inputs: Shapes, outputs: Shapes, example: Shapes) -> dict[str, list[Any]]:
    pytest.importorskip("transformers", minversion="5.20")
    from onnx_external.transformers._naming import name_dimensions

    made = graph(inputs, outputs)
    name_dimensions(made, example)
    return shown(made)


def test_images_and_sounds_beside_texts_have_rows_of_their_own() -> None:
    for name, rows in (("pixel_values", "images"), ("input_features", "sounds")):
        rank = 4 if name == "pixel_values" else 3
        inputs = {
            name: ["s1", *range(3, 2 + rank)],
            "input_ids": ["s2", "s3"],
            "attention_mask": ["s4", "s5"],
        }
        outputs = {"logits_per_text": ["s2", "s1"]}
        example = {name: [2] * rank, "input_ids": [2, 8], "attention_mask": [2, 8]}
        found = names_of_transformers(inputs, outputs, example)
        assert found["logits_per_text"] == ["batch_size", rows]
        assert found[name][0] == rows and found["attention_mask"] == [
            "batch_size",
            "sequence_length",
        ]
        alike = {**inputs, name: ["s2", *inputs[name][1:]]}
        assert names_of_transformers(alike, {}, example)[name][0] == "batch_size"


def test_a_graph_of_one_token_has_the_total_length_and_states_have_their_sizes() -> None:
    cache, longer = "past_key_values.0.decoder.key", "present.0.decoder.key"
    found = names_of_transformers(
        {"decoder_input_ids": ["s0", 1], cache: ["s1", 4, "s2", 8]},
        {longer: ["s0", 4, "s2 + 1", 8]},
        {"decoder_input_ids": [2, 1], cache: [2, 4, 5, 8]},
    )
    assert found[longer] == ["batch_size", 4, "total_sequence_length", 8]
    state = "past_conv.0"
    found = names_of_transformers({state: ["s0", 64, "s1"]}, {}, {state: [2, 64, 4]})
    assert found[state] == ["batch_size", 64, "conv_kernel"]


def test_patches_of_all_images_are_patches() -> None:
    inputs = {"input_ids": ["s0", "s1"], "pixel_values": ["s2", 12], "image_grid_thw": ["s3", 3]}
    example = {"input_ids": [2, 8], "pixel_values": [2, 12], "image_grid_thw": [2, 3]}
    found = names_of_transformers(inputs, {}, example)
    assert found["pixel_values"] == ["patches", 12] and found["image_grid_thw"] == ["images", 3]
