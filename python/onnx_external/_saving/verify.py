"""Implements oe.verify and oe.inspect."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .. import _core
from .._base.argument_types import checks_types, of_class, path_of, paths_of
from .._base.errors import InvalidArgumentError, checkpoint_is
from .._base.options import Mapping, StrPath, Weights, flat
from .._base.progress import Progress, shown
from .._sources.weights import given_sources
from .reports import Inspection, VerifyReport, inspection, verify_report


@checks_types
def verify(
    model: StrPath,
    against: Weights | None = None,
    *,
    cold: bool = False,
    threads: int = 0,
    progress: Progress = None,
    mapping: Mapping | None = None,
    max_expand: int = 4,
) -> VerifyReport:
    """Read a written model back and report its faults.

    Args:
        model: the file, or its folder. If the folder has several models that were saved together,
            all are verified, and `VerifyReport.models` has the report on each.
        against: the weights to compare byte by byte, in any form that `oe.save` takes; for a
            save with `extra`, a list of both. None: the checksums in the manifest. Lazy tensors
            are computed one by one.
        cold: read from the disk instead of the page cache.
        threads: the maximum number of threads; 0 means one per CPU.
        progress: as for `oe.save`.
        mapping: the mapping options of the save, if its manifest does not record them. `learn_map`
            is not needed: the manifest has the learned pairs.
        max_expand: the maximum size of `against` as a multiple of the size of its files.

    Returns:
        The findings; `ok` is True if there are none and no weight lacks its value.

    Raises:
        NotFoundError: no such model exists.
        Error: the model or the weights cannot be read at all.
    """
    options = flat(of_class("mapping", Mapping, mapping))
    del options["keep_inputs"]
    if options.pop("learn_map") is not None:
        raise InvalidArgumentError("mapping: learn_map is for a save; the manifest has its pairs")
    options |= {"max_expand": max_expand, "cold": cold, "threads": threads}
    path, sources = path_of("model", model), given_sources("against", against)
    with shown(progress) as callback, checkpoint_is("against"):
        report = verify_report(_core.verify(path, sources, callback, options))
    report._verified = os.fspath(path)
    return report


@checks_types
def inspect(
    paths: StrPath | Sequence[StrPath],
    *,
    key: str | None = None,
    variant: str | None = None,
    overlay: bool = False,
    densify: bool = False,
    widen_complex32: bool = False,
    max_expand: int = 4,
    filter: str | None = None,
    sha256: bool = False,
    raw: bool = False,
    threads: int = 0,
    progress: Progress = None,
) -> Inspection:
    """List the contents of a checkpoint or a model. Nothing in the file is executed.

    Args:
        paths: a model or a checkpoint, or its folder; several files are read as one checkpoint.
        key: in a nested checkpoint, list only the dict of names to tensors under this key, such as
            "state_dict".
        variant: for a folder, the variant whose files are read: "fp16" reads
            model.fp16.safetensors.
        overlay: if several paths have a tensor, list the tensor of the last path.
        densify: list sparse tensors as dense ones.
        widen_complex32: list complex32 tensors as complex64.
        max_expand: the maximum size of the tensors as a multiple of the size of their files.
        filter: only names that contain a match of this regular expression (RE2).
        sha256: read every listed tensor and compute its digest.
        raw: list the stored parts of quantized weights instead of the floats they represent.
        threads: the maximum number of threads; 0 means one per CPU.
        progress: as for `oe.save`.

    Raises:
        NotFoundError: no such file exists.
        FormatError: a file is damaged, or its format is not known.
    """
    options = {
        "key": key,
        "variant": variant,
        "overlay": overlay,
        "densify": densify,
        "widen_complex32": widen_complex32,
        "max_expand": max_expand,
        "filter": filter,
        "sha256": sha256,
        "raw": raw,
        "threads": threads,
    }
    with shown(progress) as callback:
        return inspection(_core.inspect(paths_of("paths", paths), callback, options))
