"""The file of a picture."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..errors import ExistsError, NotFoundError, ReadWriteError
from .picture import SVG_START

__all__ = ["check_target", "write_picture"]


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse, before a long run, to replace what is there: only a picture may be replaced."""
    if not path.parent.is_dir():
        raise NotFoundError(f"{path}: cannot be written: there is no folder {path.parent}")
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise ExistsError(f"{path}: exists; --overwrite replaces it")
    start = b""
    if path.is_file():
        with contextlib.suppress(OSError), path.open("rb") as file:
            start = file.read(len(SVG_START))
    if start != SVG_START.encode():
        raise ExistsError(f"{path}: exists, and is not a picture of a diagnosis")


def write_picture(path: Path, text: str) -> None:
    """Write a picture; a file of that name is replaced when the new one is complete."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            staged.write_text(text, encoding="utf-8", newline="\n")
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)
    except OSError as error:
        raise ReadWriteError(f"{path}: cannot be written: {error.strerror}") from error
