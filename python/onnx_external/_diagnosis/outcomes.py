"""Represents the outcome of judging one module by running its piece, or by an export."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._comparing.comparing import Comparison
from .reports import Status


@dataclass
class Outcome:
    """The status of a module, with the comparisons on which it is based."""

    status: Status = Status.OK
    step: str = ""
    """The step that failed, if the status is FAIL."""
    reason: str = ""
    """The reason for a status of FAIL or NOINPUT."""
    sets: list[list[Comparison]] = field(default_factory=list)
    """The comparisons of the module's outputs, for each input set."""
    followed: list[list[Comparison]] = field(default_factory=list)
    """The comparisons of a run on the inputs that the model itself computes."""
    notes: list[str] = field(default_factory=list)
    unjudged: bool = False
    """True if a module inside it could not be replaced by a custom operator."""

    @property
    def compared(self) -> list[Comparison]:
        """The comparisons of the outputs in all input sets, as one list."""
        return [each for compared in self.sets for each in compared]

    @property
    def is_empty(self) -> bool:
        """True if there was nothing to compare: no elements, or only NaN on both sides."""
        return all(each.is_empty for each in self.compared)

    def judge(self) -> None:
        """Set the status to DISC if any compared output does not agree."""
        if not all(each.ok or each.is_empty for each in self.compared):
            self.status = Status.DISC
