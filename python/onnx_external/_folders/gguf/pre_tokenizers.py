"""Defines rules for splitting a text into words, by pre-tokenizer names in GGUF files.

A GGUF file gives only the name of its pre-tokenizer. This module has the rules of the tokenizers
with known names. For an unknown name, no rule is guessed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _words(numbers: str) -> str:
    """Return the splitting pattern of cl100k and its successors."""
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
    )


def _cased_words(numbers: str, ends: str) -> str:
    """Return the splitting pattern of o200k and its successors, which also splits at capitals."""
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{ends}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{ends}"
        rf"|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
    )


_THREE, _ONE = r"\p{N}{1,3}", r"\p{N}"
_LLAMA3, _QWEN2 = _words(_THREE), _words(_ONE)
_GPT4O = _cased_words(_THREE, f"{_CONTRACTIONS}?")
_TEKKEN = _cased_words(_ONE, "")
_SEED = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_REST}"
)
_BLOOM = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_DEEPSEEK3 = (
    _THREE,
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _REST,
)
_DEEPSEEK_CODER = (
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
)


class PreTokenizer(NamedTuple):
    """The rule for splitting texts, and other settings that follow from its name."""

    patterns: tuple[str, ...] = ()
    """The patterns, applied in order; each splits the results of the previous pattern."""
    digits: bool = False
    """True if each digit is split off separately."""
    is_gpt2: bool = False
    """True if the pattern of GPT-2 is applied after `patterns`."""
    whole_first: bool = False
    """True if a word that is a token is used whole, without applying merges."""
    begins: bool = False
    """True if a beginning-of-text token is added, unless the file says otherwise."""
    composed: bool = False
    """True if the text is first normalized to NFC."""

    def document(self) -> dict[str, Any]:
        """Return the rule in the form of tokenizer.json."""
        splits: list[dict[str, Any]] = [
            {
                "type": "Split",
                "pattern": {"Regex": each},
                "behavior": "Isolated",
                "invert": False,
            }
            for each in self.patterns
        ]
        if self.digits:
            splits.append({"type": "Digits", "individual_digits": True})
        return {"type": "Sequence", "pretokenizers": [*splits, _byte_level(self.is_gpt2)]}


def _byte_level(splits: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": splits,
    }


_GPT2 = PreTokenizer(is_gpt2=True)
_DIGITS = PreTokenizer(digits=True, is_gpt2=True)
_OF_LLAMA3 = PreTokenizer((_LLAMA3,), whole_first=True, begins=True)
_NAMES = (
    (_GPT2, "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling"),
    (_DIGITS, "starcoder refact command-r smollm codeshell exaone minerva-7b"),
    (_OF_LLAMA3, "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"),
    (PreTokenizer((_LLAMA3,)), "dbrx smaug-bpe glm4 chatglm-bpe"),
    (PreTokenizer((_QWEN2,), composed=True), "qwen2"),
    (PreTokenizer((_QWEN2,)), "deepseek-r1-qwen stablelm2 hunyuan megrez grok-2 kormo"),
    (PreTokenizer((_GPT4O,)), "gpt-4o llama4 kanana2 minimax-m2"),
    (PreTokenizer((_TEKKEN,), whole_first=True, begins=True), "tekken"),
    (PreTokenizer((_SEED,)), "seed-coder"),
    (PreTokenizer(_DEEPSEEK3), "deepseek-v3 hunyuan-dense"),
    (PreTokenizer(_DEEPSEEK_CODER, digits=True), "deepseek-coder"),
    (PreTokenizer((_BLOOM,)), "bloom poro-chat gpt3-finnish"),
    (PreTokenizer((_BLOOM,), digits=True), "viking"),
)
PRE_TOKENIZERS = {name: each for each, names in _NAMES for name in names.split()}
"""The pre-tokenizers, by the value of `tokenizer.ggml.pre`."""
