"""The modules of a picture as a tree, and how wrong each is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..validation.comparing import Comparison

__all__ = ["SHADES", "WRONG", "Node", "Pictured", "PicturedModule", "tree_of"]


class PicturedModule(Protocol):
    """What is drawn of a module."""

    @property
    def name(self) -> str:
        """Empty for the model itself."""

    @property
    def cls(self) -> str:
        """Its class."""

    @property
    def status(self) -> object:
        """A flag of which str() gives the names, e.g. "DISC CHILDC"."""

    @property
    def step(self) -> str:
        """The step that failed."""

    @property
    def reason(self) -> str:
        """Why it fails or was not compared."""

    @property
    def worst(self) -> Comparison | None:
        """The output that is farthest from what was expected."""


class Pictured(Protocol):
    """What is drawn of a report."""

    @property
    def model(self) -> str:
        """The path of the model."""

    @property
    def modules(self) -> Sequence[PicturedModule]:
        """All modules."""

    @property
    def first(self) -> PicturedModule | None:
        """The first one that goes wrong."""

    @property
    def sentence(self) -> str:
        """What was found."""


@dataclass(frozen=True)
class Shade:
    """How a group of modules is filled, and what the legend calls it."""

    color: str
    told: str
    most: float = math.inf
    """The largest difference as a multiple of the tolerance."""
    text: str = "#1b2631"
    stripes: str = ""


SHADES = {
    "a": Shade("#f3f7fb", "no difference", 0.0),
    "b": Shade("#dcebf7", "sound: up to 0.01 \u00d7 tolerance", 0.01),
    "c": Shade("#c3dcf0", "sound: up to 0.1 \u00d7 tolerance", 0.1),
    "d": Shade("#a3c8e6", "sound: up to 1 \u00d7 tolerance", 1.0),
    "e": Shade("#fdd0a2", "wrong: up to 10 \u00d7 tolerance", 10.0),
    "f": Shade("#f79a52", "wrong: up to 100 \u00d7 tolerance", 100.0),
    "g": Shade("#c4440f", "wrong: up to 1,000 \u00d7 tolerance", 1000.0, "#fff"),
    "h": Shade("#7f1710", "wrong: more, or not finite", math.inf, "#fff"),
    "s": Shade("#dcebf7", "sound"),
    "x": Shade("#f1e4f6", "fails", stripes="#c08fd4"),
    "n": Shade("#f6f7f8", "not compared", stripes="#e6e9eb"),
    "i": Shade("#fcebdd", "a module inside is wrong"),
}
WRONG = "efghx"
"""From the least to the worst."""


def _ratio(worst: Comparison | None) -> float | None:
    """The largest difference as a multiple of its tolerance; infinite for what has no distance."""
    if worst is None:
        return None
    if worst.problem is not None or worst.max_abs is None:
        return math.inf if worst.problem is not None or worst.beyond else 0.0
    size = complex(worst.expected) if worst.max_abs and worst.expected is not None else 0.0
    tolerance = worst.atol + worst.rtol * abs(size)
    found = 0.0 if not worst.max_abs else worst.max_abs / tolerance if tolerance else math.inf
    if worst.beyond and found <= 1.0:  # the largest difference is not the one that is too large
        special = worst.nan or worst.inf or worst.expected_nan or worst.expected_inf
        return math.inf if special else math.nextafter(1.0, 2.0)
    if (worst.nan, worst.inf) != (worst.expected_nan, worst.expected_inf):
        return math.inf
    return found if worst.beyond else min(found, 1.0)  # beside giants of its row more is allowed


def _short(number: float) -> str:
    """A multiple, in two digits."""
    if number < 0.001:
        return "< 0.001"
    if number < 99.5:
        return f"{number:.2g}"
    return f"{float(f'{number:.2g}'):,.0f}" if number < 1e6 else f"{number:.0e}"


@dataclass
class Node:
    """A module in the tree."""

    module: PicturedModule
    label: str
    words: set[str]
    """Its status."""
    ratio: float | None
    depth: int = 0
    row: int = 0
    rows: int = 0
    inside: list[Node] = field(default_factory=list)
    worst: str = ""
    """The worst shade of it and those inside."""

    @property
    def shade(self) -> str:
        """Its key in SHADES."""
        if {"OK", "CHILDC"} <= self.words and self.bar:
            return "i"
        if "FAIL" in self.words:
            return "x"
        if not self.words & {"OK", "DISC"}:
            return "n"
        if self.ratio is None:
            return "h" if "DISC" in self.words else "s"
        keys = "efgh" if "DISC" in self.words else "abcd"
        return next((key for key in keys if self.ratio <= SHADES[key].most), keys[-1])

    @property
    def reason(self) -> str:
        """Why it fails or was not compared, with the step that failed."""
        step, reason = self.module.step, self.module.reason
        return f"{step}: {reason}" if step and reason else step or reason

    @property
    def bar(self) -> str:
        """The worst shade of what is wrong inside of it; empty if nothing is."""
        worst = max((each.worst for each in self.inside), key=WRONG.find, default="")
        return worst if worst and worst in WRONG else ""

    @property
    def title(self) -> str:
        """Its name beside its parent's, with a mark if the error is its own."""
        mark = {"x": "! "}.get(self.shade, "\u2260 " if self.shade in WRONG else "")
        return mark + self.label

    @property
    def figures(self) -> list[str]:
        """Its largest difference as a multiple of the tolerance, the difference, and the output."""
        worst = self.module.worst
        if worst is None or not self.words & {"OK", "DISC"}:
            return []
        form = f"{worst.expected_dtype}{worst.expected_shape}".replace(" ", "")
        size = "-" if worst.max_abs is None else f"{worst.max_abs:.3g}"
        return [self.times, size, worst.problem or form]

    @property
    def times(self) -> str:
        """Its largest difference as a multiple of the tolerance."""
        if self.ratio is None:
            return ""
        if not math.isfinite(self.ratio):
            worst = self.module.worst
            exact = worst is not None and not worst.atol + worst.rtol
            return "differs" if exact else "not finite"
        above = "> " if 1.0 < self.ratio < 1.001 else ""
        return f"{above}{_short(self.ratio)} \u00d7" if self.ratio else "0"


def tree_of(modules: Sequence[PicturedModule]) -> list[Node]:
    """Return the modules, each before those inside of it, with their places."""
    nodes = [
        Node(each, each.name, set(str(each.status).split()), _ratio(each.worst)) for each in modules
    ]
    named: dict[str, Node] = {}
    for node in nodes:
        named.setdefault(node.label, node)
    roots = []
    for node in nodes:
        name = parent = node.module.name
        while parent:
            parent = parent.rpartition(".")[0]
            if parent in named:
                named[parent].inside.append(node)
                node.label = name[len(parent) + 1 :] if parent else name
                break
        else:
            roots.append(node)
        node.label = node.label or "(model)"
    return _placed(roots)


def _placed(roots: list[Node]) -> list[Node]:
    """Give rows to the leaves, and let the others have those of all inside.

    Without recursion: a tree may be deeper than Python's stack.

    Returns:
        The modules in the order of their rows.
    """
    ordered: list[Node] = []
    waiting = roots[::-1]
    row = 0
    while waiting:
        node = waiting.pop()
        node.row = row
        row += not node.inside
        ordered.append(node)
        for each in reversed(node.inside):
            each.depth = node.depth + 1
            waiting.append(each)
    for node in reversed(ordered):
        node.rows = sum(each.rows for each in node.inside) or 1
        shades = [node.shade, *(each.worst for each in node.inside)]
        node.worst = max(shades, key=WRONG.find)
    return ordered
