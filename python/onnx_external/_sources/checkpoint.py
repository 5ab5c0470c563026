"""Reads checkpoints in any format, without running code or copying plain tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._base.argument_types import checks_types, paths_of
from .._base.errors import WrongTypeError
from .._base.options import StrPath

if TYPE_CHECKING:
    import torch

# A mapping takes whole pages; smaller tensors are copied.
_SMALL = 4096

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


def numpy_dtype(name: str, tensor: str = "") -> np.dtype[Any]:
    if name in _NUMPY:
        return np.dtype(name)
    lacks = (
        f"tensor {tensor!r}: numpy has no type {name}" if tensor else f"numpy has no type {name}"
    )
    if name not in _ML_DTYPES:
        raise WrongTypeError(f"{lacks}; use .torch() or .tobytes()")
    try:
        import ml_dtypes
    except ImportError:
        raise WrongTypeError(f"{lacks}; install ml_dtypes, or use .torch() or .tobytes()") from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def _torch_dtype(tensor: Tensor) -> torch.dtype:
    import torch

    dtype = getattr(torch, tensor.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise WrongTypeError(
            f"tensor {tensor.name!r}: torch {torch.__version__} has no type {tensor.dtype}; "
            "use .tobytes()"
        )
    return dtype


def _torch_of(buffer: _core.Mapped | bytearray, offset: int, tensor: Tensor) -> torch.Tensor:
    """Return a tensor over the contiguous bytes in a buffer that start at `offset`."""
    import torch

    dtype = _torch_dtype(tensor)
    if not tensor.nbytes:
        return torch.empty(tensor.shape, dtype=dtype)
    count = tensor.nbytes // dtype.itemsize
    flat = torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset)
    return flat.reshape(tensor.shape)


class _StateDict:
    """The memory of one state dict; tensors that share bytes in the checkpoint share them here.

    Each file is mapped only once, because Linux limits a process to about 65,530 mappings.
    """

    def __init__(self, core: _core.Checkpoint) -> None:
        self._core = core
        self._files: dict[int, _core.Mapped | None] = {}
        self._shared = core.shared_tensors()
        self._storages: dict[tuple[int, int, int], torch.Tensor] = {}
        self._copies: dict[int, torch.Tensor] = {}

    def _file(self, file: int) -> _core.Mapped | None:
        if file not in self._files:
            self._files[file] = self._core.map_file(file, 0, None, True)
        return self._files[file]

    def tensor(self, tensor: Tensor) -> torch.Tensor:
        """Return a tensor as a torch tensor."""
        dtype = _torch_dtype(tensor)
        number, place = self._shared.get(tensor.place[1], (None, None))
        if place is not None:
            file, start, size, offset, strides = place
            storage = self._storage(dtype, file, start, size)
            if storage is not None and offset % dtype.itemsize == 0:
                return _view_of(storage, dtype, offset // dtype.itemsize, tensor.shape, strides)
        if number is not None:
            if number not in self._copies:
                self._copies[number] = _torch_of(tensor.copy(), 0, tensor)
            return _view_of(self._copies[number], dtype, 0, tensor.shape, None)
        plain, offset = tensor.range_of(dtype.itemsize)
        mapped = None if plain is None else self._file(plain)
        return (
            _torch_of(tensor.copy(), 0, tensor)
            if mapped is None
            else _torch_of(mapped, offset, tensor)
        )

    def _storage(self, dtype: torch.dtype, file: int, start: int, size: int) -> torch.Tensor | None:
        """Return the memory that several tensors view, as in the result of torch.load."""
        import torch

        mapped = self._file(file)
        if mapped is None:
            return None
        if (file, start, size) not in self._storages:
            buffer: Any = mapped
            offset = start
            if start % dtype.itemsize:  # no place for such elements: they are moved together
                buffer, offset = bytearray(memoryview(mapped)[start : start + size]), 0
            self._storages[file, start, size] = torch.frombuffer(
                buffer, dtype=torch.uint8, count=size, offset=offset
            )
        return self._storages[file, start, size]


def _view_of(
    whole: torch.Tensor,
    dtype: torch.dtype,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
) -> torch.Tensor:
    """Return another view of a tensor's storage, which is contiguous if no strides are given."""
    import torch

    made = torch.empty(0, dtype=dtype)
    if strides is None:
        return made.set_(whole.untyped_storage(), offset, shape)
    return made.set_(whole.untyped_storage(), offset, shape, strides)


class Tensor:
    """One tensor of a checkpoint, whose bytes are read on demand."""

    __slots__ = ("_core", "_file", "_files", "_index", "dtype", "name", "nbytes", "offset", "shape")

    name: str
    dtype: str
    """The element type as torch names it, e.g. "bfloat16"."""
    shape: tuple[int, ...]
    nbytes: int
    """The size of the contiguous tensor in bytes."""
    offset: int | None
    """The offset of the bytes in `file`, if they are one plain range of a file; otherwise None."""

    def __init__(
        self,
        core: _core.Checkpoint,
        files: dict[int, _core.Mapped | None],
        index: int,
        name: str,
    ) -> None:
        self._core, self._files, self._index, self.name = core, files, index, name
        self.dtype, self.shape, self.nbytes, self._file, self.offset = core.describe(index)

    @property
    def file(self) -> str | None:
        """The file that contains the bytes, little-endian and contiguous; None if none does."""
        return None if self._file is None else str(self._core.files()[self._file])

    def __repr__(self) -> str:
        """Return a string with the name, type and shape."""
        return f"<Tensor {self.name!r} {self.dtype} {list(self.shape)}>"

    def tobytes(self) -> bytes:
        """Return the bytes of the tensor: contiguous, row-major and little-endian."""
        return bytes(self.copy())

    def readinto(self, buffer: bytearray | memoryview) -> None:
        """Fill a buffer with the bytes that tobytes() returns.

        Args:
            buffer: a writable buffer of `nbytes` bytes.
        """
        self._core.read_into(self._index, 0, buffer)

    def copy(self) -> bytearray:
        """Return a writable copy of the bytes that tobytes() returns."""
        out = bytearray(self.nbytes)
        self.readinto(out)
        return out

    @property
    def place(self) -> tuple[_core.Checkpoint, int]:
        """The extension's checkpoint and the tensor's index in it, for use inside the package."""
        return self._core, self._index

    def is_in_place(self) -> bool:
        """Return whether the path `file` still leads to the file that was opened."""
        return self._file is not None and self._core.is_in_place(self._file)

    def range_of(self, item: int) -> tuple[int | None, int]:
        """Return the file whose bytes can be used directly as elements, and their offset in it.

        Args:
            item: the size of an element in bytes.

        Returns:
            None and 0 if the bytes are not one plain range, or are not aligned for such elements.
        """
        if self._file is None or self.offset is None or self.offset % item or not self.nbytes:
            return None, 0
        return self._file, self.offset

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a read-only array: a mapping if the bytes can be used in place, otherwise a copy.

        The array remains valid after the checkpoint is closed. The file must not be truncated
        meanwhile. bfloat16 and float8 need the package ml_dtypes. If numpy does not support the
        type, the TypeError states the alternatives.
        """
        dtype = numpy_dtype(self.dtype, self.name)
        count = self.nbytes // dtype.itemsize
        if not count:
            array = np.empty(self.shape, dtype)
        else:
            file, offset = self.range_of(dtype.itemsize)
            mapped = None if file is None else self._mapped(file)
            if mapped is None:
                array = np.frombuffer(self.copy(), dtype)
            else:
                array = np.frombuffer(memoryview(mapped), dtype, count, offset)
            array = array.reshape(self.shape)
        array.flags.writeable = False
        return array

    def _mapped(self, file: int) -> _core.Mapped | None:
        """Return the mapped file, which all read-only arrays of the checkpoint share."""
        if file not in self._files:
            self._files[file] = self._core.map_file(file, 0, None, False)
        return self._files[file]

    def torch(self) -> torch.Tensor:
        """Return a torch tensor, like numpy(), but writable and private to the caller.

        Changes to the tensor affect neither the file nor other results of this checkpoint. A mapped
        tensor needs no memory of its own until it is changed.
        """
        file, offset = self.range_of(_torch_dtype(self).itemsize)
        if file is not None and self.nbytes >= _SMALL:
            mapped = self._core.map_file(file, offset, self.nbytes, True)
            if mapped is not None:
                return _torch_of(mapped, 0, self)
        return _torch_of(self.copy(), 0, self)


class Checkpoint(Mapping[str, Tensor]):
    """The named tensors of one or several files, in the order of the files.

    `open_checkpoint` returns this object. Arrays and tensors remain valid after close(). Several
    threads may use the same checkpoint.
    """

    def __init__(self, core: _core.Checkpoint) -> None:
        self._open: _core.Checkpoint | None = core
        self._files: dict[int, _core.Mapped | None] = {}
        self._places = {name: index for index, name in enumerate(core.names())}

    @property
    def core(self) -> _core.Checkpoint:
        """The extension's object, for use inside the package; ValueError if it was closed."""
        if self._open is None:
            raise ValueError("the checkpoint is closed")
        return self._open

    @property
    def format(self) -> str:
        """The format of the files: "torch-zip", "safetensors", "sharded torch-zip", ..."""
        return self.core.format()

    @property
    def files(self) -> list[str]:
        """The paths of the files, as they were opened."""
        return [str(path) for path in self.core.files()]

    @property
    def notes(self) -> list[str]:
        """Remarks on anything unexpected, such as a file in a folder that was not read."""
        return self.core.notes()

    def __getitem__(self, name: str) -> Tensor:
        """Return the tensor with this name, or raise KeyError if there is none."""
        return Tensor(self.core, self._files, self._places[name], name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the tensors."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._places)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return all tensors as torch tensors, for `module.load_state_dict(..., assign=True)`.

        The tensors belong to the caller, like those returned by torch.load. Tensors that share
        storage in the checkpoint also share it here, but not with the results of other calls.
        """
        memory = _StateDict(self.core)
        return {name: memory.tensor(tensor) for name, tensor in self.items()}

    def close(self) -> None:
        """Close the files; existing arrays remain valid."""
        self._open = None
        self._files = {}

    def __enter__(self) -> Checkpoint:
        """Return self."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the files."""
        self.close()


@checks_types
def open_checkpoint(
    paths: StrPath | Sequence[StrPath],
    key: str | None = None,
    *,
    variant: str | None = None,
    overlay: bool = False,
    max_expand: int = 4,
    densify: bool = False,
    widen_complex32: bool = False,
    scratch_dir: StrPath | None = None,
    threads: int = 0,
    raw: bool = False,
) -> Checkpoint:
    """Open a checkpoint of any format, without importing or calling anything that a pickle names.

    Args:
        paths: a checkpoint file, a shard index or a folder; several paths are read as one
            checkpoint.
        key: the name of the dict to read from a nested checkpoint, e.g. "state_dict"; "." reads all
            dicts, with full names. None: the only dict.
        variant: for a folder, the variant to read: "fp16" reads model.fp16.safetensors.
        overlay: if several paths contain the same tensor, take the tensor of the last path.
        max_expand: the maximum size of the tensors as a multiple of the size of the files, which
            views may exceed.
        densify: convert sparse tensors to dense tensors.
        widen_complex32: convert complex32 tensors to complex64.
        scratch_dir: the folder for unnamed temporary files, into which compressed records are
            decompressed. None: /tmp. (`oe.save` uses the output folder for checkpoints that it
            opens itself.)
        threads: the number of files opened at a time; 0 means one per CPU.
        raw: list the stored parts of quantized weights instead of the floats that they represent.
            The tensors of a GGUF file keep the names in the file.

    Raises:
        NotFoundError: a file does not exist, or does not contain the dict `key`.
        FormatError: a file is damaged, or its format is unknown.
        MappingError: there are several dicts, and `key` is not given; the message lists the dicts.
        MismatchError: several paths contain the same tensor, and `overlay` is False.
    """
    options: dict[str, Any] = {
        "key": key,
        "variant": variant,
        "overlay": overlay,
        "max_expand": max_expand,
        "densify": densify,
        "widen_complex32": widen_complex32,
        "threads": threads,
        "raw": raw,
    }
    if scratch_dir is not None:
        options["scratch_dir"] = scratch_dir
    return Checkpoint(_core.Checkpoint.open(paths_of("paths", paths), options))
