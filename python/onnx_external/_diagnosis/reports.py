"""Reports on the diagnosis of models."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .._base.pages import Paged
from .._base.tables import table
from .._comparing.comparing import Comparison
from .._validation.reports import finite


class Status(enum.Flag):
    """The verdict on a module. Several flags may be set, as in `DISC CHILDC`.

    - OK: The module's piece of the model, or its export, computes the same as the module.
    - DISC: The piece or the export computes something else (a discrepancy).
    - FAIL: There is no result. For oe.diagnose(), the module's piece of the model cannot be cut,
      loaded or run; for oe.diagnose_export(), the module does not export, load or run.
    - NOINPUT: There was nothing to run or to compare; `reason` says why.
    - CHILDC: The other flags hold with modules inside it replaced (the children are custom): by
      their outputs in the reference, or by custom operators. `OK CHILDC` only describes the
      operations around them: as a whole the module may be wrong. With strategy="local" all modules
      inside it are replaced.
    - CUSTOM: The module is wrong, and was replaced so that the modules around it could be judged.
    """

    NONE = 0
    OK = enum.auto()
    """The module's piece, or its export, computes the same as the module."""
    DISC = enum.auto()
    """The status of a module whose piece of the model, or whose export, computes something else."""
    FAIL = enum.auto()
    """The module's piece cannot be cut, loaded or run, or the module cannot be exported."""
    NOINPUT = enum.auto()
    """The status of a module for which there was nothing to run or compare."""
    CHILDC = enum.auto()
    """The other flags hold with modules inside it replaced: by their outputs in the reference, or
    by custom operators."""
    CUSTOM = enum.auto()
    """The module was replaced so that the modules around it could be judged."""

    def __str__(self) -> str:
        """Return the names of the flags, such as "DISC CHILDC"."""
        return " ".join(each.name or "" for each in self)

    @property
    def words(self) -> str:
        """The status as shown in trees and pages, such as "differs itself"."""
        verdicts = {"OK": "right", "DISC": "differs", "FAIL": "fails", "NOINPUT": "not compared"}
        told = next((words for name, words in verdicts.items() if Status[name] & self), "")
        itself = " itself" if self & Status.CHILDC and not self & Status.NOINPUT else ""
        return f"{told}{itself}{', replaced' if self & Status.CUSTOM else ''}"


WRONG = Status.DISC | Status.FAIL


@dataclass
class ValueForm:
    """The type and shapes of an input or output of a module."""

    name: str
    """The name of the argument, followed by the path of the tensor inside it."""
    dtype: str
    shapes: list[list[int]]
    """The shapes in the module's first call in each input set."""

    @property
    def dynamic(self) -> list[int]:
        """The dimensions whose sizes differ between input sets, which are assumed to be dynamic."""
        ranks = {len(shape) for shape in self.shapes}
        if len(ranks) != 1:
            return []
        sizes = zip(*self.shapes, strict=True)
        return [place for place, each in enumerate(sizes) if len(set(each)) > 1]

    def __str__(self) -> str:
        """Return the form as text, such as "float32[2|3,8|13,64]", with sizes by input set."""
        shape = [str(size) for size in self.shapes[0]]
        for place in self.dynamic:
            shape[place] = "|".join(str(each[place]) for each in self.shapes)
        return f"{self.dtype}[{','.join(shape)}]"


@dataclass
class ModuleDiagnosis:
    """The result of diagnosing one module."""

    name: str
    """The name of the module; empty for the model itself."""
    cls: str
    """The name of the module's class."""
    status: Status
    """The verdict on the module; several flags of `Status` may be set."""
    step: str = ""
    """The step that failed, if the status is FAIL."""
    reason: str = ""
    """The reason for a status of FAIL or NOINPUT."""
    order: int = -1
    """The position among all modules in the order of their first returns."""
    inputs: list[ValueForm] = field(default_factory=list)
    """The inputs of the module's first call."""
    outputs: list[ValueForm] = field(default_factory=list)
    """The outputs of the module's first call."""
    sets: list[list[Comparison]] = field(default_factory=list)
    """The comparisons of the module's outputs in each input set."""
    replaced: list[list[Comparison]] = field(default_factory=list)
    """The comparisons of a run in which wrong modules inside it are replaced by their outputs in
    the reference."""
    followed: list[list[Comparison]] = field(default_factory=list)
    """The comparisons of a run on the inputs that the model itself computes."""

    @property
    def worst(self) -> Comparison | None:
        """The wrong output with the largest difference in any input set."""
        return _worst(self.sets or self.replaced)[1]

    @property
    def worst_set(self) -> int:
        """The position of the worst output's input set among the compared sets."""
        return _worst(self.sets or self.replaced)[0]

    @property
    def times(self) -> float | None:
        """The largest difference in any set, as a multiple of its tolerance."""
        every = [each.times for compared in self.sets or self.replaced for each in compared]
        return max(every, default=None)


def _worst(sets: list[list[Comparison]]) -> tuple[int, Comparison | None]:
    """Return the position of an input set and its comparison with the largest difference.

    As in oe.validate(), outputs that agree only count if no output is wrong.
    """
    every = [(place, each) for place, compared in enumerate(sets) for each in compared]
    wrong = [pair for pair in every if not pair[1].ok and not pair[1].is_empty]
    return max(
        wrong or every,
        key=lambda pair: (pair[1].max_abs or 0.0, pair[1].share),
        default=(0, None),
    )


@dataclass
class Diagnosis(Paged):
    """The modules of a model as a tree, with the verdict on each."""

    model: str
    """The path of the graph, or the exported object."""
    modules: list[ModuleDiagnosis]
    """The modules, each before the modules inside it."""
    notes: list[str] = field(default_factory=list)
    """Remarks on modules or comparisons that were left out, and why."""
    numbers: list[int] = field(default_factory=list)
    """The numbers of the compared input sets, in order; empty if none was left out."""

    @property
    def wrong(self) -> list[ModuleDiagnosis]:
        """The modules that are wrong by themselves, in the order in which they return.

        A module that is wrong only because of wrong modules inside it is not included.
        """
        wrong = [each for each in self.modules if each.status & WRONG]
        names = [each.name for each in wrong]
        own = [
            each
            for each in wrong
            if each.status & Status.CHILDC or not any(is_inside(one, each.name) for one in names)
        ]
        return sorted(own, key=lambda each: each.order)

    @property
    def first(self) -> ModuleDiagnosis | None:
        """The first module that is wrong; None if no module is."""
        return next(iter(self.wrong), None)

    @property
    def ok(self) -> bool:
        """True if outputs, including those of the model itself, were compared and none is wrong."""
        compared = any(each.status & Status.OK for each in self.modules)
        return self.first is None and compared and self._uncompared is None

    @property
    def _uncompared(self) -> ModuleDiagnosis | None:
        """The diagnosis of the whole model, if its outputs were not compared; otherwise None."""
        for each in self.modules[:1]:
            if each.status & Status.NOINPUT and not each.status & Status.CHILDC:
                return each
        return None

    def __bool__(self) -> bool:
        """Return `ok`."""
        return self.ok

    @property
    def sentence(self) -> str:
        """One sentence on the first module that goes wrong."""
        first = self.first
        if first is None:
            compared = sum(bool(each.status & Status.OK) for each in self.modules)
            told = f"None of the {compared} compared modules goes wrong"
            root = self._uncompared
            if root is not None:
                told += f", but no output of the model itself was compared: {root.reason}"
            elif not compared:
                told = "Nothing was compared"
            return f"{told}."
        worst = first.worst
        how = first.reason and f"{first.step}: {first.reason}"
        if not how and worst is not None:
            how = worst.difference
            if len(first.sets or first.replaced) > 1:
                place = first.worst_set
                how += f", in input_sets[{self.numbers[place] if self.numbers else place}]"
        return f"The first module that goes wrong is {title_of(first)}: {how}."

    @property
    def remarks(self) -> list[str]:
        """Sentences to print before the verdict, which list other wrong modules and the notes."""
        others = [title_of(each) for each in self.wrong[1:]]
        if len(others) > _SHOWN:
            others[_SHOWN:] = [f"{len(others) - _SHOWN} more"]
        return [*([f"Also wrong: {', '.join(others)}."] if others else []), *self.notes]

    def __str__(self) -> str:
        """Return the tree, followed by the sentence; `repr()` returns the whole report."""
        return f"{self.tree()}\n{self.sentence}"

    def lines(self, columns: int | None, only_wrong: bool) -> list[tuple[str, bool]]:
        """Return the lines of tree(), each with True if the line's module is wrong.

        Args:
            columns: as for tree().
            only_wrong: as for tree().
        """
        follows = any(each.followed for each in self.modules)
        called = [each.name for each in self.modules if each.order >= 0]
        shown = self.in_wrong_branches if only_wrong else self.modules
        rows = [["module", "status", "difference", *(["followed"] if follows else []), "", ""]]
        for each in shown:
            holds = any(is_inside(name, each.name) for name in called)
            rows.append(_row(each, holds, follows))
        wrong = [False, *(bool(each.status & WRONG) for each in shown)]
        return list(zip(table(rows, columns), wrong, strict=True))

    def tree(self, columns: int | None = None, only_wrong: bool = False) -> str:
        """Return a table as text, with a heading and a line for each module.

        The status is in words: "right itself" and "differs itself" describe a module whose wrong
        parts were replaced. The difference is the largest in any input set, among outputs that do
        not agree if there are any. With strategy="local", only a module's own operations count.

        Args:
            columns: the width of a terminal: longer cells are shortened in the middle, shapes
                before names. None: no cell is shortened.
            only_wrong: leave out modules that are not wrong and contain no wrong module.
        """
        return "\n".join(line for line, _ in self.lines(columns, only_wrong))

    @property
    def in_wrong_branches(self) -> list[ModuleDiagnosis]:
        """The wrong modules and the modules around them, in the order of `modules`."""
        wrong = [each.name for each in self.modules if each.status & WRONG]
        shown = {*wrong, *(outer for name in wrong for outer in ancestors(name))}
        return [each for each in self.modules if each.name in shown]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts and lists; numbers that are not finite are strings."""
        modules = [_document(each) for each in self.modules]
        first = None if self.first is None else self.first.name
        found: dict[str, Any] = finite(
            {
                "ok": self.ok,
                "model": self.model,
                "first": first,
                "wrong": [each.name for each in self.wrong],
                "sentence": self.sentence,
                "notes": self.notes,
                "modules": modules,
            }
        )
        return found


_OWN = "own operations only"
"""The remark on a module that was not judged as a whole."""
_SHOWN = 5
"""The maximum number of further wrong modules that a remark names."""


def is_inside(name: str, outer: str) -> bool:
    """Return whether a module is inside another; all modules are inside the model, ""."""
    return name != outer and name.startswith(f"{outer}." if outer else "")


def ancestors(name: str) -> Iterator[str]:
    """Yield the names of the modules around a module, from the nearest to the model itself."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def _document(module: ModuleDiagnosis) -> dict[str, Any]:
    worst = module.worst
    found = {**asdict(module), "status": str(module.status)}
    for figure in ("max_abs", "problem"):
        found[figure] = None if worst is None else getattr(worst, figure)
    found["times"] = module.times
    for side in ("inputs", "outputs"):
        forms: list[ValueForm] = getattr(module, side)
        found[side] = [{**asdict(each), "dynamic": each.dynamic} for each in forms]
    return found


def title_of(module: ModuleDiagnosis) -> str:
    """Return the name of a module as used in sentences."""
    return f"{module.name} ({module.cls})" if module.name else f"the model itself ({module.cls})"


def name_in_tree(module: ModuleDiagnosis) -> str:
    """Return the last part of a module's name and its class, indented by its depth."""
    depth = module.name.count(".") + 1 if module.name else 0
    return f"{'  ' * depth}{module.name.rpartition('.')[2] or '(model)'} {module.cls}"


def largest_difference(sets: list[list[Comparison]]) -> str:
    """Return the largest difference in any set, "shape" if shapes differ, or "-" if unknown."""
    _, worst = _worst(sets)
    if worst is None or (worst.max_abs is None and not worst.problem):
        return "-"
    return "shape" if worst.max_abs is None else f"{worst.max_abs:.3g}"


def first_form(forms: Sequence[ValueForm]) -> str:
    """Return the form of the first input or output of a module, and the number of further ones."""
    more = f" +{len(forms) - 1}" if len(forms) > 1 else ""
    return f"{forms[0]}{more}" if forms else "-"


def _row(module: ModuleDiagnosis, holds: bool, follows: bool) -> list[str]:
    """Return a table row; a container that was never called gets only its name."""
    if holds and module.order < 0 and module.status == Status.NOINPUT:
        return [name_in_tree(module), *[""] * (5 if follows else 4)]
    told = module.reason
    if not told and module.inputs + module.outputs:
        told = f"{first_form(module.inputs)} -> {first_form(module.outputs)}"
    if module.replaced and not module.sets:
        told = f"{_OWN}{f'; {told}' if told else ''}"
    return [
        name_in_tree(module),
        module.status.words,
        largest_difference(module.sets or module.replaced),
        *([largest_difference(module.followed)] if follows else []),
        f"{module.step}:" if module.step else "",
        told,
    ]
