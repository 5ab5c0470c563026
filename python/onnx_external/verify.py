"""Verifying models that were written, and listing what is in files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import _core, reports
from .progress import Progress, shown
from .sources import Weights, given_sources

__all__ = ["inspect", "verify"]

StrPath = str | os.PathLike[str]


def verify(
    model: StrPath,
    against: Weights | None = None,
    *,
    cold: bool = False,
    threads: int = 0,
    progress: Progress = None,
    **options: Any,
) -> reports.VerifyReport:
    """Read a written model back, and list what is wrong with it.

    Args:
        model: the file, or its folder. A folder of models that were saved together means all of
            them, and then `VerifyReport.models` has the report of each.
        against: the weights that it must equal, byte by byte, in any form that save() takes; for
            a save with `extra`, a list of both. None: its manifest tells. Lazy tensors are made
            one by one.
        cold: read from the disk, not from the page cache.
        threads: 0 means one per CPU.
        progress: as for save().
        **options: how the save mapped keys to weights, where its manifest does not say it: `key`,
            `prefix`, `map`, `rename`, `inputs`, ... of save().
    """
    options |= {"cold": cold, "threads": threads}
    sources = given_sources("against", against)
    with shown(progress) as callback:
        return reports.verify_report(_core.verify(model, sources, callback, options))


def inspect(
    files: StrPath | Sequence[StrPath],
    *,
    key: str | None = None,
    filter: str | None = None,
    sha256: bool = False,
    threads: int = 0,
    progress: Progress = None,
    **options: Any,
) -> reports.Inspection:
    """List what is in a checkpoint or a model. Nothing is executed.

    Args:
        files: a model, or a checkpoint; several files are one checkpoint.
        key: the dict of names to tensors in a nested checkpoint.
        filter: only names that contain a match of this expression (RE2).
        sha256: read every tensor that is listed, for its digest.
        threads: 0 means one per CPU.
        progress: as for save().
        **options: `variant`, `overlay`, `max_expand`, `densify`, `widen_complex32`.
    """
    paths = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    options |= {"key": key, "filter": filter, "sha256": sha256, "threads": threads}
    with shown(progress) as callback:
        return reports.inspection(_core.inspect(paths, callback, options))
