"""Finds the files next to a model's weights that programs also read when they load the model."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from os.path import samefile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from .._base.errors import ExistsError, FormatError, ReadWriteError
from .config import GENERATION, document_of, modules_of

_MOST_BYTES = 1 << 26
"""The maximum size of a file in bytes; the largest known tokenizers have 35 MB."""
_KINDS = (
    ".json", ".jinja", ".txt", ".model", ".tiktoken", ".spm", ".vocab", ".bpe", ".codes", ".dic",
)  # fmt: skip
"""Suffixes of settings and vocabularies; weights, code, images and pages have other suffixes."""
_TOKENIZERS = re.compile(r"(?i)(vocab|merges|spiece|sentencepiece|tokenizer|tekken|bpe|dict)\b.*")
"""Names of tokenizer files, with any suffix, such as tokenizer.model.v3."""
_WEIGHTS_OR_CODE = (".bin", ".safetensors", ".pt", ".pth", ".pkl", ".npy", ".npz", ".py", ".sh")
_OTHERS = re.compile(
    r"\..*|.*\.index\.json|.*\.manifest\.json|manifest\.json|trainer_state\.json|.*_results\.json"
    r"|training_args.*|adapter_config\.json|genai_config\.json|requirements.*\.txt|(?i:readme.*)"
    r"|(?i:licen[cs]e.*)|.*log\.txt|quantize_config\.json|(hf_)?quant_config\.json"
    r"|quanto_qmap\.json"
)
"""Files that are not copied: those of trainers, pip, quantizing libraries and earlier exports, and
readme, license and hidden files."""
_OF_MODULES = (".safetensors", ".bin")
"""Suffixes of the weights files of sentence-transformers' modules."""
_FOLDERS = ("additional_chat_templates",)
"""Subfolders from which transformers reads further files."""


class SideFile(NamedTuple):
    """A file next to a model's weights."""

    path: Path
    name: str
    """The path relative to the model's folder."""


def files_beside(folder: Path) -> list[SideFile]:
    """Return the files next to a model's weights that also belong next to its graphs.

    The result lists small files that are neither weights nor code: the config, the tokenizer,
    processors, templates, and the contents of the folders of sentence-transformers' modules,
    including their weights.
    """
    found, modules = [], [*_modules(folder)]
    for part in ("", *_FOLDERS, *modules):
        with_parts = folder / part
        for path in sorted(with_parts.iterdir()) if with_parts.is_dir() else ():
            if _belongs(path, _OF_MODULES if part in modules else ()):
                found.append(SideFile(path, str(PurePosixPath(part) / path.name)))
    return sorted(set(found), key=lambda each: each.name)


def _modules(folder: Path) -> Iterator[str]:
    """Yield the folders of the modules that sentence-transformers applies to a model's outputs."""
    for each in modules_of(folder):
        name = each.get("path")
        if isinstance(name, str) and re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", name):
            yield name


def _belongs(path: Path, weights: tuple[str, ...]) -> bool:
    name = path.name
    if path.suffix not in weights:
        if _OTHERS.fullmatch(name) or path.suffix in _WEIGHTS_OR_CODE:
            return False
        if path.suffix not in _KINDS and not _TOKENIZERS.fullmatch(name):
            return False
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return False
    return name != GENERATION or _is_readable(path)


def _is_readable(settings: Path) -> bool:
    """Return whether transformers can read a generation config; an unreadable one is not copied."""
    try:
        document_of(settings.parent, settings.name)
    except FormatError:
        return False
    return True


_POINTER = b"version https://git-lfs"


def note_on_pointers(files: Iterable[SideFile]) -> list[str]:
    """Return a note on Git LFS pointers, which stand in for files that were not downloaded."""
    found = [file.name for file in files if _begins(file.path, _POINTER)]
    if not found:
        return []
    return [f"{', '.join(found)}: a Git LFS pointer, not the file itself; run `git lfs pull`"]


def _begins(path: Path, start: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(start)) == start
    except OSError:  # which is told when it is copied
        return False


def copies_of(files: Iterable[SideFile], folder: Path) -> Iterator[tuple[SideFile, Path]]:
    """Yield files with their target paths, except files that are already at their target."""
    for file in files:
        target = folder / file.name
        if not (target.exists() and samefile(file.path, target)):
            yield file, target


def refuse_copies(files: Iterable[SideFile], folder: Path, overwrite: bool) -> None:
    """Raise an error if a target exists that cannot or must not be replaced.

    Args:
        files: the files to copy.
        folder: the target folder.
        overwrite: existing files may be replaced.

    Raises:
        ExistsError: a target exists already, or a folder has its name.
        ReadWriteError: a target cannot be written.
    """
    for _, target in copies_of(files, folder):
        try:
            kind: Any = stat.S_IFMT(target.lstat().st_mode)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ReadWriteError(f"{target}: cannot be written: {error.strerror}") from error
        if kind not in (stat.S_IFREG, stat.S_IFLNK):
            what = "a folder" if kind == stat.S_IFDIR else "not a regular file"
            raise ExistsError(f"{target}: is {what}; move it elsewhere")
        if not overwrite:
            raise ExistsError(f"{target}: exists; overwrite=True replaces it")
