"""Compares the graphs in a folder with transformers' model; exports a folder without graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.errors import InvalidArgumentError, NotFoundError
from .._base.meter import Meter
from .._base.packages import FOLDERS, require
from .._base.temporary import temporary_folder
from .._comparing.precision import graph_at, weight_type
from .._folders.config import refuse_at_once
from .._folders.models import has_models, is_transformers, models_in, no_model
from .._sources.checkpoint import open_checkpoint

if TYPE_CHECKING:
    from ..transformers._compared import Folder, Graph
    from ..transformers._inputs import Inputs


def _folder_of(
    model: Any, against: Any, inputs: Any, task: str | None, dtype: str | None
) -> Folder:
    """Return existing graphs as a Folder, with transformers' model as the reference."""
    path = Path(model)
    models = models_in(path) if path.is_dir() else {path.stem: path}
    if not models:
        raise no_model(path)
    source = Path(against if against is not None else path)
    computes = weight_type(*models.values())
    require(f"{source}: a comparison with transformers' model", "torch", "transformers")
    from ..transformers._compared import Folder

    return Folder(models, source, task, dtype, inputs, not _static(models), computes=computes)


def graph_of(model: str, against: Any, inputs: Any, task: str | None, dtype: str | None) -> Graph:
    """Return the reference with which one graph is compared."""
    refuse_at_once(against)
    folder = _folder_of(model, against, inputs, task, dtype)
    return folder.graphs()[Path(model).stem]


def refuse_other_inputs(inputs: Any) -> None:
    """Raise an error if the inputs do not have a form that a transformers model takes."""
    names = isinstance(inputs, (list, tuple)) and all(isinstance(each, str) for each in inputs)
    if inputs is not None and not isinstance(inputs, Mapping) and not names:
        raise InvalidArgumentError(
            "inputs: for a transformers model, pass names or a dict of tensors, as in "
            "oe.transformers.export()"
        )


def _static(models: Mapping[str, Path]) -> bool:
    """Return whether no graph has a dynamic dimension."""
    return not any(
        dim.dim_param
        for path in models.values()
        for value in graph_at(path).input
        for dim in value.type.tensor_type.shape.dim
    )


@contextlib.contextmanager
def opened(
    model: Any,
    against: Any,
    inputs: Any,
    exporting: dict[str, Any],
    meter: Meter,
) -> Iterator[Folder]:
    """Yield the graphs of a folder, which is exported if it has none or if `output` is given.

    Args:
        model: the folder, or the path of a graph.
        against: the folder with transformers' model, or None if `model` is this folder.
        inputs: as for oe.transformers.export().
        exporting: keyword arguments of oe.transformers.export(), and `output`, the folder to export
            to. If `output` is None, the model is exported to a temporary folder.
        meter: measures the steps of the export.
    """
    refuse_other_inputs(inputs)
    refuse_at_once(model if against is None else against)
    path, options = Path(model), dict(exporting)
    output, task, dtype = (options.pop(name) for name in ("output", "task", "dtype"))
    options = {name: value for name, value in options.items() if value is not None}
    if against is None and is_transformers(model) and (output is not None or not has_models(path)):
        with contextlib.ExitStack() as stack:
            target = Path(output or stack.enter_context(temporary_folder()))
            report = _export(path, target, task, dtype, inputs, options)
            from ..transformers._compared import Folder

            meter.steps += report.steps
            models = {name: Path(graph.model) for name, graph in report.graphs.items()}
            exported = str(target) if output else None
            dynamic, variant = options.get("dynamic", True), options.get("variant")
            yield Folder(models, path, task, dtype, inputs, dynamic, exported, variant)
        return
    if output is not None:
        raise InvalidArgumentError(f"output: {path} is not a transformers folder to export")
    if against is None:
        _refuse_without_weights(path)
    folder = _folder_of(model, against, inputs, task, dtype)
    folder.variant = options.get("variant")
    yield folder


def _refuse_without_weights(folder: Path) -> None:
    """Raise an error for exported graphs if transformers' model is not next to them.

    Raises:
        InvalidArgumentError: there is no such model.
    """
    try:
        with open_checkpoint(folder):
            return
    except NotFoundError:
        raise InvalidArgumentError(
            f"{folder}: contains graphs, but not the weights of transformers' model to compare "
            "them with; pass the folder that the graphs were exported from: "
            f"oe.validate({str(folder)!r}, 'FOLDER')"
        ) from None


def _export(
    folder: Path,
    target: Path,
    task: str | None,
    dtype: Any,
    inputs: Inputs | None,
    options: dict[str, Any],
) -> Any:
    require(f"{folder}: the export of a folder", *FOLDERS)
    from ..transformers import export

    # The caller who asked for it compares it.
    return export(folder, target, task, dtype, inputs=inputs, check=False, **options)
