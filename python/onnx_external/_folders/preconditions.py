"""Checks arguments and existing files early in an export, before torch is imported."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._base.errors import ExistsError, InvalidArgumentError, Remedy
from .._base.options import StrPath
from .._saving.save import target_of
from .clients import Wanted, wanted
from .config import base_of, is_adapter, read_leniently
from .models import ENCODER, pair_names
from .side_files import files_beside, refuse_copies
from .variants import Variant, variants_of

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
    """Log the notes of a report immediately as warnings."""
    for note in notes:
        _log.warning(note)


def note_of_dtype(dtype: str | None) -> list[str]:
    """Return a note if the model will compute in bfloat16.

    Args:
        dtype: the element type that the caller chose.
    """
    return [BFLOAT16] if dtype == "bfloat16" else []


def note_of_state(state: Mapping[str, Any]) -> list[str]:
    """Return a note if most of a module's floats are bfloat16.

    Args:
        state: the module's torch tensors by name.
    """
    count: dict[str, int] = {}
    for tensor in state.values():
        if tensor.is_floating_point():
            name = str(tensor.dtype)
            count[name] = count.get(name, 0) + tensor.numel()
    most = max(count, key=lambda name: count[name], default="")
    return [_OF_MODULES] if most == "torch.bfloat16" else []


def refuse_existing(path: StrPath) -> None:
    """Raise an error if the model exists already, as the save would do after the trace.

    Args:
        path: as for oe.save().

    Raises:
        ExistsError: a model exists.
    """
    folder, name = target_of(path)
    target = (folder or Path()) / name
    if target.is_file():
        error = ExistsError(f"{target}: exists")
        error.remedies = [Remedy("overwrite", "", "replaces it")]
        raise error


class Request(NamedTuple):
    """The checked arguments for the export of a folder."""

    wanted: Wanted
    """The requirements of the programs that will open the folder."""
    variants: list[Variant]


def requested(folders: Sequence[Path], target: Path, how: Mapping[str, Any]) -> Request:
    """Check the arguments of an export, and that no existing file is in the way.

    Args:
        folders: the folders to export, from model_folders().
        target: the folder or file that is to be written.
        how: arguments of oe.transformers.export(): layout, graphs, task, dtype, quantize, clients,
            variants, overwrite, dry_run.

    Raises:
        InvalidArgumentError: arguments exclude each other, or do not fit the model.
        ExistsError: a graph, or a file that belongs next to it, would replace an existing file.
    """
    asked, layout = wanted(how["clients"]), how["layout"]
    chosen = variants_of(how["variants"], how["dtype"], how["quantize"], layout, target)
    if how["variants"] and asked.float_tables:
        chosen = [each.with_float_tables() for each in chosen]
    asked.refuse(layout, target)
    config = read_leniently(folders[0])
    if layout == "inline" and not asked.apart:
        _refuse_inline(config, how)
    is_file = target.suffix == ".onnx" and not target.is_dir()
    if not how["overwrite"] and not how["dry_run"]:
        has_encoder = config.get("is_encoder_decoder") is True
        pair = pair_names(has_encoder) if has_encoder or how["graphs"] == "two" else ("model",)
        names = (ENCODER, *pair) if has_encoder else pair
        files = [f"{name}{each.suffix}.onnx" for each in chosen for name in names]
        for path in [target] if is_file else [target / asked.place / name for name in files]:
            refuse_existing(path)
    beside = [file for folder in folders for file in files_beside(folder)]
    refuse_copies(beside, target.parent if is_file else target, how["overwrite"])
    return Request(asked, chosen)


def _refuse_inline(config: Mapping[str, Any], how: Mapping[str, Any]) -> None:
    """Raise an error if the config shows that the model has several graphs, which share files."""
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    generates = name.endswith(("ForConditionalGeneration", "ForCausalLM", "LMHeadModel"))
    several = how["graphs"] == "two" or config.get("is_encoder_decoder") is True
    if how["task"] is None and generates and several:  # a class of a task may have one graph
        raise InvalidArgumentError(
            "layout: the graphs of this model share their data files, and models with inline "
            "weights cannot share them; choose a layout other than inline"
        )


def model_folders(folder: Path, base: StrPath | None) -> list[Path]:
    """Return the folders to read: the model's, or those of an adapter's base and the adapter."""
    if not is_adapter(folder):
        return [folder]
    return [base_of(folder, Path(base) if base is not None else None), folder]
