"""Saves objects of a Python program: an ONNXProgram, a ModelProto, a state dict."""

from pathlib import Path
from typing import Any

import onnx_ir

import onnx_external as oe
from programs import quiet


class Refused(Exception):
    """Raised if the package refuses a save, with its message."""


def arguments(layout: tuple) -> dict[str, Any]:
    """Return the options of a command line as arguments of the package."""
    settings = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(layout[::2], layout[1::2], strict=True)
    }
    return {"layout": settings.pop("layout"), "files": oe.Layout(**settings)}


def save(
    model: object, weights: dict | None, out: Path, layout: tuple, learn_map: object = None
) -> Path:
    """Save with the options of a command line."""
    try:
        path = out / "model.onnx"
        options = {**arguments(layout), "mapping": oe.Mapping(learn_map=learn_map)}
        oe.save(model, path, weights, fsync=False, threads=1, progress=False, **options)
        return path
    except oe.Error as error:
        raise Refused(" ".join(error.args[0].split())) from error


def graph_of(path: Path) -> onnx_ir.Model:
    """Return a graph as an onnx_ir model, with the data that is in its file."""
    with quiet():
        return onnx_ir.load(path)
