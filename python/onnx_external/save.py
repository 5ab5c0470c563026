"""Saving, verifying and listing models."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from . import _core, reports
from .progress import Progress, shown

__all__ = ["inspect", "plan", "save", "save_model_with_external_data", "verify"]

StrPath = str | os.PathLike[str]
Paths = StrPath | Sequence[StrPath]

_log = logging.getLogger("onnx_external")


class SerializesToBytes(Protocol):
    """A protobuf message, such as onnx.ModelProto."""

    def SerializeToString(self) -> bytes:
        """Return the message's bytes."""


Graph = StrPath | bytes | SerializesToBytes
"""A model: a file, the bytes of a ModelProto, or a ModelProto."""


def _given_model(model: Graph) -> bytes | StrPath:
    if isinstance(model, (bytes, str, os.PathLike)):
        return model
    if hasattr(model, "SerializeToString"):
        return bytes(model.SerializeToString())
    raise TypeError(
        f"model: expected a path, bytes or an onnx.ModelProto, not {type(model).__name__}"
    )


def _given_paths(paths: Paths) -> list[StrPath]:
    return [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)


def _target(path: StrPath | None) -> tuple[Path | None, str]:
    """The folder and the model's name: "out/model.onnx" and "out" mean the same."""
    if path is None:
        return None, "model.onnx"
    target = Path(path)
    if target.suffix == ".onnx" and not target.is_dir():
        return target.parent, target.name
    return target, "model.onnx"


def save(
    model: Graph,
    path: StrPath | None,
    weights: Paths | None = None,
    *,
    layout: str = "single",
    data_dir: str = "initializers",
    max_shard_size: int | str | None = None,
    align: int | None = None,
    dedup: str = "storage",
    inline_below: int | str = 0,
    attributes: bool | None = None,
    dtype: object = None,
    overwrite: bool = False,
    reuse: bool = False,
    verify: bool = True,
    fsync: bool = True,
    resume: bool = True,
    direct: bool = False,
    checksum: str | None = None,
    keep_inputs: bool = False,
    base_dir: StrPath | None = None,
    key: str | None = None,
    overlay: bool = False,
    max_expand: int = 4,
    densify: bool = False,
    widen_complex32: bool = False,
    prefix: str | None = None,
    match: str = "auto",
    unmatched: str = "strict",
    partial: bool = False,
    cast: bool = False,
    rename: str | Sequence[str] | None = None,
    map: StrPath | Mapping[str, str] | None = None,
    tie: Mapping[str, str] | None = None,
    inputs: str | Sequence[str] | None = None,
    keep: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | None = None,
    learn_map: Paths | None = None,
    test_data: Paths | None = None,
    threads: int = 0,
    progress: Progress = None,
    dry_run: bool = False,
) -> reports.SaveReport:
    """Save a model with its weights as external data, and prove that every byte landed.

    The save is complete and right, or it raises and nothing is changed. Keywords are the options of
    the command `save-external`, which docs/cli.md describes; only the layout has another default.

    Args:
        model: a file, the bytes of a ModelProto or a ModelProto; with or without data.
        path: the model's file ("out/model.onnx"), or the folder of a "model.onnx". A dry run may
            have None, and then looks at no folder.
        weights: the checkpoint: a file, a shard index, a folder, or several of them. None: the
            weights that the model has get the layout.
        layout: "single", "per-tensor", "shards", "inline" or "link".
        base_dir: where external data that the given model refers to is found; by default the
            model's folder, or the current one for a model that is not a file.
        progress: a callable, True or False; None means a bar if stderr is a terminal.

    Other keywords: see docs/cli.md.

    Raises:
        MappingError: weights and keys do not fit one to one.
        ExistsError: there is a model, and `overwrite` is False.
        Error: everything else; the subclass and `code` tell the cause.
    """
    options: dict[str, Any] = {
        "layout": layout,
        "max_shard_size": max_shard_size,
        "align": align,
        "dedup": dedup,
        "inline_below": inline_below,
        "attributes": attributes,
        "dtype": dtype,
        "overwrite": overwrite,
        "reuse": reuse,
        "verify": verify,
        "fsync": fsync,
        "resume": resume,
        "direct": direct,
        "checksum": checksum,
        "keep_inputs": keep_inputs,
        "base_dir": base_dir,
        "key": key,
        "overlay": overlay,
        "max_expand": max_expand,
        "densify": densify,
        "widen_complex32": widen_complex32,
        "prefix": prefix,
        "match": match,
        "unmatched": unmatched,
        "partial": partial,
        "cast": cast,
        "rename": rename,
        "map": dict(map) if isinstance(map, Mapping) else map,
        "tie": None if tie is None else dict(tie),
        "inputs": inputs,
        "keep": keep,
        "ignore": ignore,
        "learn_map": None if learn_map is None else _given_paths(learn_map),
        "test_data": None if test_data is None else _given_paths(test_data),
        "threads": threads,
        "dry_run": dry_run,
    }
    if path is None and not dry_run:
        raise TypeError("path: None is for a dry run")
    folder, name = _target(path)
    paths = None if weights is None else _given_paths(weights)
    with shown(progress) as callback:
        text = _core.save(_given_model(model), paths, folder, name, data_dir, callback, options)
    report = reports.save_report(text)
    if not dry_run:
        _log.info(
            "saved %s: %d tensors, %d bytes in %.2f s",
            report.model,
            len(report.tensors),
            report.bytes,
            report.seconds,
        )
    return report


def plan(
    model: Graph, weights: Paths | None = None, path: StrPath | None = None, **options: Any
) -> reports.SaveReport:
    """Return what `save` would do with the same arguments, and write nothing."""
    return save(model, path, weights, **options, dry_run=True)


def save_model_with_external_data(
    basepath: StrPath,
    model_location: str,
    initializer_location: str,
    torch_load_paths: Paths,
    onnx_model: Graph,
) -> None:
    """Save as onnxruntime's and torch's function of this name does: one file per tensor.

    A model that is there is replaced; data of later saves goes into `initializer_location`.N.
    """
    options = {"layout": "per-tensor", "overwrite": True}
    _core.save(
        _given_model(onnx_model),
        _given_paths(torch_load_paths),
        basepath,
        model_location,
        initializer_location,
        None,
        options,
    )


def verify(
    model: StrPath,
    against: Paths | None = None,
    *,
    cold: bool = False,
    threads: int = 0,
    progress: Progress = None,
    **options: Any,
) -> reports.VerifyReport:
    """Read a written model back, and list what is wrong with it.

    Args:
        model: the file, or its folder.
        against: the checkpoint that it must equal, byte by byte; None: its manifest tells.
        cold: read from the disk, not from the page cache.
        threads: 0 means one per CPU.
        progress: as for save().
        **options: how the save mapped keys to weights, where its manifest does not say it: `key`,
            `prefix`, `map`, `rename`, `tie`, `inputs`, ... of save().
    """
    options |= {"cold": cold, "threads": threads}
    paths = None if against is None else _given_paths(against)
    with shown(progress) as callback:
        return reports.verify_report(_core.verify(model, paths, callback, options))


def inspect(
    files: Paths,
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
        **options: `overlay`, `max_expand`, `densify`, `widen_complex32`.
    """
    options |= {"key": key, "filter": filter, "sha256": sha256, "threads": threads}
    with shown(progress) as callback:
        return reports.inspection(_core.inspect(_given_paths(files), callback, options))
