"""Converts the tokenizer in a GGUF file's keys to tokenizer.json and tokenizer_config.json.

Two kinds are supported: byte-level BPE (`gpt2`), and sentencepiece's BPE (`llama`), which has
scores instead of merges. Both kinds become a BPE model of the tokenizers library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..._base.errors import FormatError
from .metadata import Metadata
from .pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

Document = dict[str, Any]
_NORMAL, _UNKNOWN, _CONTROL, _USER, _BYTE = 1, 2, 3, 4, 6
"""The numbers that GGUF files use for types of tokens."""
_SPACE = "\u2581"
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_WAY_OUT = "to tokenize texts, add the original model's tokenizer.json to the output"
_ENDS = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>", "<end_of_turn>", "<|end|>")
"""Control tokens that end a chat turn, in addition to the end-of-text token."""
_HARMONY = ("<|return|>", "<|call|>")
"""Tokens that end a chat turn in models in which `<|end|>` ends only a message within the turn."""


class Token(NamedTuple):
    """A token of the vocabulary."""

    number: int
    text: str
    kind: int
    score: float


class Tokenizer(NamedTuple):
    """The converted files of a tokenizer, its end tokens, and notes on the conversion."""

    files: dict[str, Document]
    """The JSON documents, by file name."""
    templates: dict[str, str]
    """The chat templates, by file name."""
    ends: list[int]
    """The tokens that end a text or a chat turn."""
    notes: list[str]


def tokenizer_of(file: Metadata, rows: int) -> Tokenizer:
    """Return the files of a tokenizer; no files and a note if the file has no supported tokenizer.

    Args:
        file: the keys of the GGUF file.
        rows: the number of rows of the embeddings.

    Raises:
        FormatError: the keys contradict each other.
    """
    kind = file.get("tokenizer.ggml.model")
    if kind is None or file.get("tokenizer.ggml.tokens") is None:
        return Tokenizer({}, {}, [], [f"{file.path}: has no tokenizer, so none was created"])
    tokens = list(_tokens(file, rows))
    name = file.get("tokenizer.ggml.pre")
    templates = _templates(file)
    if kind == "llama":
        made = _sentencepiece(file, tokens)
    elif kind == "gpt2" and name in PRE_TOKENIZERS:
        made = _byte_level(file, tokens, PRE_TOKENIZERS[name])
    else:
        what = f"tokenizer.ggml.pre is {name!r:.60}" if kind == "gpt2" else f"it is {kind!r:.60}"
        note = f"{file.path}: no tokenizer was made: {what}, which is not supported; {_WAY_OUT}"
        return Tokenizer({}, templates, _ends(file, tokens), [note])
    files = {"tokenizer.json": made, "tokenizer_config.json": _settings(file, tokens)}
    return Tokenizer(files, templates, _ends(file, tokens), [])


def _tokens(file: Metadata, rows: int) -> Iterator[Token]:
    """Yield the tokens of the vocabulary.

    Raises:
        FormatError: the tokens outnumber the embeddings, a token occurs twice, or the number of
            scores or types differs.
    """
    texts = file.get("tokenizer.ggml.tokens")
    kinds = file.get("tokenizer.ggml.token_type")
    scores = file.get("tokenizer.ggml.scores")
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise FormatError(f"{file.path}: tokenizer.ggml.tokens: expected a list of strings")
    if len(texts) > rows:
        raise FormatError(
            f"{file.path}: tokenizer.ggml.tokens: {len(texts)} tokens, but {rows} embeddings"
        )
    for name, each in (("token_type", kinds), ("scores", scores)):
        if each is not None and (not isinstance(each, list) or len(each) != len(texts)):
            count = len(each) if isinstance(each, list) else "no list"
            raise FormatError(
                f"{file.path}: tokenizer.ggml.{name}: {count} for {len(texts)} tokens"
            )
    seen: dict[str, int] = {}
    for number, text in enumerate(texts):
        if not text or _NOT_UTF8.search(text):  # no text becomes such a token
            text = f"[EMPTY_{number}]" if not text else f"[BYTES_{number}]"
        if seen.setdefault(text, number) != number:
            raise FormatError(
                f"{file.path}: tokenizer.ggml.tokens: {text!r:.60} is token {seen[text]} and "
                f"{number}"
            )
        kind = _NORMAL if kinds is None else kinds[number]
        yield Token(number, text, kind, 0.0 if scores is None else scores[number])


def _added(tokens: list[Token], strips: frozenset[str] = frozenset()) -> list[Document]:
    """Return the special and user-defined tokens, which are found in a text before it is split."""
    return [
        {
            "id": each.number,
            "content": each.text,
            "single_word": False,
            "lstrip": False,
            "rstrip": each.text in strips,
            "normalized": False,
            "special": each.kind != _USER,
        }
        for each in tokens
        if each.kind in (_CONTROL, _UNKNOWN, _USER)
    ]


def _document(file: Metadata, tokens: list[Token], begins: bool, **parts: Any) -> Document:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(tokens),
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": _frame(file, tokens, begins),
        **parts,
    }


def _model(tokens: list[Token], merges: list[list[str]], **settings: Any) -> Document:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **settings,
        "vocab": {each.text: each.number for each in tokens},
        "merges": merges,
    }


def _frame(file: Metadata, tokens: list[Token], begins: bool) -> Document | None:
    """Return the post-processor that adds tokens before and after a text; None if it adds none."""
    begin = _named(file, tokens, "bos") if _flag(file, "add_bos_token", begins) else None
    end = _named(file, tokens, "eos") if _flag(file, "add_eos_token", False) else None
    if begin is None and end is None:
        return None
    special = {
        each.text: {"id": each.text, "ids": [each.number], "tokens": [each.text]}
        for each in (begin, end)
        if each is not None
    }

    def around(name: str, kind: int) -> list[Document]:
        parts: list[Document] = [{"Sequence": {"id": name, "type_id": kind}}]
        if begin is not None:
            parts.insert(0, {"SpecialToken": {"id": begin.text, "type_id": kind}})
        if end is not None:
            parts.append({"SpecialToken": {"id": end.text, "type_id": kind}})
        return parts

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": around("A", 0) + around("B", 1),
        "special_tokens": special,
    }


def _flag(file: Metadata, name: str, default: bool) -> bool:
    found = file.get(f"tokenizer.ggml.{name}")
    return found if isinstance(found, bool) else default


def _named(file: Metadata, tokens: list[Token], name: str) -> Token | None:
    """Return the token with a role ("bos", "eos"); None if the file names no token that exists."""
    found = file.get(f"tokenizer.ggml.{name}_token_id")
    known = isinstance(found, int) and not isinstance(found, bool) and 0 <= found < len(tokens)
    return tokens[found] if known else None


def _byte_level(file: Metadata, tokens: list[Token], pre: PreTokenizer) -> Document:
    """Return a tokenizer that applies BPE to the bytes of a text."""
    return _document(
        file,
        tokens,
        pre.begins,
        normalizer={"type": "NFC"} if pre.composed else None,
        pre_tokenizer=pre.document(),
        decoder={
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        model=_model(tokens, _merges(file, tokens), ignore_merges=pre.whole_first),
    )


def _merges(file: Metadata, tokens: list[Token]) -> list[list[str]]:
    """Return, in their order, the merges whose parts and result are all tokens.

    Raises:
        FormatError: the merges are not a list of strings.
    """
    given = file.get("tokenizer.ggml.merges")
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise FormatError(f"{file.path}: tokenizer.ggml.merges: expected a list of strings")
    known = {each.text for each in tokens}
    pairs = ((each[: each.find(" ", 1)], each[each.find(" ", 1) + 1 :]) for each in given)
    return [[a, b] for a, b in pairs if a in known and b in known and a + b in known]


def _sentencepiece(file: Metadata, tokens: list[Token]) -> Document:
    """Return a tokenizer that applies BPE to characters and merges higher scores first."""
    prefix = _flag(file, "add_space_prefix", True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    before = [{"type": "Prepend", "prepend": _SPACE}] if prefix else []
    after = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    unknown = next((each.text for each in tokens if each.kind == _UNKNOWN), None)
    has_bytes = any(each.kind == _BYTE for each in tokens)
    back = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    return _document(
        file,
        tokens,
        True,
        added_tokens=_added(tokens, _stripping(file, tokens)),
        normalizer={"type": "Sequence", "normalizers": [*before, spaces]},
        decoder={
            "type": "Sequence",
            "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *after],
        },
        model=_model(
            tokens,
            _merges_by_score(tokens),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=has_bytes,
        ),
    )


def _merges_by_score(tokens: list[Token]) -> list[list[str]]:
    """Return every pair of tokens that forms a token, ordered by descending score of the result."""
    known = {each.text: each for each in tokens if each.kind == _NORMAL}
    found = [
        (-whole.score, whole.number, known[text[:cut]].number, text[:cut], text[cut:])
        for text, whole in known.items()
        for cut in range(1, len(text))
        if text[:cut] in known and text[cut:] in known
    ]
    return [[left, right] for *_, left, right in sorted(found)]


def _stripping(file: Metadata, tokens: list[Token]) -> frozenset[str]:
    """Return the control tokens that absorb the spaces after them; only Phi-3's chat tokens do."""
    if file.architecture != "phi3":
        return frozenset()
    plain = ("<unk>", "<s>", "<|endoftext|>")
    return frozenset(
        each.text for each in tokens if each.kind == _CONTROL and each.text not in plain
    )


def _settings(file: Metadata, tokens: list[Token]) -> Document:
    """Return the content of tokenizer_config.json."""
    roles = (("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("padding", "pad"))
    named = {f"{role}_token": _named(file, tokens, name) for name, role in roles}
    unknown = (each for each in tokens if each.kind == _UNKNOWN)
    named["unk_token"] = named["unk_token"] or next(unknown, None)
    length = file.own("context_length")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: None if each is None else each.text for name, each in named.items()},
        "clean_up_tokenization_spaces": False,
        **({"model_max_length": length} if isinstance(length, int) else {}),
    }


def _ends(file: Metadata, tokens: list[Token]) -> list[int]:
    """Return the ids of the tokens that end a text or a chat turn, the end-of-text token first."""
    named = [_named(file, tokens, name) for name in ("eos", "eot", "eom")]
    found = [each.number for each in named if each is not None]
    if file.get("tokenizer.chat_template") is not None:
        controls = {each.text: each.number for each in tokens if each.kind == _CONTROL}
        ends = [each for each in _ENDS if each != "<|end|>" or _HARMONY[0] not in controls]
        found += [controls[each] for each in (*ends, *_HARMONY) if each in controls]
    return list(dict.fromkeys(found))


def _templates(file: Metadata) -> dict[str, str]:
    """Return the chat templates, keyed by the file names that transformers expects."""
    found = {}
    main = file.get("tokenizer.chat_template")
    if isinstance(main, str):
        found["chat_template.jinja"] = main
    names = file.get("tokenizer.chat_templates")
    for name in names if isinstance(names, list) else []:
        text = file.get(f"tokenizer.chat_template.{name}")
        if isinstance(text, str) and re.fullmatch(r"[\w-]{1,60}", str(name)):
            found[f"additional_chat_templates/{name}.jinja"] = text
    return found
