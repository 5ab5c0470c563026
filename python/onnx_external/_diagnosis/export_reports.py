"""Reports on the diagnosis of exports."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .._base.errors import InvalidArgumentError
from .._base.notes import kind_of
from .._base.tables import table
from .reports import (
    WRONG,
    Diagnosis,
    ModuleDiagnosis,
    Status,
    ancestors,
    first_form,
    is_inside,
    largest_difference,
    name_in_tree,
    title_of,
)


@dataclass
class ExportedModule(ModuleDiagnosis):
    """One module, and the outcome of its export."""

    dynamic: list[str] = field(default_factory=list)
    """The dynamic sizes of the module's inputs, such as "x[0]"."""
    instead: list[str] = field(default_factory=list)
    """The modules inside this module that were replaced by custom operators."""
    notes: list[str] = field(default_factory=list)
    rewriting: str = ""
    """For a module that fails: "rewriting mends it", with code locations, or why it does not."""

    @property
    def tried(self) -> bool:
        """True if the export of the module by itself was tried."""
        return bool(self.status & (Status.OK | WRONG))


@dataclass
class ExportDiagnosis(Diagnosis):
    """The modules of a model as a tree, with the outcome of each export."""

    exporter: str = ""
    """The exporter: "export", "onnx" or "torchscript"."""
    strategy: str = ""
    """The strategy: "failing", "always" or "local"."""
    shapes: dict[str, Any] = field(default_factory=dict, repr=False)
    """The dynamic shapes of the modules that were exported by themselves, by name."""

    def _exported(self) -> list[ExportedModule]:
        return [each for each in self.modules if isinstance(each, ExportedModule)]

    @property
    def wrong(self) -> list[ModuleDiagnosis]:
        """The modules that do not export by themselves, in the order in which they return.

        A module inside a module that exports prevents nothing, and is not included.
        """
        whole = [each.name for each in self.modules if each.status & ~Status.CUSTOM == Status.OK]
        return [
            each
            for each in super().wrong
            if not any(is_inside(each.name, outer) for outer in whole)
        ]

    @property
    def sentence(self) -> str:
        """One sentence on the first module that does not export."""
        wrong = self.wrong
        if not wrong:
            return self._sound()
        first = wrong[0]
        if first.status & Status.FAIL:
            does = "that does not export"
            how = f"{first.step}: {first.reason}"
        else:
            does, how = "that computes something else when it is exported", _difference(first)
        others = len(wrong) - 1
        more = f"; {others} other{'s' if others > 1 else ''} as well" if others else ""
        whole = f"first module {does} is {title_of(first)}: {how}{more}"
        exported = self._exported()
        if exported and _mended_as_it_is(exported[0]):
            return f"{_EXPORTS_ALL} Without that, the {whole}."
        mended = isinstance(first, ExportedModule) and _is_mended(first)
        return f"The {whole}{f'; {MENDS}' if mended else ''}."

    def _sound(self) -> str:
        tried = [each for each in self._exported() if each.tried]
        if not tried:
            return "No module was exported."
        custom = [each.name for each in self.modules if each.status & Status.CUSTOM]
        fails = [each.name for each in tried if each.status & WRONG]
        told = f"all {len(tried)} tried modules export"
        if len(tried) == 1 or fails:
            told = f"{title_of(tried[0])} exports"
        if fails:
            told += f", although {', '.join(fails)} would not by itself"
        if custom and self.strategy != "local":
            told += f", with custom operators for {', '.join(custom)}"
        return f"{told[0].upper()}{told[1:]}."

    def dynamic_shapes(self, name: str = "") -> Any:
        """Return the `dynamic_shapes` for torch.export.export with which a module was exported.

        Args:
            name: the name of the module; empty for the model itself.
        """
        if name not in self.shapes:
            raise InvalidArgumentError(f"{name!r} is not a module that was exported by itself")
        return self.shapes[name]

    def _shown(self) -> set[str]:
        """Return the modules to list: tried, replaced or never called, and those around them."""
        exported = self._exported()
        shown = {each.name for each in exported if each.tried or each.status & Status.CUSTOM}
        called = [each.name for each in exported if each.order >= 0]
        around = {name for each in shown for name in ancestors(each)}
        for each in exported:
            inside = any(is_inside(name, each.name) for name in called)
            nearest = next((name for name in ancestors(each.name) if name in called), None)
            if each.status & Status.NOINPUT and not inside and nearest in around:
                shown.add(each.name)
        return shown.union(*map(ancestors, shown))

    def lines(self, columns: int | None, only_wrong: bool) -> list[tuple[str, bool]]:
        """Return a heading, and a line for each module that was tried or contains such modules.

        The line of a wrong module is followed by the failed step, the reason and the dynamic
        dimensions.

        Args:
            columns: as for tree().
            only_wrong: as for tree().
        """
        wrong = {each.name for each in self.in_wrong_branches}
        shown = wrong if only_wrong else self._shown()
        modules = [each for each in self._exported() if each.name in shown]
        rows = [["module", "status", "difference", ""]]
        for each in modules:
            holds = any(is_inside(name, each.name) for name in shown)
            rows.append([name_in_tree(each), *_row(each, holds)])
        heading, *rest = table(rows, columns)
        lines = [(heading, False)]
        for line, module in zip(rest, modules, strict=True):
            lines.append((line, bool(module.status & WRONG)))
            indent = " " * (len(line) - len(line.lstrip()) + 4)
            lines += [(f"{indent}{each}", False) for each in _details(module)]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts and lists; numbers that are not finite are strings."""
        found = super().to_dict()
        modules = found.pop("modules")
        return {
            **found,
            "exporter": self.exporter,
            "strategy": self.strategy,
            "modules": modules,
        }


MENDS = "rewriting mends it"
MENDED = "mended"
"""The kind of `ExportedModule.rewriting` if oe.torch.export can export the module."""
MENDED_WHOLE = "mended-whole"
"""The kind of the note on a model that can be exported as a whole although its modules cannot."""
_EXPORTS_ALL = "oe.torch.export exports the whole model by rewriting its control flow."


def _is_mended(module: ExportedModule) -> bool:
    return kind_of(module.rewriting) in (MENDED, MENDED_WHOLE)


def _mended_as_it_is(model: ExportedModule) -> bool:
    return kind_of(model.rewriting) in (MENDED_WHOLE, *([] if model.instead else [MENDED]))


_AT = re.compile(r", at (\S+:\d+, in )")
"""The text in a reason where the location in the source code begins."""


def _difference(module: ModuleDiagnosis) -> str:
    every = [
        each for compared in module.sets for each in compared if not each.ok and not each.is_empty
    ]
    worst = max(
        every, key=lambda each: (bool(each.problem), each.max_abs or 0.0, each.share), default=None
    )
    return "its outputs do not agree" if worst is None else worst.difference


def _row(module: ExportedModule, holds: bool) -> list[str]:
    """Return status, difference and forms; empty cells for a module that only contains others."""
    if module.status & Status.NOINPUT:
        return ["", "", ""] if holds else [module.status.words, "-", module.reason]
    forms = f"{first_form(module.inputs)} -> {first_form(module.outputs)}"
    return [
        module.status.words,
        largest_difference(module.sets),
        forms if module.tried else module.reason,
    ]


def _details(module: ExportedModule) -> list[str]:
    found = []
    if module.status & Status.FAIL:
        found += _AT.sub(r"\n  at \1", f"{module.step}: {module.reason}").split("\n")
    elif module.status & Status.DISC:
        found.append(_difference(module))
    if module.status & WRONG and module.dynamic:
        found.append(f"varies: {', '.join(module.dynamic)}")
    if module.rewriting:
        found.append(module.rewriting)
    return found + (module.notes if module.status & WRONG else [])
