"""Python's garbage collector, while many small objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector from running; reference counts free what they free anyway.

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
