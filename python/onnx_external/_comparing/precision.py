"""Finds the float type in which a model computes, judged by its weights, and its quantization."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .._base.errors import Error, RunError
from .._saving.verify import inspect

_FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""The float types in which models compute, by ONNX's numbers. 8-bit floats are only used to store
weights."""
_OF_16_BITS = ("float16", "bfloat16")


def weight_type(*models: str | os.PathLike[str] | bytes) -> str | None:
    """Return the most frequent type among the elements of float weights; None if there are none.

    Args:
        models: the paths or bytes of the models.
    """
    count: dict[str, int] = {}
    for model in models:
        for name, elements in _tensors(model):
            if name in _FLOATS.values():
                count[name] = count.get(name, 0) + elements
    return max(count, key=lambda name: count[name]) if any(count.values()) else None


def _tensors(model: str | os.PathLike[str] | bytes) -> Iterator[tuple[str, int]]:
    """Yield, for each weight, the type in which it is used and the number of its elements."""
    if isinstance(model, bytes):
        proto = model_proto(model)
        listed = proto.graph.initializer if proto is not None else ()
        found = [(each.name, _FLOATS.get(each.data_type, ""), each.dims) for each in listed]
    else:
        try:
            listed = inspect(model).tensors
        except Error:  # ONNX Runtime reports the fault
            return
        # For a quantized matrix, the type of the scales counts.
        parts = [part for each in listed for part in each.parts or [vars(each)]]
        found = [(part["name"], part["dtype"], part["shape"]) for part in parts]
    stored = any(dtype in _OF_16_BITS for _, dtype, _ in found)
    cast = _types_behind_casts(model if isinstance(model, bytes) else os.fspath(model), stored)
    for name, dtype, dims in found:
        yield cast.get(name, dtype), math.prod(dims)


def _types_behind_casts(model: str | bytes, is_stored: bool) -> dict[str, str]:
    """Return the type to which each weight is cast, by name, if only Cast nodes use the weight.

    Args:
        model: the model's path or bytes.
        is_stored: the model may store weights in another type than the one in which it computes.
    """
    proto = model_proto(model) if is_stored and may_have(model, ["Cast"]) else None
    if proto is None:
        return {}
    users: dict[str, list[Any]] = {}
    for node in proto.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)

    def behind(name: str) -> set[str]:
        found: set[str] = set()
        for node in users.get(name, ()):
            if node.op_type in ("Transpose", "Gather"):
                found |= behind(node.output[0])
            elif node.op_type == "Cast":
                found |= {_FLOATS.get(each.i, "") for each in node.attribute if each.name == "to"}
            else:
                found.add("")
        return found

    types = {each.name: behind(each.name) for each in proto.graph.initializer}
    return {
        name: next(iter(each)) for name, each in types.items() if len(each) == 1 and "" not in each
    }


def model_proto(model: str | bytes) -> Any:
    """Return the parsed model without its external data; None if it cannot be parsed."""
    import onnx

    try:
        if isinstance(model, bytes):
            return onnx.ModelProto.FromString(model)
        return onnx.load(model, load_external_data=False)
    except Exception:  # ONNX Runtime has loaded it, so this is not an error here
        return None


def may_have(model: str | bytes, names: Sequence[str]) -> bool:
    """Return whether any of the names occurs in the bytes of a model.

    With this test, most models need not be parsed.
    """
    words = [name.encode() for name in names]
    if isinstance(model, bytes):
        return any(word in model for word in words)
    if not os.path.getsize(model):
        return False
    with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return any(data.find(word) >= 0 for word in words)


_WORDS = ("Quantize", "quantize", "MatMulNBits", "MatMulInteger", "ConvInteger", "QLinear")
_OF_FOUR = ("MatMulNBits", "MatMulBnb4", "GatherBlockQuantized")
"""Operators whose weights have 4 bits, unless the attribute `bits` says otherwise."""
_NARROW = ("INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1")


@dataclass(frozen=True)
class Quantized:
    """The quantization of a model."""

    operators: tuple[str, ...]
    """The operators that use integers to represent floats."""
    bits: int
    """The bits per weight: 8, or 4 if any weights have 4 bits."""

    @property
    def share(self) -> float:
        """The usual error as a fraction of an output's scale (docs/python-validate.md)."""
        return 0.05 if self.bits == 8 else 0.25

    def advice(self, atol: float, rtol: float, precision: str, scale: float | None) -> str:
        """Return the advice in a report on an output that exceeds the default tolerance.

        Args:
            atol: the absolute tolerance that was applied.
            rtol: the relative tolerance, likewise.
            precision: the float type that determined the tolerance.
            scale: the scale of the output.
        """
        start = f"{self.share:.0%} of an output's scale"
        if scale:
            start += f", here atol={self.share * scale:.2g} (--atol {self.share * scale:.2g})"
        return (
            f"the model is quantized ({', '.join(self.operators[:2])}), and was held to the "
            f"tolerance of {precision} (atol {atol:.2g}, rtol {rtol:.2g}); for {self.bits} bits "
            f"start with {start}"
        )


def quantized(model: str | bytes) -> Quantized | None:
    """Return the quantization of a model; None if it is not quantized.

    Args:
        model: the model's path or bytes.
    """
    proto = model_proto(model) if may_have(model, _WORDS) else None
    if proto is None:
        return None
    nodes = [*proto.graph.node, *(node for each in proto.functions for node in each.node)]
    found = [node for node in nodes if any(word in node.op_type for word in _WORDS)]
    if not found:
        return None
    names = dict.fromkeys(node.op_type for node in found)
    return Quantized(tuple(names), 4 if _has_four(found, proto) else 8)


def _has_four(nodes: Sequence[Any], model: Any) -> bool:
    import onnx

    name = onnx.TensorProto.DataType.Name
    if any(name(each.data_type) in _NARROW for each in model.graph.initializer):
        return True
    found = (node for node in nodes if node.op_type in _OF_FOUR)
    bits = [{each.name: each.i for each in node.attribute}.get("bits", 4) for node in found]
    return any(each < 8 for each in bits)


def data_files(path: str | os.PathLike[str]) -> set[str]:
    """Return the paths of a model's data files, relative to the model.

    If the model cannot be read, the set is empty.
    """
    try:
        graph = graph_at(path)
    except RunError:
        return set()
    entries = (entry for tensor in graph.initializer for entry in tensor.external_data)
    return {entry.value for entry in entries if entry.key == "location"}


def graph_at(path: str | os.PathLike[str]) -> Any:
    """Return the graph in a model file, without its external data.

    Raises:
        RunError: the file cannot be read.
    """
    import onnx

    try:
        return onnx.load(path, load_external_data=False).graph
    except Exception as error:
        raise RunError(f"{path}: cannot be read: {error}") from error
