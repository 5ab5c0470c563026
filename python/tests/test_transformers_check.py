"""Graphs of a folder are run on other sizes than the example's before they are saved."""

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
    """transformers.exporters' own attention takes all pictures to be of one size."""
    from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen

    from onnx_external.transformers import loading

    tower = qwen.Qwen2VisionTransformerPretrainedModel
    monkeypatch.setattr(loading.transformers, tower.__name__, tower, raising=False)
    sizes: dict[str, Any] = dict(depth=1, embed_dim=32, hidden_size=24, num_heads=4, patch_size=4)
    torch.manual_seed(0)
    tower(qwen.Qwen2VLVisionConfig(**sizes)).save_pretrained(tmp_path / "tower")
    pictures = torch.tensor([[1, 4, 4], [1, 4, 4]])
    given = {"hidden_states": torch.randn(32, 96), "grid_thw": pictures}
    with pytest.raises(oe.ExportError, match=r"wrong for the inputs 'longer'.*check=False"):
        oe.transformers.export(tmp_path / "tower", tmp_path / "out", inputs=given)
    assert not (tmp_path / "out").exists()


def test_a_second_set_has_one_picture_more_of_another_size() -> None:
    from types import SimpleNamespace

    from onnx_external.validation.folders import _longer

    model = SimpleNamespace(config=SimpleNamespace(spatial_merge_size=2))
    given = {"hidden_states": torch.randn(16, 3), "grid_thw": torch.tensor([[1, 4, 4]])}
    longer = _longer(given, model)
    assert longer["grid_thw"].tolist() == [[1, 4, 4], [1, 6, 4]]
    assert longer["hidden_states"].shape == (40, 3)
