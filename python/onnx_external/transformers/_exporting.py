"""oe.transformers.export."""

from __future__ import annotations

import contextlib
from collections import abc
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from .. import _core
from .._base.argument_types import checks_types, of_class
from .._base.errors import InvalidArgumentError
from .._base.meter import Meter, Step, Stepwise, screen, versions
from .._base.options import (
    FloatType,
    Layout,
    LayoutName,
    Mapping,
    QuantizeArgument,
    StrPath,
    quantize_options,
)
from .._base.packages import FOLDERS, require
from .._base.progress import Progress, shown
from .._base.temporary import temporary_folder
from .._control_flow import Rewriting, one_thread
from .._folders.config import require_folder
from .._folders.preconditions import (
    BFLOAT16,
    model_folders,
    note_of_dtype,
    refuse_inline,
    refuse_targets,
    warn,
)
from .._saving.reports import SavedModel, SaveReport
from .._saving.transposing import refuse_linked
from .._tracing.process import process_kept
from ..torch._export_reports import PACKAGES, Source, left_in, sources_of
from ..torch._rewritten import Rewrite
from . import _genai
from ._adapters import merged
from ._checking import CheckedGraphs, Judging, WrongPartError
from ._choosing import Choice
from ._compared import Folder
from ._decoders import Graphs
from ._exporter import patches_of_transformers
from ._inputs import check_inputs, fewer, inputs_of, note_of_omitted, omitted
from ._loading import load
from ._naming import forms, listed
from ._rewritten import FolderWays
from ._saving import Saving
from ._tracing import Tracing, fixed_dimensions, notes_of_fixed
from ._unseen import left_keys, note_on_keys
from ._widening import note_on_types


@dataclass
class ModelReport(Stepwise):
    """What an export of a folder did, or would do."""

    path: str
    """The folder that was written into."""
    model_class: str
    """The class of transformers."""
    dry_run: bool
    """True: nothing was written."""
    graphs: dict[str, SavedModel]
    """By name: "model", or "prefill" and "decode", or "encoder", "prefill" and "decode"."""
    save: SaveReport
    """Of all of them: they share their data files."""
    sources: dict[str, dict[str, Source]]
    """By graph and initializer: where its values came from."""
    unused_keys: list[str]
    """Keys that no graph has: those that transformers does not load into this class, and those that
    it loads and the graphs do not use, of which a note tells."""
    copied: list[str]
    """Files of tokenizer and configuration that lie beside the model now."""
    steps: list[Step]
    """What was done, with its time and memory."""
    versions: dict[str, str]
    """Of the packages that took part."""
    patches: list[str]
    """What transformers.exporters replaced while it traced."""
    left: dict[str, dict[str, int]]
    """By graph: `ExportReport.left`."""
    fixed: dict[str, list[str]]
    """By graph: dimensions of its inputs that do not vary, such as "input_ids[1] = 8"."""
    inputs: dict[str, dict[str, str]]
    """By graph and name: the type and the dimensions, such as "int64[batch, sequence]"."""
    outputs: dict[str, dict[str, str]]
    """Likewise."""
    notes: list[str] = field(default_factory=list)
    """What of the folder is not in the graphs, such as the pooling of sentence-transformers, and
    why graphs were not checked."""
    checked: dict[str, int] = field(default_factory=dict)
    """By graph: input sets on which it gave what transformers' model gives."""
    chain: list[str] = field(default_factory=list)
    """The graphs that were run one behind the other, each on what those before it gave, and gave
    what transformers' model gives: "encoder.onnx", "prefill.onnx", "decode.onnx", ..."""
    rewriting: dict[str, Rewriting] = field(default_factory=dict)
    """By graph that was rewritten: `ExportReport.rewriting`."""
    repeated: list[str] = field(default_factory=list)
    """The graphs that were made by repeating the layers of a shallow model's."""
    omitted_inputs: list[str] = field(default_factory=list)
    """Tensors that forward() takes and no graph does, such as `position_ids` and `labels`."""

    def __str__(self) -> str:
        """Return a screen: the graphs, their inputs and outputs, notes; `repr()` has all of it."""
        told = [f"{self.model_class}: {self.save}"]
        for name in self.graphs:
            told.append(f"{name}: compared on {self.checked.get(name, 0)} input sets")
            told.append(f"  takes {listed(self.inputs[name])}")
            told.append(f"  gives {listed(self.outputs[name])}")
            changes = self.rewriting[name].changes if name in self.rewriting else ()
            told += [f"  rewritten functions: {len(changes)}"] if changes else []
        told += [f"{self.model_class} also takes {', '.join(self.omitted_inputs)}"] * bool(
            self.omitted_inputs
        )
        return screen([*told, *(f"note: {each}" for each in self.notes)])

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
        rewriting = {name: each.to_dict() for name, each in self.rewriting.items()}
        parts = {"graphs": graphs, "sources": sources, "steps": steps, "save": saved}
        parts["rewriting"] = rewriting
        return {**vars(self), **parts}


@checks_types
def export(
    folder: StrPath,
    path: StrPath,
    task: str | None = None,
    dtype: FloatType | None = None,
    dynamic: bool = True,
    *,
    inputs: abc.Mapping[str, Any] | abc.Sequence[str] | None = None,
    variant: str | None = None,
    layout: LayoutName = "single",
    quantize: QuantizeArgument = None,
    overwrite: bool = False,
    verify: bool = True,
    fsync: bool = True,
    dry_run: bool = False,
    threads: int = 0,
    progress: Progress = None,
    mapping: Mapping | None = None,
    files: Layout | None = None,
    optimize: bool = True,
    check: bool | None = None,
    repeat: bool = True,
    rewrite: Rewrite = "auto",
    asserts: Literal["omit", "refuse"] = "omit",
    max_iterations: int | None = None,
    graphs: Graphs | None = None,
    base: StrPath | None = None,
) -> ModelReport:
    """Export the model of a folder, without reading its weights into memory.

    ```python
    oe.transformers.export("llama/", "out")
    ```

    Args:
        folder: config.json and weights, as save_pretrained() writes them; or an adapter of peft
            (LoRA), which is merged into its base.
        path: the folder to write into, or the model's file if it is one graph.
        task: e.g. "text-generation", or a class of transformers; by default the class that the
            config names.
        dtype: torch's name of the float type to compute in, to which weights are converted while
            they are written. None: the checkpoint's; for bfloat16, which ONNX Runtime lacks on a
            CPU, float32, and the weights stay as they are.
        dynamic: dimensions that the model allows to vary do. False: all are the examples'.
        inputs: the inputs of the graph, those of generate() if the model has it, else of forward():
            names, of which examples are made, or a dict of examples. None: what the folder's
            tokenizer or processor gives, and what forward() has a default value for.
        variant: which weights are read: "fp16" takes model.fp16.safetensors.
        layout: as for oe.save(): "single", "per-tensor", "shards", "inline" or "link"; with "link",
            `path` is `folder` or above.
        quantize: as for oe.save(): how matrices become codes, after the check of the floats.
        overwrite: replace what is there.
        verify: read everything back and compare every byte before the model appears.
        fsync: wait until the disk has it all.
        dry_run: trace, and report what would be written.
        threads: the most threads that a save uses; 0 means one per CPU.
        progress: as for oe.save(); the steps before a save are told with sizes of 0.
        mapping: as for oe.save(), without `map`, which the export makes. None:
            `oe.Mapping(unmatched="skip")`, since other classes may have other keys.
        files: as for oe.save(): what the files are called and how they are made.
        optimize: run torch's optimizer on the graphs. Names and shapes of weights stay.
        check: run the graphs on ONNX Runtime before they are saved, on the example and on other
            sizes, and compare them with transformers' model and its weights. None: if onnxruntime
            is installed, and the weights have no more than 512 MiB. False: never.
        repeat: trace a model with few layers in the place of a deep one, and repeat them in the
            graph, where it is proved that this gives the same. False: trace all layers.
        rewrite: as for oe.torch.export(); the code is run on a small model of the same class, so
            that no weights are read. So are `asserts` and `max_iterations`.
        asserts: as for oe.torch.export().
        max_iterations: as for oe.torch.export().
        graphs: "one": a decoder becomes one graph, which reads a prompt if its cache is empty;
            "two": prefill and decode. None: one, unless its code treats an empty cache otherwise.
        base: the folder of an adapter's base, if adapter_config.json does not lead to it.

    Raises:
        RewriteError: a test or a loop has no graph; the message names its line.
        ExportError: transformers or torch cannot load or export the model, or a graph is wrong.
        MappingError: the checkpoint lacks tensors of the model.
        Error: everything else, as oe.save() raises it. Nothing half-written stays.
    """
    options: dict[str, Any] = {
        "layout": layout,
        "variant": variant,
        "overwrite": overwrite,
        "verify": verify,
        "fsync": fsync,
        "threads": threads,
        "mapping": of_class("mapping", Mapping, mapping or Mapping(unmatched="skip")),
        "files": of_class("files", Layout, files),
    }
    refuse_linked(options["files"].transpose_weights, layout)
    _core.check_save_options({"layout": layout, **quantize_options(quantize)})
    if options["mapping"].map is not None:
        raise InvalidArgumentError(
            "mapping: the export knows which key is which weight; leave map away"
        )
    check_inputs(inputs)
    source, target = Path(folder), Path(path)
    require_folder(source)
    require("the export of a folder", *FOLDERS)
    folders = model_folders(source, base)
    refuse_inline(folders[0], layout, graphs, task)
    refuse_targets(folders, target, graphs, overwrite, dry_run)
    warn(note_of_dtype(dtype))
    with one_thread, process_kept(), contextlib.ExitStack() as stack:
        callback = stack.enter_context(shown(progress))
        made = stack.enter_context(temporary_folder())
        meter = Meter(callback)
        with meter.step("load"):
            given = stack.enter_context(merged(source, base, target, options))
            source, options["variant"] = given.folder, given.variant
            loaded = load(source, task, dtype, given.variant)
            computes = loaded.dtype
        tracing = Tracing(loaded, dynamic, optimize, meter)
        chosen = inputs_of(loaded.model, source, inputs)
        ways = FolderWays(tracing, chosen, rewrite, asserts, max_iterations, repeat)
        choice = Choice(ways, chosen, graphs, None if inputs else fewer(chosen))
        choice.trace()
        options["progress"] = callback or False
        checked = CheckedGraphs()
        while True:
            choice.refuse_gaps()
            models = {name: graph.skeleton.model for name, graph in choice.graphs.items()}
            config, file = loaded.model.config, _file_name(target)
            beside, genai_notes = _genai.write(models, file, config, source, made)
            saves = Saving(loaded.weights, target, choice.graphs, beside)
            with meter.step("plan"):  # nothing is written unless all can be
                report = saves.plan(options | {"quantize": quantize})
            if dry_run:
                break
            folder_of = partial(
                Folder,
                source=source,
                task=task,
                dtype=computes,
                inputs=choice.inputs,
                dynamic=dynamic,
                variant=given.variant,
            )
            size = report.bytes + report.linked_bytes
            judging = Judging(loaded.weights, choice.graphs, folder_of, size, options)
            try:
                checked = judging.judged(check, meter)
                break
            except WrongPartError as error:
                choice.again(error)
        if not dry_run:
            if check is not False:
                choice.ways.prove(checked)
            with meter.step("save"):
                report = saves.save(options | {"quantize": quantize})
    traced, ways = choice.graphs, choice.ways
    inputs_by_graph = {
        name: forms(graph.skeleton.model.graph.inputs) for name, graph in traced.items()
    }
    untaken = omitted(loaded.model, inputs_by_graph.values())
    saved = dict(zip(traced, report.models, strict=True))
    left = left_keys(report, loaded.unused)
    return ModelReport(
        path=str(saves.folder),
        model_class=type(loaded.model).__name__,
        dry_run=dry_run,
        graphs=saved,
        save=report,
        sources={name: sources_of(traced[name].skeleton, saved[name]) for name in traced},
        unused_keys=[*loaded.unused, *left],
        copied=saves.copied,
        steps=meter.steps,
        versions=versions(PACKAGES),
        patches=patches_of_transformers(),
        left={name: left_in(traced[name].skeleton, saved[name]) for name in traced},
        fixed={name: fixed_dimensions(graph.skeleton) for name, graph in traced.items()},
        inputs=inputs_by_graph,
        outputs={name: forms(graph.skeleton.model.graph.outputs) for name, graph in traced.items()},
        notes=[
            *given.notes,
            *([BFLOAT16] if loaded.model.dtype is torch.bfloat16 else []),
            *note_on_types(loaded.narrow),
            *loaded.notes,
            *choice.notes,
            *note_on_keys(report, left, type(loaded.model).__name__),
            *(notes_of_fixed({name: each.skeleton for name, each in traced.items()}) * dynamic),
            *note_of_omitted(loaded.model, untaken, choice.inputs),
            *genai_notes,
            *checked.notes,
            *ways.all_notes(),
        ],
        checked=checked.sets,
        chain=checked.chain,
        rewriting=ways.done,
        repeated=sorted(ways.repeating.done),
        omitted_inputs=untaken,
    )


def _file_name(target: Path) -> str:
    """What the graph is called if there is one only."""
    return target.name if target.suffix == ".onnx" and not target.is_dir() else "model.onnx"
