from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

version: str

_Path = str | PathLike[str]
_Progress = Callable[[str, int, int], object] | None

class Checkpoint:
    @staticmethod
    def open(
        paths: _Path | list[_Path] | tuple[_Path, ...], options: dict[str, Any]
    ) -> Checkpoint: ...
    def format(self) -> str: ...
    def names(self) -> list[str]: ...
    def files(self) -> list[Path]: ...
    def describe(self, index: int) -> tuple[str, tuple[int, ...], int, int | None, int | None]: ...
    def read_into(self, index: int, first: int, buffer: bytearray | memoryview) -> None: ...
    def duplicate_file(self, file: int) -> int: ...

def save(
    model: bytes | _Path,
    weights: _Path | list[_Path] | tuple[_Path, ...] | None,
    folder: _Path | None,
    model_name: str,
    data_dir: str,
    progress: _Progress,
    options: dict[str, Any],
) -> str: ...
def verify(
    model: _Path,
    against: _Path | list[_Path] | tuple[_Path, ...] | None,
    progress: _Progress,
    options: dict[str, Any],
) -> str: ...
def inspect(
    files: _Path | list[_Path] | tuple[_Path, ...], progress: _Progress, options: dict[str, Any]
) -> str: ...
