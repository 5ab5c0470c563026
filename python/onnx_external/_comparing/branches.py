"""Graphs that replace others, each presented as the graph that it replaces.

These are the branches of a merged decoder and, for a Whisper of ONNX Runtime GenAI, an encoder that
also returns the decoder's keys and values of its output, and a decoder for the steps that also
reads the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .chaining import USES_CACHE, is_past, is_present, present_of
from .running import Form, Session
from .values import Value, dtype_of_type


class Branch:
    """Runs one branch of a merged decoder as if it were a graph of its own.

    Args:
        merged: the whole graph.
        has_cache: the branch that continues with a cache; otherwise that of the prompt.
    """

    def __init__(self, merged: Session, has_cache: bool) -> None:
        self._merged, self._has_cache = merged, has_cache
        self.name, self.source, self.outputs = merged.name, merged.source, merged.outputs
        self.inputs = [form for form in merged.inputs if not self._is_made(form.name)]

    def _is_made(self, name: str) -> bool:
        return name == USES_CACHE or (is_past(name) and not self._has_cache)

    @property
    def output_names(self) -> list[str]:
        """The outputs to compare; with a cache, all but the encoder's keys and values."""
        return [
            form.name for form in self.outputs if not (self._has_cache and ".encoder." in form.name)
        ]

    def feed(self, given: Mapping[str, Value], what: str) -> dict[str, Value]:
        """Return the values of all inputs of the branch, without those that this class adds."""
        rows = next(len(value) for value in given.values() if np.ndim(value))
        made: dict[str, Any] = {
            form.name: _empty(form, rows)
            for form in self._merged.inputs
            if form.name not in given or self._is_made(form.name)
        }
        made[USES_CACHE] = np.array([self._has_cache])
        return self._merged.feed({**given, **made}, what)

    def run(self, feed: dict[str, Value], what: str) -> dict[str, Value]:
        """Run the branch, and return the outputs to compare."""
        found = self._merged.run(feed, what)
        return {name: found[name] for name in self.output_names}


class CrossEncoder:
    """Runs an encoder that also returns the decoder's keys and values, and hides these outputs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.name, self.source, self.inputs = session.name, session.source, session.inputs
        self.outputs = [form for form in session.outputs if not _is_cache(form.name)]
        self.caches: dict[str, Value] = {}
        """The caches of the last run, by the names of the outputs."""

    @property
    def output_names(self) -> list[str]:
        """The outputs of a plain encoder."""
        return [form.name for form in self.outputs]

    def feed(self, given: Mapping[str, Value], what: str) -> dict[str, Value]:
        """Return the values of all inputs."""
        return self._session.feed(given, what)

    def run(self, feed: dict[str, Value], what: str) -> dict[str, Value]:
        """Run the encoder, keep the caches, and return the other outputs."""
        found = self._session.run(feed, what)
        self.caches = {name: value for name, value in found.items() if _is_cache(name)}
        return {name: found[name] for name in self.output_names}


class FirstStep:
    """Runs the graph of a decoder's steps with an empty cache, as the graph of the prompt.

    Args:
        step: the graph.
        encoder: the encoder, already run on the input that the prompt belongs to.
    """

    def __init__(self, step: Session, encoder: CrossEncoder) -> None:
        self._step, self._encoder = step, encoder
        self.name, self.source, self.outputs = step.name, step.source, step.outputs
        self.inputs = [form for form in step.inputs if not _is_cache(form.name)]

    @property
    def output_names(self) -> list[str]:
        """The outputs of both graphs together, which are those of a graph of the prompt."""
        return [*self._step.output_names, *self._encoder.caches]

    def feed(self, given: Mapping[str, Value], what: str) -> dict[str, Value]:
        """Return the values of all inputs, an empty cache among them."""
        rows = next(len(value) for value in given.values() if np.ndim(value))
        made: dict[str, Any] = {
            form.name: self._encoder.caches.get(present_of(form.name), _empty(form, rows))
            for form in self._step.inputs
            if _is_cache(form.name)
        }
        return self._step.feed({**given, **made}, what)

    def run(self, feed: dict[str, Value], what: str) -> dict[str, Value]:
        """Run the graph, and return its outputs together with the encoder's."""
        return {**self._step.run(feed, what), **self._encoder.caches}


Runs = Session | Branch | CrossEncoder | FirstStep
"""Anything that can be run as a graph of a folder."""


def branches(merged: Session, prompt: str, step: str) -> dict[str, Branch]:
    """Return both branches of a merged decoder, by the names of the graphs that they replace."""
    return {prompt: Branch(merged, False), step: Branch(merged, True)}


def is_merged(session: Session) -> bool:
    """Return whether a graph is a merged decoder."""
    return any(form.name == USES_CACHE for form in session.inputs)


def _is_cache(name: str) -> bool:
    return is_past(name) or is_present(name)


def _empty(form: Form, rows: int) -> Any:
    """Return a value without elements, or with zeros if none of its dimensions is dynamic."""
    shape = [size if isinstance(size, int) else 0 for size in form.shape]
    return np.zeros([rows, *shape[1:]], dtype_of_type(form.type))
