"""Saves of what a program of Python holds: an ONNXProgram, a ModelProto, a state dict."""

from pathlib import Path
from typing import Any

import onnx_ir

import onnx_external as oe
from programs import quiet


class Refused(Exception):
    """The package refuses a save; the text is its message."""


def arguments(layout: tuple) -> dict[str, Any]:
    """The options of a command line as the package takes them."""
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
    """Return a graph as onnx_ir holds it, with the data that it has in its file."""
    with quiet():
        return onnx_ir.load(path)
