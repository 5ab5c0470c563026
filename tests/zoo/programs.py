"""Exports models with torch's exporter, with the current values of the weights."""

import contextlib
import io
import logging
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.utils._pytree as pytree
from torch import nn

FOLDED = "pkg.onnxscript.optimizer.folded_from"


class CannotExport(Exception):
    """Raised if torch's exporter refuses a model, with the first line of its message."""


@contextlib.contextmanager
def quiet():
    logging.disable(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def first_line(error: BaseException) -> str:
    """Return the first line of the innermost error: torch.onnx wraps that of torch.export in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def run(module: nn.Module, inputs: dict) -> list:
    """Return the output tensors of the model, in the order of the graph's outputs."""
    with torch.no_grad():
        return [
            leaf for leaf in pytree.tree_leaves(module(**inputs)) if isinstance(leaf, torch.Tensor)
        ]


@dataclass(frozen=True)
class Initializer:
    """The value of a name in a graph; folded_from: what the optimizer says that it was computed from."""

    dims: tuple
    data: bytes
    folded_from: str = ""


class Exporter:
    """A module, captured once by torch.export. Its weights may then be changed in place."""

    def __init__(self, module: nn.Module, inputs: dict):
        try:
            with quiet():
                self._captured = self._capture(module, inputs)
        except Exception as error:  # of any class, from any depth of the exporter
            raise CannotExport(first_line(error)) from error

    @staticmethod
    def _capture(module: nn.Module, inputs: dict):
        """Capture the module like torch.onnx.export."""
        try:
            return torch.export.export(module, (), kwargs=inputs, strict=False)
        except Exception:
            return torch.export.export(module, (), kwargs=inputs, strict=True)

    def program(self, optimize: bool) -> torch.onnx.ONNXProgram:
        try:
            with quiet():
                return torch.onnx.export(
                    self._captured, dynamo=True, optimize=optimize, verbose=False
                )
        except Exception as error:
            raise CannotExport(first_line(error)) from error


def save(program: torch.onnx.ONNXProgram, path: Path, **settings) -> Path:
    with quiet():
        program.save(path, **settings)
    return path


def initializers(program: torch.onnx.ONNXProgram) -> dict:
    """Return the current values of the program's graph, by name."""
    found = {}
    for name, value in program.model.graph.initializers.items():
        tensor = value.const_value
        mark = value.metadata_props.get(FOLDED, "")
        found[name] = Initializer(tuple(tensor.shape.numpy()), tensor.tobytes(), mark)
    return found


def tied(program: torch.onnx.ONNXProgram) -> list:
    """Return the groups of initializers that are one tensor in torch."""
    groups = {}
    for name, value in program.model.graph.initializers.items():
        raw = value.const_value.raw
        if isinstance(raw, torch.Tensor):
            place = (raw.data_ptr(), raw.dtype, tuple(raw.shape), raw.stride())
            groups.setdefault(place, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
