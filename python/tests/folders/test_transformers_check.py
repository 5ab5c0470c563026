"""Tests that graphs are run on sizes other than the example's before they are saved."""

from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
pytest.importorskip("transformers.exporters")


def test_a_vision_tower_that_is_wrong_for_several_pictures_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check an attention in transformers.exporters that assumes images of equal size."""
    from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen

    from onnx_external.transformers import _loading

    tower = qwen.Qwen2VisionTransformerPretrainedModel
    monkeypatch.setattr(_loading.transformers, tower.__name__, tower, raising=False)
    sizes: dict[str, Any] = dict(depth=1, embed_dim=32, hidden_size=24, num_heads=4, patch_size=4)
    torch.manual_seed(0)
    tower(qwen.Qwen2VLVisionConfig(**sizes)).save_pretrained(tmp_path / "tower")
    pictures = torch.tensor([[1, 4, 4], [1, 4, 4]])
    given = {"hidden_states": torch.randn(32, 96), "grid_thw": pictures}
    with pytest.raises(oe.ExportError, match=r"wrong for the inputs 'longer'.*check=False"):
        oe.transformers.export(tmp_path / "tower", tmp_path / "out", inputs=given)
    assert not (tmp_path / "out").exists()


def test_graphs_that_onnx_runtime_cannot_load_are_refused(tmp_path: Path) -> None:
    import transformers

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=32, num_hidden_layers=1, **sizes)
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    options: dict[str, Any] = {"dtype": "bfloat16", "dynamic": False, "fsync": False}
    why = "cannot load the model.*nothing is saved.*check=False saves it"
    with pytest.raises(oe.ExportError, match=why):
        oe.transformers.export(tmp_path / "bert", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_second_set_has_one_more_image_of_another_size() -> None:
    from types import SimpleNamespace

    from onnx_external.transformers._compared import _longer

    model = SimpleNamespace(config=SimpleNamespace(spatial_merge_size=2))
    given = {"hidden_states": torch.randn(16, 3), "grid_thw": torch.tensor([[1, 4, 4]])}
    longer = _longer(given, model)
    assert longer["grid_thw"].tolist() == [[1, 4, 4], [1, 6, 4]]
    assert longer["hidden_states"].shape == (40, 3)


def test_a_text_gets_positions_for_one_more_image() -> None:
    from types import SimpleNamespace

    from onnx_external.transformers._compared import _longer

    config = SimpleNamespace(image_token_id=9, vision_config=SimpleNamespace(spatial_merge_size=2))
    words = torch.tensor([[1, 7, 9, 9, 9, 9, 8, 2]])
    given = {
        "input_ids": words,
        "attention_mask": torch.ones_like(words),
        "pixel_values": torch.randn(16, 3),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    }
    longer = _longer(given, SimpleNamespace(config=config))
    assert longer["image_grid_thw"].tolist() == [[1, 4, 4], [1, 6, 4]]
    assert longer["input_ids"].tolist() == [words[0].tolist() + [7] + 6 * [9] + [8]]
    assert longer["attention_mask"].shape == (1, 16) and longer["pixel_values"].shape == (40, 3)
