"""Implementation of oe.generate: text by an exported decoder, on ONNX Runtime alone."""

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
"""The default number of new tokens."""


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
    """Continue texts with the likeliest tokens, by a decoder that oe.transformers.export() wrote.

    ```python
    oe.generate("llama-onnx", "Once upon a time")
    oe.generate("t5-onnx", "translate English to German: Good morning")
    oe.generate("whisper-onnx", [50258, 50259, 50359, 50363], input_features=features)
    ```

    Args:
        folder: the graphs, with tokenizer.json beside them.
        prompt: a text, or several that are continued together; or the ids of its tokens (`[1, 2,
            3]`, or a list of such), which need no tokenizer. With an encoder, it is the encoder's
            input; if the encoder takes no text, it is the start of the decoder's text, and [] means
            the start in the model's settings.
        max_new_tokens: at most; a text ends earlier with the token that ends it, or where a model
            with a table of positions has no more of them.
        providers: the providers of ONNX Runtime, such as "cuda"; by default the CPU's.
        input_features: an array for an encoder of sound.
        pixel_values: an array for an encoder of images.
        decoder_input_ids: the start of the decoder's text if there is an encoder, a list for each
            prompt.
        inputs: other arrays for the encoder, by the names of its inputs.

    Returns:
        The continuation of each prompt, without the prompt: a list of texts, or of lists of ids if
        the prompts are ids. With an encoder, the text of the decoder without its beginning. (The
        command prints the prompt before its continuation.)

    Raises:
        NotFoundError: there is no graph of a decoder, or no tokenizer.json.
        InvalidArgumentError: there is nothing to continue, or an id is not of the model's.
        RunError: onnxruntime or tokenizers is not installed, or the graph does not run.
    """
    path = Path(folder)
    if path.is_file():
        raise InvalidArgumentError(
            f"{path}: is a file; give the folder of the graphs: "
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
        raise InvalidArgumentError("generate: give a prompt, and max_new_tokens of at least 1")
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
            raise InvalidArgumentError(f"generate: the tokenizer makes no token of {text!r}")
    found = decoder.generate(decoder.decoder_rows(rows, inputs), max_new_tokens)
    if not decoder.continues:
        return [str(tokenizer.decode(more, skip_special_tokens=True)) for more in found]
    return [_continuation(tokenizer, row, more) for row, more in zip(rows, found, strict=True)]


def _continuation(tokenizer: Any, row: list[int], more: list[int]) -> str:
    """Return the text that tokens add to the ones before; decoded alone they may lose a space."""
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
            f"generate: {text!r}: character {error.start} is half of one; give text in Unicode"
        ) from error


def _decoder(
    path: Path, providers: str | Sequence[Any] | None, inputs: Mapping[str, Any]
) -> Decoder:
    if is_pair(path):
        return Pair(path, providers)
    if inputs:
        raise InvalidArgumentError(
            f"generate: {', '.join(inputs)}: {path} has no encoder_model.onnx, which would take it"
        )
    return Decoder(path, providers)


def _ids(row: Any, may_be_empty: bool = False) -> list[int]:
    try:
        found = [operator.index(each) for each in row]
    except TypeError as error:
        raise WrongTypeError(
            "generate: expected a text, the ids of its tokens ([1, 2, 3]), or a list of such, not "
            f"{row!r}"
        ) from error
    if not (found or may_be_empty) or any(not 0 <= each <= _LARGEST for each in found):
        raise InvalidArgumentError(
            f"generate: {found}: expected ids of tokens, from 0 to the size of the vocabulary"
        )
    return found


def _tokenizer(folder: Path) -> Any:
    require("generate", "tokenizers", error=RunError)
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise NotFoundError(
            f"{path}: not found; generate needs the tokenizer beside the graphs: copy it from the "
            "folder of the model, or of the export that these graphs were made of; "
            "AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER) of transformers writes "
            f"it; ids of tokens need none: oe.generate({os.fspath(folder)!r}, [1, 2, 3])"
        )
    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # of the tokenizers' own class
        raise FormatError(f"{path}: no tokenizer: {first_line(error)}") from error
    made.no_padding()
    made.no_truncation()
    return made
