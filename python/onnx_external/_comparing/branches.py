"""The two branches of a merged decoder, each as the graph that it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .chaining import USES_CACHE
from .running import Form, Session
from .values import Value, dtype_of_type


class Branch:
    """Runs one branch of a merged decoder as if it were a graph of its own.

    Args:
        merged: the whole graph.
        has_cache: the branch that goes on behind a cache; else that of the prompt.
    """

    def __init__(self, merged: Session, has_cache: bool) -> None:
        self._merged, self._has_cache = merged, has_cache
        self.name, self.source, self.outputs = merged.name, merged.source, merged.outputs
        self.inputs = [form for form in merged.inputs if not self._is_made(form.name)]

    def _is_made(self, name: str) -> bool:
        return name == USES_CACHE or (name.startswith("past_key_values.") and not self._has_cache)

    @property
    def output_names(self) -> list[str]:
        """The outputs that count: behind a cache, what comes of the encoder stays as it was."""
        return [
            form.name for form in self.outputs if not (self._has_cache and ".encoder." in form.name)
        ]

    def feed(self, given: Mapping[str, Value], what: str) -> dict[str, Value]:
        """Return the values of all inputs; the branch does not read those that are made here."""
        rows = next(len(value) for value in given.values() if np.ndim(value))
        made: dict[str, Any] = {
            form.name: _empty(form, rows)
            for form in self._merged.inputs
            if form.name not in given or self._is_made(form.name)
        }
        made[USES_CACHE] = np.array([self._has_cache])
        return self._merged.feed({**given, **made}, what)

    def run(self, feed: dict[str, Value], what: str) -> dict[str, Value]:
        """Run it, and return the outputs that count."""
        found = self._merged.run(feed, what)
        return {name: found[name] for name in self.output_names}


def _empty(form: Form, rows: int) -> Any:
    """Return a value without elements, or with zeros if its sizes do not vary."""
    shape = [size if isinstance(size, int) else 0 for size in form.shape]
    return np.zeros([rows, *shape[1:]], dtype_of_type(form.type))
