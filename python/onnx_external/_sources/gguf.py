"""Reading of the metadata in GGUF files, the model format of llama.cpp."""

from __future__ import annotations

from pathlib import Path

from .. import _core
from .._base.argument_types import checks_types
from .._base.options import StrPath


@checks_types
def gguf_metadata(path: StrPath) -> dict[str, object]:
    """Read the metadata of a GGUF file: hyperparameters, tokenizer and notes of its writer.

    Args:
        path: the file; for a model in several files the first one, which has the model's keys.

    Returns:
        The keys in the order of the file. Values are int, float, bool, str, or a list of one of
        these. Bytes that are not UTF-8, as in some tokens, are decoded with "surrogateescape".

    Raises:
        NotFoundError: no such file exists.
        FormatError: it is damaged, or not a GGUF file.
    """
    return _core.gguf_metadata(Path(path))
