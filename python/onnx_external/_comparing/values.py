"""Input and output values of models: arrays, sequences of arrays, or None.

Arrays of bfloat16 and 8-bit floats use ml_dtypes; arrays of strings are arrays of objects.
"""

from __future__ import annotations

import ctypes
from typing import Any, TypeAlias

import numpy as np

from .._base.errors import FormatError
from .._sources.checkpoint import numpy_dtype

Array: TypeAlias = np.ndarray[Any, Any]
Value: TypeAlias = Any
"""An array, a list of arrays (a sequence), or None (an optional without a value)."""

_WORDS = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}
"""ONNX Runtime's names for element types that numpy names differently."""

_NARROW = {
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}
"""Types whose arrays ONNX Runtime does not accept and return directly, with ONNX's numbers."""


def dtype_of_type(ort_type: str) -> np.dtype[Any]:
    """Return the numpy type for an ONNX Runtime type such as "tensor(float)"."""
    word = ort_type[ort_type.rfind("(") + 1 :].rstrip(")")
    if word == "string":
        return np.dtype(object)
    try:
        return numpy_dtype(_WORDS.get(word, word))
    except TypeError as error:
        raise FormatError(f"{ort_type}: {str(error).partition(';')[0]}") from None


def is_narrow(ort_type: str) -> bool:
    """Return whether values of a type need from_ort_value() and to_ort_value()."""
    word = ort_type[ort_type.rfind("(") + 1 :].rstrip(")")
    return _WORDS.get(word, word) in _NARROW


def type_name(value: Value) -> str:
    """Return the name of an array's element type, such as "bfloat16"."""
    return "string" if kind_of(value) == "string" else str(value.dtype)


def kind_of(array: Array) -> str:
    """Return an array's kind: "float", "complex", "integer", "bool" or "string"."""
    letter = array.dtype.kind
    if letter in "OSUT":
        return "string"
    if letter == "b":
        return "bool"
    if letter in "iu":
        return "integer"
    if letter == "c":
        return "complex"
    if letter == "f" or str(array.dtype) in _NARROW or "float8" in str(array.dtype):
        return "float"
    raise FormatError(f"elements of type {array.dtype} cannot be compared")


def is_float(array: Value) -> bool:
    """Return whether a value is an array of floats."""
    return isinstance(array, np.ndarray) and kind_of(array) == "float"


def is_equal(one: Array, other: Array) -> bool:
    """Return whether two arrays have the same type, shape and elements."""
    return one.dtype == other.dtype and bool(np.array_equal(one, other))


def shape_text(shape: Any) -> str:
    """Return a shape as text, with "?" for unknown sizes."""
    return "[" + ", ".join("?" if each is None else str(each) for each in shape) + "]"


def to_ort_value(array: Array) -> Any:
    """Convert an array to an OrtValue, which may share the array's memory."""
    import onnxruntime

    make = onnxruntime.OrtValue
    number = _NARROW.get(str(array.dtype))
    if number is None:
        return make.ortvalue_from_numpy(array)
    return make.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), number)


def from_ort_value(value: Any) -> Value:
    """Convert an OrtValue in CPU memory to an array."""
    if not value.has_value():
        return None
    ort_type = value.data_type()
    if not value.is_tensor():
        raise FormatError(f"{ort_type} together with bfloat16 or 8-bit values is not supported")
    if not is_narrow(ort_type):
        return value.numpy()
    dtype = dtype_of_type(ort_type)
    size = value.tensor_size_in_bytes()
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(data, dtype).reshape(value.shape())


def from_torch(tensor: Any) -> Array:
    """Convert a torch tensor to an array; copy its bytes only if necessary.

    Complex numbers become pairs of floats in an additional last dimension of size 2, as in graphs
    exported by torch.onnx.
    """
    import torch

    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    name = str(plain.dtype).removeprefix("torch.")
    if name in _NARROW:
        words = torch.uint8 if plain.dtype.itemsize == 1 else torch.int16
        bits = plain.contiguous().view(words).numpy()
        narrow: Array = bits.view(numpy_dtype(name))
        return narrow
    try:
        array: Array = plain.numpy()
    except (RuntimeError, TypeError) as error:
        raise FormatError(f"tensors of {name} cannot be compared: {error}") from error
    return array


def to_torch(array: Array) -> Any:
    """Convert an array to a torch tensor."""
    import torch

    if kind_of(array) == "string":
        raise FormatError(
            "an array contains strings or objects, which torch cannot store in a tensor"
        )
    if not (array.flags.c_contiguous and array.flags.writeable):
        array = array.copy(order="C")
    name = str(array.dtype)
    if name in _NARROW:
        bits = array.view(np.uint8 if array.dtype.itemsize == 1 else np.int16)
        return torch.from_numpy(bits).view(getattr(torch, name))
    return torch.from_numpy(array)
