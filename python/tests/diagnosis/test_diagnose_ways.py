"""Tests of the search for the wrong module: strategies, followed values, repeated calls."""

from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
nn = torch.nn


class Scaled(nn.Module):  # type: ignore[misc,name-defined]
    """Two layers and an operation in between. One of the layers is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.shared(torch.tanh(self.shared(x)) * self.scale)))


class Outer(nn.Module):  # type: ignore[misc,name-defined]
    """Three blocks in a list that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Scaled(), Scaled(), Scaled()])
        self.unused = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + block(x)
        return x


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    torch.manual_seed(5)
    model = Outer().eval()
    path = tmp_path_factory.mktemp("ways") / "model.onnx"
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    torch.onnx.export(
        model, (torch.randn(3, 8),), dynamo=True, dynamic_shapes=shapes, verbose=False
    ).save(path)
    return path, model


@pytest.fixture
def model(exported: tuple[Path, Any]) -> Any:
    """Yield the reference model, and undo changes to it afterwards."""
    kept = {name: value.clone() for name, value in exported[1].state_dict().items()}
    yield exported[1]
    exported[1].load_state_dict(kept)
    for block in exported[1].blocks:
        block.scale = 2.0


SETS = [torch.randn(3, 8, generator=torch.Generator().manual_seed(n)) for n in range(2)]
SETS[1] = torch.cat([SETS[1], SETS[1][:2]])
OK, DISC, NOINPUT = oe.Status.OK, oe.Status.DISC, oe.Status.NOINPUT
CHILDC, CUSTOM = oe.Status.CHILDC, oe.Status.CUSTOM


def statuses(report: Any) -> dict[str, Any]:
    return {each.name: each.status for each in report.modules}


def bump(parameter: Any) -> None:
    with torch.no_grad():
        parameter.view(-1)[3] += 2


def test_a_module_that_is_called_twice_is_compared_in_both_calls(
    exported: tuple[Path, Any], model: Any
) -> None:
    report = oe.diagnose(exported[0], model, SETS)
    assert report.ok and not report.wrong
    shared = next(each for each in report.modules if each.name == "blocks.1.shared")
    assert shared.status == OK and [len(each) for each in shared.sets] == [2, 2]
    bump(model.blocks[1].shared.weight)
    assert [each.name for each in oe.diagnose(exported[0], model, SETS).wrong] == [
        "blocks.1.shared"
    ]


def test_every_module_that_is_wrong_by_itself_is_listed(
    exported: tuple[Path, Any], model: Any
) -> None:
    bump(model.blocks[0].last.bias)
    bump(model.blocks[2].last.weight)
    model.blocks[1].scale = 0.5
    report = oe.diagnose(exported[0], model, SETS)
    wrong = ["blocks.0.last", "blocks.1", "blocks.2.last"]
    assert [each.name for each in report.wrong] == wrong
    found = statuses(report)
    assert found["blocks.0.last"] == DISC | CUSTOM and found["blocks.0"] == OK | CHILDC
    assert found["blocks.1"] == DISC | CUSTOM and found["blocks.1.shared"] == OK
    assert found[""] == OK | CHILDC
    assert report.remarks[0] == "Also wrong: blocks.1 (Scaled), blocks.2.last (Linear)."


def test_a_module_with_its_own_error_is_not_excused_by_one_inside_of_it(
    exported: tuple[Path, Any], model: Any
) -> None:
    bump(model.blocks[1].last.weight)
    model.blocks[1].scale = 0.5
    report = oe.diagnose(exported[0], model, SETS)
    assert [each.name for each in report.wrong] == ["blocks.1.last", "blocks.1"]
    assert statuses(report)["blocks.1"] == DISC | CHILDC | CUSTOM


def test_modules_are_looked_into_only_if_they_go_wrong(
    exported: tuple[Path, Any], model: Any
) -> None:
    assert list(statuses(oe.diagnose(exported[0], model, SETS, strategy="failing"))) == [""]
    bump(model.blocks[2].last.weight)
    report = oe.diagnose(exported[0], model, SETS, strategy="failing")
    assert report.first is not None and report.first.name == "blocks.2.last"
    assert "blocks.0" in statuses(report) and "blocks.0.last" not in statuses(report)


def test_a_module_can_be_judged_by_its_own_operations(
    exported: tuple[Path, Any], model: Any
) -> None:
    bump(model.blocks[0].last.weight)
    model.blocks[1].scale = 0.5
    seen = []
    report = oe.diagnose(
        exported[0], model, SETS, strategy="local", progress=lambda *each: seen.append(each)
    )
    found = statuses(report)
    assert found["blocks.0"] == OK | CHILDC and found["blocks.1"] == DISC | CHILDC
    assert found[""] == OK | CHILDC and found["blocks.0.last"] == DISC
    assert [each.name for each in report.wrong] == ["blocks.0.last", "blocks.1"]
    assert seen[0] == ("", 1, 12) and len(seen) == 12


def test_opaque_modules_are_not_looked_into(exported: tuple[Path, Any], model: Any) -> None:
    bump(model.blocks[2].last.weight)
    for opaque in (["Scaled"], [Scaled], "blocks.2"):
        report = oe.diagnose(exported[0], model, SETS, opaque=opaque)
        assert report.first is not None and report.first.name == "blocks.2"
        assert "blocks.2.last" not in statuses(report)
        assert ("blocks.1.last" in statuses(report)) == (opaque == "blocks.2")
    with pytest.raises(oe.InvalidArgumentError, match="'Scale' is neither the name nor"):
        oe.diagnose(exported[0], model, SETS, opaque=["Scale"])
    with pytest.raises(oe.InvalidArgumentError, match="strategy: 'never' is not one of 'always'"):
        oe.diagnose(exported[0], model, SETS, strategy="never")  # type: ignore[arg-type]


def test_followed_values_show_where_a_difference_goes(
    exported: tuple[Path, Any], model: Any
) -> None:
    bump(model.blocks[0].last.weight)
    report = oe.diagnose(exported[0], model, SETS, follow=True)
    later = next(each for each in report.modules if each.name == "blocks.1")
    assert later.status == OK and all(each.ok for compared in later.sets for each in compared)
    assert later.followed and not any(each.ok for compared in later.followed for each in compared)
    before = next(each for each in report.modules if each.name == "blocks.0.shared")
    assert before.followed and all(each.ok for compared in before.followed for each in compared)
    assert "followed" in report.tree().splitlines()[0]


def test_a_value_that_is_far_from_the_recorded_one_is_not_given_to_the_next_module(
    exported: tuple[Path, Any], model: Any
) -> None:
    with torch.no_grad():
        model.blocks[0].last.weight *= 300
    report = oe.diagnose(exported[0], model, SETS)
    assert [each.name for each in report.wrong] == ["blocks.0.last"]


def test_dimensions_that_differ_between_sets_are_guessed_to_be_dynamic(
    exported: tuple[Path, Any], model: Any
) -> None:
    report = oe.diagnose(exported[0], model, SETS)
    last = next(each for each in report.modules if each.name == "blocks.0.last")
    assert [str(each) for each in last.inputs] == ["float32[3|5,8]"]
    assert last.inputs[0].name == "input" and last.inputs[0].dynamic == [0]
    assert "float32[3|5,8] -> float32[3|5,8]" in report.tree()
    document = next(each for each in report.to_dict()["modules"] if each["name"] == last.name)
    assert document["outputs"] == [
        {"name": "output", "dtype": "float32", "shapes": [[3, 8], [5, 8]], "dynamic": [0]}
    ]
    unused = next(each for each in report.modules if each.name == "unused")
    assert unused.status == NOINPUT and unused.reason == "it was not called"


def test_values_of_bfloat16_are_recorded_and_compared(tmp_path: Path) -> None:
    class Half(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x.to(torch.bfloat16)

    torch.manual_seed(3)
    made = nn.Sequential(nn.Linear(8, 8), Half(), nn.Flatten(0), nn.Identity()).eval()
    path = tmp_path / "model.onnx"
    torch.onnx.export(made, (SETS[0],), dynamo=True, verbose=False).save(path)
    report = oe.diagnose(path, made, [SETS[0]])
    assert report.ok and statuses(report)["1"] == OK
    half = next(each for each in report.modules if each.name == "1")
    assert half.sets[0][0].expected_dtype == "bfloat16" and half.sets[0][0].elements == 24
    bump(made[0].weight)
    assert [each.name for each in oe.diagnose(path, made, [SETS[0]]).wrong] == ["0"]


def test_the_module_in_which_the_model_stops_is_named(
    exported: tuple[Path, Any], model: Any, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(exported[0])
    node = next(
        each
        for each in graph.graph.node
        if each.op_type == "Tanh"
        and any("'blocks.1'" in entry.value for entry in each.metadata_props)
    )
    # This shape fits none of the inputs of the model.
    size = onnx.helper.make_tensor("size", onnx.TensorProto.INT64, [2], [7, 11])
    graph.graph.initializer.append(size)
    wrong = onnx.helper.make_node("Reshape", [node.input[0], "size"], ["reshaped"])
    wrong.metadata_props.extend(node.metadata_props)
    graph.graph.node.insert(list(graph.graph.node).index(node), wrong)
    node.input[0] = "reshaped"
    onnx.save(graph, tmp_path / "model.onnx")
    report = oe.diagnose(tmp_path / "model.onnx", model, SETS)
    found = statuses(report)
    assert [each.name for each in report.wrong] == ["blocks.1"] and not report.ok
    assert report.first is not None and report.first.step == "run"
    assert "Reshape" in report.first.reason and "run: " in report.sentence
    assert found["blocks.0"] == found["blocks.0.last"] == OK
    assert found["blocks.2"] == NOINPUT and found[""] == OK | CHILDC
    later = next(each for each in report.modules if each.name == "blocks.2")
    assert later.reason.startswith("the model fails before it computes ")


def without_marks(path: Path, target: Path, *modules: str) -> Path:
    """Return a model in which the nodes of some modules lack metadata, as after quantization."""
    import onnx

    made = onnx.load(path)
    for node in made.graph.node:
        scopes = next(each for each in node.metadata_props if each.key.endswith(".name_scopes"))
        if any(f"'{name}'" in scopes.value for name in modules):
            node.ClearField("metadata_props")
    onnx.save(made, target)
    return target


def test_a_module_that_ends_in_nodes_of_no_module_is_not_accused(
    exported: tuple[Path, Any], model: Any, tmp_path: Path
) -> None:
    path = without_marks(exported[0], tmp_path / "model.onnx", "blocks.1.last", "blocks.2.last")
    report = oe.diagnose(path, model, SETS)
    found = statuses(report)
    assert report.ok and found[""] == OK and found["blocks.0"] == OK
    assert found["blocks.1"] == NOINPUT and found["blocks.1.last"] == NOINPUT
    assert "nodes without a module name" in by_name(report)["blocks.1"].reason
    assert report.notes[0].startswith("2 nodes have no module name (Gemm), like nodes added")
    assert not oe.diagnose(exported[0], model, SETS).notes
    # A wrong module that contains these modules is still found.
    bump(model.blocks[1].shared.weight)
    report = oe.diagnose(path, model, SETS)
    assert report.first is not None and report.first.name == "blocks.1.shared"


def test_a_module_that_begins_after_nodes_of_no_module_is_not_accused_in_a_wrong_model(
    exported: tuple[Path, Any], model: Any, tmp_path: Path
) -> None:
    path = without_marks(exported[0], tmp_path / "model.onnx", "blocks.1.shared")
    assert oe.diagnose(path, model, SETS).ok
    bump(model.blocks[0].last.weight)
    report = oe.diagnose(path, model, SETS)
    assert [each.name for each in report.wrong] == ["blocks.0.last"]
    assert statuses(report)["blocks.2"] == OK


def test_values_whose_shapes_are_not_stated_are_given_to_modules(
    exported: tuple[Path, Any], model: Any, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    made = onnx.load(exported[0])
    assert made.graph.value_info
    made.graph.ClearField("value_info")  # quantizers also omit the shapes of new values
    onnx.save(made, tmp_path / "model.onnx")
    report = oe.diagnose(tmp_path / "model.onnx", model, SETS)
    assert report.ok and statuses(report) == statuses(oe.diagnose(exported[0], model, SETS))


def by_name(report: Any) -> dict[str, Any]:
    return {each.name: each for each in report.modules}
