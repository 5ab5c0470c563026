"""Saving models, and planning it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, overload

from . import _core, reports
from .collector import collector_paused
from .graphs import Graph, given_models
from .progress import Progress, shown
from .sources import Weights, given_extra, given_sources
from .transposing import (
    chosen,
    ir_models,
    moved_pairs,
    transposable,
    transposed_model,
    wanted,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Plan", "SaveOptions", "SetPlan", "plan", "save", "save_model_with_external_data"]

StrPath = str | os.PathLike[str]
Paths = StrPath | Sequence[StrPath]

_log = logging.getLogger("onnx_external")


def target_of(path: StrPath | None) -> tuple[Path | None, str]:
    """The folder and the model's name: "out/model.onnx" and "out" mean the same."""
    if path is None:
        return None, "model.onnx"
    target = Path(path)
    if target.suffix == ".onnx" and not target.is_dir():
        return target.parent, target.name
    return target, "model.onnx"


class SaveOptions(TypedDict, total=False):
    """The keywords of `save`, which describes them."""

    extra: Weights | None
    layout: str
    data_name: str | None
    data_dir: str
    max_shard_size: int | str | None
    align: int | None
    dedup: str
    inline_below: int | str
    attributes: bool | None
    dtype: object
    overwrite: bool
    verify: bool
    fsync: bool
    resume: bool
    direct: bool
    checksum: str | None
    keep_inputs: bool
    base_dir: StrPath | None
    key: str | None
    variant: str | None
    overlay: bool
    max_expand: int
    densify: bool
    widen_complex32: bool
    prefix: str | None
    unmatched: str
    partial: bool
    cast: bool
    rename: str | Sequence[str] | None
    map: StrPath | Mapping[str, Any] | None
    inputs: str | Sequence[str] | None
    keep: str | Sequence[str] | None
    ignore: str | Sequence[str] | None
    learn_map: Weights | None
    transpose_weights: bool | None
    test_data: Paths | None
    threads: int
    progress: Progress


@overload
def save(
    model: Mapping[str, Graph],
    path: StrPath | None,
    weights: Weights | None = None,
    *,
    dry_run: bool = False,
    **options: Unpack[SaveOptions],
) -> reports.SetReport: ...
@overload
def save(
    model: Graph,
    path: StrPath | None,
    weights: Weights | None = None,
    *,
    dry_run: bool = False,
    **options: Unpack[SaveOptions],
) -> reports.SaveReport: ...
def save(
    model: Graph | Mapping[str, Graph],
    path: StrPath | None,
    weights: Weights | None = None,
    *,
    extra: Weights | None = None,
    layout: str = "single",
    data_name: str | None = None,
    data_dir: str = "initializers",
    max_shard_size: int | str | None = None,
    align: int | None = None,
    dedup: str = "storage",
    inline_below: int | str = 0,
    attributes: bool | None = None,
    dtype: object = None,
    overwrite: bool = False,
    verify: bool = True,
    fsync: bool = True,
    resume: bool = True,
    direct: bool = False,
    checksum: str | None = None,
    keep_inputs: bool = False,
    base_dir: StrPath | None = None,
    key: str | None = None,
    variant: str | None = None,
    overlay: bool = False,
    max_expand: int = 4,
    densify: bool = False,
    widen_complex32: bool = False,
    prefix: str | None = None,
    unmatched: str = "strict",
    partial: bool = False,
    cast: bool = False,
    rename: str | Sequence[str] | None = None,
    map: StrPath | Mapping[str, Any] | None = None,
    inputs: str | Sequence[str] | None = None,
    keep: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | None = None,
    learn_map: Weights | None = None,
    transpose_weights: bool | None = None,
    test_data: Paths | None = None,
    threads: int = 0,
    progress: Progress = None,
    dry_run: bool = False,
) -> reports.SaveReport | reports.SetReport:
    """Save a model with its weights as external data, and prove that every byte landed.

    The save is complete and right, or it raises and nothing is changed. Keywords are the options of
    the command `save-external`, which docs/cli.md describes; only the layout and the name of the
    data file have other defaults. Nothing is changed in the objects that are given, and nothing
    plain is copied: tensors are written from where they are. They must not be resized by others
    meanwhile; what changes otherwise is found by the verification.

    Args:
        model: a torch ONNXProgram, an onnx_ir.Model, an onnx.ModelProto of any size, the bytes of
            one, or a file; with or without data. A dict of names to such models
            ({"encoder.onnx": ..., "decoder.onnx": ...}): all of them share their data files, each
            byte is stored once.
        path: the model's file ("out/model.onnx"), or the folder of a "model.onnx". A dry run may
            have None, and then looks at no folder. Of several models: the folder.
        weights: a checkpoint (a file, a shard index, a folder), an open `Checkpoint`, a dict of
            names to tensors (a state dict), or several of them. None: the weights that the model
            has get the layout.
        extra: tensors beside the weights, in the same forms; a dict may also have a file for a
            name. They fill the slots of their names, such as buffers that no state dict has.
        layout: "single", "per-tensor", "shards", "inline" or "link".
        data_name: the data file of "single", by default the model's name with ".data" behind it, as
            torch.onnx and onnx_ir have it; what the names of "shards" are made of.
        base_dir: where external data that the given model refers to is found; by default the
            model's folder, or the current one for a model that is not a file.
        learn_map: the weights that the model was exported from, in the forms of `weights`.
        transpose_weights: matrices that only Transpose nodes use are stored transposed, without
            these nodes, so that quantizers and others find the weight of a MatMul. None: of a
            program or an onnx_ir.Model that gets `weights`, in any layout but "link".
        partial: take a model that lacks weights; the report's `complete` is False then.
        progress: a callable, True or False; None means a bar if stderr is a terminal.

    Other keywords: see docs/cli.md.

    Raises:
        MappingError: weights and keys do not fit one to one, or weights have no data.
        ExistsError: there is a model, and `overwrite` is False.
        Error: everything else; the subclass and `code` tell the cause.
        TypeError: an argument is of a kind that cannot be saved; the message names the tensor.
    """
    options: dict[str, Any] = {
        "layout": layout,
        "data_name": data_name,
        "max_shard_size": max_shard_size,
        "align": align,
        "dedup": dedup,
        "inline_below": inline_below,
        "attributes": attributes,
        "dtype": dtype,
        "overwrite": overwrite,
        "verify": verify,
        "fsync": fsync,
        "resume": resume,
        "direct": direct,
        "checksum": checksum,
        "keep_inputs": keep_inputs,
        "base_dir": base_dir,
        "key": key,
        "variant": variant,
        "overlay": overlay,
        "max_expand": max_expand,
        "densify": densify,
        "widen_complex32": widen_complex32,
        "prefix": prefix,
        "unmatched": unmatched,
        "partial": partial,
        "cast": cast,
        "rename": rename,
        "map": dict(map) if isinstance(map, Mapping) else map,
        "inputs": inputs,
        "keep": keep,
        "ignore": ignore,
        "learn_map": given_sources("learn_map", learn_map),
        "test_data": _paths(test_data),
        "threads": threads,
        "dry_run": dry_run,
        "before_publish": getattr(progress, "before_publish", None),
    }
    if path is None and not dry_run:
        raise TypeError("path: None is for a dry run")
    may_lack_data = weights is not None or extra is not None or partial
    several = isinstance(model, Mapping)
    folder, name = (path, "") if several else target_of(path)
    models = dict(model) if isinstance(model, Mapping) else {name: model}
    inner = ir_models(models)
    if not wanted(transpose_weights, layout, weights, learn_map, inner):
        inner = None
    with collector_paused():
        sources, more = given_sources("weights", weights), given_extra(extra)

    def run(graphs: Mapping[str, Graph], callback: Any, **changed: Any) -> _Reports:
        settings = {**options, **changed, "base_dir": None}  # each graph has its own
        with collector_paused():
            given = given_models(graphs, base_dir, may_lack_data)
        document = _core.save(
            given.graphs, given.tensors, sources, more, folder, data_dir, callback, settings
        )
        return reports.set_report(document) if several else reports.save_report(document)

    with shown(progress) as callback:
        changed: dict[str, Any] = {}
        candidates = [transposable(graph) for graph in (inner or {}).values()]
        if inner is not None and any(candidates):
            tensors = [each.tensors for each in reports.members(run(models, None, **_PLAN_ONLY))]
            turned = chosen(candidates, tensors)
            names = list(models) if len(models) > 1 else [""]
            changed = moved_pairs(options, names, tensors, turned)
            for (name, graph), weights_of in zip(inner.items(), turned, strict=True):
                if weights_of:
                    models[name] = transposed_model(graph, weights_of.keys())
        return _logged(run(models, callback, **changed))


_Reports = reports.SaveReport | reports.SetReport

_PLAN_ONLY = {"dry_run": True, "dedup": "storage", "before_publish": None}
"""Options of a plan that tells where weights would go, without reading them."""


def _logged(report: _Reports) -> _Reports:
    if not report.dry_run:
        document = report.to_dict()
        models = document.get("models", [document])
        _log.info(
            "saved %s%s: %d tensors, %d bytes in %.2f s",
            ", ".join(model["model"] for model in models),
            "" if report.complete else ", incomplete",
            sum(len(model["tensors"]) for model in models),
            report.bytes,
            report.seconds,
        )
    return report


def _paths(given: Paths | None) -> list[StrPath] | None:
    if given is None:
        return None
    return [given] if isinstance(given, (str, os.PathLike)) else list(given)


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

    _arguments: tuple[Graph, Weights | None, StrPath | None, SaveOptions]

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
        """Carry it out, at `path` or where it was planned for.

        The arguments are looked at again: what changed since is taken as it is now.
        """
        model, weights, planned, options = self._arguments
        path = planned if path is None else path
        report = save(model, path, weights, **_with(options, progress))
        assert isinstance(report, reports.SaveReport)
        return report


class SetPlan(reports.SetReport):
    """What a save of several graphs would do, and the arguments to do it with."""

    _arguments: tuple[Mapping[str, Graph], Weights | None, StrPath | None, SaveOptions]

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
        """Carry it out, in the folder `path` or where it was planned for; as Plan.save()."""
        models, weights, planned, options = self._arguments
        path = planned if path is None else path
        report = save(models, path, weights, **_with(options, progress))
        assert isinstance(report, reports.SetReport)
        return report


def _with(options: SaveOptions, progress: Progress) -> SaveOptions:
    return options if progress is None else {**options, "progress": progress}


@overload
def plan(
    model: Mapping[str, Graph],
    weights: Weights | None = None,
    path: StrPath | None = None,
    **options: Unpack[SaveOptions],
) -> SetPlan: ...
@overload
def plan(
    model: Graph,
    weights: Weights | None = None,
    path: StrPath | None = None,
    **options: Unpack[SaveOptions],
) -> Plan: ...
def plan(
    model: Graph | Mapping[str, Graph],
    weights: Weights | None = None,
    path: StrPath | None = None,
    **options: Unpack[SaveOptions],
) -> Plan | SetPlan:
    """Return what `save` would do with the same arguments, and write nothing.

    The plan holds the arguments, so that `plan.save()` can carry it out.
    """
    planned: Plan | SetPlan
    planned = SetPlan.__new__(SetPlan) if isinstance(model, Mapping) else Plan.__new__(Plan)
    planned.__dict__.update(save(model, path, weights, **options, dry_run=True).__dict__)
    planned._arguments = (model, weights, path, options)
    return planned


def save_model_with_external_data(
    basepath: StrPath,
    model_location: str,
    initializer_location: str,
    torch_load_paths: Weights,
    onnx_model: Graph,
) -> None:
    """Save as onnxruntime's and torch's function of this name does: one file per tensor.

    A model that is there is replaced; data of later saves goes into `initializer_location`.N.
    """
    with collector_paused():
        given = given_models({model_location: onnx_model}, None, may_lack_data=True)
        sources = given_sources("torch_load_paths", torch_load_paths)
    options = {"layout": "per-tensor", "overwrite": True}
    _core.save(
        given.graphs, given.tensors, sources, None, basepath, initializer_location, None, options
    )
