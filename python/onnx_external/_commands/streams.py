"""Sets up a command's standard streams, so that output that cannot be written is an error."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Escape characters that stdout cannot encode, and flush stdout when the context ends.

    Raises:
        OSError: stdout is a closed pipe or a file on a full disk.
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
    """Discard unwritten output, so that Python does not retry the failed write at exit."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def has_unicode() -> bool:
    """Return whether stdout can encode all characters."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
