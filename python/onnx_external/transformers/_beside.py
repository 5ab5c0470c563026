"""Moves files into place as part of a save: either all files appear, or none.

The moved files are those next to the graphs. If the graphs are saved one after the other, they are
staged together with these files and put in place at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .._base.errors import Error, ReadWriteError
from .._base.progress import ProgressCallback
from .._comparing.precision import data_files
from .._folders.side_files import SideFile, copies_of, refuse_copies

_STAGING = ".copied-files-"
"""The prefix of the names of staging folders."""


class Beside:
    """Copies files, and moves them into place immediately before a save moves its models.

    At that time, the save has the folder for itself, and its weights are written and verified.
    Replaced files are kept until the models are in place. The models of several saves are written
    into `room()`, and `publish()` moves all of them into place.
    """

    def __init__(
        self, files: list[SideFile], folder: Path, progress: ProgressCallback | None
    ) -> None:
        """Prepare to copy `files` into `folder`; the save reports to `progress`."""
        self._files, self._folder, self._progress = files, folder, progress
        self._sync = True
        self._staging: Path | None = None
        self._placed: list[str] = []
        self._made: list[Path] = []
        self._failure: BaseException | None = None

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Forward the progress of the save, whose callback this object is."""
        if self._progress is not None:
            self._progress(phase, done, total)

    def check(self, overwrite: bool) -> None:
        """Raise an error if a target cannot or must not be replaced."""
        refuse_copies(self._files, self._folder, overwrite)

    @contextlib.contextmanager
    def saving(self, sync: bool, overwrite: bool) -> Iterator[None]:
        """Run one save inside the context, with this object as its progress callback."""
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

    def room(self) -> Path:
        """Create and return a folder that replaces the target folder until publish()."""
        try:
            self._make_folder(self._folder)
            self._remove_leftovers()
            self._stage_in_new_folder()
            room = self._staged("")
            room.mkdir()
        except OSError as error:
            raise self._failed(self._folder, error) from error
        return room

    def publish(self) -> None:
        """Move the files in room() and the copied files into place.

        While data files are replaced, no graph is in place, so a killed process leaves no wrong
        model.

        Raises:
            Error: a file cannot be moved into place; saving() restores the earlier files.
        """
        room = self._staged("")
        names = [str(path.relative_to(room)) for path in sorted(room.rglob("*")) if path.is_file()]
        models = [name for name in names if name.endswith(".onnx")]
        made = [SideFile(room / name, name) for name in names]
        refuse_copies(made, self._folder, self._overwrite)
        for name in models:
            self._move_away(name)
        if not self.before_publish():
            assert self._failure is not None
            raise self._failure
        refuse_copies(made, self._folder, self._overwrite)  # it may have appeared meanwhile
        try:
            for name in [*(name for name in names if name not in models), *models]:
                self._make_folder((self._folder / name).parent)
                self._place(name, self._folder / name)
            if self._sync:
                for folder in {(self._folder / name).parent for name in names}:
                    _sync_folder(folder)
        except OSError as error:
            raise self._failed(self._folder, error) from error
        self._remove_old_data(models)

    def _move_away(self, model: str) -> None:
        """Move a model that will be replaced to a hidden place."""
        target, kept = self._folder / model, self._kept(model)
        if os.path.lexists(target):
            try:
                kept.parent.mkdir(parents=True, exist_ok=True)
                self._placed.append(model)
                os.replace(target, kept)
            except OSError as error:
                raise self._failed(target, error) from error

    def _remove_old_data(self, models: list[str]) -> None:
        """Remove data files that only the replaced models used."""
        kept = {name: self._kept(name) for name in models if self._kept(name).is_file()}
        for folder in {(self._folder / name).parent for name in kept}:
            of_folder = [self._kept(n) for n in kept if (self._folder / n).parent == folder]
            old = {name for path in of_folder for name in data_files(path)}
            used = {name for path in folder.glob("*.onnx") for name in data_files(path)}
            for name in old - used:
                with contextlib.suppress(OSError):
                    (folder / name).unlink()

    def _stage_in_new_folder(self) -> None:
        self._staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self._folder))

    def before_publish(self) -> bool:
        """Copy the files and move them into place; if this returns False, the save ends."""
        try:
            self.check(self._overwrite)
            self._remove_leftovers()
            copies = list(copies_of(self._files, self._folder))
            if copies and self._staging is None:
                self._stage_in_new_folder()
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
        """Remove the staging folders of saves that were killed."""
        for left in self._folder.glob(f"{_STAGING}*"):
            if left != self._staging:
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
        """Create a folder for a file if it does not exist."""
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
        """Return the path of a copy before it is moved into place."""
        assert self._staging is not None
        return self._staging / "new" / name

    def _kept(self, name: str) -> Path:
        """Return the path at which a replaced file is kept."""
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
        for name in reversed(list(dict.fromkeys(self._placed))):
            kept, target = self._kept(name), self._folder / name
            with contextlib.suppress(OSError):
                if os.path.lexists(kept):
                    os.replace(kept, target)
                elif not os.path.lexists(self._staged(name)):  # its copy is in place
                    target.unlink()
        made = reversed(self._made)
        self._remove_staging()
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _remove_staging(self) -> None:
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
        self._staging, self._placed, self._made = None, [], []


def _sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
