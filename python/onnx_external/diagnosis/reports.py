"""What a diagnosis found."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
from typing import Any

from ..validation.comparing import Comparison
from ..validation.reports import finite
from .picture import picture

__all__ = ["Diagnosis", "ModuleDiagnosis", "Status"]


class Status(enum.Flag):
    """What is known about a module."""

    NONE = 0
    OK = enum.auto()
    """Its piece gives what the module gave."""
    DISC = enum.auto()
    """Its piece gives something else."""
    FAIL = enum.auto()
    """Its piece cannot be cut, loaded or run."""
    NOINPUT = enum.auto()
    """There was nothing to run or compare."""
    CHILDC = enum.auto()
    """The rest holds with modules inside of it replaced: by what they gave in the reference, or by
    custom operators."""
    CUSTOM = enum.auto()
    """It was replaced, so that the modules around it could be judged."""

    def __str__(self) -> str:
        """Return the names, e.g. "DISC CHILDC"."""
        return " ".join(each.name or "" for each in self)


WRONG = Status.DISC | Status.FAIL


@dataclass
class ModuleDiagnosis:
    """One module."""

    name: str
    """Empty for the model itself."""
    cls: str
    status: Status
    step: str = ""
    """The step that failed, of FAIL."""
    reason: str = ""
    """Of FAIL and NOINPUT."""
    order: int = -1
    """When it first returned, among all modules."""
    sets: list[list[Comparison]] = field(default_factory=list)
    """Its outputs, by input set."""

    @property
    def worst(self) -> Comparison | None:
        """The output with the largest share of elements that do not agree."""
        every = [each for compared in self.sets for each in compared]
        return max(every, key=lambda each: (each.share, each.max_abs or 0.0), default=None)


@dataclass
class Diagnosis:
    """The tree of modules of one model."""

    model: str
    modules: list[ModuleDiagnosis]
    """A module stands before those inside of it."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""

    @property
    def first(self) -> ModuleDiagnosis | None:
        """The first module that goes wrong, although none inside of it does."""
        wrong = [
            each for each in self.modules if each.status & WRONG and not each.status & Status.CHILDC
        ]
        return min(wrong, key=lambda each: each.order, default=None)

    @property
    def ok(self) -> bool:
        """Whether something was compared, and nothing is wrong."""
        return self.first is None and any(each.status & Status.OK for each in self.modules)

    def __bool__(self) -> bool:
        """Return whether nothing is wrong."""
        return self.ok

    @property
    def sentence(self) -> str:
        """The first module that goes wrong, in one sentence."""
        first = self.first
        if first is None:
            compared = sum(bool(each.status & Status.OK) for each in self.modules)
            return f"No module of {compared} that were compared goes wrong."
        worst = first.worst
        how = first.reason
        if not how and worst is not None:
            how = f"{worst.beyond} of {worst.elements} elements of {worst.output} do not agree"
            if worst.max_abs:
                how += f", by {worst.max_abs:.3g} at most"
        return f"The first module that goes wrong is {_title(first)}: {how}."

    def tree(self) -> str:
        """Return a line for each module."""
        return "\n".join(map(_line, self.modules))

    def svg(self) -> str:
        """Return a picture of the tree: an SVG document."""
        return picture(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists; numbers that are not finite are strings."""
        modules = [{**asdict(each), "status": str(each.status)} for each in self.modules]
        first = None if self.first is None else self.first.name
        found: dict[str, Any] = finite(
            {
                "ok": self.ok,
                "model": self.model,
                "first": first,
                "sentence": self.sentence,
                "notes": self.notes,
                "modules": modules,
            }
        )
        return found


def _title(module: ModuleDiagnosis) -> str:
    return f"{module.name} ({module.cls})" if module.name else f"the model itself ({module.cls})"


def _line(module: ModuleDiagnosis) -> str:
    depth = module.name.count(".") + 1 if module.name else 0
    told = f"{'  ' * depth}{module.name.rpartition('.')[2] or '(model)'} {module.cls}"
    told = f"{told:<60} {module.status!s:<12}"
    worst = module.worst
    if worst is not None:
        told += f" {'-' if worst.max_abs is None else format(worst.max_abs, '.3g'):>9}"
        told += f" {worst.expected_dtype}{worst.expected_shape}".replace(", ", ",")
    return f"{told} {module.reason}".rstrip()
