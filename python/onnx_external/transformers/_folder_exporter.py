"""Plans the graphs of a folder in one float type, and compares them after they are traced."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from .._base.errors import InvalidArgumentError
from .._base.meter import Meter, versions
from .._folders.clients import Wanted
from .._folders.models import ENCODER, PROMPT, merged_name
from .._folders.preconditions import BFLOAT16
from .._folders.variants import Variant
from .._saving.reports import SaveReport
from .._saving.transposing import Learned
from ..torch._export_reports import PACKAGES, left_in, sources_of
from . import _genai, _transformers_js
from ._adapters import Source
from ._checking import CheckedGraphs, Judging, WrongPartError
from ._choosing import Choice
from ._compared import Folder
from ._crossing import crossed
from ._export_reports import ModelReport
from ._exporter import patches_of_transformers
from ._inputs import note_of_omitted, omitted
from ._kept_codes import note_on_codes, plain_config
from ._loading import Loaded
from ._merging import merged
from ._naming import forms
from ._packing import packed
from ._saving import Graph, Part, Saving
from ._tracing import fixed_dimensions, notes_of_fixed, notes_on_runtimes
from ._unseen import left_keys, note_on_keys
from ._widening import note_on_types

_FIXED_CACHE = (
    "dynamic=False: transformers.js generates text with a cache that grows, for which the graph "
    "needs dynamic dimensions; leave out dynamic=False, or leave transformers.js out of clients="
)


@dataclass
class FolderExporter:
    """Plans and compares the graphs of a model, and traces wrong graphs again."""

    given: Source
    """The folder from which the model is exported."""
    target: Path
    task: str | None
    options: dict[str, Any]
    """The options of oe.save."""
    variants: list[Variant]
    """The variants to save in this float type; the check uses graphs in floats."""
    choice: Choice
    made: Path
    """A folder for new files that will be copied next to the graphs."""
    wanted: Wanted = field(default_factory=Wanted)
    """The requirements of the programs that will open the folder."""
    checked: CheckedGraphs = field(default_factory=CheckedGraphs)
    loaded: Loaded = field(init=False)
    meter: Meter = field(init=False)
    computes: str | None = field(init=False)
    """The float type of the model before it is traced."""
    saves: Saving = field(init=False)
    planned: SaveReport | None = None
    """The plan of the save, if it was made before the check."""
    _notes: list[str] = field(default_factory=list)
    _graphs: dict[str, Graph] = field(default_factory=dict)
    """The graphs to save."""
    _learned: Learned = field(default_factory=Learned)
    """The plans of saves of these graphs."""
    _merged: Graph | None = None
    """The graph into which the decoder's graphs are merged, if any."""
    _crossed: Graph | None = None
    """The encoder that also returns keys and values for the decoder's cache, if any."""

    def __post_init__(self) -> None:
        """Inspect the model before it is traced.

        Raises:
            ExportError: a program that will open the folder does not support models of this type.
        """
        self.loaded, self.meter = self.choice.ways.tracing.loaded, self.choice.ways.tracing.meter
        self.computes = self.loaded.dtype
        if "transformers.js" in self.wanted.names:
            _transformers_js.refuse_decoder(self.loaded.model.config.model_type)

    def judge(self, check: bool | None) -> None:
        """Make the graphs to save, and replace those that do not agree with the model.

        If the save would fail, the error is raised before the check, from a plan if necessary.

        Raises:
            ExportError: a graph is wrong, and every way to export it was tried.
        """
        while True:
            self.prepare()
            with self.meter.step("plan"):
                needs_plan = self.saves.needs_plan(self.options)
                self.planned = self.saves.plan(self.options) if needs_plan else None
            try:
                self.checked = self._judging().judged(check, self.meter)
                break
            except WrongPartError as error:
                self.choice.again(error)
        if check is not False:
            self.choice.ways.prove(self.checked)

    def prepare(self) -> None:
        """Make the graphs to save from those that were traced, and the files next to them.

        Raises:
            ExportError: a program that will open the folder does not support the graphs.
            InvalidArgumentError: such a program needs dynamic dimensions.
        """
        self.choice.refuse_gaps()
        graphs = self._packed()
        self._crossed = self._merged = None
        if self.wanted.crosses and _genai.is_whisper(self.loaded.model.config, graphs):
            self._crossed = crossed(graphs[ENCODER], graphs[PROMPT])
            graphs[ENCODER] = self._crossed
        if self.wanted.merges:
            separate, graphs = graphs, merged(graphs, keeps_step=self._crossed is not None)
            if graphs.keys() != separate.keys():
                self._merged = graphs[merged_name(ENCODER in graphs)]
        self._graphs = graphs
        models = {name: graph.skeleton.model for name, graph in graphs.items()}
        config, file = self.loaded.model.config, self._file_name()
        file = str(PurePosixPath(self.wanted.place) / file)
        beside, self._notes = _genai.write(models, file, config, self.given.folder, self.made)
        if "transformers.js" in self.wanted.names:
            inputs = (value.name or "" for each in models.values() for value in each.graph.inputs)
            _transformers_js.refuse_decoder(config.model_type, inputs)
            if self._merged is not None and not self.choice.ways.tracing.dynamic:
                raise InvalidArgumentError(_FIXED_CACHE)
            beside += _transformers_js.files(self.given.folder, self.made)
        elif self.loaded.quantized:
            beside += plain_config(self.given.folder, self.target, self.made)
        self._learned = Learned()
        parts = [Part(graphs, each.suffix, each.quantize, self._learned) for each in self.variants]
        where = (self.wanted.place, self.wanted.apart)
        self.saves = Saving(
            self.loaded.weights, self.target, parts, beside, *where, source=self.given.folder
        )
        self.wanted.refuse_lacking(self.saves.beside)

    def _file_name(self) -> str:
        """Return the file name of the first variant's graph, for the case of a single graph."""
        if self.target.suffix == ".onnx" and not self.target.is_dir():
            return self.target.name
        return f"model{self.variants[0].suffix}.onnx"

    def _judging(self) -> Judging:
        folder_of = partial(
            Folder,
            source=self.given.folder,
            task=self.task,
            dtype=self.computes,
            inputs=self.choice.inputs,
            dynamic=self.choice.ways.tracing.dynamic,
            variant=self.given.variant,
        )
        plan = self.planned
        size = plan.bytes + plan.linked_bytes if plan else self.saves.weight_bytes()
        more = (self._merged, self._crossed)
        graphs = self._graphs if more == (None, None) else self.choice.graphs
        given = (self.loaded.weights, graphs, folder_of, size, self.options)
        return Judging(*given, *more, self._learned)

    def _packed(self) -> dict[str, Graph]:
        """Merge the query, key and value products of a single graph with sequence lengths.

        A merged matrix does not correspond to a key: other checkpoints and adapters cannot fill it
        by name, and it cannot keep the codes of a quantized checkpoint. So products are only merged
        for attention="lengths", the form for GPUs, where every node costs time.
        """
        graphs, tracing = dict(self.choice.graphs), self.choice.ways.tracing
        if len(graphs) > 1 or self.options["layout"] == "link" or self.loaded.quantized:
            return graphs
        if not tracing.optimize or not tracing.fusing.by_lengths or tracing.is_older:
            return graphs
        return {name: packed(each) for name, each in graphs.items()}

    def named(self, variant: Variant) -> list[str]:
        """Return the names of a variant's graphs."""
        return [f"{name}{variant.suffix}" for name in self._graphs]

    def report(self, report: SaveReport, copied: list[str]) -> ModelReport:
        """Return the report on an export, made from the report on its save.

        Args:
            report: the report on the save of the variants in this float type.
            copied: the files that were copied next to the graphs.
        """
        loaded, ways, models = self.loaded, self.choice.ways, report.models
        names = [name for variant in self.variants for name in self.named(variant)]
        saved = dict(zip(names, models, strict=True))
        skeletons = {
            f"{name}{variant.suffix}": graph.skeleton
            for variant in self.variants
            for name, graph in self._graphs.items()
        }
        inputs = {name: forms(each.model.graph.inputs) for name, each in skeletons.items()}
        untaken = omitted(loaded.model, inputs.values())
        left, first = left_keys(report, loaded.unused), self.variants[0]
        return ModelReport(
            path=str(self.saves.folder),
            model_class=type(loaded.model).__name__,
            dry_run=report.dry_run,
            graphs=saved,
            save=report,
            sources={name: sources_of(each, saved[name]) for name, each in skeletons.items()},
            unused_keys=[*loaded.unused, *left],
            copied=copied,
            steps=self.meter.steps,
            versions=versions(PACKAGES),
            patches=patches_of_transformers(),
            left={name: left_in(each, saved[name]) for name, each in skeletons.items()},
            fixed={name: fixed_dimensions(each) for name, each in skeletons.items()},
            inputs=inputs,
            outputs={name: forms(each.model.graph.outputs) for name, each in skeletons.items()},
            notes=[
                *self.given.notes,
                *([BFLOAT16] if loaded.model.dtype is torch.bfloat16 else []),
                *(note_on_types(loaded.narrow) if loaded.model.dtype is torch.float32 else []),
                *note_on_codes(first.quantize, loaded),
                *loaded.notes,
                *self.choice.notes,
                *note_on_keys(report, left, type(loaded.model).__name__),
                *(notes_of_fixed(skeletons) if ways.tracing.dynamic else []),
                *notes_on_runtimes(skeletons.values(), ways.tracing.opset_version),
                *note_of_omitted(loaded.model, untaken, self.choice.inputs),
                *self._notes,
                *self.saves.notes,
                *self.checked.notes,
                *ways.all_notes(),
            ],
            checked={f"{name}{first.suffix}": sets for name, sets in self.checked.sets.items()},
            chain=self.checked.chain,
            rewriting={f"{name}{first.suffix}": each for name, each in ways.done.items()},
            repeated=[f"{name}{first.suffix}" for name in sorted(ways.repeating.done)],
            omitted_inputs=untaken,
        )
