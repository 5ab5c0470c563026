"""Decides in which order modules are judged, and which are replaced to judge those around them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from .._base.progress import ProgressCallback
from .judging import Judge, diagnosis_of
from .naming import is_named
from .recording import Recorded
from .reports import WRONG, ModuleDiagnosis, Status, ancestors, is_inside

Strategy = Literal["always", "failing", "local"]
"""When to judge the modules inside a module: always, only if the module is wrong, or always, but
each by its own operations alone."""


class Walk:
    """Diagnoses modules, from the outermost module inwards.

    Args:
        judge: judges a single module.
        modules: all modules, each before the modules inside it.
        strategy: the rule for judging the modules inside a module.
        opaque: names or classes of modules whose inner modules are not judged.
        progress: a callback with a module's name, its number and their count.
    """

    def __init__(
        self,
        judge: Judge,
        modules: Sequence[Recorded],
        strategy: Strategy,
        opaque: Collection[Any],
        progress: ProgressCallback | None,
    ) -> None:
        self._judge, self._strategy, self._progress = judge, strategy, progress
        self._found: dict[str, ModuleDiagnosis] = {}
        closed = [each.name for each in modules if is_named(each.name, each.module, opaque)]
        self._modules = [
            each for each in modules if not any(is_inside(each.name, outer) for outer in closed)
        ]
        self._inner = self._tree()

    def _tree(self) -> dict[str, list[Recorded]]:
        """Return, for each module, the modules directly inside it."""
        inner: dict[str, list[Recorded]] = {each.name: [] for each in self._modules}
        for each in self._modules:
            nearest = next((name for name in ancestors(each.name) if name in inner), None)
            if nearest is not None:
                inner[nearest].append(each)
        return inner

    def run(self) -> list[ModuleDiagnosis]:
        """Return a diagnosis of each module that was judged."""
        root = self._modules[0]
        self._root = self._judge.whole(root)
        self._judge.model_is_right = bool(self._root.status & Status.OK)
        if self._strategy != "failing":
            self._judge.fetch(self._modules)
        self._visit(root)
        return [self._found[each.name] for each in self._modules if each.name in self._found]

    def _visit(self, module: Recorded) -> None:
        if self._progress is not None:
            self._progress(module.name, len(self._found) + 1, len(self._modules))
        inner = self._inner[module.name]
        if self._strategy == "local":
            found = self._alone(module)
        elif module.name:
            found = self._judge.whole(module)
        else:
            found = self._root
        self._found[module.name] = found
        if self._strategy == "failing" and found.status & Status.OK:
            return
        for each in inner:
            self._visit(each)
        if self._strategy != "local" and found.status & WRONG:
            self._replace_wrong(module, found)

    def _called(self, module: Recorded) -> list[Recorded]:
        """Return the outermost submodules of a module that were called and have nodes."""
        called = []
        for each in self._inner[module.name]:
            if each.order < 0:
                called += self._called(each)
            elif self._judge.piece(each.name) is not None:
                called.append(each)
        return called

    def _alone(self, module: Recorded) -> ModuleDiagnosis:
        """Judge only the operations of a module itself."""
        inner = self._called(module) if module.order >= 0 else []
        if not inner:
            return self._judge.whole(module)
        found = diagnosis_of(module, self._judge.around(module, inner))
        found.status |= Status.CHILDC
        found.sets, found.replaced = [], found.sets
        return found

    def _wrong(self, module: Recorded) -> list[Recorded]:
        """Return the outermost wrong modules inside a module."""
        wrong = []
        for each in self._inner[module.name]:
            found = self._found.get(each.name)
            if found is not None and found.status & WRONG:
                wrong.append(each)
            elif found is not None:
                wrong += self._wrong(each)
        return wrong

    def _replace_wrong(self, module: Recorded, found: ModuleDiagnosis) -> None:
        """Judge a wrong module again, with the wrong modules inside it replaced."""
        wrong = self._wrong(module)
        cut = [each for each in wrong if self._found[each.name].step != "cut"]
        if not wrong or len(cut) < len(wrong):
            return
        outcome = self._judge.around(module, wrong)
        if outcome.status == Status.FAIL:
            return
        # Without an operation of its own that is left, nothing else can be wrong.
        right = not outcome.status & WRONG
        found.status = (Status.OK if right else Status.DISC) | Status.CHILDC
        found.replaced = outcome.sets
        for each in wrong:
            self._found[each.name].status |= Status.CUSTOM
