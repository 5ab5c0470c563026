"""Tests that next tokens equal those of generate(do_sample=False) for any settings."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import onnx_external as oe
from onnx_external._generation import decoder as decoding
from onnx_external._generation.next_tokens import NextTokens, Prompts

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.20")

WORDS, PAD, ENDS = 40, 0, [2, 7]
SETTINGS: dict[str, Any] = {
    "sequence_bias": [[[5], 3.0], [[1, 9], 8.0], [[3, 4, 6], -20.0]],
    "encoder_repetition_penalty": 1.5,
    "repetition_penalty": 1.7,
    "no_repeat_ngram_size": 2,
    "encoder_no_repeat_ngram_size": 1,
    "bad_words_ids": [[1, 9], [7], [11, 12], *([each] for each in range(8, 40))],
    "min_length": 9,
    "min_new_tokens": 4,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": [2, 5],
    "remove_invalid_values": True,
    "exponential_decay_length_penalty": [2, 1.8],
    "suppress_tokens": [3, 8, 21],
    "begin_suppress_tokens": [*range(30)],
}
ALL = {name: value for name, value in SETTINGS.items() if not name.startswith("forced")}
COUNT = 7


def rows(width: int) -> Any:
    """Return three prompts, the second of which is padded, with the tokens that followed them."""
    ids = np.random.default_rng(width).integers(1, 12, (3, width + COUNT))
    ids[1, : width // 2] = PAD
    return ids


def scores(seed: int) -> Any:
    found = np.random.default_rng(seed).normal(0, 3, (3, WORDS)).astype(np.float32)
    found[:, ENDS] += 3
    return found


@pytest.fixture(scope="module")
def model() -> Any:
    config = transformers.LlamaConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=8
    )
    return transformers.LlamaForCausalLM(config)


def wanted(model: Any, settings: dict[str, Any], width: int) -> list[list[int]]:
    """Return the most likely tokens after transformers' processors, step by step."""
    config = transformers.GenerationConfig(**settings, max_length=width + COUNT)
    config._eos_token_tensor = torch.tensor(ENDS)
    ids = torch.tensor(rows(width))
    mask = (ids[:, :width] != PAD).long()
    process = model._get_logits_processor(
        config, width, ids[:, :width], model_kwargs={"attention_mask": mask}, device="cpu"
    )
    return [
        process(ids[:, : width + step], torch.tensor(scores(step))).argmax(-1).tolist()
        for step in range(COUNT)
    ]


def found(settings: dict[str, Any], width: int) -> list[list[int]]:
    ids = rows(width)
    padding = (ids[:, :width] == PAD).sum(1)
    choose = NextTokens(settings, "x").begin(Prompts(ids[:, :width], padding, COUNT, ENDS))
    return [choose(scores(step), ids[:, : width + step]) for step in range(COUNT)]


@pytest.mark.parametrize("name", [*SETTINGS, "all"])
def test_a_setting_does_what_it_does_in_transformers(model: Any, name: str) -> None:
    settings = ALL if name == "all" else {name: SETTINGS[name]}
    for width in (1, 4, 6):
        assert found(settings, width) == wanted(model, settings, width), width


def test_settings_change_something() -> None:
    plain = found({}, 6)
    for name, value in SETTINGS.items():
        width = 1 if name == "forced_bos_token_id" else 6
        same = found({name: value}, width) == (plain if width == 6 else found({}, width))
        assert same == (name == "remove_invalid_values"), name


def test_values_that_ask_for_nothing_change_nothing() -> None:
    nothing = dict.fromkeys(SETTINGS) | {
        "min_length": 0,
        "no_repeat_ngram_size": 0,
        "repetition_penalty": 1.0,
        "suppress_tokens": [],
        "num_beams": 1,
        "guidance_scale": 1.0,
    }
    assert NextTokens(nothing, "x").notes == []
    assert found(nothing, 6) == found({}, 6)


def test_ids_beyond_the_scores_are_passed_over() -> None:
    beyond = {"suppress_tokens": [99], "bad_words_ids": [[99], [1, 99]], "repetition_penalty": 2.0}
    choose = NextTokens(beyond, "x").begin(Prompts(np.array([[99, 5]]), np.array([0]), 3, [77]))
    assert choose(np.array([[1.0, 3.0, 2.0]]), np.array([[99, 5]])) == [1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("repetition_penalty", "x"), ("repetition_penalty", -1), ("suppress_tokens", ["x"])],
)
def test_a_value_of_another_kind_is_refused_with_its_name(name: str, value: Any) -> None:
    with pytest.raises(oe.FormatError, match=re.escape(f"config.json: {name}: {value!r}")):
        NextTokens({name: value}, "generation_config.json").begin(
            Prompts(np.array([[1]]), np.array([0]), 3, [2])
        )


def test_settings_that_are_not_applied_are_noted() -> None:
    notes = NextTokens({"num_beams": 4, "stop_strings": ["x"], "top_k": 3}, "c.json").notes
    assert notes == [
        "c.json: num_beams=4 is ignored: the likeliest token is always chosen",
        "c.json: stop_strings=['x'] is ignored: the likeliest token is always chosen",
    ]


class Ends(decoding.Decoder):
    """A decoder with a table of six positions, which generates increasing tokens."""

    def __init__(self, positions: bool = True) -> None:
        self.ends, self._pad, self._positions, self._shares = set(), 0, 6, False
        self._next_tokens = NextTokens({}, "x")
        inputs = [SimpleNamespace(name="position_ids")] if positions else []
        self._first: Any = SimpleNamespace(inputs=inputs)
        self._next = self._first

    def _run(self, session: Any, ids: Any, state: Any) -> Any:
        if state.places.max() >= 6:
            raise oe.RunError("indices element out of data bounds")
        logits = np.zeros((len(ids), ids.shape[1], 50))
        for row, last in enumerate(ids[:, -1]):
            logits[row, -1, last + 1] = 1
        return logits, decoding._State({}, state.mask, state.places[:, -1:] + 1)


def test_a_text_ends_with_the_table_of_positions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decoding, "_empty", lambda *_: {})
    assert Ends().generate([[10, 11, 12, 13]], 9) == [[14, 15, 16]]
    assert "a text was ended early, because the model has 6 positions" in caplog.text
    assert Ends().generate([[10, 11, 12, 13], [20]], 5) == [[14, 15, 16], [21, 22, 23, 24, 25]]
    assert Ends(False).generate([[10, 11, 12, 13], [20]], 5) == [[14, 15, 16], [21, 22, 23]]
    with pytest.raises(oe.InvalidArgumentError, match="a prompt has 7 tokens, but the model has 6"):
        Ends().generate([[1] * 7], 2)
    decoder = Ends()
    decoder._positions = None
    with pytest.raises(oe.RunError, match="out of data bounds"):
        decoder.generate([[10, 11, 12, 13]], 9)
