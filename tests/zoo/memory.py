"""Saves of what a program of Python holds: an ONNXProgram, a ModelProto, a state dict."""

from pathlib import Path

import onnx_ir

import onnx_external as oe
from programs import quiet


class Refused(Exception):
    """The package refuses a save; the text is its message."""


def save(model: object, weights: dict | None, out: Path, layout: tuple, **options) -> Path:
    """Save with the options of a command line."""
    settings = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(layout[::2], layout[1::2], strict=True)
    }
    try:
        path = out / "model.onnx"
        oe.save(model, path, weights, fsync=False, threads=1, progress=False, **settings, **options)
        return path
    except oe.Error as error:
        raise Refused(" ".join(error.args[0].split())) from error


def graph_of(path: Path) -> onnx_ir.Model:
    """A graph as onnx_ir holds it, with the data that it has in its file."""
    with quiet():
        return onnx_ir.load(path)
