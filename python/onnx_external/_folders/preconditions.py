"""Early errors and notes of an export, before a trace and before torch is imported."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .._base.errors import ExistsError, InvalidArgumentError, Remedy
from .._base.options import StrPath
from .._saving.save import target_of
from .config import base_of, is_adapter, read_leniently
from .models import ENCODER, pair_names
from .side_files import files_beside, refuse_copies

_log = logging.getLogger("onnx_external")

BFLOAT16 = (
    "the model computes in bfloat16, for which ONNX Runtime's CPU provider lacks operators: "
    'leave dtype="bfloat16" out to compute in float32'
)
_OF_MODULES = (
    "the module computes in bfloat16, for which ONNX Runtime's CPU provider lacks operators: "
    "export module.float() for it"
)


def warn(notes: Iterable[str]) -> None:
    """Log the notes of a report immediately, as warnings of the package's logger."""
    for note in notes:
        _log.warning(note)


def note_of_dtype(dtype: str | None) -> list[str]:
    """Return the note on a model that will compute in bfloat16.

    Args:
        dtype: the caller's choice.
    """
    return [BFLOAT16] if dtype == "bfloat16" else []


def note_of_state(state: Mapping[str, Any]) -> list[str]:
    """Return the note on a module most of whose floats are bfloat16.

    Args:
        state: its tensors of torch.
    """
    count: dict[str, int] = {}
    for tensor in state.values():
        if tensor.is_floating_point():
            name = str(tensor.dtype)
            count[name] = count.get(name, 0) + tensor.numel()
    most = max(count, key=lambda name: count[name], default="")
    return [_OF_MODULES] if most == "torch.bfloat16" else []


def refuse_existing(path: StrPath) -> None:
    """Raise an error for an existing model, as the save would after the trace.

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


def refuse_targets(
    folders: Iterable[Path],
    target: Path,
    graphs: str | None,
    overwrite: bool,
    dry_run: bool,
    place: str = "",
    suffixes: Iterable[str] = ("",),
) -> None:
    """Raise an error for existing files, as the save of a folder's model would after the trace.

    Args:
        folders: the folders to export, from model_folders().
        target: the folder or file that is to be written.
        graphs: the number of graphs for a decoder, as for oe.transformers.export().
        overwrite: files may be replaced.
        dry_run: nothing is written.
        place: the folder in `target` for the graphs.
        suffixes: behind the names of the graphs, one for each variant.

    Raises:
        ExistsError: there is a graph of a name that the model's will have, or a file beside it.
    """
    folders = list(folders)
    is_file = target.suffix == ".onnx" and not target.is_dir()
    if not overwrite and not dry_run:
        has_encoder = read_leniently(folders[0]).get("is_encoder_decoder") is True
        pair = pair_names(has_encoder) if has_encoder or graphs == "two" else ("model",)
        names = (ENCODER, *pair) if has_encoder else pair
        files = [f"{name}{suffix}.onnx" for suffix in suffixes for name in names]
        for path in [target] if is_file else [target / place / name for name in files]:
            refuse_existing(path)
    beside = [file for folder in folders for file in files_beside(folder)]
    refuse_copies(beside, target.parent if is_file else target, overwrite)


def refuse_inline(folder: Path, layout: str, graphs: str | None, task: str | None) -> None:
    """Raise an error for inline weights in several graphs, as a save would after the trace.

    Args:
        folder: the folder of a model of transformers.
        layout: as for oe.save().
        graphs: the number of graphs for a decoder.
        task: the caller's choice; a class chosen by it may have one graph.

    Raises:
        InvalidArgumentError: the model has several graphs, as far as its config says so.
    """
    config = read_leniently(folder)
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    generates = name.endswith(("ForConditionalGeneration", "ForCausalLM", "LMHeadModel"))
    several = graphs == "two" or config.get("is_encoder_decoder") is True
    if layout == "inline" and task is None and generates and several:
        raise InvalidArgumentError(
            "layout: the graphs of this model share their data files, and models with inline "
            "weights cannot share them; choose another layout than inline"
        )


def model_folders(folder: Path, base: StrPath | None) -> list[Path]:
    """Return the folder of a model, or that of an adapter's base and the adapter's own."""
    if not is_adapter(folder):
        return [folder]
    return [base_of(folder, Path(base) if base is not None else None), folder]
