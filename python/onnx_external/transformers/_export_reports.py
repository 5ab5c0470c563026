"""Reports on the export of a folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .._base.meter import Step, Stepwise, screen
from .._control_flow import Rewriting
from .._saving.reports import SavedModel, SaveReport
from ..torch._export_reports import Source
from ._naming import listed


@dataclass
class ModelReport(Stepwise):
    """The report on the export of a folder, carried out or planned."""

    path: str
    """The folder into which the model was written."""
    model_class: str
    """The transformers class of the model."""
    dry_run: bool
    """True if nothing was written."""
    graphs: dict[str, SavedModel]
    """The graphs by name: "model", or "prefill" and "decode", or "encoder_model", "decoder_model"
    and "decoder_with_past_model"."""
    save: SaveReport
    """The report on the save of all graphs, which share their data files."""
    sources: dict[str, dict[str, Source]]
    """The origin of each initializer's values, by graph."""
    unused_keys: list[str]
    """Keys that no graph uses. A note lists those of them that transformers loads into this
    class."""
    copied: list[str]
    """The tokenizer and configuration files that were copied next to the model."""
    steps: list[Step]
    """The steps of the export, with their time and memory."""
    versions: dict[str, str]
    """The versions of the packages involved."""
    patches: list[str]
    """The functions that transformers.exporters replaces during traces."""
    left: dict[str, dict[str, int]]
    """The optimizations that were left out of each graph, as in `ExportReport.left`."""
    fixed: dict[str, list[str]]
    """The fixed dimensions of the inputs, such as "input_ids[1] = 8", by graph."""
    inputs: dict[str, dict[str, str]]
    """The types and dimensions of inputs, such as "int64[batch_size, sequence_length]", by graph
    and name."""
    outputs: dict[str, dict[str, str]]
    """The types and dimensions of outputs, by graph and name."""
    notes: list[str] = field(default_factory=list)
    """Remarks on parts of the folder that are not in the graphs, such as the pooling of
    sentence-transformers, and why graphs were not checked."""
    checked: dict[str, int] = field(default_factory=dict)
    """The number of input sets on which each graph agreed with transformers' model."""
    chain: list[str] = field(default_factory=list)
    """The graphs that were run in order, each on the outputs of the graphs before it, and that
    agreed with transformers' model: "encoder_model.onnx", "decoder_model.onnx", ..."""
    rewriting: dict[str, Rewriting] = field(default_factory=dict)
    """`ExportReport.rewriting` of the graphs that were rewritten, by name."""
    repeated: list[str] = field(default_factory=list)
    """The graphs that were made by repeating the layers of a model with fewer layers."""
    variants: dict[str, list[str]] = field(default_factory=dict)
    """With `variants`: the graphs of each variant, by its name in transformers.js, such as "q8"."""
    quality: dict[str, str] = field(default_factory=dict)
    """The loss of each quantized graph of `variants`, relative to the graph in floats."""
    omitted_inputs: list[str] = field(default_factory=list)
    """Tensors that forward() takes but no graph does, such as `position_ids` and `labels`."""

    def __str__(self) -> str:
        """Return graphs, inputs, outputs and notes, shortened to one screen."""
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
        """Return the report as plain dicts and lists."""
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
