"""Cuts a small model out of a large one; both refer to the same data files."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .. import _core
from .._base.argument_types import are_names, checks_types, path_of, wrong_type
from .._base.options import StrPath
from .reports import CutReport, cut_report


def _names(argument: str, names: Sequence[str] | None) -> list[str]:
    if names is not None and not are_names(names):
        raise wrong_type(argument, "a list of names", names)
    return list(names or [])


def _module(name: str | None) -> str:
    if name is not None and not isinstance(name, str):
        raise wrong_type("module", "the name of a module", name)
    return name or ""


@checks_types
def cut(
    model: StrPath,
    path: StrPath,
    *,
    module: str | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    without: Sequence[str] | None = None,
    overwrite: bool = False,
    fsync: bool = True,
) -> CutReport:
    """Write part of a model, the piece, as a model of its own in the same folder.

    No external data is read or copied.

    Args:
        model: the file of the model.
        path: the file to write, in the folder of the model; a name alone means that folder.
        module: take the nodes that the exporter made for this module: "model.layers.3".
        inputs: with `outputs`: values that the piece takes as inputs; by default those inputs of
            the model that it needs.
        outputs: instead of a module: values that the piece computes from `inputs`.
        without: modules inside `module` (or inside the model, if none is given) whose nodes are
            left out of the piece; their results become inputs.
        overwrite: replace an older piece.
        fsync: wait until the piece is on the disk.

    Returns:
        The nodes, inputs and outputs of the piece.

    Raises:
        NotFoundError: no such model, module or value exists.
        ExistsError: the file exists, and `overwrite` is False.
        Error: any other fault; no incomplete file is left.
    """
    target = os.fspath(path_of("path", path))
    if not os.path.dirname(target):
        target = os.path.join(os.path.dirname(os.fspath(path_of("model", model))), target)
    return cut_report(
        _core.cut(
            path_of("model", model),
            target,
            _module(module),
            _names("inputs", inputs),
            _names("outputs", outputs),
            _names("without", without),
            overwrite,
            fsync,
        )
    )


def cut_bytes(
    model: StrPath,
    *,
    module: str | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    without: Sequence[str] | None = None,
) -> tuple[bytes, CutReport]:
    """Return a piece of a model as a serialized model, together with its report, and write no file.

    ONNX Runtime finds the data of a model in memory if the session option
    `session.model_external_initializers_file_folder_path` names the folder of `model`.

    Args:
        model: as for cut(), like all other arguments.
        module: take the nodes that the exporter made for this module.
        inputs: with `outputs`: values that the piece takes as inputs.
        outputs: instead of a module: values that the piece computes.
        without: modules whose nodes are left out of the piece.

    Raises:
        Error: as cut() raises it.
    """
    data, text = _core.cut_bytes(
        path_of("model", model),
        _module(module),
        _names("inputs", inputs),
        _names("outputs", outputs),
        _names("without", without),
    )
    return data, cut_report(text)
