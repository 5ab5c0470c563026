"""The graphs of a folder of transformers, beside transformers' own model with its weights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from .._argument_types import path_of
from .._checkpoint import open_checkpoint
from .._errors import Error, InvalidArgumentError, NotFoundError, RunError
from .._folder_config import refuse_at_once
from .._meter import Meter
from .._options import StrPath
from .._packages import FOLDERS, require
from .._temporary import temporary_folder
from .chaining import Pass, passes
from .inputs import InputSet, given_by_name
from .precision import weight_type
from .references import ModuleReference

if TYPE_CHECKING:
    from ..transformers._decoders import Graphs
    from ..transformers._inputs import Inputs
    from ..transformers._tracing import Part

_MORE = 5
"""Words that the second set has more than the first; and it has one row more."""
_FEW = 2
"""Words of a short text."""

Graph = tuple[ModuleReference, list[InputSet], list[str]]
"""What a graph is compared with, on which sets, and what was left out."""


def is_transformers(path: Any) -> bool:
    """Return whether a path is a folder with a model of transformers."""
    return isinstance(path, (str, os.PathLike)) and Path(path, "config.json").is_file()


def _models(folder: Path) -> dict[str, Path]:
    """The graphs of a folder, in the order in which they run."""
    order = ["encoder", "prefill", "decode"]
    found = {path.stem: path for path in sorted(folder.glob("*.onnx"))}
    return dict(
        sorted(found.items(), key=lambda each: order.index(each[0]) if each[0] in order else -1)
    )


def has_models(folder: Path) -> bool:
    """Return whether a folder has graphs."""
    return any(folder.glob("*.onnx"))


def model_in(path: StrPath, call: str) -> str:
    """Return the path of a model: what is given, or of a folder the only one that is in it.

    Args:
        path: the model, or the folder.
        call: how callers give one, for the error: "oe.diagnose({}, ...)".

    Raises:
        InvalidArgumentError: the folder has several.
        NotFoundError: it has none.
    """
    path = path_of("model", path)
    if not os.path.isdir(path):
        return os.fspath(path)
    found = [os.path.join(path, each.name) for each in _models(Path(path)).values()]
    if not found:
        raise _no_model(Path(path))
    if len(found) > 1:
        raise InvalidArgumentError(
            f"{os.fspath(path)}: has several models: {', '.join(map(os.path.basename, found))}; "
            f"give one of them: {call.format(repr(found[0]))}"
        )
    return found[0]


def _no_model(folder: Path) -> NotFoundError:
    """The error, with what else the folder is, if that is known."""
    config = "" if is_transformers(folder) else ", and no config.json of transformers"
    known = "".join(f"; {text}" for _, text in _core.folder_facts(folder)[:1])
    return NotFoundError(f"{folder}: has no model (.onnx){config}{known}")


def _longer(given: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Other examples: one row more, and texts that are longer, or one picture more."""
    import torch

    pictures = _one_picture_more(given, model)
    if pictures is not None:
        return pictures
    most = getattr(model.config, "max_position_embeddings", None) or 1 << 30
    tensors = {name: each for name, each in given.items() if isinstance(each, torch.Tensor)}
    words = tensors.get("input_ids", tensors.get("inputs_embeds"))
    text = None if words is None else words.shape[:2]
    # The mask of a sound has the length of the sound, which stays.
    kept = {each.shape[:2] for each in tensors.values() if each.is_floating_point()} - {text}
    found = {}
    for name, value in given.items():
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            found[name] = value
            continue
        form = value.shape[:2]
        longer = form == text and "pixel" not in name
        longer |= value.dim() == 2 and not value.is_floating_point() and form not in kept
        value = torch.cat([value, value[:1]])
        if longer:
            more = max(0, min(_MORE, most - 4 - value.shape[1]))
            # What a mask says of the last word holds for those behind it.
            rest = value[:, -1:].repeat_interleave(more, 1) if "mask" in name else value[:, :more]
            value = torch.cat([value, rest], 1)
        found[name] = value
    return found


def _shorter(given: Mapping[str, Any]) -> dict[str, Any]:
    """Other examples: one row of two words, fewer than the code of a state may need at least."""
    import torch

    found = {}
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            value = value[-1:]
            if value.dim() == 2 and not value.is_floating_point():
                value = value[:, :_FEW]  # a mask that begins with a zero still does
        found[name] = value
    return found


def _one_picture_more(given: Mapping[str, Any], model: Any) -> dict[str, Any] | None:
    """Pictures of different sizes, for towers that take the patches of all pictures in one row.

    A text that comes with them gets as many places more. None if the inputs have no such form.
    """
    import torch

    name = next((each for each in given if each.endswith("grid_thw")), None)
    if name is None:
        return None
    grid, config = given[name], model.config
    side = getattr(getattr(config, "vision_config", config), "spatial_merge_size", 2)
    high = grid[-1:] + torch.tensor([[0, side, 0]])
    before, more = (int(each.prod(-1).sum()) for each in (grid, high))
    words = given.get("input_ids")
    longer = None if words is None else _with_places(words, config, more // side**2)
    if words is not None and longer is None:
        return None
    found = dict(given)
    for other, value in given.items():
        if other == name or not isinstance(value, torch.Tensor):
            continue
        if words is not None and value.shape[:2] == words.shape:
            found[other] = value[:, longer]
        elif value.shape[:1] == (before,):
            found[other] = value[torch.arange(before + more) % before]
    return {**found, name: torch.cat([grid, high])}


def _with_places(words: Any, config: Any, count: int) -> Any:
    """The places of a text, and then those of a picture more, with what stands around a picture.

    None if the text has several rows, or no picture.
    """
    import torch

    token = getattr(config, "image_token_id", None)
    places = [] if token is None else (words[0] == token).nonzero().flatten().tolist()
    if len(words) != 1 or not places:
        return None
    around = [[place] for place in (places[0] - 1, places[-1] + 1) if 0 <= place < words.shape[1]]
    start, end = around if len(around) == 2 else ([], [])
    return torch.tensor([*range(words.shape[1]), *start, *places[:1] * count, *end])


def example_graphs(
    model: Any,
    inputs: Inputs,
    dynamic: bool,
    graphs: Graphs | None = None,
) -> tuple[dict[str, dict[str, Part]], list[str]]:
    """Return the graphs of a model with its input sets, and what was left out.

    The sets are "example" and "longer", "shorter" for models with a state, and "prompt" and
    "longer prompt" for the one graph of a decoder.
    """
    from ..transformers._tracing import examples_of, graph_modules

    first = examples_of(model, inputs, dynamic)
    parts, notes = {"example": graph_modules(model, first, dynamic, graphs)}, []
    others = {"longer": _longer(first, model)}
    if getattr(model, "_is_stateful", False):
        others["shorter"] = _shorter(first)
    for name, each in others.items():
        try:
            parts[name] = graph_modules(model, each, dynamic, graphs)
        except Error as error:
            notes.append(f"{name} is left out: {error}")
    for title, name in (("prompt", "example"), ("longer prompt", "longer")):
        part = parts.get(name, {}).get("model")
        if part is not None and part.prompt is not None:
            parts[title] = {"model": part._replace(given=part.prompt, prompt=None)}
    return parts, notes


@dataclass
class Folder:
    """The graphs of a model, and where transformers' model is."""

    models: dict[str, Path]
    source: Path
    task: str | None
    dtype: str | None
    inputs: Inputs | None
    dynamic: bool = True
    exported: str | None = None
    variant: str | None = None
    computes: str | None = None
    """The type of the graphs' weights: without a dtype the reference is converted to it."""

    @cached_property
    def model(self) -> Any:
        """Transformers' model, with its weights.

        Raises:
            ExportError: transformers cannot load it.
        """
        from .transformers_reference import loaded

        return loaded(self.source, self.task, self.dtype or self.computes, self.variant)

    def passes(self) -> list[Pass]:
        """Return the runs of several graphs that make a text, one behind the other.

        Raises:
            ExportError: transformers' model does not run.
        """
        from ..transformers._tracing import examples_of

        given = examples_of(self.model, self._chosen(), self.dynamic)
        return passes(self.model, given, self.models, self.dynamic)

    def _chosen(self) -> Inputs:
        from ..transformers._inputs import inputs_of

        return inputs_of(self.model, self.source, self.inputs)

    def graphs(self) -> dict[str, Graph]:
        """Load transformers' model, and return what each graph is compared with.

        Raises:
            ExportError: transformers cannot load it, or it does not run.
            InvalidArgumentError: it has no part of a graph's name.
        """
        from .transformers_reference import TransformersReference

        model, inputs = self.model, self._chosen()
        graphs: Graphs = "two" if {"prefill", "decode"} & self.models.keys() else "one"
        parts, notes = example_graphs(model, inputs, self.dynamic, graphs)
        found: dict[str, Graph] = {}
        for name, path in self.models.items():
            graph = _graph(path)
            part = self._part_of(name, graph, parts["example"])
            if part is None:
                raise InvalidArgumentError(
                    f"{path}: {type(model).__name__} has no part of this name; it has "
                    f"{', '.join(parts['example'])}"
                )
            sets = [
                InputSet(title, partial(given_by_name, each[part].given), title != "example")
                for title, each in parts.items()
            ]
            kept = [value.name for value in graph.output]
            found[name] = (TransformersReference(parts["example"][part].module, kept), sets, notes)
        return found

    @staticmethod
    def _part_of(name: str, graph: Any, parts: Mapping[str, Part]) -> str | None:
        """The part that a graph is: by its name, else the only one with its inputs; or None."""
        from .transformers_reference import TransformersReference

        if name in parts or len(parts) == 1:
            return name if name in parts else next(iter(parts))
        taken = {each.name for each in graph.input}
        fits = []
        for other, part in parts.items():
            reference = TransformersReference(part.module, [])
            if {path for path, _ in reference.named_inputs(part.given)} == taken:
                fits.append(other)
        return fits[0] if len(fits) == 1 else None


def _folder_of(
    model: Any, against: Any, inputs: Any, task: str | None, dtype: str | None
) -> Folder:
    """Graphs that are there already."""
    path = Path(model)
    models = _models(path) if path.is_dir() else {path.stem: path}
    if not models:
        raise _no_model(path)
    source = Path(against if against is not None else path)
    computes = weight_type(*models.values())
    return Folder(models, source, task, dtype, inputs, not _static(models), computes=computes)


def graph_of(model: str, against: Any, inputs: Any, task: str | None, dtype: str | None) -> Graph:
    """Return what one graph is compared with."""
    refuse_at_once(against)
    folder = _folder_of(model, against, inputs, task, dtype)
    return folder.graphs()[Path(model).stem]


def refuse_other_inputs(inputs: Any) -> None:
    """Refuse inputs that are not given as a model of transformers takes them."""
    names = isinstance(inputs, (list, tuple)) and all(isinstance(each, str) for each in inputs)
    if inputs is not None and not isinstance(inputs, Mapping) and not names:
        raise InvalidArgumentError(
            "inputs: for a model of transformers these are names or a dict of tensors, as "
            "oe.transformers.export() takes them"
        )


def _graph(path: Path) -> Any:
    import onnx

    try:
        return onnx.load(path, load_external_data=False).graph
    except Exception as error:
        raise RunError(f"{path}: cannot be read: {error}") from error


def _static(models: Mapping[str, Path]) -> bool:
    """Whether no size of any graph varies."""
    return not any(
        dim.dim_param
        for path in models.values()
        for value in _graph(path).input
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
    """Yield the graphs of a folder; it is exported if it has none, or if an output is given.

    Args:
        model: the folder, or a graph.
        against: the folder of transformers' model; None: `model` itself.
        inputs: as oe.transformers.export() takes them.
        exporting: keywords of oe.transformers.export(), and `output`, its path; None: a temporary
            folder.
        meter: gets the export's steps.
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
            meter.steps += report.steps
            models = {name: Path(graph.model) for name, graph in report.graphs.items()}
            exported = str(target) if output else None
            dynamic, variant = options.get("dynamic", True), options.get("variant")
            yield Folder(models, path, task, dtype, inputs, dynamic, exported, variant)
        return
    if output is not None:
        raise InvalidArgumentError(f"output: {path} is no folder of transformers to export")
    if against is None:
        _refuse_without_weights(path)
    folder = _folder_of(model, against, inputs, task, dtype)
    folder.variant = options.get("variant")
    yield folder


def _refuse_without_weights(folder: Path) -> None:
    """Refuse graphs that an export made, which have no model of transformers beside them.

    Raises:
        InvalidArgumentError: there is none.
    """
    try:
        with open_checkpoint(folder):
            return
    except NotFoundError:
        raise InvalidArgumentError(
            f"{folder}: has graphs, and not the weights of transformers' model to compare them "
            f"with; give the folder from which it was exported: oe.validate({str(folder)!r}, "
            "'FOLDER')"
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

    # It is compared by whoever asked for it.
    return export(folder, target, task, dtype, inputs=inputs, check=False, **options)
