"""Pauses Python's garbage collector while many small, long-lived objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector; reference counting still frees objects meanwhile.

    The description of a tensor consists of about five containers. While 20,000 tensors are
    described, the collector would repeatedly search all objects of a process that has imported
    torch, and find nothing to free.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
