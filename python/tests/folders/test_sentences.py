"""Tests of sentence-transformers modules inside the graph (`--task sentence-similarity`)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")
safetensors = pytest.importorskip("safetensors.numpy")

SIZES = dict(
    vocab_size=30, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
    num_attention_heads=2, max_position_embeddings=16,
)  # fmt: skip
MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 0]])


def folder_of(path: Path, pooling: dict[str, Any], *modules: str) -> Path:
    torch.manual_seed(3)
    transformers.BertModel(transformers.BertConfig(**SIZES)).save_pretrained(path)
    listed = []
    for number, name in enumerate(("Transformer", "Pooling", *modules)):
        part = f"{number}_{name}" if number else ""
        listed.append({"idx": number, "path": part, "type": f"sentence_transformers.models.{name}"})
        (path / part).mkdir(exist_ok=True)
    (path / "modules.json").write_text(json.dumps(listed))
    (path / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return path


def exported(folder: Path, out: Path) -> Any:
    oe.transformers.export(folder, out, "sentence-similarity", fsync=False, progress=False)
    return runtime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])


def run(session: Any) -> dict[str, Any]:
    ids = np.arange(15).reshape(3, 5) + 5
    names = [each.name for each in session.get_outputs()]
    given = {"input_ids": ids, "attention_mask": MASK, "token_type_ids": np.zeros_like(ids)}
    values = session.run(None, given)
    return dict(zip(names, values, strict=True))


def pooled(tokens: Any, mask: Any) -> Any:
    """Return all poolings of one text, token by token."""
    kept = tokens[mask == 1]
    places = np.arange(1, len(tokens) + 1)[mask == 1, None]
    mean = kept.mean(0)
    later = (kept * places).sum(0) / places.sum()
    root = mean * np.sqrt(len(kept))
    return np.concatenate([kept[0], kept.max(0), mean, root, later, kept[-1]])


def test_poolings_dense_layers_and_norms_are_in_the_graph(tmp_path: Path) -> None:
    modules = ("Dense", "Normalize")
    folder = folder_of(tmp_path / "bert", {"pooling_mode": MODES}, *modules)
    draw = np.random.default_rng(2)
    weight, bias = (draw.standard_normal(n).astype(np.float32) for n in ((4, 48), 4))
    safetensors.save_file(
        {"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense/model.safetensors"
    )
    settings = {"activation_function": "torch.nn.modules.activation.Tanh"}
    (folder / "2_Dense/config.json").write_text(json.dumps(settings))
    found = run(exported(folder, tmp_path / "out"))
    assert list(found) == ["token_embeddings", "sentence_embedding", "last_hidden_state"]
    assert np.array_equal(found["token_embeddings"], found["last_hidden_state"])
    tokens = found["token_embeddings"]
    rows = np.stack([pooled(*each) for each in zip(tokens, MASK, strict=True)])
    dense = np.tanh(rows @ weight.T + bias)
    wanted = dense / np.linalg.norm(dense, axis=1, keepdims=True)
    assert np.abs(found["sentence_embedding"] - wanted).max() < 1e-5
    assert (tmp_path / "out/2_Dense/model.safetensors").is_file()


def test_the_flags_of_older_versions_choose_the_pooling(tmp_path: Path) -> None:
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    found = run(exported(folder_of(tmp_path / "bert", flags), tmp_path / "out"))
    first = found["token_embeddings"][[0, 1, 2], [0, 0, 2]]
    assert np.array_equal(found["sentence_embedding"], first)


def test_modules_that_are_not_known_are_refused(tmp_path: Path) -> None:
    for name, pooling, modules, why in (
        ("a", {"pooling_mode": "other"}, (), "pooling_mode 'other' is not one of cls, max, mean"),
        ("b", {}, ("LSTM",), "LSTM is not supported; sentence-similarity supports Pooling, Dense"),
        ("c", {}, ("Dense",), r"."),
    ):
        folder = folder_of(tmp_path / name, pooling, *modules)
        with pytest.raises(oe.Error, match=why):
            exported(folder, tmp_path / "out")
    (folder / "modules.json").unlink()
    with pytest.raises(oe.NotFoundError, match=r"modules\.json: not found; sentence-similarity"):
        exported(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
