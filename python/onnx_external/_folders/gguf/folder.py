"""A GGUF file as a folder of transformers or peft, for everything that takes a folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ... import _core
from ..._base.errors import Error, InvalidArgumentError
from ..._base.temporary import temporary_folder
from ..._sources.checkpoint import open_checkpoint
from .config import config_of
from .metadata import FACTORS, Metadata, Shapes
from .tokenizer import tokenizer_of

_MAGIC = b"GGUF"
_LINKS = ("weights.gguf", "adapter.gguf")
"""Links to the weights, in the folder that is made of a file, and to an adapter of them."""
_NO_MODEL = re.compile(r".*-(?!00001-of-)\d{5}-of-\d{5}\.gguf|mmproj.*\.gguf")
"""Later parts of a model in several files, and the vision part of a model."""
_OTHER_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_NOTES = ".notes"
"""The file with notes, one in a line, on what the folder lacks; it is not copied."""


def gguf_in(path: Any) -> Path | None:
    """Return the GGUF file at a path, or the only model in a folder; else None.

    Raises:
        InvalidArgumentError: a folder has several and nothing else.
    """
    if not isinstance(path, (str, os.PathLike)):
        return None
    place = Path(path)
    if place.is_file():
        return place if _is_gguf(place) else None
    if not place.is_dir() or (place / "config.json").exists():
        return None
    found = _models_in(place)
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise InvalidArgumentError(f"{place}: has several GGUF models: {names}; give one of them")
    return found[0] if found else None


def weights_of(folder: Path) -> list[Path]:
    """Return the source of a folder's weights: itself, its only GGUF file, or linked files."""
    links = [Path(os.readlink(each)) for name in _LINKS if (each := folder / name).is_symlink()]
    found = links or _models_in(folder)
    others = any(next(folder.glob(each), None) is not None for each in _OTHER_WEIGHTS)
    return found if links or (len(found) == 1 and not others) else [folder]


def link_weights(folder: Path, weights: list[Path]) -> None:
    """Link a folder to weights that are elsewhere, followed by those of an adapter."""
    for name, path in zip(_LINKS, weights, strict=False):
        (folder / name).symlink_to(path.absolute())


def is_made(folder: Path) -> bool:
    """Return whether a folder was made from a GGUF file."""
    return (folder / _LINKS[0]).is_symlink()


def notes_of(folder: Path) -> list[str]:
    """Return notes on what a folder made from a GGUF file lacks."""
    path = folder / _NOTES
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


@contextlib.contextmanager
def as_folder(path: Any, with_tokenizer: bool = True) -> Iterator[Any]:
    """Yield a temporary folder of transformers for a GGUF model, and anything else unchanged.

    Args:
        path: a path of any kind.
        with_tokenizer: also make the tokenizer, which may take seconds.

    Raises:
        ExportError: the file has a model that transformers does not have.
        FormatError: its keys contradict each other or its tensors.
    """
    source = gguf_in(path)
    if source is None:
        yield path
        return
    with temporary_folder() as folder:
        try:
            _write(source, folder, with_tokenizer)
            yield folder
        except Error as error:
            error.args = (_of_file(str(error.args[0]), folder, source), *error.args[1:])
            raise


def _of_file(text: str, folder: Path, source: Path) -> str:
    """Return an error's text with the name of the file instead of the folder."""
    made = rf"{re.escape(str(folder))}(/(adapter_)?config\.json)?"
    return re.sub(made, lambda _: str(source), text)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:  # which is told when it is opened
        return False


def _models_in(folder: Path) -> list[Path]:
    """Return the GGUF models of a folder; for one in several files, the first."""
    return [
        each
        for each in sorted(folder.glob("*.gguf"))
        if not _NO_MODEL.fullmatch(each.name) and _is_gguf(each)
    ]


def _write(source: Path, folder: Path, with_tokenizer: bool) -> None:
    """Write the files that the keys describe, and a link to the weights."""
    link_weights(folder, [source])
    keys = _core.gguf_metadata(source)
    if keys.get("general.type") == "adapter":
        settings = {"base_model_name_or_path": keys.get("general.base_model.0.name")}
        (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    else:
        _write_model(Metadata(source, keys | _factors(source)), folder, with_tokenizer)


def _write_model(file: Metadata, folder: Path, with_tokenizer: bool) -> None:
    source = file.path
    config = config_of(file, _shapes(source))
    rows = config["vocab_size"]
    made = tokenizer_of(file, rows) if with_tokenizer else None
    files: dict[str, Any] = {"config.json": config}
    texts: dict[str, str] = {}
    notes = [
        f"{source}: {key} is {file.get(key)!r:.60}, which the export does not know; if the model "
        "computes something else with it, the graph does not"
        for key in file.unknown()
    ]
    if made is not None:
        generation = _generation(config, made.ends)
        files |= made.files | ({"generation_config.json": generation} if generation else {})
        texts, notes = made.templates, [*made.notes, *notes]
    files |= {name: json.dumps(each, ensure_ascii=False) for name, each in files.items()}
    for name, text in {**files, **texts, _NOTES: "\n".join(notes)}.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _factors(source: Path) -> dict[str, list[float]]:
    """Return the numbers of the tensors that are settings of the rotary embedding."""
    with open_checkpoint(source, raw=True) as stored:
        return {
            name: [float(each) for each in stored[name].numpy().reshape(-1)]
            for name in FACTORS
            if name in stored
        }


def _shapes(source: Path) -> Shapes:
    with open_checkpoint(source) as checkpoint:
        return {name: tuple(each.shape) for name, each in checkpoint.items()}


def _generation(config: dict[str, Any], ends: list[int]) -> dict[str, Any]:
    """Return generation_config.json: the tokens that begin, end and pad a text."""
    found = {f"{name}_token_id": config[f"{name}_token_id"] for name in ("bos", "pad")}
    found["eos_token_id"] = (ends[0] if len(ends) == 1 else ends) or config["eos_token_id"]
    return {name: value for name, value in found.items() if value is not None}
