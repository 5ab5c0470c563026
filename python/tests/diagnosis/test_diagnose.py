"""Tests of finding the module whose part of an exported model computes something else."""

import json
import re
from pathlib import Path
from typing import Any

import commands
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SIZES = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", {}),
    "vit": ("ViTForImageClassification", dict(image_size=16, patch_size=8)),
    "llama": ("LlamaForCausalLM", dict(num_key_value_heads=4)),
}


class Exported:
    """A transformers model, its folder, and its graphs."""

    def __init__(self, folder: Path, name: str) -> None:
        cls, more = MODELS[name]
        made = getattr(transformers, cls)
        torch.manual_seed(7)
        self.model = made(made.config_class(**SIZES, **more)).eval()
        with torch.no_grad():
            for value in self.model.parameters():
                value.copy_(torch.randn(value.shape) * 0.3 + (1.0 if value.dim() == 1 else 0.0))
        self.folder, self.out = folder / name, folder / f"{name}-out"
        self.model.save_pretrained(self.folder)
        oe.transformers.export(self.folder, self.out, fsync=False, progress=False)

    def changed(self, folder: Path, change: Any) -> Path:
        """Return the folder of a changed model, for which the graphs are wrong."""
        kept = {name: value.clone() for name, value in self.model.state_dict().items()}
        with torch.no_grad():
            change(dict(self.model.named_parameters()))
        self.model.save_pretrained(folder)
        self.model.load_state_dict(kept)
        return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, made = tmp_path_factory.mktemp("models"), {}

    def get(name: str) -> Exported:
        if name not in made:
            made[name] = Exported(folder, name)
        return made[name]

    return get


@pytest.mark.parametrize(
    ("name", "graph"),
    [("bert", "model"), ("vit", "model"), ("llama", "model")],
)
def test_nothing_is_wrong_with_a_sound_model(name: str, graph: str, models: Any) -> None:
    exported = models(name)
    report = oe.diagnose(exported.out / f"{graph}.onnx", exported.folder)
    assert report.ok and report.first is None and "goes wrong" in report.sentence
    compared = [each for each in report.modules if each.status & oe.Status.OK]
    sets = 9 if name == "llama" else 2  # a decoder also gets prompts and single rows
    assert len(compared) > 30 and all(len(each.sets) == sets for each in compared)
    assert compared[0].name == ""  # the model itself
    layer = {"bert": "bert.encoder.layer.1", "vit": "vit.layers.1", "llama": "model.layers.1"}
    assert layer[name] in {each.name for each in compared}


def bump(path: str) -> Any:
    def change(parameters: dict[str, Any]) -> None:
        parameters[path].view(-1)[5] += 2

    return change


def swap(one: str, other: str) -> Any:
    def change(parameters: dict[str, Any]) -> None:
        kept = parameters[one].clone()
        parameters[one].copy_(parameters[other])
        parameters[other].copy_(kept)

    return change


def transpose(path: str) -> Any:
    def change(parameters: dict[str, Any]) -> None:
        parameters[path].copy_(parameters[path].t().clone())

    return change


BERT, LLAMA, VIT = "bert.encoder.layer.1", "model.layers.1", "vit.layers.0"


@pytest.mark.parametrize(
    ("name", "graph", "change", "wrong"),
    [
        ("bert", "model", bump(f"{BERT}.output.dense.bias"), f"{BERT}.output.dense"),
        (
            "bert",
            "model",
            swap(f"{BERT}.attention.self.key.weight", f"{BERT}.attention.self.value.weight"),
            f"{BERT}.attention.self.key",
        ),
        (
            "vit",
            "model",
            transpose(f"{VIT}.attention.o_proj.weight"),
            f"{VIT}.attention.o_proj",
        ),
        ("llama", "model", bump(f"{LLAMA}.mlp.up_proj.weight"), f"{LLAMA}.mlp.up_proj"),
        (
            "llama",
            "model",
            swap(f"{LLAMA}.self_attn.q_proj.weight", f"{LLAMA}.self_attn.o_proj.weight"),
            f"{LLAMA}.self_attn.q_proj",
        ),
    ],
)
def test_the_module_with_a_wrong_weight_is_named(
    name: str, graph: str, change: Any, wrong: str, models: Any, tmp_path: Path
) -> None:
    exported = models(name)
    folder = exported.changed(tmp_path, change)
    report = oe.diagnose(exported.out / f"{graph}.onnx", folder)
    assert not report.ok and report.first is not None and report.first.name == wrong
    assert report.first.status == oe.Status.DISC | oe.Status.CUSTOM and wrong in report.sentence
    parent = next(each for each in report.modules if each.name == wrong.rpartition(".")[0])
    assert parent.status == oe.Status.OK | oe.Status.CHILDC and parent.replaced
    assert all("swap" in str(change) or each.name == wrong for each in report.wrong)
    before = [each for each in report.modules if 0 <= each.order < report.first.order]
    assert before and all(not each.status & oe.Status.DISC for each in before)


def test_a_wrong_constant_and_a_wrong_operation_are_named(models: Any, tmp_path: Path) -> None:
    exported = models("bert")
    exported.changed(tmp_path, lambda _: None)
    config = json.loads((tmp_path / "config.json").read_text())
    config["layer_norm_eps"] = 0.1
    (tmp_path / "config.json").write_text(json.dumps(config))
    report = oe.diagnose(exported.out / "model.onnx", tmp_path)
    assert report.first is not None and report.first.name == "bert.embeddings.LayerNorm"
    # An operation of the attention itself, between its projections, which are right.
    attention = exported.model.get_submodule(f"{BERT}.attention.self")
    ids = torch.arange(10).reshape(2, 5)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": ids % 2}
    assert oe.diagnose(exported.out / "model.onnx", exported.model, inputs).ok
    scaling, attention.scaling = attention.scaling, 0.9
    report = oe.diagnose(exported.out / "model.onnx", exported.model, [inputs])
    attention.scaling = scaling
    assert report.first is not None and report.first.name == f"{BERT}.attention.self"


def test_a_module_that_computes_in_float16_inside_is_sound(tmp_path: Path) -> None:
    class Inside(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(64, 64).half()

        def forward(self, x: Any) -> Any:
            return self.first(x.half()).float() * 3

    torch.manual_seed(3)
    outer = torch.nn.Sequential(torch.nn.Linear(8, 64), Inside(), torch.nn.Tanh()).eval()
    x = torch.randn(5, 8)
    torch.onnx.export(outer, (x,), dynamo=True, verbose=False).save(tmp_path / "model.onnx")
    assert oe.diagnose(tmp_path / "model.onnx", outer, x).ok
    with torch.no_grad():
        outer[1].first.weight[3, 4] += 2
    report = oe.diagnose(tmp_path / "model.onnx", outer, x)
    assert report.first is not None and report.first.name == "1.first"


def test_the_command_names_the_module_first(models: Any, tmp_path: Path) -> None:
    exported = models("vit")

    def run(*more: Any) -> Any:
        return commands.run("diagnose", exported.out / "model.onnx", *more)

    done = run("--against", exported.folder)
    assert done.returncode == 0 and "classifier Linear" in done.stdout, done.stderr
    folder = exported.changed(tmp_path / "other", bump("classifier.weight"))
    done = run("--against", folder, "-q")
    assert done.returncode == 1
    assert done.stdout.startswith("The first module that goes wrong is classifier (Linear): ")
    tree = run("--against", folder).stdout
    assert "layernorm LayerNorm" not in tree, tree
    assert re.search(r"\n  classifier Linear +differs, replaced ", tree), tree
    assert re.search(r"\n\(--all shows \d+ more\)\n$", tree), tree
    assert "layernorm LayerNorm" in run("--against", folder, "--all").stdout
    document = json.loads(run("--against", folder, "--json").stdout)
    assert document["first"] == "classifier" and document["ok"] is False
    statuses = {each["name"]: each["status"] for each in document["modules"]}
    assert statuses["classifier"] == "DISC CUSTOM" and statuses[""] == "OK CHILDC"
    done = run("--against", tmp_path)
    assert done.returncode == 1 and "diagnose: error:" in done.stderr


def test_what_has_no_modules_is_refused(models: Any) -> None:
    exported = models("vit")
    with pytest.raises(oe.InvalidArgumentError, match="expected a torch module"):
        oe.diagnose(exported.out / "model.onnx", "model.onnx")
    with pytest.raises(oe.InvalidArgumentError, match="at least one set"):
        oe.diagnose(exported.out / "model.onnx", exported.model)
    with pytest.raises(oe.RunError, match="cannot load"):
        oe.diagnose(exported.folder / "config.json", exported.folder)


class Branches(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.small = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.large, self.spare = torch.nn.Linear(4, 4), torch.nn.Dropout()

    def forward(self, x: Any) -> Any:
        x = self.small(x) if x.sum() > 0 else self.large(x)
        return self.spare(x) + 1


def test_a_module_in_a_branch_is_said_to_be_there(tmp_path: Path) -> None:
    module, x = Branches().eval(), torch.ones(2, 4)
    oe.torch.export(module, (x,), tmp_path / "model.onnx", input_sets=[(-x,)], progress=False)
    report = oe.diagnose(tmp_path / "model.onnx", module, [(x,), (-x,)], progress=False)
    reasons = {each.name: each.reason for each in report.modules}
    inside = "it is inside a branch or a loop, which is judged with the module around it"
    assert [name for name, told in reasons.items() if told == inside] == [
        "small",
        "small.0",
        "small.1",
        "large",
    ]
    assert reasons["spare"] == "no node of the model was made for it"
    assert report.ok and not reasons[""]
