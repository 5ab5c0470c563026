"""Tests of comparing torch modules and transformers models with ONNX Runtime."""

import copy
import json
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest

import onnx_external as oe

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
torch = pytest.importorskip("torch", minversion="2.9")


def command(*arguments: Any) -> Any:
    return commands.run("validate", *arguments)


class Two(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A module with two outputs and a nested argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 5)

    def forward(self, ids: Any, state: dict[str, Any]) -> Any:
        hidden = self.linear(state["a"]) * ids[:, None]
        return {"hidden": hidden, "sum": hidden.sum() + state["b"]}


def two_calls() -> Any:
    state = {"a": torch.randn(4, 3), "b": torch.ones(())}
    longer = {"a": torch.randn(6, 3), "b": torch.zeros(())}
    return [((torch.arange(4),), {"state": state}), (torch.arange(6), longer)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, str]:
    torch.manual_seed(3)
    module = Two().eval()
    args, kwargs = two_calls()[0]
    rows = torch.export.Dim.AUTO
    shapes = {"ids": {0: rows}, "state": {"a": {0: rows}, "b": {}}}
    exported = torch.export.export(module, args, kwargs, dynamic_shapes=shapes)
    program = torch.onnx.export(exported, (), dynamo=True, verbose=False)
    path = tmp_path_factory.mktemp("two") / "model.onnx"
    program.save(path)
    return module, exported, str(path)


def test_a_module_is_called_with_nested_arguments(two: tuple[Any, Any, str]) -> None:
    module, _, path = two
    report = oe.validate(path, module, two_calls())
    assert report.ok and len(report.outputs) == 4
    assert [each.set for each in report.outputs[1:3]] == ["given_0", "given_1"]
    with torch.no_grad():
        module.linear.weight[2, 1] += 0.1
    report = oe.validate(path, module, two_calls())
    with torch.no_grad():
        module.linear.weight[2, 1] -= 0.1
    assert not report.ok and report.outputs[0].max_abs_at is not None
    assert report.outputs[0].max_abs_at[1] == 2
    with pytest.raises(oe.MismatchError, match="cannot be called like this"):
        oe.validate(path, module, (torch.arange(4),))
    with pytest.raises(oe.InvalidArgumentError, match="training mode"):
        oe.validate(path, Two(), two_calls())


def test_a_program_has_examples_of_its_own(two: tuple[Any, Any, str], tmp_path: Path) -> None:
    _, exported, path = two
    report = oe.validate(path, exported, dump=tmp_path)
    assert report.ok and {each.set for each in report.outputs} == {"example"}
    assert oe.validate(path, exported, tmp_path).ok  # recorded inputs, reordered
    torch.export.save(exported, tmp_path / "program.pt2")
    done = command(path, "--against", tmp_path / "program.pt2")
    assert done.returncode == 0 and "all 2 outputs agree" in done.stdout, done.stderr


def test_a_module_runs_on_inputs_that_are_made(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()).eval()
    rows = {0: torch.export.Dim("rows")}
    program = torch.onnx.export(
        module, (torch.ones(2, 3),), dynamic_shapes=(rows,), dynamo=True, verbose=False
    )
    assert oe.validate(program, module, dims={"rows": [1, 7]}).ok
    assert oe.validate(program).ok  # compared with the original program
    module = copy.deepcopy(module)  # the program keeps the tensors of the original
    assert oe.validate(program, module.double(), dims={"rows": 3}).ok
    with torch.no_grad():
        module[0].bias.fill_(torch.nan)
    report = oe.validate(program, module, dims={"rows": 3})
    assert report.outputs[0].expected_nan == 12 and report.outputs[0].share == 1
    module[1] = torch.nn.Linear(5, 5).eval()
    with pytest.raises(oe.RunError, match="Sequential fails on it: RuntimeError"):
        oe.validate(program, module, dims={"rows": 3})


SIZES = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
)


SETS = {"example", "longer", "prompt", "longer prompt"}


def saved_folder(folder: Path, name: str, **more: Any) -> None:
    """Save a small transformers model with random weights, and return it."""
    transformers = pytest.importorskip("transformers", minversion="5.20")
    made = getattr(transformers, name)
    torch.manual_seed(7)
    model = made(made.config_class(**SIZES, **more))
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape) * 0.3 + (1.0 if value.dim() == 1 else 0.0))
    model.save_pretrained(folder)


def test_a_folder_is_exported_and_all_its_graphs_are_compared(tmp_path: Path) -> None:
    llama, out = tmp_path / "llama", tmp_path / "out"
    saved_folder(llama, "LlamaForCausalLM", num_key_value_heads=2)
    done = command(llama, "-o", out, "--dtype", "float16", "--dump", tmp_path / "dump", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [each["name"] for each in document["graphs"]] == ["model"]
    for graph in document["graphs"]:
        sets = {each["set"].partition(",")[0] for each in graph["outputs"]}  # without row counts
        assert sets == SETS
        assert {each["dtype"] for each in graph["outputs"]} == {"float16"}
    assert {"trace model", "load reference"} <= {each["name"] for each in document["steps"]}
    assert (tmp_path / "dump/test_data_set_1/actual_0.pb").is_file()
    assert oe.validate(out / "model.onnx", tmp_path / "dump").ok
    # A wrong weight is found, also if the folders are compared later.
    weights = onnx.load(out / "model.onnx", load_external_data=False).graph.initializer
    place = next(each for each in weights if each.name == "model.norm.weight").external_data
    entry = {each.key: each.value for each in place}
    with open(out / entry["location"], "r+b") as data:
        data.seek(int(entry["offset"]))
        data.write(np.full(32, 3, np.float16).tobytes())
    report = oe.validate(out, llama, dtype="float16")
    wrong = {
        (graph.name, each.output)
        for graph in report.graphs
        for each in graph.outputs
        if not each.ok
    }
    assert ("model", "logits") in wrong and {output for _, output in wrong} == {"logits"}


def test_a_folder_that_holds_its_graphs_is_its_own_reference(tmp_path: Path) -> None:
    saved_folder(tmp_path, "BertForMaskedLM")
    oe.transformers.export(tmp_path, tmp_path, layout="link", dynamic=False, fsync=False)
    report = oe.validate(tmp_path)
    assert report.ok and report.exported is None
    assert [each.set for each in report.outputs] == ["example"]
    assert "longer is skipped: " in report.graphs[0].notes[0]
    assert oe.validate(tmp_path / "model.onnx", tmp_path).ok
    with pytest.raises(oe.InvalidArgumentError, match="its own examples"):
        oe.validate(tmp_path, dims={"rows": 2})
    (tmp_path / "model.onnx").rename(tmp_path / "middle.onnx")
    assert oe.validate(tmp_path).ok  # its only model
    assert oe.validate(tmp_path, tmp_path / "middle.onnx").ok
    (tmp_path / "empty").mkdir()
    with pytest.raises(oe.NotFoundError, match=r"no model \(\.onnx\), and no config"):
        oe.validate(tmp_path / "empty")


def test_inputs_have_the_same_forms_everywhere(tmp_path: Path) -> None:
    from onnx_external._comparing.giving import calls_of as calls_of_sets
    from onnx_external.torch._input_sets import calls_of

    module, x = torch.nn.Linear(3, 2).eval(), torch.ones(4, 3)
    for given in (x, (x,), [x], x.numpy(), {"input": x}, {"input": x.numpy()}):
        for (args, kwargs), *rest in (calls_of(module, given, None, []), calls_of_sets(given)):
            assert torch.equal([*args, *kwargs.values()][0], x) and not rest
    assert calls_of(module, x, None, [x.numpy()])[1][0][0].equal(x)
    report = oe.torch.export(module, x, tmp_path / "model.onnx")
    assert oe.validate(report.path, module, x.numpy()).ok
    assert oe.diagnose(tmp_path, module, [x.numpy()]).ok  # its only model


def test_inputs_that_a_module_does_not_take_are_reported_with_the_call(tmp_path: Path) -> None:
    module, x = torch.nn.Linear(3, 2).eval(), torch.ones(4, 3)
    call = r'oe\.torch\.export\(module, \(x,\), "out/model\.onnx"\)'
    with pytest.raises(oe.InvalidArgumentError, match=rf"takes \(input\), not 2 .*{call}"):
        oe.torch.export(module, (x, x), tmp_path / "model.onnx")
    with pytest.raises(oe.InvalidArgumentError, match="argument: 'input'"):
        oe.torch.export(module, None, tmp_path / "model.onnx")
    with pytest.raises(
        TypeError, match=rf"arguments of the module, not 'out/model.onnx'; .*{call}"
    ):
        oe.torch.export(module, "out/model.onnx", x)
    with pytest.raises(oe.InvalidArgumentError, match="args, kwargs: both"):
        oe.torch.export(module, {"input": x}, tmp_path / "model.onnx", {"input": x})
    with pytest.raises(oe.InvalidArgumentError, match=r"input_sets=.*longer_x"):
        oe.torch.export(module, x, tmp_path / "model.onnx", input_sets=x)
    for inputs in ("recorded", None, [], module):
        with pytest.raises(oe.InvalidArgumentError, match="inputs: expected at least one set"):
            oe.diagnose_export(module, inputs)
    assert not list(tmp_path.iterdir())
