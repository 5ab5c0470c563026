"""Presents graphs that do the work of several graphs as the graphs that they replace.

A merged decoder has a branch for the prompt and a branch for the steps. A Whisper for ONNX Runtime
GenAI has an encoder that also returns the decoder's cross-attention cache, and a decoder for the
steps that also reads the prompt.
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
        has_cache: True for the branch that continues with a cache, False for that of the prompt.
    """

    def __init__(self, merged: Session, has_cache: bool) -> None:
        self._merged, self._has_cache = merged, has_cache
        self.name, self.source, self.outputs = merged.name, merged.source, merged.outputs
        self.inputs = [form for form in merged.inputs if not self._is_made(form.name)]

    def _is_made(self, name: str) -> bool:
        return name == USES_CACHE or (is_past(name) and not self._has_cache)

    @property
    def output_names(self) -> list[str]:
        """The outputs to compare; with a cache, these exclude the encoder's keys and values."""
        return [
            form.name for form in self.outputs if not (self._has_cache and ".encoder." in form.name)
        ]

    def feed(self, given: Mapping[str, Value], what: str) -> dict[str, Value]:
        """Return the values of the merged graph's inputs, including those that select a branch."""
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
    """Runs an encoder that also returns the decoder's keys and values, but hides these outputs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.name, self.source, self.inputs = session.name, session.source, session.inputs
        self.outputs = [form for form in session.outputs if not _is_cache(form.name)]
        self.caches: dict[str, Value] = {}
        """The decoder's keys and values from the last run, by output name."""

    @property
    def output_names(self) -> list[str]:
        """The encoder's outputs, without the decoder's keys and values."""
        return [form.name for form in self.outputs]

    def feed(self, given: Mapping[str, Value], what: str) -> dict[str, Value]:
        """Return the values of all inputs of the encoder."""
        return self._session.feed(given, what)

    def run(self, feed: dict[str, Value], what: str) -> dict[str, Value]:
        """Run the encoder, store the decoder's keys and values, and return the other outputs."""
        found = self._session.run(feed, what)
        self.caches = {name: value for name, value in found.items() if _is_cache(name)}
        return {name: found[name] for name in self.output_names}


class FirstStep:
    """Runs the graph for a decoder's steps with an empty cache, as if it were the prompt's graph.

    Args:
        step: the graph for the steps.
        encoder: the encoder, after its run on the input to which the prompt belongs.
    """

    def __init__(self, step: Session, encoder: CrossEncoder) -> None:
        self._step, self._encoder = step, encoder
        self.name, self.source, self.outputs = step.name, step.source, step.outputs
        self.inputs = [form for form in step.inputs if not _is_cache(form.name)]

    @property
    def output_names(self) -> list[str]:
        """The outputs of a graph for prompts: those of the step and of the encoder."""
        return [*self._step.output_names, *self._encoder.caches]

    def feed(self, given: Mapping[str, Value], what: str) -> dict[str, Value]:
        """Return the values of all inputs, including an empty cache."""
        rows = next(len(value) for value in given.values() if np.ndim(value))
        made: dict[str, Any] = {
            form.name: self._encoder.caches.get(present_of(form.name), _empty(form, rows))
            for form in self._step.inputs
            if _is_cache(form.name)
        }
        return self._step.feed({**given, **made}, what)

    def run(self, feed: dict[str, Value], what: str) -> dict[str, Value]:
        """Run the graph, and return its outputs together with the encoder's keys and values."""
        return {**self._step.run(feed, what), **self._encoder.caches}


Runs = Session | Branch | CrossEncoder | FirstStep
"""Anything that can be run like a graph in a model folder."""


def branches(merged: Session, prompt: str, step: str) -> dict[str, Branch]:
    """Return the two branches of a merged decoder, by the names of the graphs that they replace."""
    return {prompt: Branch(merged, False), step: Branch(merged, True)}


def is_merged(session: Session) -> bool:
    """Return whether a graph is a merged decoder."""
    return any(form.name == USES_CACHE for form in session.inputs)


def _is_cache(name: str) -> bool:
    return is_past(name) or is_present(name)


def _empty(form: Form, rows: int) -> Any:
    """Return an empty array for an input, or zeros if no dimension of the input is dynamic."""
    shape = [size if isinstance(size, int) else 0 for size in form.shape]
    return np.zeros([rows, *shape[1:]], dtype_of_type(form.type))
