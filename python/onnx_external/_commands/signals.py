"""Makes a command that receives a signal clean up as on Ctrl-C, then end by that signal."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_ENDING = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
"""The handled signals and their default handlers. Other handlers are kept: `nohup` ignores SIGHUP,
and a non-interactive shell ignores SIGINT in background jobs."""


class Ended(KeyboardInterrupt):
    """Raised when a signal that ends the process arrives."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number))
        self.number = number


@contextlib.contextmanager
def ending_signals() -> Iterator[None]:
    """Raise `Ended` on SIGINT, SIGTERM or SIGHUP in the context; a second signal ends the process.

    Only the process of a command may use this context. After its cleanup, the process ends by the
    signal itself, because a shell or a scheduler checks how the process ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = {each: signal.getsignal(each) for each in _ENDING}
    handled = [each for each, usual in _ENDING.items() if before[each] == usual]

    def end(number: int, _: FrameType | None) -> NoReturn:
        arrived.append(number)
        for each in handled:
            signal.signal(each, signal.SIG_DFL)
        raise Ended(number)

    def end_by_signal() -> None:
        for each in arrived:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            signal.signal(each, signal.SIG_DFL)
            os.kill(os.getpid(), each)

    atexit.register(end_by_signal)  # before all others, which thus run before it
    for each in handled:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in handled:
            signal.signal(each, before[each])
        if not arrived:
            atexit.unregister(end_by_signal)
