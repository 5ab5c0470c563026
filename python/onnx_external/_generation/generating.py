"""Implements oe.generate, which needs only ONNX Runtime and tokenizers."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from .._base.argument_types import checks_types
from .._base.errors import (
    FormatError,
    InvalidArgumentError,
    NotFoundError,
    RunError,
    WrongTypeError,
)
from .._base.options import StrPath
from .._base.packages import require
from .._comparing.running import first_line
from .decoder import Decoder
from .pairs import Pair, is_pair

_LARGEST = np.iinfo(np.int64).max
_MOST_WORDS = 64
"""The default maximum number of new tokens."""


@overload
def generate(
    folder: StrPath,
    prompt: str | list[str] | tuple[str, ...],
    max_new_tokens: int = ...,
    *,
    providers: str | Sequence[Any] | None = ...,
    input_features: Any = ...,
    pixel_values: Any = ...,
    decoder_input_ids: Any = ...,
    inputs: Mapping[str, Any] | None = ...,
) -> list[str]: ...


@overload
def generate(
    folder: StrPath,
    prompt: Sequence[int] | Sequence[Sequence[int]],
    max_new_tokens: int = ...,
    *,
    providers: str | Sequence[Any] | None = ...,
    input_features: Any = ...,
    pixel_values: Any = ...,
    decoder_input_ids: Any = ...,
    inputs: Mapping[str, Any] | None = ...,
) -> list[list[int]]: ...


@checks_types
def generate(
    folder: StrPath,
    prompt: Any,
    max_new_tokens: int = _MOST_WORDS,
    *,
    providers: str | Sequence[Any] | None = None,
    input_features: Any = None,
    pixel_values: Any = None,
    decoder_input_ids: Any = None,
    inputs: Mapping[str, Any] | None = None,
) -> Any:
    """Continue texts with the likeliest tokens, using a decoder that was exported by this package.

    ```python
    oe.generate("llama-onnx", "Once upon a time")
    oe.generate("t5-onnx", "translate English to German: Good morning")
    oe.generate("whisper-onnx", [50258, 50259, 50359, 50363], input_features=features)
    ```

    Args:
        folder: the folder with the graphs and, if prompts are text, tokenizer.json.
        prompt: a text, or a list of texts, which are continued as one batch; or token ids (`[1, 2,
            3]`, or a list of such lists), for which no tokenizer is needed. If there is an encoder,
            the prompt is the encoder's input; if the encoder takes no text, the prompt is the start
            of the decoder's text, and [] means the start in the model's settings.
        max_new_tokens: the maximum number of tokens to add. A text ends earlier at an end token, or
            where a model with a position table has no further positions.
        providers: the execution providers for ONNX Runtime, such as "cuda"; by default "cpu".
        input_features: an array for an audio encoder.
        pixel_values: an array for an image encoder.
        decoder_input_ids: the start of the decoder's text if there is an encoder, as a list of ids
            for each prompt.
        inputs: other arrays for the encoder, by input name.

    Returns:
        The continuation of each prompt, without the prompt: a list of texts, or of lists of ids if
            the prompts are ids. If there is an encoder, the text of the decoder, without its start.
            (The command also prints the prompt.)

    Raises:
        NotFoundError: there is no decoder graph, or no tokenizer.json.
        InvalidArgumentError: there is no prompt, or the model has no token for an id.
        RunError: onnxruntime or tokenizers is not installed, or running the graph fails.
    """
    path = Path(folder)
    if path.is_file():
        raise InvalidArgumentError(
            f"{path}: is a file; pass the folder with the graphs: "
            f"oe.generate({os.fspath(path.parent)!r}, ...)"
        )
    named = {
        "input_features": input_features,
        "pixel_values": pixel_values,
        "decoder_input_ids": decoder_input_ids,
    }
    inputs = {
        **{name: value for name, value in named.items() if value is not None},
        **(inputs or {}),
    }
    given = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    texts: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    for text in texts:
        _refuse_halves(text)
    if max_new_tokens < 1 or not (texts or inputs):
        raise InvalidArgumentError("generate: pass a prompt, and max_new_tokens of at least 1")
    if not texts or not all(isinstance(text, str) for text in texts):
        several = [texts] if all(isinstance(each, int) for each in texts) else texts
        ids = [_ids(row, may_be_empty=not texts) for row in several]
        decoder = _decoder(path, providers, inputs)
        return decoder.generate(decoder.decoder_rows(ids, inputs), max_new_tokens)
    tokenizer = _tokenizer(path)
    decoder = _decoder(path, providers, inputs)
    # The start of a decoder's text already has its special tokens.
    rows = [tokenizer.encode(text, add_special_tokens=decoder.reads_text).ids for text in texts]
    for text, row in zip(texts, rows, strict=True):
        if not row:
            raise InvalidArgumentError(f"generate: the tokenizer returns no tokens for {text!r}")
    found = decoder.generate(decoder.decoder_rows(rows, inputs), max_new_tokens)
    if not decoder.continues:
        return [str(tokenizer.decode(more, skip_special_tokens=True)) for more in found]
    return [_continuation(tokenizer, row, more) for row, more in zip(rows, found, strict=True)]


def _continuation(tokenizer: Any, row: list[int], more: list[int]) -> str:
    """Return the text that new tokens add; if they were decoded alone, a space could be lost."""
    before, whole = (
        str(tokenizer.decode(each, skip_special_tokens=True)) for each in (row, row + more)
    )
    pairs = enumerate(zip(before, whole, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), len(before))
    return whole[same:]


def _refuse_halves(text: Any) -> None:
    try:
        _ = isinstance(text, str) and text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"generate: {text!r}: character {error.start} is a lone surrogate; pass valid Unicode "
            "text"
        ) from error


def _decoder(
    path: Path, providers: str | Sequence[Any] | None, inputs: Mapping[str, Any]
) -> Decoder:
    if is_pair(path):
        return Pair(path, providers)
    if inputs:
        raise InvalidArgumentError(
            f"generate: {', '.join(inputs)}: {path} has no encoder_model.onnx for these inputs"
        )
    return Decoder(path, providers)


def _ids(row: Any, may_be_empty: bool = False) -> list[int]:
    try:
        found = [operator.index(each) for each in row]
    except TypeError as error:
        raise WrongTypeError(
            "generate: expected a text, token ids ([1, 2, 3]), or a list of texts or token ids, "
            f"not {row!r}"
        ) from error
    if not (found or may_be_empty) or any(not 0 <= each <= _LARGEST for each in found):
        raise InvalidArgumentError(
            f"generate: {found}: expected token ids, from 0 to below the size of the vocabulary"
        )
    return found


def _tokenizer(folder: Path) -> Any:
    require("generate", "tokenizers", error=RunError)
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise NotFoundError(
            f"{path}: not found; generate needs the tokenizer next to the graphs: copy it from the "
            "folder of the model, or from the export that these graphs were made from; "
            "transformers writes it with "
            "AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER); token ids need no "
            f"tokenizer: oe.generate({os.fspath(folder)!r}, [1, 2, 3])"
        )
    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # of the tokenizers' own class
        raise FormatError(f"{path}: not a tokenizer: {first_line(error)}") from error
    made.no_padding()
    made.no_truncation()
    return made
