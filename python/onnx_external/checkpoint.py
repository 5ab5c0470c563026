"""Reading checkpoints: any format, nothing executed, plain tensors mapped without a copy."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core

if TYPE_CHECKING:
    import torch

__all__ = ["Checkpoint", "Tensor", "open_checkpoint"]

StrPath = str | os.PathLike[str]

# Types that numpy has under the same name.
_NUMPY = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | {
    "bool",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
}
# Types that ml_dtypes adds to numpy, one element per value.
_ML_DTYPES = frozenset(
    (
        "bfloat16",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    )
)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name in _NUMPY:
        return np.dtype(name)
    if name not in _ML_DTYPES:
        raise TypeError(f"numpy has no type {name}; use .torch() or .tobytes()")
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            f"numpy has no type {name}; install ml_dtypes, or use .torch() or .tobytes()"
        ) from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


class _Files:
    """The files of a checkpoint, mapped when a tensor of them is first asked for.

    The mapping is private: writing to an array that is made of it changes no file. Arrays keep the
    mapping of their file alive.
    """

    def __init__(self, core: _core.Checkpoint) -> None:
        self._core = core
        self._maps: dict[int, mmap.mmap] = {}

    def __getitem__(self, file: int) -> mmap.mmap:
        if file not in self._maps:
            descriptor = self._core.duplicate_file(file)
            try:
                self._maps[file] = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
            finally:
                os.close(descriptor)
        return self._maps[file]


class Tensor:
    """One tensor of a checkpoint. Its bytes are read when they are asked for."""

    __slots__ = ("_core", "_file", "_files", "_index", "dtype", "name", "nbytes", "offset", "shape")

    name: str
    dtype: str
    """Torch's name of the element type, e.g. "bfloat16"."""
    shape: tuple[int, ...]
    nbytes: int
    """Bytes of the contiguous tensor."""
    offset: int | None
    """Where its bytes begin in `file`, if they are one plain range of a file."""

    def __init__(self, core: _core.Checkpoint, files: _Files, index: int, name: str) -> None:
        self._core, self._files, self._index, self.name = core, files, index, name
        self.dtype, self.shape, self.nbytes, self._file, self.offset = core.describe(index)

    @property
    def file(self) -> str | None:
        """The file that holds the contiguous, little-endian bytes as one range; None otherwise."""
        return None if self._file is None else str(self._core.files()[self._file])

    def __repr__(self) -> str:
        """Return name, type and shape."""
        return f"<Tensor {self.name!r} {self.dtype} {list(self.shape)}>"

    def tobytes(self) -> bytes:
        """Return the contiguous, row-major, little-endian bytes."""
        return bytes(self._read())

    def readinto(self, buffer: bytearray | memoryview) -> None:
        """Fill a writable buffer of `nbytes` bytes with what tobytes() returns."""
        self._core.read_into(self._index, 0, buffer)

    def _read(self) -> bytearray:
        out = bytearray(self.nbytes)
        self.readinto(out)
        return out

    @property
    def place(self) -> tuple[_core.Checkpoint, int]:
        """The extension's checkpoint and the tensor's index there, for the package itself."""
        return self._core, self._index

    def is_in_place(self) -> bool:
        """Return whether `file` still names the file that was opened."""
        if self._file is None or self.file is None:
            return False
        descriptor = self._core.duplicate_file(self._file)
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.file))
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def _buffer(self, item: int) -> tuple[mmap.mmap | bytearray, int]:
        """A buffer with the bytes, and where they begin in it: the mapped file, or a copy."""
        if self._file is None or self.offset is None or self.offset % item or not self.nbytes:
            return self._read(), 0
        return self._files[self._file], self.offset

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a read-only array: the mapped file where the bytes lie there plainly, else a copy.

        It stays valid after the checkpoint is closed. The file must not be truncated meanwhile.
        bfloat16 and float8 need ml_dtypes. A TypeError says which types numpy cannot hold.
        """
        dtype = _numpy_dtype(self.dtype)
        count = self.nbytes // dtype.itemsize
        buffer, offset = self._buffer(dtype.itemsize)
        array = np.frombuffer(buffer, dtype, count, offset) if count else np.empty(0, dtype)
        array = array.reshape(self.shape)
        array.flags.writeable = False
        return array

    def torch(self) -> torch.Tensor:
        """Return a tensor of torch; as numpy(), but it may be written to, which changes no file."""
        import torch

        dtype = getattr(torch, self.dtype, None)
        if dtype is None:
            raise TypeError(f"torch {torch.__version__} has no type {self.dtype}")
        if not self.nbytes:
            return torch.empty(self.shape, dtype=dtype)
        buffer, offset = self._buffer(dtype.itemsize)
        count = self.nbytes // dtype.itemsize
        return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset).reshape(self.shape)


class Checkpoint(Mapping[str, Tensor]):
    """The named tensors of one or several files, in the files' order. `open_checkpoint` makes it.

    Arrays and tensors stay valid after close(). Several threads may use one checkpoint.
    """

    def __init__(self, core: _core.Checkpoint) -> None:
        self._open: _core.Checkpoint | None = core
        self._files = _Files(core)
        self._places = {name: index for index, name in enumerate(core.names())}

    @property
    def core(self) -> _core.Checkpoint:
        """The extension's object, for the package itself; ValueError if it was closed."""
        if self._open is None:
            raise ValueError("the checkpoint is closed")
        return self._open

    @property
    def format(self) -> str:
        """What the files are: "torch-zip", "safetensors", "sharded torch-zip", ..."""
        return self.core.format()

    @property
    def files(self) -> list[str]:
        """The files, as they were opened."""
        return [str(path) for path in self.core.files()]

    def __getitem__(self, name: str) -> Tensor:
        """Return the tensor of that name; KeyError if there is none."""
        return Tensor(self.core, self._files, self._places[name], name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._places)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return all tensors as torch's, for `module.load_state_dict(..., assign=True)`."""
        return {name: self[name].torch() for name in self}

    def close(self) -> None:
        """Close the files. Arrays that were made stay valid."""
        self._open = None
        self._files = _CLOSED

    def __enter__(self) -> Checkpoint:
        """Return self."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the files."""
        self.close()


class _Closed(_Files):
    def __init__(self) -> None:
        self._maps = {}

    def __getitem__(self, file: int) -> mmap.mmap:
        raise ValueError("the checkpoint is closed")


_CLOSED = _Closed()


def open_checkpoint(
    paths: StrPath | Sequence[StrPath],
    key: str | None = None,
    *,
    overlay: bool = False,
    max_expand: int = 4,
    densify: bool = False,
    widen_complex32: bool = False,
    threads: int = 0,
) -> Checkpoint:
    """Open a checkpoint of any format. Nothing that a pickle names is imported or called.

    Args:
        paths: a checkpoint file, a shard index or a folder; several are one checkpoint.
        key: the dict of names to tensors in a nested checkpoint, e.g. "state_dict".
        overlay: of a tensor that several paths have, take the last one's.
        max_expand: views may grow to so many times the size of the files.
        densify: make sparse tensors dense.
        widen_complex32: make complex32 tensors complex64.
        threads: 0 means one per CPU.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    options = {
        "key": key,
        "overlay": overlay,
        "max_expand": max_expand,
        "densify": densify,
        "widen_complex32": widen_complex32,
        "threads": threads,
    }
    return Checkpoint(_core.Checkpoint.open(given, options))
