"""Makes temporary folders, and removes those that killed processes left behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import ReadWriteError

_PREFIX = ".onnx-external-"
_SUFFIX = ".tmp"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_WAY_OUT = "set TMPDIR to a folder with enough space for temporary files"


@contextlib.contextmanager
def temporary_folder(place: Path | None = None, prefix: str = _PREFIX) -> Iterator[Path]:
    """Make a temporary folder, and remove it at the end.

    The folder is locked as long as this process lives. Folders with the same prefix whose process
    has ended are removed first, so the leftovers of a killed process remain only until the next
    call.

    Args:
        place: the parent folder; None for the folder in TMPDIR.
        prefix: the start of the folder's name.

    Raises:
        ReadWriteError: the folder cannot be made, or there is no space left in it.
    """
    where = place or _place()
    remove_abandoned(where, prefix)
    folder, lock = _locked_folder(where, prefix)
    inside = folder / "files"  # a save locks the folder into which it writes
    try:
        inside.mkdir()
        with contextlib.nullcontext() if place else _way_out(folder):
            yield inside
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:  # a signal may have come meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _place() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise ReadWriteError(f"TMPDIR: {error.strerror}; {_WAY_OUT}") from error


@contextlib.contextmanager
def _way_out(folder: Path) -> Iterator[None]:
    """Add advice to set TMPDIR to errors that are raised because the folder runs out of space."""
    try:
        yield
    except ReadWriteError as error:
        if error.code == "io" and str(folder) in str(error.args[0]):
            error.args = (f"{error.args[0]}; {_WAY_OUT}",)
        raise
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise ReadWriteError(f"{folder}: {error.strerror}; {_WAY_OUT}") from error


def _locked_folder(where: Path, prefix: str) -> tuple[Path, int]:
    """Make and lock a folder; return the folder and the descriptor that holds the lock."""
    while True:
        try:
            folder = Path(tempfile.mkdtemp(_SUFFIX, prefix, where))
        except OSError as error:
            way_out = "" if prefix != _PREFIX else f"; {_WAY_OUT}"
            raise ReadWriteError(f"{where}: {error.strerror}{way_out}") from error
        with contextlib.suppress(FileNotFoundError):  # another process took it for abandoned
            lock = _opened(folder)
            if _is_free(lock) is not False and os.path.samestat(os.fstat(lock), folder.stat()):
                return folder, lock
            os.close(lock)


def remove_abandoned(where: Path, prefix: str) -> None:
    """Remove the folders with this prefix whose process was killed."""
    name = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}" + re.escape(_SUFFIX))
    try:
        found = [each for each in where.iterdir() if name.fullmatch(each.name)]
    except OSError:
        return
    for folder in found:
        with contextlib.suppress(OSError):
            lock = _opened(folder)
            try:
                if os.fstat(lock).st_uid == os.geteuid() and _is_free(lock):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_free(folder: int) -> bool | None:
    """Lock an open folder; return False if it is locked already, None if locking is impossible."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
