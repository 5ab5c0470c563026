"""Compares outputs, and checks differences a second time before it reports them.

Some differences are not faults: the rounding error of a result that is zero apart from rounding,
which the result itself does not reveal, and a different order of equal values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .comparing import Comparison, compare, flattened
from .inputs import Given
from .references import ModuleReference, Reference, as_given, paired
from .values import Array, Value

if TYPE_CHECKING:
    from .reruns import Reruns, Run

TIES = (
    "equal values are in another order than in the module's output, and any order is correct: the "
    "outputs agree if the module picks the same ones"
)
ROUNDING = (
    "the output differs by more than its magnitude suggests, but by no more than the module's own "
    "output does if its operators round differently"
)


@dataclass
class Outputs:
    """Compares the outputs of a model for one input set."""

    names: Sequence[str]
    """The names of the model's outputs, in order."""
    got: Mapping[str, Value]
    atol: float | None = None
    rtol: float | None = None
    types: Collection[str] = field(default_factory=tuple)
    """The float types from which the outputs were computed."""

    def judged(
        self, reference: Reference, given: Given, what: str, wanted: Mapping[str, Value]
    ) -> list[Comparison]:
        """Compare the outputs; check differences from a module's outputs a second time.

        For the second check, the module runs again with its state restored: with ties broken as
        ONNX prescribes, or as the model broke them if it returns the indices, and with operators
        that round differently. Comparisons that agree because of these runs have a note.

        Args:
            reference: the source of the expected outputs.
            given: the inputs.
            what: the name of the input set.
            wanted: the expected outputs, by the reference's names.
        """
        if isinstance(reference, ModuleReference):
            self.got = reference.comparable(given, self.got)
        first = self.compared(reference, wanted)
        wrong = [each for each in first if each.is_wrong]
        if not wrong or not isinstance(reference, ModuleReference):
            return first
        if any(each.problem for each in wrong):
            return first
        return self._again(reference, given, what, first) or first

    def _again(
        self, reference: ModuleReference, given: Given, what: str, first: list[Comparison]
    ) -> list[Comparison] | None:
        from .reruns import Reruns

        reruns, best = Reruns(reference, given, what), None
        for number, run in enumerate(self._candidates(reruns)):
            found = self.compared(reference, run.outputs)
            wrong = sum(each.is_wrong for each in found)
            if not wrong:
                return _noted(found, (first, TIES if number else ""))
            if best is None or wrong < best[0]:
                best = wrong, run, found
        if best is None or self.atol is not None:
            return None
        _, run, found = best
        rounding = reruns.rounding(run, self._differences(run, found))
        last = self.compared(reference, run.outputs, rounding) if rounding is not None else found
        if any(each.is_wrong for each in last):
            return None
        return _noted(last, (found, ROUNDING), (first, TIES))

    def _candidates(self, reruns: Reruns) -> Iterator[Run]:
        """Yield reruns of the module: unchanged, or with ties broken like the model or ONNX."""
        from .reruns import choices_of, stable_choices

        base = reruns.run()
        if base is None:
            return
        yield base
        outputs = {other: self.got[one] for one, other in self._pairs(base)}
        own = choices_of(base, outputs, lambda one, other: compare("", one, other).ok)
        prescribed = stable_choices(base)
        tried = [{**prescribed, **own}, own if prescribed and own else {}]
        yield from filter(None, (reruns.run(each) for each in tried if each))

    def _pairs(self, run: Run) -> list[tuple[str, str]]:
        """Return the names, on each side, of the outputs that both sides have."""
        return [(one, other) for _, one, other in paired(self.names, run.outputs) if one and other]

    def _differences(self, run: Run, found: list[Comparison]) -> dict[str, float | None]:
        """Return the largest difference of each wrong output, by the reference's names."""
        names = dict(self._pairs(run))
        return {names.get(each.output, ""): each.max_abs for each in found if each.is_wrong}

    def compared(
        self,
        reference: Reference,
        wanted: Mapping[str, Value],
        rounding: Mapping[str, Array] | None = None,
    ) -> list[Comparison]:
        """Compare all outputs; `rounding` is the error allowed in each output of the reference."""
        if isinstance(reference, ModuleReference):
            wanted = as_given(self.names, self.got, wanted, reference.numbers)
        return [
            compare(
                output, left, right, self.atol, self.rtol, self.types,
                (rounding or {}).get(other or ""),
            )
            for title, one, other in paired(self.names, wanted)
            for output, left, right in flattened(
                title, self.got.get(one or ""), wanted.get(other or "")
            )
        ]  # fmt: skip


def _noted(last: list[Comparison], *before: tuple[list[Comparison], str]) -> list[Comparison]:
    """Return the last comparisons, with a note on each output that disagreed in an earlier one."""
    for found, reason in before:
        for each, old in zip(last, found, strict=True):
            if old.is_wrong and not each.note:
                each.note = reason
    return last
