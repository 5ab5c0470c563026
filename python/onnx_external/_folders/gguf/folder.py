"""Presents a GGUF file as a transformers or peft folder, for all functions that take a folder."""

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
"""Names of links in a temporary folder: to the weights, and to an adapter for the weights."""
_NO_MODEL = re.compile(r".*-(?!00001-of-)\d{5}-of-\d{5}\.gguf|mmproj.*\.gguf")
"""Files that are not models: further parts of a split model, and a model's vision part."""
_OTHER_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_NOTES = ".notes"
"""A file of notes, one per line, on what the temporary folder lacks; it is not copied."""


def gguf_in(path: Any) -> Path | None:
    """Return the GGUF file at a path, or the only GGUF model in a folder; None if there is none.

    Raises:
        InvalidArgumentError: the folder has several GGUF models and no config.json.
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
    """Return the files with a folder's weights: linked files, its only GGUF file, or the folder."""
    links = [Path(os.readlink(each)) for name in _LINKS if (each := folder / name).is_symlink()]
    found = links or _models_in(folder)
    others = any(next(folder.glob(each), None) is not None for each in _OTHER_WEIGHTS)
    return found if links or (len(found) == 1 and not others) else [folder]


def link_weights(folder: Path, weights: list[Path]) -> None:
    """Create links in a folder to weights elsewhere and, if given, to an adapter's weights."""
    for name, path in zip(_LINKS, weights, strict=False):
        (folder / name).symlink_to(path.absolute())


def is_made(folder: Path) -> bool:
    """Return whether a folder was made from a GGUF file."""
    return (folder / _LINKS[0]).is_symlink()


def notes_of(folder: Path) -> list[str]:
    """Return notes on what a temporary folder that was made from a GGUF file lacks."""
    path = folder / _NOTES
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


@contextlib.contextmanager
def as_folder(path: Any, with_tokenizer: bool = True) -> Iterator[Any]:
    """Yield a temporary transformers folder for a GGUF model, and any other path unchanged.

    Args:
        path: a GGUF file, a folder, or any other path.
        with_tokenizer: also create the tokenizer, which may take seconds.

    Raises:
        ExportError: transformers does not have the file's model.
        FormatError: the file's keys contradict each other or its tensors.
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
    """Replace the temporary folder in an error's text by the name of the GGUF file."""
    made = rf"{re.escape(str(folder))}(/(adapter_)?config\.json)?"
    return re.sub(made, lambda _: str(source), text)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:  # which is told when it is opened
        return False


def _models_in(folder: Path) -> list[Path]:
    """Return the GGUF models in a folder; for a split model, the first file."""
    return [
        each
        for each in sorted(folder.glob("*.gguf"))
        if not _NO_MODEL.fullmatch(each.name) and _is_gguf(each)
    ]


def _write(source: Path, folder: Path, with_tokenizer: bool) -> None:
    """Write the files that the keys of a GGUF file describe, and a link to its weights."""
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
        f"{source}: {key} is {file.get(key)!r:.60}, a key that the export does not know; if it "
        "changes the model's results, the graph's results are wrong"
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
    """Return the values of those tensors that are settings of the rotary embedding."""
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
    """Return the content of generation_config.json: the tokens that begin, end and pad a text."""
    found = {f"{name}_token_id": config[f"{name}_token_id"] for name in ("bos", "pad")}
    found["eos_token_id"] = (ends[0] if len(ends) == 1 else ends) or config["eos_token_id"]
    return {name: value for name, value in found.items() if value is not None}
