"""Files copied beside the graphs as a part of their save, which is all or nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .._base.errors import Error, ReadWriteError
from .._base.progress import ProgressCallback
from .._folders.side_files import SideFile, copies_of, refuse_copies

_STAGING = ".copied-files-"
"""What the names of folders begin with in which files are staged."""


class Beside:
    """Copies of files, which a save moves into place right before its models.

    At that time the save has the folder for itself, and its weights are written and verified. What
    the copies replace is kept until the models are in place, too.
    """

    def __init__(
        self, files: list[SideFile], folder: Path, progress: ProgressCallback | None
    ) -> None:
        """Args: what is copied; where to; what the save calls with its progress."""
        self._files, self._folder, self._progress = files, folder, progress
        self._sync = True
        self._staging: Path | None = None
        self._placed: list[str] = []
        self._made: list[Path] = []
        self._failure: BaseException | None = None

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Forward the progress of the save; this object is its callback."""
        if self._progress is not None:
            self._progress(phase, done, total)

    def check(self, overwrite: bool) -> None:
        """Raise an error for targets that cannot or must not be replaced."""
        refuse_copies(self._files, self._folder, overwrite)

    @contextlib.contextmanager
    def saving(self, sync: bool, overwrite: bool) -> Iterator[None]:
        """Run one save inside the context, whose progress callback this object is."""
        self._sync, self._overwrite = sync, overwrite
        new_folder = not self._folder.exists()
        try:
            yield
        except BaseException:
            self._roll_back()
            if new_folder:
                with contextlib.suppress(OSError):
                    self._folder.rmdir()
            if self._failure is not None:
                raise self._failure from None
            raise
        self._remove_staging()

    def before_publish(self) -> bool:
        """Copy the files and move them into place; the save ends if it returns False."""
        try:
            self.check(self._overwrite)
            self._remove_leftovers()
            copies = list(copies_of(self._files, self._folder))
            if copies:
                self._staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self._folder))
            for file, target in copies:
                self._stage(file, target)
            for file, target in copies:
                self._make_folder(target.parent)
                self._place(file.name, target)
        except Error as error:
            self._failure = error
        except OSError as error:
            self._failure = self._failed(self._folder, error)
        except BaseException as error:
            self._failure = error
        return self._failure is None

    def _remove_leftovers(self) -> None:
        """Remove the leftovers of saves that were killed."""
        for left in self._folder.glob(f"{_STAGING}*"):
            shutil.rmtree(left, ignore_errors=True)

    @staticmethod
    def _failed(place: Path, error: OSError) -> ReadWriteError:
        made = ReadWriteError(f"{place}: cannot be written: {error.strerror}")
        made.__cause__ = error
        return made

    def _stage(self, file: SideFile, target: Path) -> None:
        staged = self._staged(file.name)
        try:
            staged.parent.mkdir(parents=True, exist_ok=True)
            with file.path.open("rb") as source, staged.open("wb") as out:
                shutil.copyfileobj(source, out)
                out.flush()
                if self._sync:
                    os.fsync(out.fileno())
        except OSError as error:
            raise self._failed(target, error) from error

    def _make_folder(self, folder: Path) -> None:
        """Make a folder for a file, if it does not exist."""
        if not folder.exists():
            self._make_folder(folder.parent)
            folder.mkdir()
            self._made.append(folder)

    def _place(self, name: str, target: Path) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):
                self._keep(target, self._kept(name))
            self._placed.append(name)
            os.replace(self._staged(name), target)
        except OSError as error:
            raise self._failed(target, error) from error

    def _staged(self, name: str) -> Path:
        """Return the place of a copy before it is moved into place."""
        assert self._staging is not None
        return self._staging / "new" / name

    def _kept(self, name: str) -> Path:
        """Return the place that keeps a replaced file."""
        assert self._staging is not None
        return self._staging / "old" / name

    @staticmethod
    def _keep(target: Path, kept: Path) -> None:
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            os.link(target, kept, follow_symlinks=False)
        except (NotImplementedError, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            shutil.copy2(target, kept, follow_symlinks=False)  # where there are no hard links

    def _roll_back(self) -> None:
        for name in reversed(self._placed):
            kept, target = self._kept(name), self._folder / name
            with contextlib.suppress(OSError):
                if os.path.lexists(kept):
                    os.replace(kept, target)
                elif not os.path.lexists(self._staged(name)):  # its copy is in place
                    target.unlink()
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._remove_staging()

    def _remove_staging(self) -> None:
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
        self._staging, self._placed, self._made = None, [], []
