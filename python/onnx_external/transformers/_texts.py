"""Splits texts into chunks of bounded length, as inputs for a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .._base.errors import InvalidArgumentError, ReadWriteError
from ._guarding import LOCAL, alone

LENGTH = 256
"""The maximum number of tokens per batch entry."""
_LOGITS = 1 << 25
"""The maximum number of logits in one run, unless the length is down to _SHORT."""
_SHORT = 16


class Chunk(NamedTuple):
    """Part of a text, split into the entries of a batch."""

    given: dict[str, Any]
    """The inputs of the module."""
    ids: Any
    """The tokens of the chunk: [batch, sequence]."""


def tokens_of(folder: Path, text: Path) -> Any:
    """Return a file's tokens, made by a folder's tokenizer, without special tokens.

    Raises:
        ReadWriteError: the file cannot be read.
        InvalidArgumentError: there is no tokenizer, or it finds fewer than two tokens.
    """
    try:
        words = text.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ReadWriteError(f"{text}: cannot be read as text in UTF-8: {error}") from error
    import transformers

    try:
        with alone():
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
            ids = tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"]
    except Exception as error:
        raise InvalidArgumentError(
            f"text: {folder} has no tokenizer that transformers can load "
            f"({type(error).__name__}); put its files next to the model"
        ) from error
    if len(ids) < 2:
        raise InvalidArgumentError(f"text: {text} has {len(ids)} tokens; give a longer one")
    return torch.tensor(ids)


def chunks(model: Any, given: Mapping[str, Any], ids: Any, dynamic: bool) -> Iterator[Chunk]:
    """Yield a text in batches that replace the text of an example.

    The batch size is that of the example. Tokens at the end that do not fill a batch are left out.

    Args:
        model: a transformers model.
        given: the example, with an empty cache if there is a cache.
        ids: all tokens.
        dynamic: True if lengths may vary; otherwise they are those of the example.
    """
    rows, width = given["input_ids"].shape
    config = model.config.get_text_config()
    most = getattr(config, "max_position_embeddings", None) or LENGTH
    vocabulary = max(1, getattr(config, "vocab_size", 1))
    length = min(LENGTH, most, max(_SHORT, _LOGITS // (rows * vocabulary)))
    length = length if dynamic else width
    start = 0
    while start < len(ids):
        size = min(length, (len(ids) - start) // rows)
        if size < 2 or (not dynamic and size < length):
            return
        block = ids[start : start + rows * size].reshape(rows, size)
        start += rows * size
        yield Chunk({name: _like(name, each, width, block) for name, each in given.items()}, block)


def _like(name: str, value: Any, width: int, block: Any) -> Any:
    """Return the input for a block of tokens that replaces an input of the example."""
    if not isinstance(value, torch.Tensor) or value.dim() > 2 or value.shape[-1:] != (width,):
        return value
    if value.is_floating_point():
        return value
    rows, size = block.shape
    if name == "input_ids":
        return block.to(value.dtype)
    if "position" in name:
        steps = torch.arange(size, dtype=value.dtype)
        return steps if value.dim() == 1 else steps.expand(value.shape[0], size).contiguous()
    fill = 1 if "mask" in name else 0
    return torch.full((rows, size), fill, dtype=value.dtype)
