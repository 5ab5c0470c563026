"""Tests of folders that are not plain transformers models, and of the messages about them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe
from onnx_external._commands.diagnose import main as diagnose
from onnx_external._commands.export import main as export
from onnx_external._commands.validate import main as validate
from onnx_external._folders.config import check_folder


def folder(path: Path, **files: Any) -> Path:
    """Return a folder with files. Other values than text become JSON; "__" stands for a dot."""
    for name, content in files.items():
        file = path / name.replace("__", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


CONFIG = {"model_type": "bert", "architectures": ["BertModel"]}
ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": "acme/base"}
MODULES = [
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"path": "2_Dense", "type": "sentence_transformers.models.Dense"},
]
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, r"config\.json: not found"),
        ({"adapter_config__json": ADAPTER}, r"config\.json: not found.*LORA.*'acme/base'; merge"),
        ({"adapter_config__json": ADAPTER, "config__json": CONFIG}, r"an adapter.*merge it first"),
        ({"model_index__json": {"_class_name": "XPipeline"}}, r"diffusers pipeline \(XPipeline\)"),
        ({"config__json": {"_class_name": "UNet2DConditionModel"}}, r"UNet2D.*_class_name"),
        ({"config__json": {"architecture": "resnet50"}}, r"timm model \(resnet50"),
        ({"config__json": LFS}, r"config\.json: a Git LFS pointer"),
        ({"config__json": "<!DOCTYPE html>"}, r"config\.json: a web page"),
        ({"params__json": "{}", "consolidated__00__pth": ""}, r"Meta's own format"),
        ({"m__gguf": ""}, r"'m\.gguf' is a GGUF file"),
    ],
)
def test_folders_that_are_not_plain_models_are_refused_by_all_commands_by_name(
    files: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = folder(tmp_path / "given", **files)
    given.mkdir(exist_ok=True)
    with pytest.raises(oe.Error, match=words):
        check_folder(given)
    out = ["-o", str(tmp_path / "out")]
    for run, more in ((export, out), (diagnose, []), (validate, [])):
        assert run([str(given), *more]) in (1, 2)
        assert "error: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_it_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    given = folder(tmp_path / "given", config__json={"architecture": "resnet50"})
    code = (
        "import sys; from onnx_external._commands.export import main; "
        f"main([{str(given)!r}, '-o', 'out']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_parts_that_are_not_exported_are_noted_and_accepted(tmp_path: Path) -> None:
    given = folder(tmp_path, config__json=CONFIG, modules__json=MODULES, model_head__pkl="")
    pooling, head = check_folder(given)
    assert "'Pooling (1_Pooling)', 'Dense (2_Dense)'" in pooling
    assert head == "model_head.pkl: the SetFit classifier, which is not in the graph"
    assert check_folder(folder(tmp_path / "plain", config__json=CONFIG)) == []


def test_keys_of_quantized_weights_name_the_method(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    save = pytest.importorskip("safetensors.numpy").save_file
    rows = {
        "l.qweight l.qzeros l.scales": ("GPTQ or AWQ", "l.qweight"),
        "l.g_idx l.qweight": ("GPTQ", "l.qweight"),
        "l.weight l.weight.absmax l.weight.quant_state.bitsandbytes__nf4": (
            "bitsandbytes",
            "l.weight.absmax",
        ),
        "l.weight l.SCB": ("bitsandbytes", "l.SCB"),
        "l.weight l.weight_scale_inv": ("fp8 in blocks", "l.weight_scale_inv"),
        "l.weight_packed l.weight_scale": ("compressed-tensors", "l.weight_packed"),
        "l.W_q l.meta": ("HQQ", "l.W_q"),
        "l.weight l.weight_scales": (
            "EETQ, in the order of a GPU kernel",
            "l.weight_scales",
        ),
        "l.weight l.bias": None,
    }
    for names, want in rows.items():
        path = tmp_path / "c.safetensors"
        save({name: numpy.zeros(1, "f") for name in names.split()}, path)
        with oe.open_checkpoint(path) as checkpoint:
            assert checkpoint.core.quantization() == want, names


def test_rwkv_is_loaded_such_that_it_halves_no_weights_of_its_later_layers(tmp_path: Path) -> None:
    pytest.importorskip("torch", minversion="2.9")
    transformers = pytest.importorskip("transformers", minversion="5")
    from onnx_external.transformers._loading import chosen

    config = {"model_type": "rwkv", "architectures": ["RwkvForCausalLM"], "rescale_every": 6}
    _, found = chosen(folder(tmp_path, config__json=config), transformers.RwkvForCausalLM)
    assert found.rescale_every == 0
