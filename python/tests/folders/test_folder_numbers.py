"""Tests that config values that contradict the checkpoint are errors before a model is built."""

import json
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")

TEXT = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
)
MODELS = {
    "llama": ("LlamaForCausalLM", TEXT),
    "bert": ("BertForSequenceClassification", TEXT),
    "moe": (
        "Qwen2MoeForCausalLM",
        TEXT
        | dict(num_experts=4, moe_intermediate_size=8, shared_expert_intermediate_size=8)
        | dict(num_key_value_heads=2),
    ),
    "vit": ("ViTForImageClassification", TEXT | dict(image_size=16, patch_size=8)),
    "swin": (
        "SwinForImageClassification",
        dict(embed_dim=16, depths=[1, 1], num_heads=[2, 2], image_size=32, patch_size=4),
    ),
    "resnet": (
        "ResNetForImageClassification",
        dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
    ),
    "gptj": ("GPTJForCausalLM", dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, rotary_dim=4)),
    "albert": ("AlbertForMaskedLM", TEXT | dict(embedding_size=16)),
    "clip": (
        "CLIPModel",
        dict(
            text_config=TEXT | dict(projection_dim=16),
            vision_config=TEXT | dict(image_size=16, patch_size=8, projection_dim=16),
            projection_dim=16,
        ),
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, (made, sizes) in MODELS.items():
        found[name] = tmp_path_factory.mktemp(name)
        model = getattr(transformers, made)
        model(model.config_class(**sizes)).save_pretrained(found[name])
    return found


def edited(folder: Path, where: str, value: Any, out: Path) -> Path:
    """Return a folder with another value in its config, and the same weights."""
    out.mkdir()
    for file in folder.iterdir():
        (out / file.name).hardlink_to(file)
    config = json.loads((folder / "config.json").read_text())
    part = config
    for name in where.split(".")[:-1]:
        part = part[name]
    part[where.split(".")[-1]] = value
    (out / "config.json").unlink()
    (out / "config.json").write_text(json.dumps(config))
    return out


def load_both(folder: Path) -> list[Any]:
    """Return the two ways to load a folder: in exports, and in validate and diagnose."""
    from onnx_external.transformers._loading import load
    from onnx_external.transformers._reference import loaded

    return [lambda: load(folder, None, None).model, lambda: loaded(folder, None, None)]


REFUSED = [
    ("llama", "num_hidden_layers", 100_000, "num_hidden_layers is 100000.* has 21 tensors"),
    ("llama", "num_hidden_layers", 10**9, r"model\.layers\.1\..* has the shape \[32\]"),
    ("llama", "num_hidden_layers", 1e9, "num_hidden_layers is 1000000000"),
    ("llama", "num_hidden_layers", 250, "num_hidden_layers is 250"),
    ("llama", "num_hidden_layers", 0, "num_hidden_layers is 0"),
    ("llama", "num_hidden_layers", -1, "num_hidden_layers is -1"),
    ("llama", "num_labels", 10**9, r"num_labels is 1000000000.*\[96, 32\]"),
    ("llama", "hidden_size", 10**6, r"hidden_size is 1000000,.* \[96, 32\]"),
    ("llama", "hidden_size", 10**12, "hidden_size is 1000000000000"),
    ("llama", "vocab_size", 10**9, "vocab_size is 1000000000"),
    ("llama", "intermediate_size", 10**6, r"intermediate_size is .*mlp\..* \[32, 48\]"),
    ("llama", "num_attention_heads", 10**9, "num_attention_heads is 1000000000"),
    ("llama", "head_dim", 10**5, "head_dim is 100000"),
    ("bert", "num_labels", 10**9, "num_labels is 1000000000"),
    ("bert", "max_position_embeddings", 10**9, "max_position_embeddings is 1000000000"),
    ("bert", "type_vocab_size", 9 * 10**8, "type_vocab_size is 900000000"),
    ("bert", "num_hidden_layers", 10**5, "num_hidden_layers is 100000, .*has 41 tensors"),
    ("moe", "num_experts", 10**6, "num_experts is 1000000"),
    ("moe", "num_experts", 10**9, "num_experts is 1000000000"),
    ("moe", "moe_intermediate_size", 10**8, "moe_intermediate_size is 100000000"),
    ("vit", "image_size", 10**8, "image_size is 100000000"),
    ("vit", "image_size", 10**5, "image_size is 100000|a size"),
    ("vit", "num_channels", 10**9, "num_channels is 1000000000"),
    ("swin", "depths", [10**9, 1], "depths is 1000000000, .*has .* tensors"),
    ("swin", "depths", [1] * 10**5, "depths is 257"),
    ("swin", "window_size", 10**6, "window_size is 1000000"),
    ("resnet", "depths", [1, 10**5], "depths is 100001"),
    ("resnet", "hidden_sizes", [8, 10**7], r"hidden_sizes\[1\] is 10000000"),
    ("gptj", "n_layer", 10**6, "n_layer is 1000000"),
    ("gptj", "n_positions", 10**9, "n_positions is 1000000000"),
    ("albert", "num_hidden_layers", 10**6, "num_hidden_layers is 1000000"),
    (
        "clip",
        "text_config.num_hidden_layers",
        10**9,
        r"text_config\.num_hidden_layers is 1000000000",
    ),
    ("clip", "vision_config.hidden_size", 10**9, r"vision_config\.hidden_size is 1000000000"),
    ("clip", "text_config.num_labels", 10**9, r"text_config\.num_labels is"),
]


@pytest.mark.parametrize(("model", "where", "value", "match"), REFUSED, ids=lambda each: None)
def test_a_number_that_the_checkpoint_contradicts_is_named_with_a_tensor(
    folders: dict[str, Path], model: str, where: str, value: Any, match: str, tmp_path: Path
) -> None:
    folder = edited(folders[model], where, value, tmp_path / "edited")
    for load in load_both(folder):
        with pytest.raises(oe.MismatchError, match=match) as caught:
            load()
        assert " has the shape [" in str(caught.value) and "config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "where", "value"),
    [
        ("llama", "max_position_embeddings", 10**7),
        ("llama", "rope_theta", 10**9),
        ("llama", "eos_token_id", 10**9),
        ("llama", "sliding_window", 10**9),
        ("llama", "seed", 10**12),
        ("llama", "num_labels", 5000),
        ("albert", "num_hidden_layers", 48),
    ],
)
def test_a_number_unrelated_to_weights_is_accepted(
    folders: dict[str, Path], model: str, where: str, value: Any, tmp_path: Path
) -> None:
    for load in load_both(edited(folders[model], where, value, tmp_path / "edited")):
        assert (
            load().config.model_type
            == json.loads((folders[model] / "config.json").read_text())["model_type"]
        )


@pytest.mark.parametrize(
    "value",
    ["100000", None, [2], {}, True, float("nan"), float("inf"), 2.5, -(10**30), "x" * 10**6],
)
@pytest.mark.parametrize("where", ["num_hidden_layers", "hidden_size", "num_labels"])
def test_what_is_no_number_ends_in_an_error_of_this_package_or_in_a_model(
    folders: dict[str, Path], where: str, value: Any, tmp_path: Path
) -> None:
    for load in load_both(edited(folders["llama"], where, value, tmp_path / "edited")):
        try:
            load()
        except oe.Error as error:
            assert len(str(error)) < 2000 and "\n" not in str(error)


@pytest.mark.parametrize("value", [10**6, -1, 0.5])
def test_an_example_that_would_fill_the_memory_is_not_made(
    folders: dict[str, Path], value: Any, tmp_path: Path
) -> None:
    from onnx_external.transformers._inputs import inputs_of
    from onnx_external.transformers._tracing import graph_modules

    folder = edited(folders["resnet"], "image_size", value, tmp_path / "edited")
    with pytest.raises(oe.Error, match=r"inputs=\{name: tensor\}"):
        model = load_both(folder)[0]()
        graph_modules(model, inputs_of(model, folder, None), True)
