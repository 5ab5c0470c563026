"""Tests of tokenizers from GGUF files, compared with plain implementations of their rules."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers

import onnx_external as oe
from onnx_external._folders.gguf.metadata import Metadata
from onnx_external._folders.gguf.tokenizer import Tokenizer, tokenizer_of

FILE = Path("m.gguf")
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPECIAL = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
BYTES = [(f"<0x{each:02X}>", BYTE) for each in range(256)]
PIECES = "▁ l o w e r n i k lo low ▁low er ▁l we ow new ki ik wer ▁▁".split(" ")
"""The first ones have the highest scores."""
TEXTS = ["lower low", " low  lower", "kikik newer", "é 你 low\n\tlow", "", "  "]


def sentencepiece(**more: Any) -> dict[str, Any]:
    tokens = [*SPECIAL, *BYTES, *((each, NORMAL) for each in PIECES), ("<think>", USER)]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [text for text, _ in tokens],
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(n) for n in range(len(PIECES))] + [0.0],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{name}": each for name, each in more.items()},
    }


def letters() -> dict[int, str]:
    """Return the character that represents each byte in byte-level vocabularies."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [each for each in range(256) if each not in shown]
    return {each: chr(each) for each in shown} | {
        each: chr(256 + number) for number, each in enumerate(hidden)
    }


def byte_level(pre: str, **more: Any) -> dict[str, Any]:
    merges = ["l o", "lo w", "Ġ low", "e r", "1 2", "12 3", "123 4", "Ġ Ġ", "Ċ Ċ", "n o"]
    texts = [*letters().values(), *(each.replace(" ", "") for each in merges)]
    tokens = [*((text, NORMAL) for text in texts), ("<s>", CONTROL), ("<pad>", UNUSED)]
    tokens += [("  user", USER), ("<|im_end|>", CONTROL)]
    return {
        "general.architecture": "qwen2",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [text for text, _ in tokens],
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": len(texts),
        "tokenizer.ggml.eos_token_id": len(texts),
        **{f"tokenizer.ggml.{name}": each for name, each in more.items()},
    }


def made(keys: dict[str, Any]) -> Tokenizer:
    return tokenizer_of(Metadata(FILE, keys), 1000)


def tokenizer(keys: dict[str, Any]) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(made(keys).files["tokenizer.json"]))


def merged_by_score(text: str, keys: dict[str, Any]) -> list[int]:
    """Return the ids of a text, by repeatedly merging the adjacent pair with the highest score."""
    tokens = keys["tokenizer.ggml.tokens"]
    known = {each: number for number, each in enumerate(tokens) if each in PIECES}
    parts = list(("▁" + text if text else "").replace(" ", "▁"))
    while True:
        pairs = [(known.get(parts[i] + parts[i + 1], 9999), i) for i in range(len(parts) - 1)]
        least = min(pairs, default=(9999, 0))
        if least[0] == 9999:
            break
        parts[least[1] : least[1] + 2] = [tokens[least[0]]]
    ids = []
    for part in parts:
        ids += [known[part]] if part in known else [3 + each for each in part.encode()]
    return ids


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_merged_by_their_scores_and_others_are_bytes(text: str) -> None:
    keys = sentencepiece()
    ids = tokenizer(keys).encode(text, add_special_tokens=False).ids
    assert ids == merged_by_score(text, keys)
    assert tokenizer(keys).decode(ids) == text


def test_special_tokens_are_found_in_a_text_and_put_around_it() -> None:
    one = tokenizer(sentencepiece(add_eos_token=True))
    low = merged_by_score("low", sentencepiece())
    assert one.encode("low").ids == [1, *low, 2]
    assert one.encode("low", "low").ids == [1, *low, 2, 1, *low, 2]
    think = one.token_to_id("<think>")
    assert one.encode("low<think>low").ids == [1, *low, think, *low, 2]
    plain = tokenizer(sentencepiece(add_bos_token=False))
    assert plain.encode("low").ids == low


def test_no_space_comes_before_a_text_if_the_file_says_so() -> None:
    one = tokenizer(sentencepiece(add_space_prefix=False))
    ids = one.encode("low low", add_special_tokens=False)
    assert ids.tokens == ["low", "▁low"]
    assert one.decode(ids.ids) == "low low"


SPLIT = [
    ("gpt-2", "I've  1234 no!\n\n new", ["I", "'ve", "Ġ", "Ġ1234", "Ġno", "!", "ĊĊ", "Ġnew"]),
    ("starcoder", "a 123", ["a", "Ġ", "1", "2", "3"]),
    ("llama-bpe", "I'VE 12345  no!\n\n", ["I", "'VE", "Ġ", "123", "45", "Ġ", "Ġno", "!ĊĊ"]),
    ("qwen2", "x 12 no!\n", ["x", "Ġ", "1", "2", "Ġno", "!Ċ"]),
    ("gpt-4o", "camelCase's A/\nb", ["camel", "Case's", "ĠA", "/Ċ", "b"]),
    ("tekken", "camelCase's 12", ["camel", "Case", "'s", "Ġ", "1", "2"]),
    ("deepseek-coder", "a 12?\n", ["a", "Ġ", "1", "2", "?", "Ċ"]),
    ("deepseek-v3", "if(x)==1234\n", ["if", "(x", ")==", "123", "4", "Ċ"]),
    ("viking", "no, 12", ["no", ",", "Ġ", "1", "2"]),
]


@pytest.mark.parametrize(("pre", "text", "pieces"), SPLIT)
def test_a_text_is_split_by_the_rule_that_the_file_names(
    pre: str, text: str, pieces: list[str]
) -> None:
    one: Any = tokenizer(byte_level(pre)).pre_tokenizer
    assert [piece for piece, _ in one.pre_tokenize_str(text)] == pieces


def test_merges_have_their_order_and_special_tokens_their_numbers() -> None:
    keys = byte_level("qwen2")
    one, tokens = tokenizer(keys), keys["tokenizer.ggml.tokens"]
    found = one.encode("lower low  user<|im_end|>")
    assert found.tokens == ["low", "er", "Ġlow", "  user", "<|im_end|>"]
    assert found.ids == [tokens.index(each) for each in found.tokens]
    assert one.get_vocab_size() == len(tokens)
    assert one.encode("e\u0301").ids == one.encode("\u00e9").ids  # Qwen composes accents


def test_a_piece_that_is_a_token_is_one_where_the_rule_says_so() -> None:
    keys = byte_level("llama-bpe")
    keys["tokenizer.ggml.merges"].remove("lo w")
    assert tokenizer(keys).encode("low", add_special_tokens=False).tokens == ["low"]
    assert tokenizer(keys).encode("low").tokens == ["<s>", "low"]
    keys["tokenizer.ggml.pre"] = "smaug-bpe"
    assert tokenizer(keys).encode("low").tokens == ["lo", "w"]


def test_transformers_reads_the_files(tmp_path: Path) -> None:
    for name, each in made(sentencepiece()).files.items():
        (tmp_path / name).write_text(json.dumps(each))
    read = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert read("lower low")["input_ids"] == [1, *merged_by_score("lower low", sentencepiece())]
    assert (read.bos_token, read.eos_token, read.unk_token) == ("<s>", "</s>", "<unk>")


def test_templates_of_chats_are_files_and_say_what_ends_a_turn() -> None:
    keys = byte_level(
        "qwen2",
        chat_template="{{ messages }}",
        chat_templates=["tool_use", "../x"],
    ) | {"tokenizer.chat_template": "{{ messages }}", "tokenizer.chat_template.tool_use": "T"}
    keys |= {"tokenizer.chat_templates": ["tool_use", "../x"], "tokenizer.chat_template.../x": "X"}
    found = made(keys)
    assert found.templates == {
        "chat_template.jinja": "{{ messages }}",
        "additional_chat_templates/tool_use.jinja": "T",
    }
    tokens = keys["tokenizer.ggml.tokens"]
    assert found.ends == [tokens.index("<s>"), tokens.index("<|im_end|>")]
    assert made(byte_level("qwen2")).ends == found.ends[:1]


@pytest.mark.parametrize("pre", ["default", "other", None])
def test_a_rule_that_is_not_known_is_not_guessed(pre: Any) -> None:
    found = made(byte_level(pre))
    assert not found.files
    assert len(found.notes) == 1 and f"tokenizer.ggml.pre is {pre!r}" in found.notes[0]


def test_a_file_without_a_tokenizer_or_with_another_kind_has_none() -> None:
    assert "has no tokenizer" in made({"general.architecture": "llama"}).notes[0]
    found = made(sentencepiece(model="t5"))
    assert not found.files and "'t5'" in found.notes[0]


REFUSED = [
    ({"scores": [0.0]}, "scores: 1 for"),
    ({"token_type": [1, 1]}, "token_type: 2 for"),
    ({"tokens": [1, 2]}, "expected a list of strings"),
    ({"tokens": ["a", "b", "a"], "scores": [0.0] * 3, "token_type": [1] * 3}, "'a' is token 0 and"),
    ({"tokens": [str(each) for each in range(1001)]}, "1001 tokens, but 1000 embeddings"),
]


@pytest.mark.parametrize(("change", "text"), REFUSED)
def test_keys_that_contradict_each_other_are_an_error(change: dict[str, Any], text: str) -> None:
    with pytest.raises(oe.FormatError, match=text):
        made(sentencepiece(**change))


def test_tokens_that_no_text_becomes_keep_their_numbers() -> None:
    keys = sentencepiece()
    keys["tokenizer.ggml.tokens"][5:7] = ["", "\udcff"]
    one = tokenizer(keys)
    assert one.id_to_token(5) == "[EMPTY_5]" and one.id_to_token(6) == "[BYTES_6]"
    assert one.encode("low", add_special_tokens=False).tokens == ["▁low"]
