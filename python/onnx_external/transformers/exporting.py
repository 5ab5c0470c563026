"""oe.transformers.export."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from ..errors import ExportError, NotFoundError
from ..meter import Meter, Step, Stepwise, versions
from ..progress import Progress, shown
from ..reports import MemberReport, SaveReport, SetReport, members
from ..save import StrPath
from ..torch.converting import mend, one_subgraph_version
from ..torch.exporting import PACKAGES, Source, left_in, optimized, sources_of
from ..torch.skeleton import Skeleton, make_skeleton, quiet
from ..torch.untouched import ZeroProducts, has_no_data
from ..transposing import refuse_linked
from ..validation.folders import Folder
from .checking import Checked, Judging
from .dimensions import fix_bound_dimensions, keeping
from .inputs import plain_words, sample_inputs
from .loading import Loaded, load, told
from .saving import Graph, Saving, refuse_targets

__all__ = ["ModelReport", "export", "graph_modules"]


@dataclass
class ModelReport(Stepwise):
    """What an export of a folder did, or would do."""

    path: str
    """The folder that was written into."""
    model_class: str
    dry_run: bool
    graphs: dict[str, MemberReport]
    """By name: "model", or "prefill" and "decode", or "encoder", "prefill" and "decode"."""
    save: SaveReport | SetReport
    """Of all of them: they share their data files."""
    sources: dict[str, dict[str, Source]]
    """By graph and initializer: where its values came from."""
    unused_keys: list[str]
    """Keys that transformers does not load into this class."""
    copied: list[str]
    """Files of tokenizer and configuration that lie beside the model now."""
    steps: list[Step]
    versions: dict[str, str]
    patches: list[str]
    """What transformers.exporters replaced while it traced."""
    left: dict[str, dict[str, int]]
    """By graph: `ExportReport.left`."""
    fixed: dict[str, list[str]]
    """By graph: dimensions of its inputs that do not vary, such as "input_ids[1] = 8"."""
    notes: list[str] = field(default_factory=list)
    """What of the folder is not in the graphs, such as the pooling of sentence-transformers, and
    why graphs were not checked."""
    checked: dict[str, int] = field(default_factory=dict)
    """By graph: input sets on which it gave what transformers' model gives."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists."""
        sources = {
            graph: {name: asdict(source) for name, source in found.items()}
            for graph, found in self.sources.items()
        }
        graphs = {name: asdict(report) for name, report in self.graphs.items()}
        steps = [asdict(step) for step in self.steps]
        saved = {  # the graphs have the rest
            name: value
            for name, value in self.save.to_dict().items()
            if name not in ("models", "tensors")
        }
        parts = {"graphs": graphs, "sources": sources, "steps": steps, "save": saved}
        return {**vars(self), **parts}


def _exporter() -> Any:
    try:
        with quiet():
            from transformers.exporters.exporter_onnx import OnnxExporter

            level = transformers.logging.get_verbosity()
            transformers.logging.set_verbosity_error()
            try:
                return keeping(OnnxExporter)
            finally:
                transformers.logging.set_verbosity(level)
    except ImportError as error:
        raise ExportError(
            f"transformers {transformers.__version__} cannot export to ONNX: {error}; newer ones "
            "have transformers.exporters. oe.torch.export takes any module"
        ) from error


def _patches() -> list[str]:
    from transformers.exporters.utils import _PATCHES

    return sorted(
        {f"{owner}.{name}" for kind in ("dynamo", "onnx") for owner, name, _ in _PATCHES[kind]}
    )


@contextlib.contextmanager
def _told(what: str, way_out: str) -> Iterator[None]:
    """As told(); torch and the exporter, whose logger is none of transformers', are silent, too."""
    from transformers.exporters import exporter_dynamo

    logger = logging.getLogger(exporter_dynamo.__file__)  # the name that it has
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with quiet(), told(what, way_out):
            yield
    finally:
        logger.setLevel(level)


def graph_modules(
    model: Any, inputs: Mapping[str, Any] | None, dynamic: bool
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The graphs of a model: each a module and its inputs."""
    from transformers.exporters.utils import decompose_for_generation

    generates = model.can_generate()
    if inputs is not None:
        given = dict(inputs)
    else:
        what = f"{type(model).__name__}: no example inputs can be made of its config"
        with told(what, "give inputs={name: tensor}"):
            given = sample_inputs(model, generates)
    if not generates:
        return {"model": (model, given)}
    for settings in (model.config, model.generation_config):
        settings.use_cache = True  # else every step would compute the whole text again
    way_out = (
        "inputs={name: tensor} gives it other examples, and task='feature-extraction' takes the "
        "class that does not generate"
    )
    running = _told(f"{type(model).__name__}.generate() does not run", way_out)
    with running, ZeroProducts():
        words = {"logits_processor": [plain_words(model)], **given}
        several = dynamic and not model._is_stateful  # a state moves on by one token at a time
        found = decompose_for_generation(model, words, multi_token_decode=several)
    if model.config.is_encoder_decoder:
        encoder = model.get_encoder()
        names = (model.main_input_name, "attention_mask")
        found = {"encoder": (encoder, {n: given[n] for n in names if n in given}), **found}
    return dict(found)


def _skeleton(loaded: Loaded, module: Any, program: Any, optimize: bool) -> Skeleton:
    """The skeleton of one graph; `ties` stays empty, since the map has every slot."""

    def empty(tensor: Any) -> bool:
        return isinstance(tensor, torch.Tensor) and has_no_data(tensor)

    from transformers.exporters.utils import apply_patches

    keep = [name for name, _ in _tensors(module) if name not in _made_of(loaded, module)]
    with apply_patches("onnx"):
        return make_skeleton(program, empty, {}, keep, optimized if optimize else None)


def _tensors(module: Any) -> Iterator[tuple[str, Any]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _made_of(loaded: Loaded, module: Any) -> dict[str, Any]:
    """How the tensors of a module, which is a part of the model, are made, by its own names."""
    if module is loaded.model:
        return loaded.made
    by_tensor = {
        id(tensor): loaded.made[name]
        for name, tensor in _tensors(loaded.model)
        if name in loaded.made
    }
    return {
        name: by_tensor[id(tensor)] for name, tensor in _tensors(module) if id(tensor) in by_tensor
    }


def _graphs(
    loaded: Loaded, inputs: Mapping[str, Any] | None, dynamic: bool, optimize: bool, meter: Meter
) -> dict[str, Graph]:
    from transformers.exporters import OnnxConfig

    exporter = _exporter()
    with meter.step("inputs"):
        components = graph_modules(loaded.model, inputs, dynamic)
    found = {}
    for name, (module, given) in components.items():
        what = f"{type(module).__name__} ({name})"
        way_out = "dynamic=False or other inputs may help, and oe.torch.export takes any module"
        traced = _told(f"transformers cannot export {what}", way_out)
        with meter.step(f"trace {name}"), traced, torch.no_grad():
            shapes = _shapes(loaded.model, given) if dynamic else None
            config = OnnxConfig(dynamic=dynamic, optimize=False, dynamic_shapes=shapes)
            with one_subgraph_version():
                program = exporter.export(module, given, config).program
            mend(program)
            fix_bound_dimensions(program, exporter.exported)
        optimized_by = _told(f"torch cannot optimize {what}", "optimize=False leaves that out")
        with meter.step(f"optimize {name}"), optimized_by:
            made = _skeleton(loaded, module, program, optimize)
        if dynamic:
            _refuse_one_step(what, made)
        recipes = _made_of(loaded, module)
        found[name] = Graph(made, {slot: recipes[slot] for slot in made.slots})
    return found


def _shapes(model: Any, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Dimensions that vary, where transformers.exporters would not get them right.

    The code of models with a state loops over the text, or cuts it into pieces of a fixed length: a
    trace is right for one length only, and does not always say so.
    """
    if not getattr(model, "_is_stateful", False):
        return None
    from transformers.exporters import exporter_dynamo, utils

    exporter_dynamo.register_cache_pytrees_for_model(model)
    traced = {name: value for name, value in given.items() if name not in utils._OUTPUT_FLAGS}
    shapes = dict(exporter_dynamo.get_auto_dynamic_shapes(traced))
    rows = {0: torch.export.Dim.AUTO}
    return shapes | {name: rows for name, each in traced.items() if isinstance(each, torch.Tensor)}


def _refuse_one_step(what: str, made: Skeleton) -> None:
    """A cache that grows, and whose length the trace has fixed, would fit once."""
    outputs = {value.name: value for value in made.model.graph.outputs}
    for value in made.model.graph.inputs:
        longer = outputs.get(f"output.{(value.name or '').removeprefix('input.')}")
        if longer is None or value.shape is None or longer.shape is None:
            continue
        for place, (before, after) in enumerate(zip(value.shape, longer.shape, strict=True)):
            if isinstance(before, int) and isinstance(after, int) and before != after:
                raise ExportError(
                    f"{what}: the trace fixes {value.name}[{place}] to {before}, and a cache grows "
                    f"with each word, so the graph would run once; export the module without a "
                    "cache by oe.torch.export, or all of it for one size with dynamic=False"
                )


def _fixed(made: Skeleton) -> list[str]:
    """The fixed dimensions of what a caller gives; caches have such by nature."""
    return [
        f"{value.name}[{place}] = {dim}"
        for value in made.model.graph.inputs
        if value.name is not None and "." not in value.name and value.shape is not None
        for place, dim in enumerate(value.shape)
        if isinstance(dim, int)
    ]


def export(
    folder: StrPath,
    path: StrPath,
    task: str | None = None,
    dtype: str | None = None,
    dynamic: bool = True,
    *,
    inputs: Mapping[str, Any] | None = None,
    optimize: bool = True,
    dry_run: bool = False,
    check: bool | None = None,
    progress: Progress = None,
    **options: Any,
) -> ModelReport:
    """Export the model of a folder, without reading its weights into memory.

    Args:
        folder: config.json and weights, as save_pretrained() writes them.
        path: the folder to write into, or the model's file if it is one graph.
        task: e.g. "text-generation", or a class of transformers; by default the class that the
            config names.
        dtype: torch's name of the float type to compute in; by default the checkpoint's.
        dynamic: dimensions that the model allows to vary do.
        inputs: example inputs, for generate() if the model has it, else for forward().
        optimize: as for oe.torch.export().
        dry_run: trace, and report what would be written.
        check: run the graphs on ONNX Runtime before they are saved, on the example and on other
            sizes, and compare them with transformers' model and its weights. None: if onnxruntime
            is installed, and the weights have no more than 512 MiB. False: never.
        progress: as for oe.save().
        **options: of oe.save(), such as `layout`, `overwrite`, `transpose_weights` and `variant`
            ("fp16" takes model.fp16.safetensors).

    Raises:
        ExportError: transformers or torch cannot load or export the model, or a graph is wrong.
        MappingError: the checkpoint lacks tensors of the model.
        Error: everything else, as oe.save() raises it.
    """
    refuse_linked(options.get("transpose_weights"), options.get("layout"))
    source, target = Path(folder), Path(path)
    if not source.is_dir():
        raise NotFoundError(
            f"{source}: not a folder; export takes one with config.json and weights"
        )
    refuse_targets(source, target, bool(options.get("overwrite")))
    with shown(progress) as callback:
        meter = Meter(callback)
        with meter.step("load"):
            loaded = load(source, task, dtype, options.get("variant"))
        graphs = _graphs(loaded, inputs, dynamic, optimize, meter)
        saves = Saving(loaded.weights, target, graphs)
        options = {"unmatched": "skip", **options, "progress": callback or False}
        with meter.step("plan"):  # nothing is written unless all can be
            report = saves.plan(options)
        checked = Checked()
        if not dry_run:
            folder_of = partial(
                Folder,
                source=source,
                task=task,
                dtype=dtype,
                inputs=inputs,
                dynamic=dynamic,
                variant=options.get("variant"),
            )
            size = report.bytes + report.linked_bytes
            judging = Judging(loaded.weights, graphs, folder_of, size, options)
            checked = judging.judged(check, meter)
            with meter.step("save"):
                report = saves.save(options)
    saved = dict(zip(graphs, members(report), strict=True))
    return ModelReport(
        path=str(saves.folder),
        model_class=type(loaded.model).__name__,
        dry_run=dry_run,
        graphs=saved,
        save=report,
        sources={name: sources_of(graphs[name].skeleton, saved[name]) for name in graphs},
        unused_keys=loaded.unused,
        copied=saves.copied,
        steps=meter.steps,
        versions=versions(PACKAGES),
        patches=_patches(),
        left={name: left_in(graphs[name].skeleton, saved[name]) for name in graphs},
        fixed={name: _fixed(graph.skeleton) for name, graph in graphs.items()},
        notes=[*loaded.notes, *checked.notes],
        checked=checked.sets,
    )
