"""Reports the applied patches, their reasons, and the nodes of a program that patched code made."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from ..._base.swapping import exchanged
from ..._saving.programs import nodes_of
from .custom import Skipped
from .static_dimensions import SizeConstraint

_MARK = "onnx_external_patches"
"""The key in a node's metadata for the names of the patches through which the node was made."""


@dataclass(frozen=True)
class AppliedPatch:
    """One change that is in effect inside the context."""

    kind: str
    """The kind: "torch", "transformers", "class", "custom", "rewriting", or a package's name."""
    name: str
    """The name of the changed object."""
    why: str
    places: tuple[tuple[str, int, int], ...] = ()
    """The files of the replacement code, with first and last lines."""


def places_of(code: CodeType | None) -> tuple[tuple[str, int, int], ...]:
    """Return the location of a function's code, in the form of `AppliedPatch.places`."""
    lines = [line for _, _, line in code.co_lines() if line] if code is not None else []
    return ((code.co_filename, min(lines), max(lines)),) if code is not None and lines else ()


@dataclass
class Patches:
    """The result of `oe.torch.patches()`, which grows until the context ends."""

    applied: list[AppliedPatch] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    """The patches that do not fit the installed versions, or whose classes do not exist."""
    constraints: list[SizeConstraint] = field(default_factory=list)
    """The assumptions that traces made about sizes."""
    diffs: dict[str, str] = field(default_factory=dict)
    """A unified diff for each rewritten function, by name."""
    notes: list[str] = field(default_factory=list)
    """Notes on code that the rewriting left out of the graph, or could not rewrite."""

    def report(self) -> str:
        """Return the changes as text, one per line."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        width = max((len(each.kind) for each in self.applied), default=0)
        for each in self.applied:
            yield f"{each.kind:{width}}  {each.name}: {each.why}"
        yield from (f"left out: {each.name}: {each.why}" for each in self.skipped)
        yield from (f"size: {each}" for each in self.constraints)
        yield from (f"note: {each}" for each in self.notes)

    def involved(self, program: torch.export.ExportedProgram) -> dict[str, list[str]]:
        """Return the nodes of a program that patched code made, by the name of the patch.

        Changes to torch's tracing (kinds "torch" and "class") do not make nodes.
        """
        found: dict[str, list[str]] = {each.name: [] for each in self.applied if each.places}
        for node in nodes_of(program):
            for name in (node.meta.get("custom") or {}).get(_MARK, ()):
                found.setdefault(name, []).append(node.name)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists."""
        applied = [{"kind": each.kind, "name": each.name, "why": each.why} for each in self.applied]
        return {
            **vars(self),
            "applied": applied,
            "skipped": [vars(each) for each in self.skipped],
            "constraints": [vars(each) for each in self.constraints],
        }

    def dump(self, folder: str | Path) -> list[str]:
        """Write the report and the diffs into a folder, and return the paths of the files."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        texts = {f"{_file_name(name)}.diff": diff for name, diff in self.diffs.items()}
        texts["patches.txt"] = self.report() + "\n"
        for name, text in texts.items():
            (target / name).write_text(text, encoding="utf-8")
        return [str(target / name) for name in sorted(texts)]


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "function"


@contextlib.contextmanager
def nodes_marked(patches: Patches) -> Iterator[None]:
    """Record in each new node the patched code through which it was made.

    torch itself only records the lines of forward() in a node.
    """
    create = torch.fx.Graph.create_node

    def marked(self: torch.fx.Graph, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node = create(self, *args, **kwargs)
        names = _patches_on_the_stack(patches)
        if names:
            node.meta["custom"] = {**(node.meta.get("custom") or {}), _MARK: names}
        return node

    with exchanged(torch.fx.Graph, "create_node", marked):
        yield


def _patches_on_the_stack(patches: Patches) -> list[str]:
    placed = [each for each in patches.applied if each.places]
    names: dict[str, None] = {}
    frame = sys._getframe(2) if placed else None
    while frame is not None:
        for each in placed:
            if any(
                frame.f_code.co_filename == file and first <= frame.f_lineno <= last
                for file, first, last in each.places
            ):
                names[each.name] = None
        frame = frame.f_back
    return list(names)
