"""Outcome of one attempt at a module: a piece of the model that ran, or an export."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._comparing.comparing import Comparison
from .reports import Status


@dataclass
class Outcome:
    """The status of a module, and the comparisons."""

    status: Status = Status.OK
    step: str = ""
    """The one that failed, of FAIL."""
    reason: str = ""
    """The reason of FAIL or NOINPUT."""
    sets: list[list[Comparison]] = field(default_factory=list)
    """The comparisons, by input set."""
    followed: list[list[Comparison]] = field(default_factory=list)
    """The comparisons when run on the values that the model computes before it."""
    notes: list[str] = field(default_factory=list)
    unjudged: bool = False
    """True if a module inside it could not be a custom operator."""

    @property
    def compared(self) -> list[Comparison]:
        """The comparisons of all sets."""
        return [each for compared in self.sets for each in compared]

    @property
    def is_empty(self) -> bool:
        """True if nothing was really compared: no elements, or only NaN on both sides."""
        return all(each.is_empty for each in self.compared)

    def judge(self) -> None:
        """Set the status to DISC if any comparison does not agree."""
        if not all(each.ok or each.is_empty for each in self.compared):
            self.status = Status.DISC
