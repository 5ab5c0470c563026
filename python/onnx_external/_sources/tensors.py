"""Describes the caller's tensors by type, shape and the location of their bytes.

Nothing is copied here. A plain tensor is described by its address, with an `owner` that keeps the
memory alive; a range in a file by path and offset; any other tensor by a function that produces the
bytes when they are written, one tensor at a time.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .. import _core
from .._base.errors import Error, FormatError, InvalidArgumentError, WrongTypeError
from .checkpoint import Tensor


class Memory(NamedTuple):
    """A range of memory that `owner` keeps alive."""

    address: int
    size: int
    owner: object


class FileRange(NamedTuple):
    """A range of bytes in a file."""

    path: str
    offset: int
    length: int


class Made(NamedTuple):
    """Contiguous bytes that a function writes into a given buffer."""

    size: int
    fill: Callable[[memoryview], None]
    identity: int
    """Tensors with the same identity have the same bytes."""


class Loose(NamedTuple):
    """A tensor, which the extension module reads as a plain tuple (python/native/provided.cc)."""

    name: str
    dtype: str
    """The element type as torch names it; for types that torch lacks, ONNX's name in lower case."""
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """The strides in elements; None if the tensor is contiguous."""
    offset: int
    """The number of bytes from the start of `place` to the first element."""
    conj: bool
    neg: bool
    place: Memory | FileRange | Made


class NoDataError(FormatError):
    """The tensor has a type and shape but no data, such as a tensor on torch's meta device."""

    code = "unsupported"


def describe(name: str, value: object) -> Loose:
    """Describe a tensor of torch, numpy, onnx_ir, onnx, this package, or any producer of DLPack.

    Raises:
        NoDataError: the tensor has no data.
        FormatError: the bytes of the tensor are not accessible; the message states how to fix this.
        TypeError: the value is not a tensor.
    """
    try:
        convert = _converter_of(type(value))
        if convert is not _of_nothing:
            return convert(name, value)
    except Error:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {_text_of(error)}"
        what = (
            f"its {type(value).__name__} does not support access to its shape or bytes ({reason})"
        )
        raise refused(name, what, "pass a tensor of numpy, torch or onnx_ir") from error
    return _of_nothing(name, value)


def _text_of(error: Exception) -> str:
    """Return the first line of an error's message, or "" if the message cannot be produced."""
    try:
        return str(error).partition("\n")[0]
    except Exception:
        return ""


def checked_name(what: str, name: object) -> str:
    """Return the name of a tensor if it is valid; `what` is the argument that contains the name."""
    if not isinstance(name, str):
        raise WrongTypeError(f"{what}: the name {name!r} is not a str")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                f"{what}: the name {name!a} is not valid text: it contains a lone surrogate"
            ) from None
    return name


def bytes_of(loose: Loose) -> int:
    """Return the size of the memory or file range that contains a tensor's elements."""
    place = loose.place
    return place.length if isinstance(place, FileRange) else place.size


def refused(name: str, what: str, way_out: str, kind: type[FormatError] = FormatError) -> Any:
    """Make the exception for a tensor that cannot be saved."""
    error = kind(f"tensor {name!r}: {what}; {way_out}")
    error.code = "unsupported"
    return error


_Converter = Callable[[str, Any], Loose]


_known: dict[type, _Converter] = {}


def _converter_of(cls: type) -> _Converter:
    if cls not in _known:
        _known[cls] = _find_converter(cls)
    return _known[cls]


def _find_converter(cls: type) -> _Converter:
    for base in cls.__mro__:
        found = _CONVERTERS.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            return found
    if hasattr(cls, "tobytes") and hasattr(cls, "dtype") and hasattr(cls, "nbytes"):
        return _of_protocol
    if hasattr(cls, "__dlpack__"):
        return _of_dlpack
    return _of_array if hasattr(cls, "__array__") else _of_nothing


def _of_nothing(name: str, value: object) -> NoReturn:
    hint = "leave it out"
    if isinstance(value, dict):
        hint = f'if it is the state dict, pass checkpoint["{name}"]; otherwise leave it out'
    raise WrongTypeError(
        f"tensor {name!r}: expected a tensor of torch, numpy or onnx_ir, not "
        f"{type(value).__name__}; {hint}"
    )


# --- torch ---


@lru_cache(maxsize=64)
def _torch_dtype_name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _untyped_storage(tensor: Any) -> Any:
    """Return the storage of a tensor, also in torch before 2.0."""
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage().untyped()


def _check_torch_kind(name: str, tensor: Any, torch: Any) -> None:
    """Raise an error for kinds of tensors whose bytes are not in one strided storage."""
    kind = type(tensor).__name__
    if kind == "FakeTensor":
        raise refused(name, "is a FakeTensor and has no data", _GIVE_WEIGHTS, NoDataError)
    if kind == "DTensor":
        raise refused(name, "is distributed", "pass tensor.full_tensor()")
    if tensor.is_nested:
        raise refused(name, "is nested", "pass tensor.to_padded_tensor(0.0), or its parts")
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        way = "pass a plain tensor, such as tensor.dequantize() or tensor.to_local()"
        raise refused(name, f"is a {kind}, a subclass that represents other tensors", way)
    if tensor.layout is not torch.strided:
        raise refused(name, f"has the layout {tensor.layout}", "pass tensor.to_dense()")
    if tensor.is_quantized:
        raise refused(name, "is quantized by torch", "pass tensor.dequantize() or .int_repr()")
    if torch._is_functional_tensor(tensor):
        raise refused(name, "is a functional tensor in a trace", "pass the module's own tensor")


_GIVE_WEIGHTS = "pass its values (weights=...), or load the module's weights before the export"


def _of_torch(name: str, tensor: Any) -> Loose:
    torch = sys.modules["torch"]
    _check_torch_kind(name, tensor, torch)
    if tensor.is_meta:
        raise refused(name, "is on the meta device and has no data", _GIVE_WEIGHTS, NoDataError)
    dtype = _torch_dtype_name(tensor.dtype)
    if dtype in _PACKED:
        raise refused(name, f"has torch's type {dtype}, without values", "pass an onnx_ir.Tensor")
    try:
        shape, strides = tuple(tensor.shape), tensor.stride()
        if not tensor.is_cpu:
            size = tensor.numel() * tensor.element_size()
            return _made(name, dtype, shape, size, _filler_of_torch(tensor), tensor)
        storage = _untyped_storage(tensor)
        address, size = storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError, ValueError) as error:
        if torch.nn.parameter.is_lazy(tensor):
            way = "run the module once first: module(*args)"
            raise refused(
                name, "is uninitialized: it has no shape yet", way, NoDataError
            ) from error
        reason = str(error).partition("\n")[0].rstrip(".")
        way = "pass a plain, dense tensor"
        raise refused(name, f"torch does not allow access to its bytes ({reason})", way) from error
    if not size and 0 not in shape:
        raise refused(name, "its storage was freed", "load its values again", NoDataError)
    offset = tensor.storage_offset() * tensor.element_size()
    place = Memory(address, size, storage)
    return Loose(name, dtype, shape, strides, offset, tensor.is_conj(), tensor.is_neg(), place)


_MOST_BYTES = 1 << 63


def _made(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    size: int,
    fill: Callable[[memoryview], None],
    tensor: object,
) -> Loose:
    if not 0 <= size < _MOST_BYTES:
        raise refused(name, f"claims to have {size} bytes", "correct its shape or nbytes")
    return Loose(name, dtype, shape, None, 0, False, False, Made(size, fill, id(tensor)))


def _filler_of_torch(tensor: Any) -> Callable[[memoryview], None]:
    """Return a function that copies a tensor directly from its device."""

    def fill(out: memoryview) -> None:
        import torch

        with torch.no_grad():
            whole = torch.frombuffer(out, dtype=tensor.dtype)
            whole.reshape(tensor.shape).copy_(tensor)

    return fill


# --- numpy ---


def _of_numpy(name: str, array: np.ndarray[Any, Any]) -> Loose:
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise refused(name, "is a masked array", "pass array.filled(value)")
    dtype, shape, size = array.dtype, array.shape, array.nbytes
    kind = _numpy_dtype_name(dtype)
    if kind in _PACKED:
        kind, bits = _PACKED[kind]
        size = (array.size * bits + 7) // 8
        return _made(name, kind, shape, size, _packer(array, bits), array)
    if dtype.byteorder == ">":
        return _made(name, kind, shape, size, _filler_of_numpy(array), array)
    if array.flags.c_contiguous:
        place = Memory(array.__array_interface__["data"][0], size, array)
        return Loose(name, kind, shape, None, 0, False, False, place)
    item = dtype.itemsize
    if any(step < 0 or step % item for step in array.strides):
        return _made(name, kind, shape, size, _filler_of_numpy(array), array)
    strides = tuple(step // item for step in array.strides)
    reach = item * (1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)))
    place = Memory(array.__array_interface__["data"][0], reach, array)
    return Loose(name, kind, shape, strides, 0, False, False, place)


@lru_cache(maxsize=64)
def _numpy_dtype_name(dtype: np.dtype[Any]) -> str:
    return dtype.name


# Types below a byte, which numpy and torch store one in a byte: ONNX's name, and the bits.
_PACKED = {
    "int4": ("int4", 4),
    "uint4": ("uint4", 4),
    "float4_e2m1fn": ("float4e2m1", 4),
    "int2": ("int2", 2),
    "uint2": ("uint2", 2),
}


def _packer(array: np.ndarray[Any, Any], bits: int) -> Callable[[memoryview], None]:
    """Return a function that packs elements in row-major order as ONNX does, low bits first."""

    def fill(out: memoryview) -> None:
        packed = np.frombuffer(out, np.uint8)
        packed[:] = 0
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        in_a_byte = 8 // bits
        for place in range(in_a_byte):
            part = values[place::in_a_byte] & ((1 << bits) - 1)
            packed[: len(part)] |= part << (place * bits)

    return fill


def _of_numpy_scalar(name: str, value: Any) -> Loose:
    return _of_numpy(name, np.asarray(value))


def _filler_of_numpy(array: np.ndarray[Any, Any]) -> Callable[[memoryview], None]:
    """Return a function that copies the elements in row-major order, as little-endian."""

    def fill(out: memoryview) -> None:
        little = array.dtype.newbyteorder("<")
        np.copyto(np.frombuffer(out, little).reshape(array.shape), array)

    return fill


# --- anything with DLPack or __array__ ---


def _of_dlpack(name: str, value: Any) -> Loose:
    cpu = 1
    device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else cpu
    if device == cpu:
        for take in (np.from_dlpack, _torch_from_dlpack):
            try:
                return describe(name, take(value))
            except (BufferError, RuntimeError, TypeError, ValueError):
                continue  # a type that numpy lacks, or an array that must not be shared
    if hasattr(value, "__array__"):
        return _of_array(name, value)
    raise refused(name, f"is a {type(value).__name__} in device memory", "copy it to the CPU")


def _torch_from_dlpack(value: Any) -> Any:
    if "torch" not in sys.modules:
        raise TypeError("torch is not there")
    return sys.modules["torch"].from_dlpack(value)


def _of_array(name: str, value: Any) -> Loose:
    array = np.asarray(value)
    if array.dtype == object:
        return _of_nothing(name, value)
    return _of_numpy(name, array)


# --- this package's own ---


def _of_ours(name: str, tensor: Tensor) -> Loose:
    file = tensor.file
    if file is not None and tensor.offset is not None and tensor.is_in_place():
        place = FileRange(file, tensor.offset, tensor.nbytes)
        return Loose(name, tensor.dtype, tensor.shape, None, 0, False, False, place)
    return _made(name, tensor.dtype, tensor.shape, tensor.nbytes, tensor.readinto, tensor)


# --- onnx and onnx_ir ---


@lru_cache(maxsize=64)
def onnx_type(data_type: int) -> tuple[str, int]:
    """Return the name of an ONNX type as used in `Loose.dtype`, and the bits of an element.

    The number of bits is 0 for strings and for types that the library does not know.
    """
    return _core.onnx_type(int(data_type))


def _ir_shape(name: str, tensor: Any) -> tuple[int, ...]:
    shape = tuple(tensor.shape)
    if not all(isinstance(dim, int) and dim >= 0 for dim in shape):
        dims = ", ".join(str(dim) for dim in shape)
        raise refused(name, f"its shape [{dims}] is not known", "pass a tensor with a fixed shape")
    return shape


def _of_protocol(name: str, tensor: Any) -> Loose:
    """Describe a tensor with onnx_ir's TensorProtocol, whose bytes are made when it is written."""
    dtype = onnx_type(tensor.dtype)[0]
    if dtype == "string":
        raise refused(name, "contains strings", "strings can only be stored inside a model")
    shape, fill = _ir_shape(name, tensor), _filler_of_ir(tensor)
    return _made(name, dtype, shape, tensor.nbytes, fill, tensor)


def _of_ir_tensor(name: str, tensor: Any) -> Loose:
    """Describe an onnx_ir tensor by the tensor that it wraps, if the bytes are the same."""
    if type(tensor).__module__.partition(".")[0] not in ("onnx_ir", "torch"):
        return _of_protocol(name, tensor)  # a caller's subclass may compute its results
    dtype, shape = onnx_type(tensor.dtype)[0], _ir_shape(name, tensor)
    raw = tensor.raw
    if onnx_type(tensor.dtype)[1] >= 8 and _converter_of(type(raw)) in _OF_MEMORY:
        loose = describe(name, raw)
        if loose.dtype == dtype and loose.shape == shape:
            return loose
    return _of_protocol(name, tensor)


def _of_packed(name: str, tensor: Any) -> Loose:
    """Describe a tensor with elements smaller than a byte, which are packed as ONNX packs them."""
    if type(tensor).__module__.partition(".")[0] == "onnx_ir" and type(tensor.raw) is np.ndarray:
        raw = tensor.raw
        if raw.flags.c_contiguous and raw.nbytes == tensor.nbytes:
            dtype, shape = onnx_type(tensor.dtype)[0], _ir_shape(name, tensor)
            place = Memory(raw.__array_interface__["data"][0], raw.nbytes, raw)
            return Loose(name, dtype, shape, None, 0, False, False, place)
    return _of_protocol(name, tensor)


def _of_ir_external(name: str, tensor: Any) -> Loose:
    path = _contained(name, tensor.base_dir, tensor.location)
    shape, length = _ir_shape(name, tensor), tensor.nbytes
    if tensor.length is not None and tensor.length != length:
        raise refused(name, f"states {tensor.length} bytes, not {length}", "correct its length")
    place = FileRange(path, tensor.offset or 0, length)
    return Loose(name, onnx_type(tensor.dtype)[0], shape, None, 0, False, False, place)


def _contained(name: str, base: str | os.PathLike[str], location: str | os.PathLike[str]) -> str:
    """Return the path of an external tensor, which must be inside the folder if there is one."""
    path = os.path.join(base, location)
    if base:
        folder = os.path.realpath(base)
        if os.path.commonpath((folder, os.path.realpath(path))) != folder:
            raise refused(
                name,
                f"its location {location!r} is outside the folder {str(base)!r}",
                "move the file",
            )
    return path


def _of_tensor_proto(name: str, proto: Any) -> Loose:
    """Describe a TensorProto with raw data, which is read when it is written."""
    if not proto.HasField("raw_data"):
        raise refused(
            name, "is a TensorProto without raw data", "pass onnx.numpy_helper.to_array()"
        )
    dtype, bits = onnx_type(proto.data_type)
    shape = tuple(proto.dims)
    size = (math.prod(shape) * bits + 7) // 8

    def fill(out: memoryview) -> None:
        data = proto.raw_data
        if len(data) != len(out):
            raise ValueError(f"its raw data has {len(data)} bytes, not {len(out)}")
        out[:] = data

    return _made(name, dtype, shape, size, fill, proto)


class _Sink:
    """A file object that writes into memory, for `tofile`."""

    def __init__(self, out: memoryview) -> None:
        self._left = out

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(view) > len(self._left):
            raise ValueError("the tensor wrote more bytes than its size")
        self._left[: len(view)] = view
        self._left = self._left[len(view) :]
        return len(view)

    def expect_full(self) -> None:
        if len(self._left):
            raise ValueError(f"the tensor wrote {len(self._left)} bytes less than its size")


def _filler_of_ir(tensor: Any) -> Callable[[memoryview], None]:
    def fill(out: memoryview) -> None:
        sink = _Sink(out)
        if hasattr(tensor, "tofile"):
            tensor.tofile(sink)
        else:
            sink.write(tensor.tobytes())
        sink.expect_full()

    return fill


_OF_MEMORY: tuple[_Converter, ...] = (_of_torch, _of_numpy)
_CONVERTERS: dict[tuple[str, str], _Converter] = {
    ("torch", "Tensor"): _of_torch,
    ("numpy", "ndarray"): _of_numpy,
    ("numpy", "generic"): _of_numpy_scalar,
    ("onnx_external", "Tensor"): _of_ours,
    ("onnx", "TensorProto"): _of_tensor_proto,
    ("onnx_ir", "Tensor"): _of_ir_tensor,
    ("onnx_ir", "PackedTensor"): _of_packed,
    ("onnx_ir", "ExternalTensor"): _of_ir_external,
    ("onnx_ir", "TensorProtoTensor"): _of_protocol,
    ("onnx_ir", "LazyTensor"): _of_protocol,
    ("onnx_ir", "StringTensor"): _of_protocol,
}
