"""Control of Python's garbage collector while many small, long-lived objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector; reference counting still frees objects meanwhile.

    A description of a tensor is some five containers. With those of 20,000 tensors the collector
    would run again and again over all that a process with torch in it holds, and find nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
