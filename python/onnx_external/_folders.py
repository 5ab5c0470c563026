"""What a folder is that is given as a model of transformers: refused, or told, before torch is."""

from __future__ import annotations

from pathlib import Path

from . import _core
from ._errors import InvalidArgumentError, NotFoundError


def require_folder(path: Path) -> None:
    """Refuse to export what is no folder.

    Raises:
        NotFoundError: there is none of this name.
    """
    if not path.is_dir():
        raise NotFoundError(f"{path}: not a folder; export takes one with config.json and weights")


def check_folder(folder: Path) -> list[str]:
    """Return what belongs to the model of a folder and will not be in its graphs.

    Raises:
        InvalidArgumentError: it is an adapter, or quantized, or a model of another library.
        NotFoundError: it has no config.json.
    """
    facts = _core.folder_facts(folder) if folder.is_dir() else []
    refused = [text for kind, text in facts if kind != "part"]
    path = folder / "config.json"
    if not path.is_file():
        known = f"; {refused[0]}" if refused else ""
        raise NotFoundError(
            f"{path}: not found; the folder of a model has it beside its weights{known}"
        )
    if refused:
        raise InvalidArgumentError(f"{folder}/{refused[0]}")
    return [text for _, text in facts]
