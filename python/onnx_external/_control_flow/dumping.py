"""Writes diffs of rewritten functions to a folder, completely or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from onnx_external._base.errors import Error, ExistsError, ReadWriteError
from onnx_external._control_flow.rewriter import Rewriting
from onnx_external._control_flow.showing import dump

Write = Callable[[Mapping[str, Rewriting]], int]
"""A function that writes the rewritten functions of each graph, by the graph's name, and returns
the number of functions."""


@contextlib.contextmanager
def room_for_diffs(folder: str | os.PathLike[str] | None) -> Iterator[Write]:
    """Check that a folder can be written, and yield a function that writes diffs to it.

    The folder gets a subfolder for each graph, with a diff and the new source of each function. The
    folder is put in place when all files are written, and is not created if nothing was rewritten.

    Args:
        folder: the folder, which must be empty or absent; None: nothing is written.

    Raises:
        ExistsError: the folder contains files.
        ReadWriteError: the folder cannot be written.
    """
    if folder is None:
        yield lambda _: 0
        return
    target = Path(folder)
    with _told(target):
        if target.is_dir() and any(target.iterdir()):
            raise ExistsError(f"{target}: already contains files; use a new folder")
        if target.exists() and not target.is_dir():
            raise ExistsError(f"{target}: is not a folder; use a new one")
        parent = next(each for each in target.absolute().parents if each.exists())
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))

    def write(rewritings: Mapping[str, Rewriting]) -> int:
        changed = {name: each for name, each in rewritings.items() if each.changes}
        with _told(target):
            for name, each in changed.items():
                dump(each.changes, made / name)
            if changed:
                made.chmod(0o777 & ~_umask())
                target.parent.mkdir(parents=True, exist_ok=True)
                made.replace(target)
        return sum(len(each.changes) for each in changed.values())

    try:
        yield write
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except Error:
        raise
    except OSError as error:
        raise ReadWriteError(f"{target}: the diffs cannot be written: {error.strerror}") from error
