"""Stores arrays on disk: recorded values, and inner values of the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._base.errors import ReadWriteError
from .._comparing.values import Array, Value, kind_of


@dataclass(frozen=True)
class Spilled:
    """An array that is stored in a file of its own."""

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self) -> Array:
        """Return the stored array, memory-mapped from its file."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        # Mapped as bytes, since numpy maps no bfloat16.
        mapped: Array = np.memmap(self.path, np.uint8, "r").view(self.dtype)
        return mapped.reshape(self.shape)


def can_spill(value: Value) -> bool:
    """Return whether a value is an array of numbers, which can be stored."""
    return isinstance(value, np.ndarray) and kind_of(value) != "string"


def spill(array: Array, path: Path) -> Spilled:
    """Write an array of numbers to a file.

    Raises:
        ReadWriteError: the file cannot be written.
    """
    try:
        np.ascontiguousarray(array).view(np.uint8).tofile(path)
    except OSError as error:
        raise ReadWriteError(
            f"{path.parent}: values of modules cannot be written: {error.strerror or error}; "
            "the folder is in TMPDIR"
        ) from error
    return Spilled(path, array.dtype, array.shape)
