"""Saves graphs that have only a few constants, such as those of modules without weights."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._base.options import StrPath
from .._saving.reports import SaveReport, save_report_of
from .._saving.save import target_of
from ._skeleton import Skeleton

_NAMES = (
    "tensors",
    "unmatched_keys",
    "baked_keys",
    "unused_modules",
    "ignored_keys",
    "skipped_keys",
    "overlaid",
    "tied_keys",
    "initializers_kept",
    "kept_by_option",
    "slots_left",
    "left_old",
    "oversized",
)
"""The lists in the report on a save that are empty for such a graph."""


def save_alone(made: Skeleton, path: StrPath, options: Mapping[str, Any]) -> SaveReport:
    """Write a graph with the constants inside it, completely or not at all.

    Args:
        made: the graph.
        path: as for oe.save().
        options: the options of oe.save(); options for weights have no effect.

    Raises:
        ExistsError: the model exists, and `overwrite` is False.
    """
    start = time.perf_counter()
    folder, name = target_of(path)
    target = (folder or Path()) / name
    dry_run = bool(options.get("dry_run"))
    if not dry_run:
        is_new = not target.parent.exists()
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            made.save(target, overwrite=bool(options.get("overwrite")))
        except BaseException:
            if is_new:
                with contextlib.suppress(OSError):
                    target.parent.rmdir()
            raise
    document: dict[str, Any] = {each: [] for each in _NAMES}
    document |= {"model": str(target), "dry_run": dry_run, "complete": True, "verified": True}
    document |= {"inputs_left": [value.name for value in made.model.graph.inputs]}
    document |= {"alignment": "", "bytes": 0, "seconds": time.perf_counter() - start}
    return save_report_of(document)
