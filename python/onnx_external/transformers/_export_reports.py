"""What an export of a folder did, or would do."""

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
    """What an export of a folder did, or would do."""

    path: str
    """The folder that was written into."""
    model_class: str
    """The class of transformers."""
    dry_run: bool
    """True: nothing was written."""
    graphs: dict[str, SavedModel]
    """By name: "model", or "prefill" and "decode", or "encoder_model", "decoder_model" and
    "decoder_with_past_model"."""
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
    """By graph and name: the type and the dimensions ("int64[batch_size, sequence_length]")."""
    outputs: dict[str, dict[str, str]]
    """Likewise."""
    notes: list[str] = field(default_factory=list)
    """What of the folder is not in the graphs, such as the pooling of sentence-transformers, and
    why graphs were not checked."""
    checked: dict[str, int] = field(default_factory=dict)
    """By graph: input sets on which it gave what transformers' model gives."""
    chain: list[str] = field(default_factory=list)
    """The graphs that were run one behind the other, each on what those before it gave, and gave
    what transformers' model gives: "encoder_model.onnx", "decoder_model.onnx", ..."""
    rewriting: dict[str, Rewriting] = field(default_factory=dict)
    """By graph that was rewritten: `ExportReport.rewriting`."""
    repeated: list[str] = field(default_factory=list)
    """The graphs that were made by repeating the layers of a shallow model's."""
    variants: dict[str, list[str]] = field(default_factory=dict)
    """With `variants`: the graphs of each, which transformers.js calls so: "fp32", "q8", ..."""
    quality: dict[str, str] = field(default_factory=dict)
    """By graph of `variants` with codes: what it loses beside the graph in floats."""
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
