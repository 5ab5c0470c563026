"""Tests of peft adapters that are merged into their base model before it is exported."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")
safetensors = pytest.importorskip("safetensors.torch")

import commands  # noqa: E402
import generation_cases as cases  # noqa: E402

from onnx_external.transformers._adapters import merged  # noqa: E402

MODULE = "model.layers.0.self_attn.q_proj"
RANK, ALPHA = 4, 6


@pytest.fixture
def base(tmp_path: Path) -> Path:
    cases.save("llama", tmp_path / "llama")
    return tmp_path / "llama"


def adapter(folder: Path, base: Any, more: dict[str, Any] | None = None, **settings: Any) -> Path:
    """Write an adapter for two modules by hand, in peft's format."""
    folder.mkdir()
    torch.manual_seed(3)
    tensors = {
        f"base_model.model.{name}.lora_{side}.weight": torch.randn(shape)
        for name, out in ((MODULE, 64), ("model.layers.1.mlp.up_proj", 96))
        for side, shape in (("A", (RANK, 64)), ("B", (out, RANK)))
    }
    safetensors.save_file({**tensors, **(more or {})}, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": RANK}
    config |= {"lora_alpha": ALPHA, "bias": "none", **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def weights(folder: Path, given: Path | None, out: Path) -> dict[str, Any]:
    """Return the tensors that transformers loads from the merged folder, which is then removed."""
    with merged(folder, given, out, {}) as source:
        assert source.folder.parent.parent == out.parent and "merged into" in source.notes[0]
        found = transformers.AutoModelForCausalLM.from_pretrained(source.folder, dtype="auto")
        assert (source.folder / "tokenizer.json").is_file()
    assert not source.folder.parent.exists()
    return dict(found.state_dict())


def test_a_product_is_added_in_float32_and_rounded_once(base: Path, tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    model.save_pretrained(base)
    folder = adapter(tmp_path / "adapter", base)
    found, before = weights(folder, None, tmp_path / "out"), model.state_dict()
    product = safetensors.load_file(folder / "adapter_model.safetensors")
    for name in (MODULE, "model.layers.1.mlp.up_proj"):
        first, second = (
            product[f"base_model.model.{name}.lora_{side}.weight"] for side in ("A", "B")
        )
        wanted = before[f"{name}.weight"].float() + second @ first * (ALPHA / RANK)
        assert torch.equal(found.pop(f"{name}.weight"), wanted.to(torch.bfloat16))
    assert all(torch.equal(value, before[name]) for name, value in found.items())


def tuned(model: Any, targets: list[str], folder: Path, **settings: Any) -> Any:
    """Add a random adapter to a model with peft, save it, and return the weights merged by peft."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, target_modules=targets, task_type="CAUSAL_LM", **settings
    )
    torch.manual_seed(5)
    made = peft.get_peft_model(model, config)
    with torch.no_grad():
        for key, value in made.named_parameters():
            if "lora_" in key or "modules_to_save" in key:
                value.copy_(torch.randn(value.shape) * 0.2)
    made.save_pretrained(folder)
    return made.merge_and_unload()


@pytest.mark.parametrize(
    ("name", "targets", "settings"),
    [
        ("llama", ["q_proj", "down_proj"], dict(rank_pattern={"down_proj": 2})),
        ("llama", ["q_proj", "embed_tokens"], dict(alpha_pattern={"q_proj": 3})),
        ("llama", ["v_proj"], dict(use_rslora=True, modules_to_save=["lm_head"])),
        ("gpt2", ["c_attn", "c_fc"], dict(fan_in_fan_out=True)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_it_is_what_peft_merges(
    dtype: str, name: str, targets: list[str], settings: dict[str, Any], tmp_path: Path
) -> None:
    kind = getattr(torch, dtype)
    model = cases.save(name, tmp_path / name).to(kind)
    model.save_pretrained(tmp_path / name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    wanted = tuned(model, targets, tmp_path / "adapter", **settings).state_dict()
    found = weights(tmp_path / "adapter", tmp_path / name, tmp_path / "out")
    assert found.keys() == wanted.keys()
    with oe.open_checkpoint([tmp_path / name, tmp_path / "adapter"]) as joined:
        for key, tensor in joined.items():  # as a save reads them
            torch.testing.assert_close(
                tensor.torch(), found[key], rtol=2 * torch.finfo(kind).eps, atol=1e-6
            )
    changed = 0
    for key, value in found.items():
        assert value.dtype == wanted[key].dtype == kind
        if torch.equal(value, before[key]):
            assert torch.equal(wanted[key], value), key
            continue
        changed += 1
        # peft rounds the product and then the sum; this library rounds only the sum.
        near = (before[key].abs() + wanted[key].abs()).float() * torch.finfo(kind).eps
        assert ((value.float() - wanted[key].float()).abs() <= near + 1e-7).all(), key
    assert changed >= 2


def test_a_square_conv1d_is_one_though_peft_speaks_of_a_linear_beside_it(tmp_path: Path) -> None:
    model = cases.save("gpt2", tmp_path / "gpt2")
    wanted = tuned(model, ["attn.c_proj"], tmp_path / "adapter", fan_in_fan_out=True).state_dict()
    path = tmp_path / "adapter/adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "fan_in_fan_out": False}))
    found = weights(tmp_path / "adapter", tmp_path / "gpt2", tmp_path / "out")
    assert sum("attn.c_proj" in key for key in found) >= 2
    assert all(torch.allclose(value, wanted[key], atol=1e-5) for key, value in found.items())


def test_the_command_writes_a_model_that_computes_what_peft_does(
    base: Path, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    targets = ["q_proj", "v_proj", "up_proj", "embed_tokens"]
    wanted = tuned(model, targets, tmp_path / "adapter")
    base.rename(tmp_path / "elsewhere")
    call = ("export", tmp_path / "adapter", "-o", tmp_path / "out", "--no-check")
    done = commands.run(*call)
    assert done.returncode == 1 and "the folder of the base model with --base" in done.stderr
    done = commands.run(*call, "--base", tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert "an adapter, merged into" in done.stdout
    session = runtime.InferenceSession(tmp_path / "out/model.onnx")
    words = torch.randint(4, cases.WORDS, (2, 7))
    given = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    given["position_ids"] = torch.arange(7).expand(2, 7)
    feeds = {name: value.numpy() for name, value in given.items()}
    for value in session.get_inputs()[len(feeds) :]:
        feeds[value.name] = torch.zeros(2, value.shape[1], 0, value.shape[3]).numpy()
    (found,) = session.run(["logits"], feeds)
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(found), wanted(**given).logits, atol=1e-3)


@pytest.mark.parametrize("named", ["llama", "../llama", "acme/llama"])
def test_a_base_is_found_beside_the_adapter(named: str, base: Path, tmp_path: Path) -> None:
    assert weights(adapter(tmp_path / "adapter", named), None, tmp_path / "out")


def test_a_config_beside_an_adapter_is_not_a_model(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", base)
    (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": 7}')
    assert weights(folder, None, tmp_path / "out")
    shutil.copy(base / "model.safetensors", folder)
    with pytest.raises(oe.InvalidArgumentError, match=r"remove adapter_config\.json"):
        oe.transformers.export(folder, tmp_path / "out")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peft_type": "IA3"}, "of the type IA3, which onnx-external cannot merge"),
        ({"use_dora": True}, "use_dora is set, which onnx-external cannot merge"),
        ({"bias": "all"}, "bias is 'all', which onnx-external cannot merge"),
    ],
)
def test_other_adapters_are_refused_in_a_sentence(
    settings: dict[str, Any], message: str, base: Path, tmp_path: Path
) -> None:
    folder = adapter(tmp_path / "adapter", base, **settings)
    with pytest.raises(oe.ExportError, match=message):
        oe.transformers.export(folder, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"llama", "adapter"}


def test_an_adapter_without_its_base_or_of_another_is_refused(base: Path, tmp_path: Path) -> None:
    lost = adapter(tmp_path / "lost", "acme/other")
    with pytest.raises(oe.NotFoundError, match=r"an adapter for 'acme/other', which is not beside"):
        oe.transformers.export(lost, tmp_path / "out")
    with pytest.raises(oe.InvalidArgumentError, match=r"layout='link' refers to existing weights"):
        oe.transformers.export(lost, tmp_path / "out", layout="link", base=base)
    with pytest.raises(oe.InvalidArgumentError, match="is not an adapter"):
        oe.transformers.export(base, tmp_path / "out", base=base)
    other = {"base_model.model.model.layers.7.mlp.up_proj.lora_A.weight": torch.ones(4, 64)}
    other["base_model.model.model.layers.7.mlp.up_proj.lora_B.weight"] = torch.ones(96, 4)
    folder = adapter(tmp_path / "deeper", base, other)
    with pytest.raises(oe.MappingError, match=r"changes model\.layers\.7.*has no such tensor"):
        oe.transformers.export(folder, tmp_path / "out")
    wide = {f"base_model.model.{MODULE}.lora_B.weight": torch.ones(72, RANK)}
    folder = adapter(tmp_path / "wide", base, wide)
    with pytest.raises(oe.MappingError, match=r"is \[72, 64\], but .* adapter belongs to another"):
        oe.transformers.export(folder, tmp_path / "out")
