"""Progress: a callable of the caller's, or a bar on a terminal (tqdm's, where it is installed)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Progress", "ProgressCallback", "no_monitor"]

ProgressCallback = Callable[[str, int, int], object]
"""Called with the phase ("copy", "sync", "verify", "compare"), the bytes done and the bytes in all,
in the calling thread, at most about twenty times a second. An exception stops the work.

A callable of this package may have a method `before_publish`, which is called, in any thread, when
a save is staged and verified; unless it returns True, nothing of the save is put in place."""

Progress = ProgressCallback | bool | None
"""None: a bar if stderr is a terminal and tqdm is installed; True: a bar; False: none."""


# A process that is forked while a thread imports a module could never import it, because Python's
# lock of that module stays taken in the child. So a fork waits for our import.
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
            self._bar = self._tqdm(total=total, **options)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def no_monitor() -> Iterator[None]:
    """Keep tqdm from starting, for bars that are made meanwhile, a thread that stays for good."""
    bars = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    if bars is None:
        yield
        return
    interval = bars.monitor_interval
    bars.monitor_interval = 0
    try:
        yield
    finally:
        bars.monitor_interval = interval


@contextmanager
def shown(progress: Progress) -> Iterator[ProgressCallback | None]:
    """Yield what is to be called, and close the bar in the end."""
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
