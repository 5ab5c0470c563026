"""Makes graphs for the tests, and reads saved models with onnx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
    "uint4": 21,
    "int4": 22,
    "float8_e8m0fnu": 24,
}


def value(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info(name, TYPES[dtype], list(shape))


def open_graph(slots: dict[str, tuple[str, tuple[int, ...]]], as_inputs: bool = False) -> Any:
    """Return a model in which an Identity reads each slot, an undefined name or an input."""
    nodes = [helper.make_node("Identity", [name], [f"out.{name}"]) for name in slots]
    forms = [value(name, *form) for name, form in slots.items()]
    outputs = [value(f"out.{name}", *form) for name, form in slots.items()]
    inputs, values = (forms, []) if as_inputs else ([], forms)
    graph = helper.make_graph(nodes, "g", inputs, outputs, value_info=values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def model_file(path: Path) -> Path:
    return path if path.suffix == ".onnx" else path / "model.onnx"


def saved_bytes(path: Path) -> dict[str, bytes]:
    """Return the bytes of every initializer, as onnx reads them."""
    model = onnx.load(model_file(path))
    return {
        tensor.name: tensor.raw_data or numpy_helper.to_array(tensor).tobytes()
        for tensor in model.graph.initializer
    }


def places(path: Path) -> dict[str, tuple[str, int, int]]:
    """Return the file, offset and length of every external initializer."""
    model = onnx.load(model_file(path), load_external_data=False)
    found = {}
    for tensor in model.graph.initializer:
        entry = {pair.key: pair.value for pair in tensor.external_data}
        if entry:
            found[tensor.name] = (entry["location"], int(entry["offset"]), int(entry["length"]))
    return found


def bytes_of_torch(tensor: Any) -> bytes:
    """Return the bytes that a file would have for a tensor."""
    import torch

    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if not plain.numel():
        return b""
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def bytes_of_numpy(array: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
