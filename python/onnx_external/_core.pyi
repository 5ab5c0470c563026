from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

version: str
loose_location: str

_Path = str | PathLike[str]
_Progress = Callable[[str, int, int], object] | None
_Sources = list[Any] | None

def onnx_type(data_type: int) -> tuple[str, int]: ...
def list_title(kind: str, owner: str) -> str: ...
def gguf_metadata(path: _Path) -> dict[str, Any]: ...
def folder_facts(folder: _Path) -> list[tuple[str, str]]: ...

class Checkpoint:
    @staticmethod
    def open(
        paths: _Path | list[_Path] | tuple[_Path, ...], options: dict[str, Any]
    ) -> Checkpoint: ...
    def format(self) -> str: ...
    def names(self) -> list[str]: ...
    def files(self) -> list[Path]: ...
    def notes(self) -> list[str]: ...
    def quantization(self) -> tuple[str, str] | None: ...
    def quantized_names(self) -> list[str]: ...
    def describe(self, index: int) -> tuple[str, tuple[int, ...], int, int | None, int | None]: ...
    def read_into(self, index: int, first: int, buffer: bytearray | memoryview) -> None: ...
    def is_in_place(self, file: int) -> bool: ...
    def map_file(
        self, file: int, offset: int, length: int | None, writable: bool
    ) -> Mapped | None: ...
    def shared_tensors(
        self,
    ) -> dict[int, tuple[int, tuple[int, int, int, int, tuple[int, ...]] | None]]: ...

class Mapped:
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class PickledValue:
    """One value in a pickle, as the file describes it; no object is made.

    It is given to a function of `register_class`, and valid during the call of that function.
    """

    @property
    def kind(self) -> str:
        """Return "none", "tensor", "list" (or set), "tuple", "dict", "object" or "other"."""
    @property
    def type(self) -> str:
        """Return "module.name" of an object's class; empty for values without a class."""
    def elements(self) -> list[PickledValue]:
        """Return the elements of a list, tuple or set; what was appended to an object."""
    def items(self) -> list[tuple[str, PickledValue]]:
        """Return the items of a dict whose keys are text or integers."""
    def arguments(self) -> list[PickledValue]:
        """Return the arguments that an object's class was called with."""
    def attribute(self, name: str) -> PickledValue | None:
        """Return an attribute of an object, from its __dict__ or slots; None if it has none."""

class Writer:
    def __init__(
        self, folder: _Path, model_name: str, data_dir: str, options: dict[str, Any]
    ) -> None: ...
    def add(self, tensors: list[Any]) -> None: ...
    def finish(self, model: bytes, progress: _Progress) -> None: ...
    def abandon(self) -> None: ...

def save(
    graphs: list[tuple[str, bytes | _Path, _Path | None]],
    tensors: list[Any],
    weights: _Sources,
    extra: _Sources,
    folder: _Path | None,
    data_dir: str,
    progress: _Progress,
    options: dict[str, Any],
) -> str: ...
def check_save_options(options: dict[str, Any]) -> None: ...
def verify(
    model: _Path, against: _Sources, progress: _Progress, options: dict[str, Any]
) -> str: ...
def inspect(
    files: _Path | list[_Path] | tuple[_Path, ...], progress: _Progress, options: dict[str, Any]
) -> str: ...
def page(title: str, document: str, verified: _Path | None = None) -> str: ...
def check_page(path: _Path, overwrite: bool) -> None: ...
def write_page(path: _Path, page: str, overwrite: bool) -> None: ...
def cut(
    model: _Path,
    piece: _Path,
    module: str,
    inputs: list[str],
    outputs: list[str],
    without: list[str],
    overwrite: bool,
    sync: bool,
) -> str: ...
def cut_bytes(
    model: _Path, module: str, inputs: list[str], outputs: list[str], without: list[str]
) -> tuple[bytes, str]: ...
