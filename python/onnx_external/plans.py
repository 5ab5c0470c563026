"""oe.plan: what a save would do, to be looked at before it is carried out."""

from __future__ import annotations

from collections import abc
from typing import TYPE_CHECKING, Any, overload

from . import reports
from .graphs import Graph
from .moved import by_name, shows_new_call
from .options import FloatType, Layout, LayoutName, Mapping, StrPath
from .progress import Progress
from .save import save
from .sources import Weights

if TYPE_CHECKING:
    import numpy as np
    import torch
    from typing_extensions import Unpack

    from .options import SaveKeywords

__all__ = ["Plan", "SetPlan", "plan"]

_Tensors = list[reports.SavedTensor]


def _pairs(tensors: _Tensors) -> _Tensors:
    return [tensor for tensor in tensors if tensor.key is not None]


def _add_files(tensors: _Tensors, sizes: dict[str, int]) -> None:
    for tensor in tensors:
        if tensor.file is not None:
            end = tensor.offset + tensor.length
            sizes[tensor.file] = max(end, sizes.get(tensor.file, 0))


class Plan(reports.SaveReport):
    """What a save would do, and the arguments to do it with, which it keeps alive."""

    _arguments: tuple[Graph, Weights | None, StrPath | None, SaveKeywords]

    @property
    def pairs(self) -> list[reports.SavedTensor]:
        """The initializers that are filled from the weights: slot, key, rule and recipe."""
        return _pairs(self.tensors)

    @property
    def files(self) -> dict[str, int]:
        """The data files, relative to the model's folder, and their sizes in bytes."""
        sizes: dict[str, int] = {}
        _add_files(self.tensors, sizes)
        return sizes

    def save(self, path: StrPath | None = None, *, progress: Progress = None) -> reports.SaveReport:
        """Carry it out.

        The arguments are looked at again: what changed since is taken as it is now.

        Args:
            path: as for `oe.save`. None: where it was planned for.
            progress: as for `oe.save`. None: as it was planned.

        Raises:
            Error: as `oe.save` raises it.
        """
        model, weights, planned, options = self._arguments
        path = planned if path is None else path
        report = save(model, path, weights, **_with(options, progress))
        assert isinstance(report, reports.SaveReport)
        return report


class SetPlan(reports.SetReport):
    """What a save of several graphs would do, and the arguments to do it with."""

    _arguments: tuple[abc.Mapping[str, Graph], Weights | None, StrPath | None, SaveKeywords]

    @property
    def pairs(self) -> dict[str, list[reports.SavedTensor]]:
        """By the names of the models: their initializers that are filled from the weights."""
        names = self._arguments[0]
        return {name: _pairs(model.tensors) for name, model in zip(names, self.models, strict=True)}

    @property
    def files(self) -> dict[str, int]:
        """The data files of all models, relative to the folder, and their sizes in bytes."""
        sizes: dict[str, int] = {}
        for model in self.models:
            _add_files(model.tensors, sizes)
        return sizes

    def save(self, path: StrPath | None = None, *, progress: Progress = None) -> reports.SetReport:
        """Carry it out, as `Plan.save()` does.

        Args:
            path: the folder. None: the one that it was planned for.
            progress: as for `oe.save`. None: as it was planned.

        Raises:
            Error: as `oe.save` raises it.
        """
        models, weights, planned, options = self._arguments
        path = planned if path is None else path
        report = save(models, path, weights, **_with(options, progress))
        assert isinstance(report, reports.SetReport)
        return report


def _with(options: SaveKeywords, progress: Progress) -> SaveKeywords:
    return options if progress is None else {**options, "progress": progress}


@overload
def plan(
    model: abc.Mapping[str, Graph],
    *,
    path: StrPath | None = None,
    weights: Weights | None = None,
    **options: Unpack[SaveKeywords],
) -> SetPlan: ...
@overload
def plan(
    model: Graph,
    *,
    path: StrPath | None = None,
    weights: Weights | None = None,
    **options: Unpack[SaveKeywords],
) -> Plan: ...
@shows_new_call("oe.plan", "weights")
@by_name("oe.plan", "weights", "path")
def plan(
    model: Graph | abc.Mapping[str, Graph],
    *,
    path: StrPath | None = None,
    weights: Weights | None = None,
    layout: LayoutName = "single",
    dtype: FloatType | torch.dtype | np.dtype[Any] | None = None,
    overwrite: bool = False,
    verify: bool = True,
    fsync: bool = True,
    threads: int = 0,
    progress: Progress = None,
    extra: Weights | None = None,
    mapping: Mapping | None = None,
    files: Layout | None = None,
) -> Plan | SetPlan:
    """Return what `oe.save` would do with the same arguments, and write nothing.

    The plan holds the arguments, so that `plan.save()` can carry it out.

    ```python
    plan = oe.plan("graph.onnx", path="out/model.onnx", weights="checkpoint.pt")
    for pair in plan.pairs:
        print(pair.slot, "from", pair.key)
    plan.save()
    ```

    Args:
        model: as for `oe.save`, and so are all others. A dict of models gives a `SetPlan`.
        path: where it would be saved, by name only. None: no folder is looked at.
        weights: what the graph gets, by name only. None: the weights that the model has.
        layout: "single", "per-tensor", "shards", "inline" or "link".
        dtype: the float type to which floats of the weights are converted.
        overwrite: plan to replace the model that is there.
        verify: for `plan.save()`: compare every byte before the model appears.
        fsync: for `plan.save()`: wait for the disk.
        threads: the most threads that work at a time; 0 means one per CPU.
        progress: as for `oe.save`.
        extra: tensors beside the weights.
        mapping: which key fills which weight.
        files: what the files are called and how they are made.

    Raises:
        MappingError: weights and keys do not fit one to one, or weights have no data.
        Error: everything else that `oe.save` would raise before it writes.
    """
    options: SaveKeywords = {
        "layout": layout,
        "dtype": dtype,
        "overwrite": overwrite,
        "verify": verify,
        "fsync": fsync,
        "threads": threads,
        "progress": progress,
        "extra": extra,
        "mapping": mapping,
        "files": files,
    }
    planned: Plan | SetPlan
    planned = SetPlan.__new__(SetPlan) if isinstance(model, abc.Mapping) else Plan.__new__(Plan)
    planned.__dict__.update(save(model, path, weights, **options, dry_run=True).__dict__)
    planned._arguments = (model, weights, path, options)
    return planned
