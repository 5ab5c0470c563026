"""Turns transformers' conversions of tensors into entries of a map document (docs/mapping.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .._base.errors import ExportError
from ._recording import Join, Key, Made, Step, Unknown


def map_document(slots: Mapping[str, Made]) -> dict[str, Any]:
    """Return the document that fills slots with the tensors that transformers would load.

    If a slot is joined from several keys, the document defines a derived tensor for it.
    """
    derived = _Derived()
    return _document(derived, "map", _filled(slots, "model", derived))


def map_of_set(graphs: Mapping[str, Mapping[str, Made]]) -> dict[str, Any]:
    """Return a document for several graphs, by their file names: `{"models": {...}}`.

    If several graphs join a tensor from the same keys, they share one derived tensor, even if their
    slots have different names.
    """
    derived = _Derived()
    models = {name: _filled(slots, name, derived) for name, slots in graphs.items()}
    return _document(derived, "models", models)


class _Derived:
    """Derived tensors, each with one name and one definition."""

    def __init__(self) -> None:
        self.all: dict[str, Any] = {}
        self._names: dict[str, str] = {}

    def name(self, graph: str, slot: str, definition: Any) -> str:
        """Return the name for a definition: an existing one, or a new one after the slot."""
        text = json.dumps(definition)
        if text not in self._names:
            name = slot
            while name in self.all:
                name = f"{graph.removesuffix('.onnx')}.{name}"
            self._names[text] = name
            self.all[name] = definition
        return self._names[text]


def _document(derived: _Derived, what: str, filled: Any) -> dict[str, Any]:
    return {"derived": derived.all, what: filled} if derived.all else {what: filled}


def _filled(slots: Mapping[str, Made], graph: str, derived: _Derived) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for slot, made in slots.items():
        made, converts = _without_cast(slot, made)
        entry = _entry(made)
        if not (isinstance(entry, str) or "key" in entry):
            entry = derived.name(graph, slot, entry)
        filled[slot] = _with_cast(entry) if converts else entry
    return filled


def _without_cast(slot: str, made: Made) -> tuple[Made, bool]:
    """Return the recipe without casts, and whether it had any; a cast comes last in a recipe."""
    if isinstance(made, Step):
        of, converts = _without_cast(slot, made.of)
        return (of, True) if made.name == "cast" else (Step(of, made.name, made.numbers), converts)
    if isinstance(made, Join):
        parts = [_without_cast(slot, part) for part in made.of]
        if len({converts for _, converts in parts}) > 1:
            raise ExportError(
                f"{slot}: joined from tensors of several types; save the checkpoint in one type"
            )
        return Join(made.name, made.dim, tuple(part for part, _ in parts)), parts[0][1]
    return made, False


def _entry(made: Made) -> Any:
    """Return a key, a key with a recipe, or joined parts with a recipe."""
    steps: list[Any] = []
    while isinstance(made, Step):
        steps.insert(0, _step(made))
        made = made.of
    assert not isinstance(made, Unknown)  # the loader refused it
    if isinstance(made, Key):
        return {"key": made.name, "recipe": steps} if steps else made.name
    joined = {made.name: [_entry(part) for part in made.of], "dim": made.dim}
    return {**joined, "recipe": steps} if steps else joined


def _with_cast(entry: Any) -> dict[str, Any]:
    if isinstance(entry, str):
        return {"key": entry, "recipe": ["cast"]}
    return {**entry, "recipe": [*entry["recipe"], "cast"]}


def _step(step: Step) -> Any:
    if step.name == "permute" and step.numbers == (1, 0):
        return "transpose"
    return {step.name: list(step.numbers)}
