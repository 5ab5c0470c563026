"""Reports on exports, including the origin of each initializer's values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .._base.meter import Step, Stepwise, screen
from .._base.notes import UNCHECKED, kind_of
from .._control_flow import Rewriting
from .._saving.reports import SavedModel, SaveReport
from ._skeleton import Skeleton, left_of

if TYPE_CHECKING:
    pass

PACKAGES = ("torch", "onnx", "onnx-ir", "onnxscript", "transformers", "onnx-external")
"""The packages whose versions a report states."""


@dataclass(frozen=True)
class Source:
    """The origin of an initializer's values."""

    origin: str
    """The origin: "checkpoint", "module" (the module's own weights), "init" (values that the module
    computed) or "constant" (from the trace)."""
    key: str | None = None
    """The key that filled the initializer; None if no key did."""
    recipe: list[Any] = field(default_factory=list)
    """The steps that make the initializer from the key's tensor, as in a map file."""


_GUARDS_SHOWN = 3
"""The maximum number of guards in the text of a report."""
_SHOWN = (UNCHECKED, "fixed-sizes", "changed-state")
"""The kinds of the notes in the text of a report."""


@dataclass
class ExportReport(Stepwise):
    """The report on an export."""

    path: str
    """The path of the model."""
    sources: dict[str, Source]
    """The origin of each initializer's values."""
    steps: list[Step]
    """The steps of the export, with their time and memory."""
    versions: dict[str, str]
    """The versions of the packages involved."""
    patches: list[str]
    """The changes that were made to torch and transformers for the trace."""
    checked: int
    """The number of input sets, including the example, on which the graph agrees with the
    module."""
    guards: list[str]
    """The assumptions of the trace about sizes, with the lines of code: "x.size()[1] > 6", or
    "words > 6" with a name from `dynamic_shapes`. An assumption that excludes a single size is left
    out if the graph was right for an input set of that size."""
    rewriting: Rewriting
    """The rewriting that made the export possible, with diffs, and branches that no set reached."""
    notes: list[str]
    """Remarks, such as on an unusual way of tracing, on sizes that are fixed because none was
    declared dynamic, or on why the graph was not checked."""
    left: dict[str, int]
    """The optimizations that would have needed the weights and were left out, with their number."""
    save: SaveReport
    """The report on the save, with the location of each tensor."""
    made_sets: int = 0
    """The number of sets among `checked` that were generated from the example, with other sizes."""

    @property
    def complete(self) -> bool:
        """True if every weight has its value; the same as `save.complete`."""
        return self.save.complete

    @property
    def verified(self) -> bool:
        """True if every written byte was read back; the same as `save.verified`."""
        return self.save.verified

    def __str__(self) -> str:
        """Return a one-line summary, followed by what was not compared.

        `repr()` returns the whole report.
        """
        told = f"{self.save}; input sets on which it was compared: {self.checked}"
        if self.made_sets:
            told += f" ({self.made_sets} of them made with other sizes)"
        told += "".join(f"; {note}" for note in self.notes if kind_of(note) in _SHOWN)
        told += "".join(f"; {note}" for note in self.rewriting.notes)
        if self.rewriting.changes:
            told += f"; rewritten functions: {len(self.rewriting.changes)}"
        if self.rewriting.unreached:
            told += f"; paths that no input set takes: {len(self.rewriting.unreached)}"
            told += "".join(f"\n  {each}" for each in self.rewriting.unreached)
        return screen((told + self._limits()).split("\n"), width=1_000)

    def _limits(self) -> str:
        """Describe the sizes for which the graph is valid, as limited by the trace."""
        shown = [f"\n  it holds for sizes with {each}" for each in self.guards[:_GUARDS_SHOWN]]
        more = len(self.guards) - len(shown)
        return "".join(shown) + (f"\n  and {more} more in report.guards" if more else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists."""
        parts = {
            name: value
            for name, value in vars(self).items()
            if name not in ("save", "sources", "steps", "rewriting")
        }
        parts["rewriting"] = self.rewriting.to_dict()
        sources = {name: asdict(source) for name, source in self.sources.items()}
        steps = [asdict(step) for step in self.steps]
        return {**parts, "sources": sources, "steps": steps, "save": self.save.to_dict()}


def sources_of(
    made: Skeleton, report: SaveReport | SavedModel, origin: str = "checkpoint"
) -> dict[str, Source]:
    """Return the origin of each initializer's values.

    Initializers that were filled from a key get the given `origin`.
    """
    found = {name: Source(kind) for name, kind in made.constants.items()}
    for tensor in report.tensors:
        if tensor.key is not None:
            found[tensor.slot] = Source(origin, tensor.key, tensor.recipe)
    return found


def left_in(made: Skeleton, report: SaveReport | SavedModel) -> dict[str, int]:
    """Return `Skeleton.left`, computed for the model that was saved."""
    return left_of(made.model, made.slots.keys() & {tensor.slot for tensor in report.tensors})
