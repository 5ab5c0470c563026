"""Checks for optional packages, and messages about those that are missing."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import Error, ExportError

_NAMES = {"onnx_ir": "onnx-ir", "onnxruntime_genai": "onnxruntime-genai"}
"""The names on the package index of modules that are imported under another name."""

CONVERSION = ("torch", "onnx", "onnx_ir", "onnxscript")
"""The packages needed to convert a torch module."""
FOLDERS = (*CONVERSION, "transformers")
"""The packages needed to export a transformers model folder."""


def pip_name(module: str) -> str:
    """Return the name of the package that contains a module, as pip knows it."""
    name = module.partition(".")[0]
    return _NAMES.get(name, name)


def missing_text(*modules: str) -> str:
    """Return which packages are missing and the command to install them; empty if none are."""
    names = [pip_name(name) for name in modules if not _is_there(name)]
    if not names:
        return ""
    verb = "is" if len(names) == 1 else "are"
    return f"{', '.join(names)} {verb} not installed: pip install {' '.join(names)}"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # for a module that was put into sys.modules by hand
        return True


def require(what: str, *modules: str, error: type[Error] = ExportError) -> None:
    """Raise an error if packages are missing, before any work starts.

    Args:
        what: the feature that needs the packages.
        modules: the modules of the packages.
        error: the error class to raise.

    Raises:
        Error: the message names the missing packages and the pip command.
    """
    text = missing_text(*modules)
    if text:
        raise error(f"{what}: {text}")
