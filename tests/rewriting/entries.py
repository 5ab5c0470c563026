"""Entries of the zoo: a module, inputs that take all of its branches, and the expected result."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
SEED = 32


@dataclass(frozen=True)
class Entry:
    """A module of the zoo."""

    name: str
    """Group and number, as in "A07"."""
    title: str
    make: Callable[[], nn.Module]
    make_sets: Callable[[], list[Any]]
    varying: tuple[tuple[int, ...], ...] | dict[str, tuple[int, ...]]
    """The dimensions that vary, for each input."""
    refused: str | None = None
    """What the words of the refusal match, of a module that has no graph."""
    patched: bool = False
    """Whether transformers' own patches for exporting are in place."""

    def module(self) -> nn.Module:
        torch.manual_seed(SEED)
        return self.make().eval()

    def sets(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Return the positional inputs and those by name, for each set."""
        torch.manual_seed(SEED + 1)
        return [((), one) if isinstance(one, dict) else (one, {}) for one in self.make_sets()]

    def dynamic_shapes(self) -> Any:
        """Return the dynamic shapes for torch.export."""

        def of(dims: tuple[int, ...]) -> dict[int, Any]:
            return {dim: torch.export.Dim.DYNAMIC for dim in dims}

        if isinstance(self.varying, dict):
            args, kwargs = self.sets()[0]
            return {name: of(self.varying.get(name, ())) for name in kwargs}
        args, _ = self.sets()[0]
        return tuple(of(dims) for dims in [*self.varying, *[()] * (len(args) - len(self.varying))])


ENTRIES: dict[str, Entry] = {}


def entry(
    title: str,
    sets: Callable[[], list[Any]],
    varying: Any = ((),),
    refused: str | None = None,
    **options: Any,
) -> Callable[[Any], Any]:
    """Put a class of modules (or a function that makes one) into the zoo, under the number in its name: `A07_...`."""

    def add(make: Any) -> Any:
        name = make.__name__.partition("_")[0]
        assert name not in ENTRIES, f"two entries are called {name}"
        ENTRIES[name] = Entry(name, title, make, sets, varying, refused, **options)
        return make

    return add


def zoo(transformers: bool = True) -> dict[str, Entry]:
    """Return all entries, by name."""
    for path in sorted(HERE.glob("zoo_*.py")):
        if transformers or path.stem != "zoo_transformers":
            importlib.import_module(path.stem)
    return dict(sorted(ENTRIES.items()))


# --- inputs


def up(*shape: int) -> torch.Tensor:
    """Return positive numbers."""
    return torch.rand(*shape) + 0.1


def down(*shape: int) -> torch.Tensor:
    """Return negative numbers."""
    return -torch.rand(*shape) - 0.1


def any_of(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def number(value: Any) -> torch.Tensor:
    return torch.tensor(value)
