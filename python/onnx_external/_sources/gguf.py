"""Reads metadata in GGUF files, the model format of llama.cpp."""

from __future__ import annotations

from pathlib import Path

from .. import _core
from .._base.argument_types import checks_types
from .._base.options import StrPath


@checks_types
def gguf_metadata(path: StrPath) -> dict[str, object]:
    """Read the metadata of a GGUF file: hyperparameters, the tokenizer and general information.

    Args:
        path: the file. For a model split into several files, the first file, which contains the
            metadata.

    Returns:
        The keys, in the order in the file. Values are int, float, bool, str, or a list of one of
        these types. Bytes that are not valid UTF-8, as in some tokens, are decoded with
        "surrogateescape".

    Raises:
        NotFoundError: the file does not exist.
        FormatError: the file is damaged, or is not a GGUF file.
    """
    return _core.gguf_metadata(Path(path))
