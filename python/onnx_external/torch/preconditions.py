"""What an export needs, asked before a trace that takes long."""

from __future__ import annotations

from pathlib import Path

from ..errors import ExistsError, Remedy
from ..options import StrPath
from ..save import target_of

__all__ = ["refuse_existing"]


def refuse_existing(path: StrPath) -> None:
    """Refuse a model that is there, as the save would after the trace.

    Args:
        path: as for oe.save().

    Raises:
        ExistsError: there is a model.
    """
    folder, name = target_of(path)
    target = (folder or Path()) / name
    if target.is_file():
        error = ExistsError(f"{target}: exists")
        error.remedies = [Remedy("overwrite", "", "replaces it")]
        raise error
