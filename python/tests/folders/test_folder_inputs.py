"""Tests of the inputs of a folder's graphs, and of their examples."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

from onnx_external.transformers._examples import words_of  # noqa: E402
from onnx_external.transformers._inputs import inputs_of, note_of_omitted, omitted, sample_inputs  # noqa: E402

TEXT = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 40,
}


def made(name: str, **settings: Any) -> Any:
    """Return a small model whose weights affect its results."""
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**TEXT, **settings})).eval()
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn_like(each) * 0.4)
    return model


def chosen(name: str, folder: Path, inputs: Any = None, **settings: Any) -> Any:
    return inputs_of(made(name, **settings), folder, inputs)


@pytest.mark.parametrize(
    ("name", "settings", "more"),
    [
        ("BertForSequenceClassification", {}, ("token_type_ids",)),
        ("ElectraForTokenClassification", {"embedding_size": 8}, ("token_type_ids",)),
        ("LayoutLMForTokenClassification", {}, ("bbox", "token_type_ids")),
        ("LiltModel", {"channel_shrink_ratio": 2, "pad_token_id": 0}, ("bbox",)),
        ("RobertaForSequenceClassification", {"pad_token_id": 0}, ()),
        ("DistilBertModel", {"dim": 16, "n_heads": 2, "n_layers": 1, "hidden_dim": 24}, ()),
        ("LlamaForCausalLM", {"pad_token_id": 0}, ()),
        ("GPT2LMHeadModel", {"n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 0}, ()),
    ],
)
def test_a_graph_takes_what_the_tokenizer_of_its_model_gives(
    name: str, settings: dict[str, Any], more: tuple[str, ...], tmp_path: Path
) -> None:
    assert chosen(name, tmp_path, **settings) == ("input_ids", "attention_mask", *more)


def test_the_tokenizer_of_the_folder_has_priority(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({"model_input_names": ["input_ids", "attention_mask"]}))
    assert "token_type_ids" not in chosen("BertModel", tmp_path)
    file.write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    assert "token_type_ids" in chosen("RobertaModel", tmp_path, pad_token_id=0)


def test_a_sound_has_a_mask_if_its_extractor_gives_one(tmp_path: Path) -> None:
    sizes: dict[str, Any] = dict(
        conv_dim=(8, 8), conv_stride=(5, 4), conv_kernel=(10, 4), num_feat_extract_layers=2
    )
    model = made("Wav2Vec2Model", feat_extract_norm="layer", **sizes)
    assert inputs_of(model, tmp_path, None) == ("input_values",)
    file = tmp_path / "preprocessor_config.json"
    settings = {"feature_extractor_type": "Wav2Vec2FeatureExtractor"}
    file.write_text(json.dumps({**settings, "return_attention_mask": True}))
    names = inputs_of(model, tmp_path, None)
    assert names == ("input_values", "attention_mask")
    given = sample_inputs(model, names)
    assert given["attention_mask"].shape == given["input_values"].shape
    file.write_text(json.dumps(settings))
    assert inputs_of(model, tmp_path, None) == ("input_values",)


def test_names_choose_other_inputs_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    model = made("BertModel")
    names = inputs_of(model, tmp_path, ["input_ids", "position_ids"])
    assert sample_inputs(model, names)["position_ids"].shape == (2, 8)
    with pytest.raises(oe.InvalidArgumentError, match="has no pixels; it takes input_ids"):
        inputs_of(model, tmp_path, ["input_ids", "pixels"])
    with pytest.raises(oe.InvalidArgumentError, match="expected names"):
        inputs_of(model, tmp_path, "input_ids")
    with pytest.raises(oe.InvalidArgumentError, match="for which no example can be made"):
        sample_inputs(made("BertLMHeadModel"), ("input_ids", "encoder_hidden_states"))
    vision = transformers.Siglip2VisionConfig(**{**TEXT, "num_patches": 16, "patch_size": 4})
    tower = transformers.Siglip2VisionModel(vision)
    with pytest.raises(oe.InvalidArgumentError, match="takes pixel_attention_mask, spatial_shapes"):
        sample_inputs(tower, inputs_of(tower, tmp_path, None))
    llama = made("LlamaForCausalLM", pad_token_id=0)
    (note,) = note_of_omitted(llama, ["attention_mask", "labels"], ["input_ids"])
    assert note.startswith("LlamaForCausalLM also takes attention_mask, which no graph does")
    assert note_of_omitted(llama, ["attention_mask"], ["input_ids", "attention_mask"]) == []
    found = omitted(model, [["input_ids", "attention_mask"]])
    assert found[:3] == ["token_type_ids", "position_ids", "inputs_embeds"]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    made("BertForSequenceClassification", num_labels=1).save_pretrained(folder)
    return folder


def pairs(rows: int, length: int) -> dict[str, Any]:
    ids = torch.randint(4, 40, (rows, length))
    second = (torch.arange(length) >= length // 3).long().expand(rows, length)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": second}


def test_pairs_get_the_scores_that_transformers_gives(reranker: Path, tmp_path: Path) -> None:
    report = oe.transformers.export(reranker, tmp_path / "out", fsync=False)
    assert list(report.inputs["model"]) == ["input_ids", "attention_mask", "token_type_ids"]
    assert report.omitted_inputs == ["position_ids", "inputs_embeds", "labels"]
    assert report.notes == [] and report.checked == {"model": 2}
    model = transformers.BertForSequenceClassification.from_pretrained(reranker).eval()
    session = runtime.InferenceSession(report.graphs["model"].model)
    for rows, length in ((1, 5), (3, 12)):
        given = pairs(rows, length)
        (got,) = session.run(None, {name: each.numpy() for name, each in given.items()})
        with torch.no_grad():
            assert np.allclose(got, model(**given).logits.numpy(), atol=1e-4)
    assert oe.validate(tmp_path / "out", against=reranker).ok


def test_a_graph_that_lacks_an_input_is_noted_and_does_not_agree(
    reranker: Path, tmp_path: Path
) -> None:
    names = ["input_ids", "attention_mask"]
    report = oe.transformers.export(reranker, tmp_path / "out", inputs=names, fsync=False)
    assert list(report.inputs["model"]) == names and report.checked == {"model": 2}
    assert any("also takes token_type_ids, which no graph does" in each for each in report.notes)
    found = oe.validate(tmp_path / "out", against=reranker)
    assert not found.ok and found.graphs[0].lacks == ["token_type_ids"]
    assert "has no input token_type_ids, which BertForSequenceClassification" in found.sentence
    assert oe.validate(tmp_path / "out", against=reranker, inputs=names).ok


def test_one_row_of_one_token_lets_batch_and_length_vary(reranker: Path, tmp_path: Path) -> None:
    given = {name: each[:1] for name, each in pairs(1, 1).items()}
    report = oe.transformers.export(reranker, tmp_path / "out", inputs=given, fsync=False)
    assert set(report.inputs["model"].values()) == {"int64[batch_size, sequence_length]"}
    assert report.fixed == {"model": []} and report.notes == []
    model = transformers.BertForSequenceClassification.from_pretrained(reranker).eval()
    session = runtime.InferenceSession(report.graphs["model"].model)
    other = pairs(3, 7)
    other["attention_mask"][1, 4:] = 0
    (got,) = session.run(None, {name: each.numpy() for name, each in other.items()})
    with torch.no_grad():
        assert np.allclose(got, model(**other).logits.numpy(), atol=1e-4)
    shown = str(report)
    assert shown.startswith("BertForSequenceClassification: ") and "takes input_ids int64" in shown
    assert len(shown) < 2000 and shown.count("\n") < 10


def test_heads_behind_a_decoder_take_texts_that_end_and_choices_have_a_dimension(
    tmp_path: Path,
) -> None:
    layers = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    sizes = {"encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    judge = made("BartForSequenceClassification", **layers, **heads, **sizes)
    words = torch.randint(4, 40, (3, 6))
    words[:, -2] = judge.config.eos_token_id
    chooser = made("BertForMultipleChoice", num_hidden_layers=1)
    texts = torch.randint(4, 40, (3, 4, 5))
    for model, ids, forms in (
        (judge, words, "int64[batch_size, sequence_length]"),
        (chooser, texts, "int64[batch_size, choices, sequence_length]"),
    ):
        name = type(model).__name__
        model.save_pretrained(tmp_path / name)
        report = oe.transformers.export(tmp_path / name, tmp_path / f"{name}-out")
        assert set(report.inputs["model"].values()) == {forms} and report.checked == {"model": 2}
        given = {each: torch.ones_like(ids) for each in report.inputs["model"]} | {"input_ids": ids}
        session = runtime.InferenceSession(report.graphs["model"].model)
        (got,) = session.run(["logits"], {each: value.numpy() for each, value in given.items()})
        with torch.no_grad():
            np.testing.assert_allclose(got, model(**given).logits.numpy(), atol=1e-4, rtol=1e-3)


def test_a_text_of_the_decoder_is_as_long_as_a_head_that_compares_the_two_needs() -> None:
    small = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    names = ("input_ids", "decoder_input_ids")
    for name, fewer in (("T5ForSequenceClassification", 0), ("T5Model", 3)):
        found = sample_inputs(made(name, **small), names)
        assert found["input_ids"].shape[1] - found["decoder_input_ids"].shape[1] == fewer


def test_what_is_fixed_is_a_note() -> None:
    from onnx_external.transformers._tracing import notes_of_fixed

    def graph(**shapes: list[Any]) -> Any:
        inputs = [SimpleNamespace(name=name, shape=each) for name, each in shapes.items()]
        model = SimpleNamespace(graph=SimpleNamespace(inputs=inputs))
        return SimpleNamespace(model=model)

    image = graph(pixel_values=["batch", 3, 32, 32], input_ids=[1, "sequence"])
    (note,) = notes_of_fixed({"model": image})
    assert note == (
        "sizes that do not vary: pixel_values[2] = 32, pixel_values[3] = 32, input_ids[0] = 1"
    )
    step = graph(decoder_input_ids=["batch", 1], bbox=["batch", "sequence", 4])
    assert notes_of_fixed({"decoder_with_past_model": step}) == []
    assert notes_of_fixed({"model": graph(input_features=["batch", "frames", 160])}) == []
    (note,) = notes_of_fixed({"model": graph(input_features=["batch", 80, 3000])})
    assert note == "sizes that do not vary: input_features[2] = 3000"
    (note,) = notes_of_fixed(
        {"decoder_with_past_model": step, "decoder_model": graph(input_ids=["batch", 8])}
    )
    assert note == "sizes that do not vary: input_ids[1] = 8 of decoder_model"


def test_examples_of_one_row_become_two_where_all_have_one() -> None:
    from onnx_external.transformers._inputs import varied

    model = SimpleNamespace(_is_stateful=False)
    one = {"input_ids": torch.tensor([[5]]), "bbox": torch.ones(1, 1, 4), "flag": True}
    found = varied(model, one)
    assert found["input_ids"].tolist() == [[5, 5]] * 2 and found["bbox"].shape == (2, 2, 4)
    assert found["flag"] is True and one["input_ids"].shape == (1, 1)
    patches = {"input_ids": torch.ones(1, 9), "pixel_values": torch.ones(16, 3)}
    assert varied(model, patches)["input_ids"].shape == (1, 9)
    assert varied(SimpleNamespace(_is_stateful=True), one)["input_ids"].shape == (1, 1)


def test_a_mask_of_ones_gets_a_zero_where_generate_would_drop_it() -> None:
    from onnx_external.transformers._inputs import varied

    one = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3).long()}
    config = SimpleNamespace(is_encoder_decoder=False)
    decoder = SimpleNamespace(_is_stateful=False, can_generate=lambda: True, config=config)
    assert varied(decoder, one)["attention_mask"].tolist() == [[1, 1, 1], [0, 1, 1]]
    padded = {**one, "attention_mask": torch.tensor([[1, 1, 0]])}
    assert varied(decoder, padded)["attention_mask"].tolist() == [[1, 1, 0]] * 2
    encoder = SimpleNamespace(_is_stateful=False, can_generate=lambda: False)
    assert varied(encoder, one)["attention_mask"].tolist() == [[1, 1, 1]] * 2


def test_a_longer_set_has_one_length_however_short_the_example_is() -> None:
    from onnx_external.transformers._compared import _longer

    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=40))
    for length in (2, 4, 9):
        words = torch.arange(length).expand(2, length)
        mask = (words < length - 1).long()
        found = _longer({"input_ids": words, "attention_mask": mask}, model)
        assert found["input_ids"].shape == found["attention_mask"].shape == (3, length + 5)
        assert found["input_ids"][2].tolist() == [each % length for each in range(length + 5)]
        assert found["attention_mask"].sum(1).tolist() == [length - 1] * 3


def test_the_text_of_a_report_is_a_screen(reranker: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    names = ["input_ids"]
    found = oe.transformers.export(
        reranker, tmp_path / "out", inputs=names, dry_run=True, check=False
    )
    many = {
        f"past_key_values.{layer}.key": "float32[batch_size, 4, past_sequence_length, 8]"
        for layer in range(99)
    }
    noisy = replace(found, notes=["note " * 400] * 60, inputs={"model": many})
    assert noisy.repeated == [] and len(str(noisy)) < 6_000 and str(noisy).count("\n") < 25
    assert "and 98 more of the cache" in str(noisy) and "more lines in repr()" in str(noisy)


@pytest.mark.parametrize("check", [False, None])
def test_a_model_whose_modules_keep_the_state_is_refused_by_name(
    check: bool | None, tmp_path: Path
) -> None:
    settings = dict(lru_width=16, attention_window_size=8, head_dim=8, num_key_value_heads=1)
    kinds = ["recurrent", "attention"]
    more = {**TEXT, **settings, "num_hidden_layers": 2, "block_types": kinds, "pad_token_id": 0}
    transformers.RecurrentGemmaForCausalLM(
        transformers.RecurrentGemmaConfig(**more)
    ).save_pretrained(tmp_path / "griffin")
    match = r"RecurrentGemmaForCausalLM keeps the state .*temporal_block\.(rg_lru|conv1d)"
    with pytest.raises(oe.ExportError, match=match):
        oe.transformers.export(tmp_path / "griffin", tmp_path / "out", check=check)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("switches", "told"),
    [
        ({"return_dict": False}, "return_dict"),
        ({"torchscript": True, "gradient_checkpointing": True}, "torchscript, gradient_checkpoin"),
        ({"attn_implementation": "flash_attention_2"}, "attn_implementation='flash_attention_2'"),
        ({"_attn_implementation": "flex_attention"}, "attn_implementation='flex_attention'"),
        ({"chunk_size_feed_forward": 4}, "chunk_size_feed_forward"),
        ({"attn_implementation": "sdpa"}, ""),
        ({"attn_implementation": "eager"}, ""),
    ],
)
def test_switches_for_training_and_gpus_are_set_aside(
    switches: dict[str, Any], told: str, reranker: Path, tmp_path: Path
) -> None:
    from onnx_external.transformers._loading import load
    from onnx_external.transformers._reference import loaded

    for file in reranker.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **switches}))
    found = load(tmp_path, None, None)
    assert len(found.notes) == bool(told)
    assert not told or (told in found.notes[0] and "ignored" in found.notes[0])
    eager = switches.get("attn_implementation") == "eager"
    for model in (found.model, loaded(tmp_path, None, None)):
        assert model.config._attn_implementation == ("eager" if eager else "sdpa")
        assert not isinstance(model(torch.ones(1, 4, dtype=torch.int64)), tuple)
        for switch in ("gradient_checkpointing", "chunk_size_feed_forward"):
            assert not any(getattr(each, switch, False) for each in model.modules())


def test_switches_of_parts_and_kernels_that_a_class_lacks_are_set_aside() -> None:
    from onnx_external.transformers._switches import without_switches

    config = transformers.CLIPConfig()
    config.vision_config._attn_implementation = "flash_attention_3"
    config.text_config._attn_implementation = "eager"
    (note,) = without_switches(config, transformers.CLIPModel)
    assert "'flash_attention_3'" in note
    assert config.vision_config._attn_implementation is None
    assert config.text_config._attn_implementation == "eager"
    plain = SimpleNamespace(_supports_sdpa=False)
    config = transformers.BertConfig(attn_implementation="sdpa")
    assert len(without_switches(config, plain)) == 1 and config._attn_implementation is None


SOUND = {
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
}


@pytest.mark.parametrize(
    ("name", "settings", "shapes"),
    [
        (
            "Wav2Vec2BertModel",
            {"feature_projection_input_dim": 20, "output_hidden_size": 16},
            {"input_features": (2, 128, 20)},
        ),
        ("Wav2Vec2Model", SOUND, {"input_values": (2, 16000)}),
        (
            "ParakeetEncoder",
            {"num_mel_bins": 16, "subsampling_conv_channels": 4, "num_key_value_heads": 2},
            {"input_features": (2, 128, 16)},
        ),
        (
            "DacModel",
            {"encoder_hidden_size": 4, "decoder_hidden_size": 16, "hidden_size": 8},
            {"input_values": (2, 1, 16000)},
        ),
        (
            "VideoMAEModel",
            {"image_size": 16, "patch_size": 8, "num_frames": 4},
            {"pixel_values": (2, 4, 3, 16, 16)},
        ),
        (
            "PatchTSTModel",
            {"context_length": 32, "num_input_channels": 3, "patch_length": 4, "d_model": 16},
            {"past_values": (2, 32, 3)},
        ),
        (
            "ViTModel",
            {"image_size": 16, "patch_size": 8},
            {"pixel_values": (2, 3, 16, 16)},
        ),
    ],
)
def test_made_examples_fit_the_config(
    name: str, settings: dict[str, Any], shapes: dict[str, Any], tmp_path: Path
) -> None:
    kind = getattr(transformers, name)
    sizes = {each: size for each, size in TEXT.items() if each not in ("vocab_size", *settings)}
    model = kind(kind.config_class(**sizes, **settings)).eval()
    found = sample_inputs(model, inputs_of(model, tmp_path, None))
    assert {each: tuple(value.shape) for each, value in found.items()} == shapes
    with torch.no_grad():
        model(**found)


def test_made_words_are_in_the_vocabulary_of_the_text() -> None:
    config = SimpleNamespace(vocab_size=257_152, text_config=SimpleNamespace(vocab_size=20))
    assert words_of(config, 2, 8).max() < 20
    assert words_of(SimpleNamespace(vocab_size=200), 2, 8).max() > 20


def test_made_sound_is_well_conditioned(tmp_path: Path) -> None:
    model = made("Wav2Vec2Model", **SOUND)
    (sound,) = sample_inputs(model, inputs_of(model, tmp_path, None)).values()
    with torch.no_grad():
        single = model(sound).last_hidden_state
        double = model.double()(sound.double()).last_hidden_state
    assert float((single - double).abs().max() / double.abs().max()) < 1e-5
    assert abs(float(sound.mean())) < 0.05 and 0.2 < float(sound.std()) < 2


def test_an_input_with_a_default_that_no_graph_can_take_is_left_out_with_a_note(
    reranker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.bert.modeling_bert import BertEmbeddings

    plain = BertEmbeddings.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("token_type_ids") is not None:
            raise ValueError("kinds are not for graphs")
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(BertEmbeddings, "forward", forward)
    report = oe.transformers.export(reranker, tmp_path / "out", fsync=False)
    assert list(report.inputs["model"]) == ["input_ids", "attention_mask"]
    assert report.checked == {"model": 2}
    assert "kinds are not for graphs" in report.notes[0]
    assert report.notes[0].startswith("exported without token_type_ids: otherwise ")
    assert "also takes token_type_ids" in report.notes[1]
    with pytest.raises(oe.ExportError, match="kinds are not for graphs"):
        oe.transformers.export(
            reranker, tmp_path / "no", inputs=["input_ids", "token_type_ids"], fsync=False
        )


def test_the_command_tells_of_inputs_by_its_option() -> None:
    from onnx_external._commands.export import parser

    told = parser().in_options("no graph takes them; choose the inputs with inputs=NAMES")
    assert told == "no graph takes them; choose the inputs with --inputs NAMES"
    told = parser().in_options("no example; give inputs={name: tensor}")
    assert told == "no example; give inputs={name: tensor} of oe.transformers.export"
