"""Reports of exports, with the origin of each initializer's values."""

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
"""The packages involved in an export."""


@dataclass(frozen=True)
class Source:
    """The origin of an initializer's values."""

    origin: str
    """ "checkpoint", "module" (its own weights), "init" (the module computed it) or "constant" (of
    the trace)."""
    key: str | None = None
    """The key that filled it; None if none did."""
    recipe: list[Any] = field(default_factory=list)
    """The steps that made it from the key, as in a map file."""


_GUARDS_SHOWN = 3
"""The number of guards in the text of a report."""
_SHOWN = (UNCHECKED, "other-opset", "fixed-sizes", "changed-state")
"""The kinds of the notes in it."""


@dataclass
class ExportReport(Stepwise):
    """The report of an export."""

    path: str
    """The model's file."""
    sources: dict[str, Source]
    """The origin of each initializer's values."""
    steps: list[Step]
    """The steps, with their time and memory."""
    versions: dict[str, str]
    """The versions of the packages involved."""
    patches: list[str]
    """The changes to torch and transformers while the module was traced."""
    checked: int
    """The number of input sets, including the example, on which the graph agrees with the
    module."""
    guards: list[str]
    """Assumptions of the trace about sizes, such as "x.size()[1] > 6", or "words > 6" if
    `dynamic_shapes` calls it so, with the line of the code. One that rules out a single size is
    left out if the graph was right for a set of that size."""
    rewriting: Rewriting
    """The rewriting that made the export possible: diffs, and branches that no set reached."""
    notes: list[str]
    """Remarks: an unusual way of tracing, all sizes fixed because none was declared dynamic, why
    the graph was not checked."""
    left: dict[str, int]
    """Optimizations that need the weights, which the save did not do, and their number."""
    save: SaveReport
    """The report of the save, with the place of each tensor."""
    made_sets: int = 0
    """The number of sets among `checked` that were generated: the example with other sizes."""

    @property
    def complete(self) -> bool:
        """True if every weight has its value, as `save.complete`."""
        return self.save.complete

    @property
    def verified(self) -> bool:
        """True if every byte that was written was read back, as `save.verified`."""
        return self.save.verified

    def __str__(self) -> str:
        """Return a one-line summary and what was not compared; `repr()` returns everything."""
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
        """Return the sizes for which the graph is valid, as far as the trace has limited them."""
        shown = [f"\n  it holds for sizes with {each}" for each in self.guards[:_GUARDS_SHOWN]]
        more = len(self.guards) - len(shown)
        return "".join(shown) + (f"\n  and {more} more in report.guards" if more else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists."""
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
    """Return the origin of each initializer's values; `origin` is that of the filled ones."""
    found = {name: Source(kind) for name, kind in made.constants.items()}
    for tensor in report.tensors:
        if tensor.key is not None:
            found[tensor.slot] = Source(origin, tensor.key, tensor.recipe)
    return found


def left_in(made: Skeleton, report: SaveReport | SavedModel) -> dict[str, int]:
    """Return `Skeleton.left`, computed for the saved model."""
    return left_of(made.model, made.slots.keys() & {tensor.slot for tensor in report.tensors})
