"""Saves the graphs of a model in all requested variants, and reports on them together.

Each float type has its own trace, because the code of a model depends on it: in float16, for
example, it computes norms in float32. Quantized variants are saves of the graphs in floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from .._base.errors import ExportError
from .._base.meter import Meter
from .._comparing.branches import Branch, branches, is_merged
from .._comparing.checked_runs import on_cpu
from .._comparing.quality import Limits, QualitySums
from .._comparing.running import Session
from .._comparing.values import is_float
from .._folders.models import MERGED, pair_names
from .._folders.variants import Variant
from .._saving.reports import SaveReport, on_models
from . import _transformers_js
from ._checking import CheckedGraphs
from ._export_reports import ModelReport
from ._folder_exporter import FolderExporter
from ._saving import Saving


@dataclass
class Exports:
    """The exports of a model, one for each float type.

    Args:
        exporters: the exporters, whose graphs have been checked.
        has_names: True if variants were requested by name.
        meter: measures the steps.
    """

    exporters: list[FolderExporter]
    has_names: bool
    meter: Meter
    quality: dict[str, str] = field(default_factory=dict)
    """The loss of each quantized graph, as a sentence."""
    _notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Combine the saves of all exporters into one save."""
        self._saves = Saving.of_all([each.saves for each in self.exporters])

    def save(self, dry_run: bool) -> SaveReport:
        """Save all graphs and the files next to them, or return the plan of a dry run.

        Args:
            dry_run: write nothing.

        Raises:
            ExportError: a quantized graph returns NaN or infinity.
            RunError: ONNX Runtime cannot load a quantized graph.
        """
        first, *others = self.exporters
        planned = first.planned
        has_counts = "transformers.js" in first.wanted.names
        if dry_run:
            with self.meter.step("plan"):
                planned = self._saves.plan(first.options)
        elif has_counts and others:
            planned = self._saves.plan(first.options)
        if has_counts and planned is not None:
            names = [variant.client_name for variant in self._variants()]
            counts = _transformers_js.data_files(planned)
            _transformers_js.settle(first.made, names[0], counts, self._saves.folder)
            self._notes += _transformers_js.notes_on_size(planned)
        if dry_run and planned is not None:
            return planned
        with self.meter.step("save"):
            return self._saves.save(first.options, self._compare)

    def _variants(self) -> list[Variant]:
        return [variant for each in self.exporters for variant in each.variants]

    def _compare(self, folder: Path) -> None:
        """Compare quantized graphs with the graphs in floats, before they are moved into place."""
        for exporter in self.exporters:
            for variant in exporter.variants:
                if variant.quantize is not None and exporter.checked.examples:
                    for name in exporter.named(variant):
                        self._compare_one(folder / f"{name}.onnx", variant, exporter.checked)

    def _compare_one(self, path: Path, variant: Variant, checked: CheckedGraphs) -> None:
        name = path.stem.removesuffix(variant.suffix)
        session = on_cpu(path)
        runs: Mapping[str, Session | Branch] = {name: session}
        if is_merged(session):
            runs = branches(session, *pair_names(name == MERGED))
        sums = QualitySums("the example", Limits())
        for graph, run in runs.items():
            example = checked.examples.get(graph)
            if example is None:
                continue
            found = run.run(run.feed(example.given, "example"), "example")
            for output, got in found.items():
                want = example.found.get(output)
                if want is None:
                    continue
                _refuse_no_numbers(path.name, output, got, want)
                sums.add(output, got, want)
        self.quality[path.stem] = sums.found().sentence

    def report(self, saved: SaveReport) -> ModelReport:
        """Return the report on all graphs."""
        models = list(saved.models)
        found: list[ModelReport] = []
        for exporter in self.exporters:
            names = [name for variant in exporter.variants for name in exporter.named(variant)]
            part = on_models(saved, models[: len(names)])
            del models[: len(names)]
            found.append(exporter.report(part, self._saves.copied))
        report = _joined(found)
        report.save, report.quality = saved, self.quality
        report.notes += self._notes
        if self.has_names:
            report.variants = {
                variant.client_name: exporter.named(variant)
                for exporter in self.exporters
                for variant in exporter.variants
            }
        return report


def _refuse_no_numbers(name: str, output: str, got: Any, want: Any) -> None:
    """Raise an error if a quantized graph returns NaN or infinity but the float graph does not."""
    if is_float(want) and is_float(got) and got.shape == want.shape:
        if (np.isfinite(want) & ~np.isfinite(got)).any():
            raise ExportError(
                f"{name}: returns NaN or infinity in {output} for the example, which the graph in "
                "floats does not; leave this variant out"
            )


def _joined(reports: list[ModelReport]) -> ModelReport:
    """Combine the reports on several exports into one."""
    first, *rest = reports
    for other in rest:
        for each in fields(ModelReport):
            one, two = getattr(first, each.name), getattr(other, each.name)
            if isinstance(one, dict):
                setattr(first, each.name, {**one, **two})
            elif each.name in ("notes", "repeated"):
                setattr(first, each.name, [*one, *(line for line in two if line not in one)])
    return first
