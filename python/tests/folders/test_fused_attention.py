"""Tests of fusing the attention of decoders during the trace, and of attention that stays."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime", minversion="1.27")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import generation_cases as cases  # noqa: E402

from onnx_external._attention import masks  # noqa: E402
from onnx_external._generation.decoder import Decoder  # noqa: E402
from onnx_external.transformers._batches import by_lengths, by_rows  # noqa: E402

_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "vocab_size": 320,
    "eos_token_id": 2,
    "pad_token_id": 3,
}
export = partial(oe.transformers.export, progress=False, fsync=False)


def _saved(folder: Path, layers: int = 1, **more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.MistralConfig(num_hidden_layers=layers, **{**_SIZES, **more})
    model = transformers.MistralForCausalLM(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape) * 0.3 + (1.0 if value.dim() == 1 else 0.0))
    model.save_pretrained(folder)
    return model


def _operators(path: Path) -> list[str]:
    model = onnx.load(path, load_external_data=False)
    return [f"{node.domain}.{node.op_type}".lstrip(".") for node in model.graph.node]


def _step(path: Path, mask: Any, tokens: Any, caches: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return logits and caches after some tokens; without caches, these are the first tokens."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    places = np.maximum(mask.cumsum(1) - 1, 0)[:, -tokens.shape[1] :]
    feed = {"input_ids": tokens, "attention_mask": mask, "position_ids": places, **caches}
    for each in session.get_inputs():
        if each.name.startswith("past") and not caches:
            feed[each.name] = np.zeros((len(tokens), each.shape[1], 0, each.shape[3]), np.float32)
    taken = {each.name for each in session.get_inputs()}
    logits, *made = session.run(None, {n: v for n, v in feed.items() if n in taken})
    pasts = (each.name for each in session.get_outputs()[1:])
    return logits, {
        each.replace("present", "past_key_values"): v for each, v in zip(pasts, made, strict=True)
    }


def _logits(path: Path, mask: Any, tokens: Any) -> Any:
    return _step(path, mask, tokens, {})[0]


def _compare_padded(model: Any, path: Path) -> None:
    """Compare the tokens for rows that are padded on the left, in the middle and on the right."""
    mask = np.ones((4, 8), np.int64)
    mask[0, :3], mask[1, 2:4], mask[2, 5:] = 0, 0, 0
    tokens = np.arange(4, 36).reshape(4, 8)
    places = torch.tensor(np.maximum(mask.cumsum(1) - 1, 0))
    with torch.no_grad():
        given = {"attention_mask": torch.tensor(mask), "position_ids": places}
        wanted = model(torch.tensor(tokens), **given).logits.numpy()
    found = _logits(path, mask, tokens)
    sees = [[mask[row, max(0, at - 3) : at + 1].any() for at in range(8)] for row in range(4)]
    assert np.abs(found - wanted)[np.array(sees)].max() < 1e-4


def test_a_decoder_has_one_operator_for_each_attention_and_shares_its_cache(tmp_path: Path) -> None:
    model = _saved(tmp_path / "in", sliding_window=4)
    report = export(tmp_path / "in", tmp_path / "out", check=True)
    found = _operators(tmp_path / "out/model.onnx")
    assert found.count("com.microsoft.GroupQueryAttention") == 1
    assert not {"Softmax", "GroupQueryAttention"} & set(found)
    assert report.checked["model"] > 6  # includes single rows, and single tokens of all rows
    assert any("only for a batch size of 1" in note for note in report.notes)
    settings = json.loads((tmp_path / "out/genai_config.json").read_text())
    assert settings["search"]["past_present_share_buffer"] is True
    _compare_padded(model, tmp_path / "out/model.onnx")
    rows = [[5, 6, 7, 8, 9, 10, 11], [12, 13, 14]]
    shared, growing = Decoder(tmp_path / "out"), Decoder(tmp_path / "out")
    growing._shares, shared.ends, growing.ends = False, set(), set()
    assert shared._shares
    tokens = shared.generate(rows, 12)
    assert tokens == growing.generate(rows, 12)
    mask = torch.tensor([[1] * 7, [0] * 4 + [1] * 3])
    padded = torch.tensor([rows[0], [3] * 4 + rows[1]])
    wanted = model.generate(
        padded, attention_mask=mask, max_new_tokens=12, min_new_tokens=12, do_sample=False
    )
    assert cases.same_until_the_end(tokens, wanted[:, 7:].tolist())


def test_in_float16_tokens_that_see_nothing_get_zeros_as_in_torch(tmp_path: Path) -> None:
    _saved(tmp_path / "in")
    report = export(tmp_path / "in", tmp_path / "out", dtype="float16", check=True)
    assert list(report.graphs) == ["model"]  # padding was right in all positions
    found = _operators(tmp_path / "out/model.onnx")
    assert found.count("com.microsoft.GroupQueryAttention") == 1


def test_attention_by_lengths_gives_nan_rather_than_a_wrong_number(tmp_path: Path) -> None:
    _saved(tmp_path / "in", sliding_window=4)
    report = export(tmp_path / "in", tmp_path / "out", attention="lengths", check=True)
    assert report.checked["model"] > 6
    assert any("padded only on the right" in note for note in report.notes)
    tokens, ones = np.arange(4, 16).reshape(2, 6), np.ones((2, 6), np.int64)
    right, left, inner = ones.copy(), ones.copy(), ones.copy()
    right[1, 4:], left[1, :2], inner[0, 2] = 0, 0, 0
    path = tmp_path / "out/model.onnx"
    whole, padded = (_logits(path, mask, tokens) for mask in (ones, right))
    assert np.abs(padded[1, :4] - whole[1, :4]).max() < 1e-4
    for mask in (left, inner):
        assert np.isnan(_logits(path, mask, tokens)).all()
    _, caches = _step(path, right, tokens, {})  # like onnxruntime-genai with rows of two lengths
    new, more = np.array([[9], [9]]), np.ones((2, 1), np.int64)
    found, _ = _step(path, np.hstack([right, more]), new, caches)
    alone = np.hstack([tokens[1:, :4], new[1:]])
    assert np.abs(found[1, 0] - _logits(path, np.ones((1, 5), np.int64), alone)[0, 4]).max() < 1e-4
    for mask in (np.hstack([left, more]), np.hstack([ones, right[:, 5:]])):
        assert np.isnan(_step(path, mask, new, caches)[0]).all()
    decoder = Decoder(tmp_path / "out")  # the decoder otherwise pads on the left
    assert decoder.generate([[5, 6, 7], [8, 9]], 3)[1] == decoder.generate([[8, 9]], 3)[0]


@pytest.mark.parametrize(
    ("rope", "fused"),
    [
        (
            {
                "rope_type": "longrope",
                "short_factor": [1.0] * 4,
                "long_factor": [2.0, 3.0, 4.0, 5.0],
            },
            1,
        ),
        ({"rope_type": "dynamic", "factor": 2.0}, 0),
    ],
    ids=["longrope", "dynamic"],
)
def test_angles_that_depend_on_the_longest_text_are_right_for_padded_ones(
    rope: dict[str, Any], fused: int, tmp_path: Path
) -> None:
    few = 8  # the rotary angles change beyond this number of positions
    rope = {"rope_theta": 10000.0, "original_max_position_embeddings": few, **rope}
    most = few if rope["rope_type"] == "dynamic" else 64
    sizes = {"max_position_embeddings": most, "sliding_window": None, "rope_parameters": rope}
    _saved(tmp_path / "in", **sizes)
    report = export(tmp_path / "in", tmp_path / "out", attention="lengths", check=False)
    found = _operators(tmp_path / "out/model.onnx")
    assert found.count("com.microsoft.GroupQueryAttention") == fused
    assert any("attention is traced, not fused" in note for note in report.notes) == (not fused)
    mask = np.ones((2, 13), np.int64)
    mask[1, 5:12] = 0
    tokens, places = np.arange(4, 30).reshape(2, 13), np.maximum(mask.cumsum(1) - 1, 0)
    model, cache = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "in"), None
    caches: dict[str, Any] = {}
    for start, end in ((0, 12), (12, 13)):
        given = [torch.tensor(each[:, start:end]) for each in (tokens, places)]
        past = {"attention_mask": torch.tensor(mask[:, :end]), "past_key_values": cache}
        with torch.no_grad():
            wanted = model(given[0], position_ids=given[1], use_cache=True, **past)
        path, cache = tmp_path / "out/model.onnx", wanted.past_key_values
        got, caches = _step(path, mask[:, :end], tokens[:, start:end], caches)
        far = np.abs(got - wanted.logits.numpy())[mask[:, start:end] == 1]
        assert far.max() < 1e-5 * np.abs(wanted.logits.numpy()).max()


def test_attention_is_that_of_onnx_or_of_the_code_if_asked_for(tmp_path: Path) -> None:
    _saved(tmp_path / "in")
    report = export(tmp_path / "in", tmp_path / "standard", attention="standard", check=True)
    assert _operators(tmp_path / "standard/model.onnx").count("Attention") == 1
    assert any("ONNX 23" in note for note in report.notes)
    report = export(tmp_path / "in", tmp_path / "traced", attention="traced", check=False)
    assert "Softmax" in _operators(tmp_path / "traced/model.onnx")
    assert not any("attention" in note for note in report.notes)


def test_the_layers_of_a_deep_decoder_are_repeated_with_fused_attention(tmp_path: Path) -> None:
    _saved(tmp_path / "in", 6, sliding_window=None)
    report = export(tmp_path / "in", tmp_path / "out", check=True)
    assert report.repeated == ["model"] and report.checked["model"] > 6
    found = _operators(tmp_path / "out/model.onnx")
    assert found.count("com.microsoft.GroupQueryAttention") == 6


def test_attention_whose_sizes_do_not_fit_is_traced_and_a_note_says_so(tmp_path: Path) -> None:
    _saved(tmp_path / "in", hidden_size=48)
    report = export(tmp_path / "in", tmp_path / "out", dry_run=True, check=False)
    assert [note for note in report.notes if "attention" in note] == [
        "model: attention is traced, not fused: the size of its heads, 12, is not a multiple of 8"
    ]


def test_only_intersections_with_a_causal_mask_are_causal() -> None:
    utils = transformers.masking_utils
    causal, window = utils.causal_mask_function, utils.sliding_window_overlay(4)
    assert masks.is_causal(causal)
    assert masks.is_causal(utils.sliding_window_causal_mask_function(4))
    assert masks.is_causal(utils.and_masks(window, utils.and_masks(causal, window)))
    for other in (utils.or_masks(causal, window), utils.bidirectional_mask_function, window):
        assert not masks.is_causal(other)
    assert list(masks._windows(utils.sliding_window_causal_mask_function(4))) == [4]
    assert masks._OTHER in masks._windows(utils.or_masks(causal, window))


def _given(past: int) -> dict[str, Any]:
    cache = transformers.DynamicCache()
    cache.update(torch.zeros(2, 1, past, 8), torch.ones(2, 1, past, 8), 0)
    mask = torch.ones(2, past + 3, dtype=torch.int64)
    mask[1, 0] = 0
    return {
        "input_ids": torch.arange(6).reshape(2, 3),
        "attention_mask": mask,
        "position_ids": torch.arange(past, past + 3).expand(2, 3) - torch.tensor([[0], [1]]),
        "past_key_values": cache,
    }


def test_rows_with_several_tokens_behind_a_cache_are_given_one_by_one() -> None:
    found = dict(by_rows("example", _given(4)))
    assert list(found) == ["example, row 1", "example, row 2", "example, one token"]
    row, token = found["example, row 2"], found["example, one token"]
    assert row["attention_mask"].tolist() == [[0, 1, 1, 1, 1, 1, 1]]
    assert row["past_key_values"].layers[0].keys.shape == (1, 1, 4, 8)
    assert token["input_ids"].tolist() == [[0], [3]]
    assert token["attention_mask"].shape == (2, 5) and token["position_ids"].shape == (2, 1)
    assert [title for title, _ in by_rows("prompt", _given(0))] == ["prompt"]


def test_graphs_by_lengths_are_given_rows_that_are_padded_on_the_right() -> None:
    found = dict(by_lengths("prompt", _given(0)))
    assert found["prompt"]["attention_mask"].all()
    assert found["prompt"]["position_ids"].tolist() == [[0, 1, 2]] * 2
    padded = found["prompt, padded on the right"]["attention_mask"]
    assert padded.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert list(dict(by_lengths("example", _given(4)))) == ["example"]
