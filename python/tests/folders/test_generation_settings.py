"""Tests that the settings of generate() do not affect a trace."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import onnx_external as oe

pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")

from onnx_external.transformers._disagreeing import of_other_sizes  # noqa: E402
from onnx_external.transformers._generation import plain_generation, without_checked_settings  # noqa: E402

IDS = {"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 0}


def plain(folder: Path, text: str) -> tuple[Any, list[str]]:
    (folder / "generation_config.json").write_text(text)
    model = SimpleNamespace(generation_config=transformers.GenerationConfig())
    return model, plain_generation(model, folder)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1}, []),
        ({"do_sample": True, "temperature": 0.0}, ["temperature"]),
        ({"num_beams": 4, "num_return_sequences": 2}, ["num_beams", "num_return_sequences"]),
        ({"num_return_sequences": 3}, ["num_return_sequences"]),
        ({"early_stopping": "soon"}, ["early_stopping"]),
        ({"max_length": 2, "min_length": 5}, ["max_length", "min_length"]),
        ({"max_new_tokens": 0}, ["max_new_tokens"]),
        ({"prompt_lookup_num_tokens": 3}, ["prompt_lookup_num_tokens"]),
        ({"guidance_scale": 1.5, "penalty_alpha": 0.6}, ["guidance_scale", "penalty_alpha"]),
        ({"cache_implementation": "static"}, ["cache_implementation"]),
        ({"cache_implementation": "none such"}, ["cache_implementation"]),
        ({"custom_generate": "acme/loop"}, ["custom_generate"]),
        ({"top_k": "many"}, ["top_k"]),
        ({"num_beams": [4]}, ["num_beams"]),
        ({"suppress_tokens": 7}, ["suppress_tokens"]),
        ({"watermarking_config": 4}, ["watermarking_config"]),
        ({"max_length": "long"}, ["max_length"]),
    ],
)
def test_only_token_ids_stay_and_what_generate_refuses_is_named(
    settings: dict[str, Any], named: list[str], tmp_path: Path
) -> None:
    model, notes = plain(tmp_path, json.dumps({**settings, **IDS}))
    kept = model.generation_config.to_diff_dict()
    kept.pop("transformers_version", None)
    assert kept == IDS
    assert len(notes) == (1 if named else 0)
    for note in notes:
        assert note.startswith("generation_config.json: ")
        assert all(name in note for name in named)


@pytest.mark.parametrize("text", ["{", "[1]", "", "NaN", "<html>", '{"eos_token_id": 1'])
def test_a_file_that_says_nothing_is_left_out(text: str, tmp_path: Path) -> None:
    model, notes = plain(tmp_path, text)
    assert len(notes) == 1
    assert "generation_config.json: ignored" in notes[0]
    assert model.generation_config.num_beams is None


def test_token_ids_of_a_wrong_type_are_named(tmp_path: Path) -> None:
    model, notes = plain(tmp_path, '{"eos_token_id": {"a": 1}, "pad_token_id": -1, "x_id": 3}')
    assert "eos_token_id, pad_token_id" in notes[0]
    assert model.generation_config.eos_token_id is None


def test_older_models_have_them_in_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_beams": 4, "hidden_size": 8, "eos_token_id": 2}')
    model = SimpleNamespace(generation_config=transformers.GenerationConfig(eos_token_id=2))
    (note,) = plain_generation(model, tmp_path)
    assert note.startswith("config.json: num_beams ignored")
    assert model.generation_config.eos_token_id == 2


def test_what_only_a_model_s_own_generate_knows_stays(tmp_path: Path) -> None:
    model, notes = plain(tmp_path, '{"lang_to_id": {"<|en|>": 7}, "is_multilingual": true}')
    assert model.generation_config.lang_to_id == {"<|en|>": 7}
    assert not notes


def test_settings_in_the_config_that_a_model_would_refuse_are_left_out() -> None:
    config = transformers.BertConfig(cache_implementation="none such")
    (note,) = without_checked_settings(config)
    assert note.startswith("config.json: cache_implementation ignored")
    assert not hasattr(config, "cache_implementation")
    assert without_checked_settings(config) == []


def test_sizes_that_differ_are_reported_with_the_number_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 97, "text_config": {"hidden_size": 32}}')
    model = SimpleNamespace(config=SimpleNamespace(to_dict=lambda: {"intermediate_size": 97}))
    error = of_other_sizes(tmp_path, model, {("e.weight", (96, 32), (97, 32))})
    assert isinstance(error, oe.MismatchError)
    text = str(error)
    assert "e.weight: [96, 32] in the weights, [97, 32] by the config" in text
    assert "vocab_size is 97 in config.json and 96 in the weights" in text
    assert error.lists["other-size"][0].name == "e.weight"


def test_a_config_of_other_sizes_is_refused_by_the_export(tmp_path: Path) -> None:
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4)
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=96, **sizes))
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 97}))
    with pytest.raises(oe.MismatchError, match=r"vocab_size is 97 in config\.json and 96"):
        oe.transformers.export(tmp_path, tmp_path / "out")
