"""Progress: a callable of the caller's, or a bar on a terminal (tqdm's, where it is installed).

Work in steps instead of bytes is reported in lines.
"""

from __future__ import annotations

import contextlib
import logging  # before `_importing`: a fork must take its lock behind ours
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .swapping import exchanged, undoing

ProgressCallback = Callable[[str, int, int], object]
"""Called with the phase ("copy", "sync", "verify", "compare"), the bytes done and the bytes in all,
in the calling thread, at most about twenty times a second. An exception stops the work.

A callable of this package may have a method `before_publish`, which is called, in any thread, when
a save is staged and verified; unless it returns True, nothing of the save is put in place."""

Progress = ProgressCallback | bool | None
"""None: a bar if stderr is a terminal and tqdm is installed; True: a bar; False: none."""


# A process that is forked while a thread imports a module could never import it, because Python's
# lock of that module stays taken in the child. So a fork waits for our import. It takes the locks
# that were registered last first, and an import may wait for that of logging: a fork that had it
# before ours would wait for an import that waits for the fork.
_importing = threading.RLock()
os.register_at_fork(
    before=_importing.acquire,
    after_in_parent=_importing.release,
    after_in_child=_importing.release,
)


class _Bar:
    """One bar of tqdm for each phase.

    They have a lock of their own: a process that is forked while a thread draws would wait for
    tqdm's forever. And none of them starts tqdm's thread, which would stay.
    """

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = type("Bar", (tqdm,), {"_lock": threading.RLock(), "monitor_interval": 0})
        self._bar: Any = None
        self._phase = ""

    def __call__(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase or self._bar is None:
            self.close()
            self._phase = phase
            # Updates come often enough, so that nobody has to watch the bar.
            options = {"desc": phase, "unit": "B", "unit_scale": True, "miniters": 1}
            if not total:  # a step such as a trace, which takes time and moves no bytes
                options["bar_format"] = "{desc}: {elapsed}"
            self._bar = self._tqdm(total=total, **options)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def no_monitor() -> Iterator[None]:
    """Keep tqdm from starting a monitor thread, which would never end, for bars made meanwhile."""
    bars = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    if bars is None:
        yield
        return
    with exchanged(bars, "monitor_interval", 0):
        yield


@contextmanager
def only_errors(logger: str) -> Iterator[None]:
    """Let a logger show errors, but not warnings, inside the context."""
    told = logging.getLogger(logger)
    level = told.level
    told.setLevel(logging.ERROR)
    try:
        yield
    finally:
        told.setLevel(level)


@contextmanager
def torch_silent() -> Iterator[None]:
    """Keep torch from logging anything inside the context, unless TORCH_LOGS asks for it.

    Its errors are logged on a handler of its own, and also raised or handled.
    """
    loggers = [] if "TORCH_LOGS" in os.environ else [*logging.root.manager.loggerDict.items()]
    silenced = [
        each
        for name, each in loggers
        if name.partition(".")[0] == "torch"
        and isinstance(each, logging.Logger)
        and not each.disabled
    ]

    def undo() -> None:
        for each in silenced:
            each.disabled = False

    with undoing(undo):
        for each in silenced:
            each.disabled = True
        yield


@contextmanager
def shown(progress: Progress) -> Iterator[ProgressCallback | None]:
    """Yield the progress callback, and close the bar at the end."""
    if callable(progress):
        yield progress
        return
    wanted = sys.stderr.isatty() if progress is None else progress
    try:
        with _importing:
            from tqdm.auto import tqdm
    except ImportError:
        if progress is True:
            raise ImportError("progress=True needs tqdm; or give a callable") from None
        wanted = False
    if not wanted:
        yield None
        return
    bar = _Bar(tqdm)
    try:
        yield bar
    finally:
        bar.close()


class StepLines:
    """Shows the current step on stderr: on one line of a terminal, else on a line each.

    A long step, such as a trace, also shows for how many seconds it has been running.
    """

    def __init__(self, counted: bool = False) -> None:
        """Make the lines; `counted` steps have a number and a count instead of bytes."""
        self._counted = counted
        self._out = sys.stderr  # a trace has another one, so that torch's prints are not seen
        self._live = sys.stderr.isatty()
        self._every = 1.0 if self._live else 30.0
        self._step, self._since = "", 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._clock: threading.Thread | None = None

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show the step; if it was shown before, update its progress, on a terminal only."""
        if self._counted:
            text = f"{done}/{total} {step or 'the model itself'}"
        else:
            text = f"{step} ... {100 * done // total} %" if total and self._live else f"{step} ..."
        with self._lock:
            if text != self._step:
                self._since = time.monotonic()
            if self._live or text != self._step:
                self._say(text)
            self._step = text
        if self._clock is None:
            self._stop.clear()
            self._clock = threading.Thread(target=self._watch, daemon=True)
            self._clock.start()

    def _say(self, text: str) -> None:
        if self._live:
            import shutil  # which imports all kinds of compression

            columns = shutil.get_terminal_size().columns
            print(f"\r\033[K{text[: columns - 1]}", end="", file=self._out, flush=True)
        else:
            print(text, file=self._out, flush=True)

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            with self._lock, contextlib.suppress(OSError, ValueError):  # nobody may listen
                seconds = time.monotonic() - self._since
                if seconds >= self._every:
                    self._say(f"{self._step} {seconds:.0f} s")

    def close(self) -> None:
        """Clear the line."""
        if self._clock is not None:
            self._stop.set()
            self._clock.join()
            self._clock = None
        if self._live and self._step:
            print("\r\033[K", end="", file=self._out, flush=True)
        self._step = ""


@contextmanager
def told(progress: Progress, counted: bool = False) -> Iterator[ProgressCallback | None]:
    """Yield the callback to call with each step.

    Args:
        progress: None means lines if stderr is a terminal.
        counted: as for StepLines.
    """
    if callable(progress):
        yield progress
    elif progress or (progress is None and sys.stderr.isatty()):
        lines = StepLines(counted)
        try:
            yield lines
        finally:
            lines.close()
    else:
        yield None
