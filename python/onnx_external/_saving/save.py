"""Implements oe.save."""

from __future__ import annotations

import logging
from collections import abc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base.argument_types import checks_types, of_class, path_of, paths_of
from .._base.collector import collector_paused
from .._base.errors import Error, MappingError, WrongTypeError, checkpoint_is
from .._base.keywords import only
from .._base.options import (
    NOT_QUANTIZED,
    Layout,
    Mapping,
    SaveKeywords,
    StrPath,
    Weights,
    flat,
    quantize_options,
)
from .._base.progress import shown
from .._sources.graphs import Given, Graph, given_models
from .._sources.weights import Source, given_extra, given_sources
from .programs import notes_on_training
from .reports import SavedTensor, SaveReport, save_report
from .sharing import Filling, fillings, sharing
from .transposing import (
    Learned,
    chosen,
    ir_models,
    map_document,
    moved_pairs,
    transposable,
    transposed_model,
    wanted,
)

if TYPE_CHECKING:
    import onnx_ir
    from typing_extensions import Unpack


_log = logging.getLogger("onnx_external")


def target_of(path: StrPath | None) -> tuple[Path | None, str]:
    """Split a target into the folder and the model's file name; "out" means "out/model.onnx"."""
    if path is None:
        return None, "model.onnx"
    target = Path(path_of("path", path))
    if target.suffix == ".onnx" and not target.is_dir():
        return target.parent, target.name
    return target, "model.onnx"


@checks_types
def save(
    model: Graph | abc.Mapping[str, Graph],
    path: StrPath | None,
    weights: Weights | None = None,
    *,
    dry_run: bool = False,
    **how: Unpack[SaveKeywords],
) -> SaveReport:
    """Save a model with its weights as external data, and verify every byte.

    The save is complete and correct, or it raises an error and changes nothing. The objects passed
    are not changed, and plain tensors are not copied, but written from where they are. Tensors must
    not be resized during the save; the verification detects other changes.

    ```python
    oe.save(torch.onnx.export(module, args, dynamo=True), "out/model.onnx")
    oe.save("graph.onnx", "out/model.onnx", "checkpoint.pt")
    ```

    Args:
        model: a torch ONNXProgram, a result of `oe.torch.skeleton`, an onnx_ir.Model, an
            onnx.ModelProto of any size, its bytes, or a file; with or without data. A dict of names
            to such models ({"encoder.onnx": ..., "decoder.onnx": ...}) saves models that share
            their data files, in which each byte is stored once.
        path: the model's file ("out/model.onnx"), or the folder of a "model.onnx"; folders are
            created. For several models: the folder. In a dry run, pass None to examine no folder.
        weights: a checkpoint (a file, a shard index, a folder), an open `Checkpoint` (from
            `oe.open_checkpoint`, which has options for reading), a binary stream, a dict of names
            to tensors (a state dict), a torch module, or a list of these. None: the weights that
            the model has are saved with the layout.
        dry_run: write nothing; the report says what a save would do. `oe.plan` does the same, and
            also keeps the arguments.
        **how: the keywords of `SaveKeywords`.

    Returns:
        A report: `tensors` has the location and the key of each tensor, `verified` is True if the
        bytes were compared, `complete` if no weight lacks its value. With several models, `models`
        has these fields for each model.

    Raises:
        MappingError: weights and keys do not fit one to one, or weights have no data.
        ExistsError: the model exists, and `overwrite` is False.
        MismatchError: bytes or shapes contradict each other, or changed during the save.
        Error: any other fault; the subclass and `code` give the cause.
        TypeError: an argument is of a kind that cannot be saved; the message names the tensor.
    """
    return save_again(Learned(), model, path, weights, dry_run=dry_run, **how)


@checks_types
def save_again(
    learned: Learned,
    model: Graph | abc.Mapping[str, Graph],
    path: StrPath | None,
    weights: Weights | None = None,
    *,
    dry_run: bool = False,
    **how: Unpack[SaveKeywords],
) -> SaveReport:
    """Save like save(), and plan only what no other save of the same weights has planned.

    Args:
        learned: the plans of earlier saves with the same weights and mapping, to which those of
            this save are added.
        model: as for save(), like all other arguments.
        path: the target.
        weights: the weights.
        dry_run: write nothing.
        **how: the keywords of `SaveKeywords`.
    """
    which = of_class("mapping", Mapping, how["mapping"])
    files = of_class("files", Layout, how["files"])
    options = _flat(how, which, files) | {"dry_run": dry_run}
    if path is None and not dry_run:
        raise WrongTypeError("path: None is only valid for a dry run")
    folder, models = _named(model, path)
    notes = notes_on_training(models.values())
    for note in notes:
        _log.warning(note)
    inner = ir_models(models)
    if not wanted(files.transpose_weights, how["layout"], weights, which.learn_map, inner):
        inner = None
    may_lack_data = weights is not None or how["extra"] is not None or which.partial
    with collector_paused():
        sources, more = given_sources("weights", weights), given_extra(how["extra"])
    job = _Job(folder, which, files, options, sources, more, may_lack_data)
    with shown(how["progress"]) as callback, checkpoint_is("weights"):
        if inner is not None:
            report = _transposed(job, models, inner, learned, callback)
        else:
            report = job.run(job.split(models), callback)
    _logged(report)._add_notes(notes)
    return report


@dataclass
class _Job:
    """A save in the form that the extension module takes, apart from its models."""

    folder: StrPath | None
    mapping: Mapping
    files: Layout
    options: dict[str, Any]
    sources: list[Source] | None
    extra: list[Source] | None
    may_lack_data: bool

    def split(self, models: abc.Mapping[str, Graph]) -> Given:
        """Split models into graphs and tensors."""
        with collector_paused():
            return given_models(models, self.files.base_dir, self.may_lack_data)

    def run(self, given: Given, callback: Any, **changed: Any) -> SaveReport:
        """Save models, or plan the save, with some options changed."""
        settings = {**self.options, **changed}
        tensors = (given.tensors, self.sources, self.extra)
        place = (self.folder, self.files.data_dir)
        return save_report(_core.save(given.graphs, *tensors, *place, callback, settings))


def _transposed(
    job: _Job,
    models: abc.Mapping[str, Graph],
    inner: abc.Mapping[str, onnx_ir.Model],
    learned: Learned,
    callback: Any,
) -> SaveReport:
    """Save models with the weights transposed that only Transpose nodes use.

    Args:
        job: the save.
        models: the models as given.
        inner: the same models of onnx_ir.
        learned: the plans of earlier saves.
        callback: the function for the progress.
    """
    candidates = [transposable(graph) for graph in inner.values()]
    if not any(candidates):
        return job.run(job.split(models), callback)
    failure: Error | None = None
    if (foreseen := _foreseen(job, inner, candidates)) is not None:
        turned, changed, keys = _turned(job, models, inner, candidates, foreseen)
        given = job.split(turned)
        if keys.isdisjoint(_sharing(job, given)):
            try:
                return job.run(given, callback, **changed)
            except Error as error:
                failure = error
    # If the plan fails, its error names the weights as the graph does.
    tensors = learned.tensors(
        [*inner.values()],
        job.options["layout"],
        lambda: job.run(job.split(models), None, **_PLAN_ONLY),
    )
    if failure is not None and not isinstance(failure, MappingError):
        raise failure
    turned, changed, _ = _turned(job, models, inner, candidates, tensors)
    return job.run(job.split(turned), callback, **changed)


def _turned(
    job: _Job,
    models: abc.Mapping[str, Graph],
    inner: abc.Mapping[str, onnx_ir.Model],
    candidates: abc.Sequence[abc.Set[str]],
    tensors: abc.Sequence[abc.Sequence[SavedTensor | Filling]],
) -> tuple[dict[str, Graph], dict[str, Any], set[str | None]]:
    """Return the models with transposed weights, the changed options, and the transposed keys."""
    turned = chosen(candidates, tensors)
    names = list(models) if len(models) > 1 else [""]
    changed = moved_pairs(job.options, names, tensors, turned)
    made = {
        name: transposed_model(inner[name], weights.keys()) if weights else model
        for (name, model), weights in zip(models.items(), turned, strict=True)
    }
    return made, changed, {tensor.key for each in turned for tensor in each.values()}


def _foreseen(
    job: _Job, inner: abc.Mapping[str, onnx_ir.Model], candidates: abc.Sequence[abc.Set[str]]
) -> list[list[Filling]] | None:
    """Return what fills each weight, if the arguments say it; None if only a plan can tell."""
    mapping, options = job.mapping, job.options
    if mapping.map is not None:
        mapping = replace(mapping, unmatched="strict")
    sources = job.sources or []
    is_plain = options["dtype"] is None and job.extra is None and len(sources) == 1
    if not is_plain or replace(mapping, map=None) != Mapping():
        return None
    document = None
    if isinstance(mapping.map, abc.Mapping):
        document = map_document(mapping.map)
    if len(inner) == 1 and document and document["models"]:
        return None
    if document is None and (mapping.map or len(inner) > 1 or not isinstance(sources[0], list)):
        return None
    inside = options["layout"] == "inline" or options["inline_below"] is not None
    return fillings(inner, candidates, sources[0], document, inside)


def _sharing(job: _Job, given: Given) -> set[str]:
    """Return the names of the caller's tensors in memory that are not alone in their bytes."""
    weights = job.sources[0] if job.sources else None
    if not isinstance(weights, list):
        return set()
    names = {tensor.name for tensor in weights}
    return sharing([*weights, *(each for each in given.tensors if each.name not in names)])


def _flat(how: SaveKeywords, which: Mapping, files: Layout) -> dict[str, Any]:
    """Return the options in the form that the C++ extension expects."""
    options: dict[str, Any] = {
        **flat(which),
        **flat(files),
        **quantize_options(how["quantize"]),
        **only(how, _PLAIN),
        "map": dict(which.map) if isinstance(which.map, abc.Mapping) else which.map,
        "learn_map": given_sources("learn_map", which.learn_map),
        "test_data": None if files.test_data is None else paths_of("test_data", files.test_data),
        "before_publish": getattr(how["progress"], "before_publish", None),
    }
    for name in ("data_dir", "transpose_weights", "base_dir"):  # each graph has its own base_dir
        del options[name]
    return options


_PLAIN = ("layout", "dtype", "overwrite", "verify", "fsync", "threads")
"""Keywords that are passed to the extension unchanged."""
_PLAN_ONLY = {"dry_run": True, "dedup": "storage", "before_publish": None, **NOT_QUANTIZED}
"""Options of a dry run that only determines where weights are stored, without reading them."""


def _named(
    model: Graph | abc.Mapping[str, Graph], path: StrPath | None
) -> tuple[StrPath | None, dict[str, Graph]]:
    """Return the target folder, and the models by file name."""
    if isinstance(model, abc.Mapping):
        return path, dict(model)
    folder, name = target_of(path)
    return folder, {name: model}


def _logged(report: SaveReport) -> SaveReport:
    if not report.dry_run and _log.isEnabledFor(logging.INFO):
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


def save_model_with_external_data(
    basepath: StrPath,
    model_location: str,
    initializer_location: str,
    torch_load_paths: Weights,
    onnx_model: Graph,
) -> None:
    """Save like the function of this name in onnxruntime and torch: one data file per tensor.

    An existing model is replaced; later saves write their data into `initializer_location`.N.

    Args:
        basepath: the folder of the model.
        model_location: the name of the model's file, such as "model.onnx".
        initializer_location: the name of the folder for the data, next to the model.
        torch_load_paths: the checkpoint, in any form that `weights` of `oe.save` takes.
        onnx_model: the graph, in any form that `oe.save` takes.

    Raises:
        Error: as `oe.save` raises it.
    """
    with collector_paused():
        given = given_models({model_location: onnx_model}, None, may_lack_data=True)
        sources = given_sources("torch_load_paths", torch_load_paths)
    options = {"layout": "per-tensor", "overwrite": True}
    _core.save(
        given.graphs, given.tensors, sources, None, basepath, initializer_location, None, options
    )
