"""The standard streams of a command: output that cannot be written ends it with a message."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Escape characters that stdout's encoding lacks, and flush stdout at the end.

    Raises:
        OSError: stdout is a closed pipe, or on a full disk.
    """
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):  # closed, or replaced
        yield
        return
    before = stream.errors
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
        stream.flush()
    except OSError:
        _forget(stream)
        raise
    finally:
        stream.reconfigure(errors=before)


def _forget(stream: io.TextIOWrapper) -> None:
    """Keep Python from retrying, at exit, a write that failed."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def has_unicode() -> bool:
    """Return whether stdout can encode every character."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
