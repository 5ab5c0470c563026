"""Tests that no part of a model and no key of a folder is silently left out."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")

from onnx_external.transformers._unseen import refuse_unseen  # noqa: E402

LAYERS: dict[str, Any] = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4
)
PICTURES: dict[str, Any] = dict(**LAYERS, image_size=16, patch_size=8)
TEXT: dict[str, Any] = dict(**LAYERS, vocab_size=96, num_key_value_heads=2, head_dim=8)


def llava() -> Any:
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**PICTURES, projection_dim=16),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_index=90,
        image_seq_length=4,
    )
    return transformers.LlavaForConditionalGeneration(config)


def test_a_model_of_images_and_text_is_refused_with_the_names_of_what_would_be_lost(
    tmp_path: Path,
) -> None:
    llava().save_pretrained(tmp_path / "llava")
    why = (
        r"LlavaForConditionalGeneration takes images \(pixel_values, image_sizes\), but no graph "
        r"would.*\(model\.vision_tower, model\.multi_modal_projector\), whose weights would"
    )
    with pytest.raises(oe.ExportError, match=why):
        oe.transformers.export(tmp_path / "llava", tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def test_models_whose_graphs_take_all_that_they_take_are_not_refused() -> None:
    with torch.device("meta"):
        model = llava()
        whisper = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig())
        bert = transformers.BertModel(transformers.BertConfig(**LAYERS, vocab_size=96))
    some = torch.zeros(1)
    refuse_unseen(model, [{"pixel_values": some}, {"input_ids": some}])
    refuse_unseen(whisper, [{"input_features": some}, {"decoder_input_ids": some}])
    refuse_unseen(bert, [{"input_ids": some}])
    with pytest.raises(oe.ExportError, match=r"takes sound \(input_features\)"):
        refuse_unseen(whisper, [{"input_features": None}, {"decoder_input_ids": some}])
    with pytest.raises(oe.ExportError, match="takes images and videos"):
        refuse_unseen(
            SimpleNamespace(
                input_modalities=["video", "image", "text"],
                forward=lambda pixel_values, input_ids: None,
                base_model=model,
                base_model_prefix="model",
                named_children=lambda: iter(()),
            ),
            [{"input_ids": some}],
        )


def test_a_key_that_is_loaded_and_in_no_graph_is_named(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.vit import modeling_vit

    from onnx_external._commands.export import main

    model = transformers.ViTModel(transformers.ViTConfig(**PICTURES), use_mask_token=True)
    model.save_pretrained(tmp_path / "vit")
    monkeypatch.setattr(modeling_vit.ViTPooler, "forward", lambda _, states: states[:, 0])
    options = ["--static", "--no-check", "--dry-run", "--no-repeat"]
    assert main([str(tmp_path / "vit"), "-o", str(tmp_path / "out"), *options]) == 0
    told = capsys.readouterr().out
    keys = "pooler.dense.bias, pooler.dense.weight"
    assert f"note: no graph uses 2 tensors that ViTModel loads: {keys}\n" in told
    assert f"keys that no graph uses: embeddings.mask_token, {keys}\n" in told


def test_a_model_of_images_whose_generate_has_no_graphs_is_refused_with_their_names(
    tmp_path: Path,
) -> None:
    words = dict(LAYERS, vocab_size=96)
    config = transformers.Blip2Config(
        vision_config=dict(**LAYERS, image_size=16, patch_size=8),
        qformer_config=dict(**words, encoder_hidden_size=LAYERS["hidden_size"]),
        text_config=dict(**words, model_type="gpt2", bos_token_id=2),
        num_query_tokens=2,
        image_token_index=90,
    )
    transformers.Blip2ForConditionalGeneration(config).save_pretrained(tmp_path / "blip")
    why = (
        r"generate\(\) does not run.*; it takes images \(pixel_values\): oe\.torch\.export exports "
        r"the part that reads them \(vision_model"
    )
    with pytest.raises(oe.ExportError, match=why):
        oe.transformers.export(tmp_path / "blip", tmp_path / "out", progress=False)
