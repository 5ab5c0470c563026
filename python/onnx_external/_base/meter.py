"""Measures the time and memory that the steps of an export take."""

from __future__ import annotations

import importlib.metadata
import mmap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_EVERY = 0.02
"""The number of seconds between two samples of the memory."""


@dataclass(frozen=True)
class Step:
    """One step: its name, its duration, and the peak memory of the process."""

    name: str
    """The name of the step of an export."""
    seconds: float
    """The duration of the step in seconds."""
    peak_memory: int | None
    """The peak of the anonymous memory (RssAnon on Linux) in bytes; None if unknown."""


class Stepwise:
    """Base class of export reports, which provides the steps and their time and memory."""

    steps: list[Step]

    @property
    def seconds(self) -> float:
        """The total time of all steps, in seconds."""
        return sum(step.seconds for step in self.steps)

    @property
    def peak_memory(self) -> int | None:
        """The peak of the anonymous memory, which no file backs, in bytes."""
        return max((step.peak_memory for step in self.steps if step.peak_memory), default=None)


_LINES = 24
_WIDTH = 240


def screen(lines: Sequence[str], width: int = _WIDTH) -> str:
    """Return the text of a report, shortened to fit on a screen; `repr()` returns all of it.

    Args:
        lines: the lines of the text.
        width: the maximum number of characters in a line.
    """
    more = len(lines) - _LINES
    shown = [*lines[:_LINES], f"and {more} more lines in repr()"] if more > 0 else lines
    cut = [each if len(each) <= width else f"{each[: width - 4]} ..." for each in shown]
    return "\n".join(cut)


def anonymous_memory() -> int | None:
    """Return the bytes of anonymous memory (RssAnon on Linux), or None if unknown.

    /proc/self/status also has this value, but takes four times as long to read.
    """
    try:
        with open("/proc/self/statm", "rb", buffering=0) as counts:
            resident, shared = map(int, counts.read(128).split()[1:3])
    except (OSError, ValueError):
        return None
    return (resident - shared) * mmap.PAGESIZE


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class _Peak:
    """A thread that samples the memory of the process until it is stopped."""

    def __init__(self) -> None:
        self.bytes = anonymous_memory()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if self.bytes is not None:
            self._thread.start()

    def _look(self) -> None:
        now = anonymous_memory()
        if now is not None:
            self.bytes = max(self.bytes or 0, now)

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY):
            self._look()

    def stop(self) -> int | None:
        if self._thread.is_alive():
            self._stop.set()
            self._thread.join()
            self._look()
        return self.bytes


class Meter:
    """Measures the steps of an export, one after another."""

    def __init__(self, tell: Callable[[str, int, int], object] | None = None) -> None:
        self.steps: list[Step] = []
        self._tell = tell

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the step that runs in the context, even if it fails."""
        if self._tell is not None:
            self._tell(name, 0, 0)
        peak, start = _Peak(), time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.steps.append(Step(name, seconds, peak.stop()))
