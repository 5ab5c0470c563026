"""Reports of a folder's export, done or planned."""

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
    """The report of a folder's export, done or planned."""

    path: str
    """The folder that was written into."""
    model_class: str
    """The class of transformers."""
    dry_run: bool
    """True: nothing was written."""
    graphs: dict[str, SavedModel]
    """The graphs by name: "model", or "prefill" and "decode", or "encoder_model", "decoder_model"
    and "decoder_with_past_model"."""
    save: SaveReport
    """The report of the save of all graphs, which share their data files."""
    sources: dict[str, dict[str, Source]]
    """The origin of each initializer's values, by graph."""
    unused_keys: list[str]
    """Keys that no graph has: those that transformers does not load into this class, and those that
    it loads and the graphs do not use, which a note names."""
    copied: list[str]
    """Files of tokenizer and configuration that are beside the model now."""
    steps: list[Step]
    """The steps, with their time and memory."""
    versions: dict[str, str]
    """The versions of the packages involved."""
    patches: list[str]
    """The replacements by transformers.exporters during the traces."""
    left: dict[str, dict[str, int]]
    """`ExportReport.left`, by graph."""
    fixed: dict[str, list[str]]
    """The fixed dimensions of the inputs, such as "input_ids[1] = 8", by graph."""
    inputs: dict[str, dict[str, str]]
    """The type and the dimensions of inputs ("int64[batch_size, sequence_length]"), by graph and
    name."""
    outputs: dict[str, dict[str, str]]
    """The type and the dimensions of outputs, by graph and name."""
    notes: list[str] = field(default_factory=list)
    """Remarks on parts of the folder that are not in the graphs, such as the pooling of
    sentence-transformers, and why graphs were not checked."""
    checked: dict[str, int] = field(default_factory=dict)
    """The number of input sets on which each graph agreed with transformers' model."""
    chain: list[str] = field(default_factory=list)
    """The graphs that were run one after the other on each other's outputs, and agreed with
    transformers' model: "encoder_model.onnx", "decoder_model.onnx", ..."""
    rewriting: dict[str, Rewriting] = field(default_factory=dict)
    """`ExportReport.rewriting`, by graph that was rewritten."""
    repeated: list[str] = field(default_factory=list)
    """The graphs that were made by repeating the layers of a shallow model's."""
    variants: dict[str, list[str]] = field(default_factory=dict)
    """With `variants`: the graphs of each, by the names of transformers.js: "fp32", "q8", ..."""
    quality: dict[str, str] = field(default_factory=dict)
    """The loss of each graph of `variants` with codes, relative to the graph in floats."""
    omitted_inputs: list[str] = field(default_factory=list)
    """Tensors that forward() takes and no graph does, such as `position_ids` and `labels`."""

    def __str__(self) -> str:
        """Return graphs, inputs, outputs and notes on one screen; `repr()` returns everything."""
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
