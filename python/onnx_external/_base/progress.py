"""Reports progress to a callable, or shows it on a terminal as a tqdm bar.

Work that is counted in steps and not in bytes is reported in lines of text.
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
"""A callable that receives the phase ("copy", "sync", "verify", "compare"), the bytes done and the
bytes in total. It is called in the calling thread, at most about twenty times a second. An
exception raised by it stops the work.

A callable defined in this package may have a method `before_publish`, which is called in any thread
when a save is staged and verified. Unless the method returns True, nothing of the save is put in
place."""

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
    """Shows a tqdm bar for each phase.

    The bars have their own lock. With tqdm's lock, a process forked while a thread draws would wait
    for the lock forever. The bars do not start tqdm's monitor thread, which would never end.
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
    """Keep bars made inside the context from starting tqdm's monitor thread, which never ends."""
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
    """Keep torch from logging inside the context, unless TORCH_LOGS is set.

    torch logs errors on its own handler, but these errors are also raised or handled.
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
    """Yield the progress callback; close the progress bar, if any, when the context ends."""
    if callable(progress):
        yield progress
        return
    wanted = sys.stderr.isatty() if progress is None else progress
    try:
        with _importing:
            from tqdm.auto import tqdm
    except ImportError:
        if progress is True:
            raise ImportError("progress=True needs tqdm; otherwise pass a callable") from None
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
    """Shows the current step on stderr: on a terminal in one line, else in new lines.

    For a long step, such as a trace, the elapsed seconds are shown as well.
    """

    def __init__(self, counted: bool = False) -> None:
        """Prepare the output; if `counted`, a step is shown with its number, out of a total."""
        self._counted = counted
        self._out = sys.stderr  # a trace has another one, so that torch's prints are not seen
        self._live = sys.stderr.isatty()
        self._every = 1.0 if self._live else 30.0
        self._step, self._since = "", 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._clock: threading.Thread | None = None

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show a step; on a terminal, update its line if the step is already shown."""
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
        """Erase the line on the terminal."""
        if self._clock is not None:
            self._stop.set()
            self._clock.join()
            self._clock = None
        if self._live and self._step:
            print("\r\033[K", end="", file=self._out, flush=True)
        self._step = ""


@contextmanager
def told(progress: Progress, counted: bool = False) -> Iterator[ProgressCallback | None]:
    """Yield the callback to call for each step, or None if nothing is to be shown.

    Args:
        progress: a callable; True for lines on stderr; False for nothing; None for lines if stderr
            is a terminal.
        counted: True to show the number of each step out of a total.
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
