"""What an export needs, asked before a trace that takes long."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ..errors import ExistsError, ExportError, Remedy
from ..options import StrPath
from ..save import target_of

__all__ = ["refuse_existing", "require_packages"]

_CONVERSION = {"onnx": "onnx", "onnx_ir": "onnx-ir", "onnxscript": "onnxscript"}
"""Modules without which torch.onnx converts nothing, with the names by which pip knows them."""


def require_packages() -> None:
    """Refuse to work without the packages that convert a program of torch.

    Raises:
        ExportError: names what is missing.
    """
    missing = [name for module, name in _CONVERSION.items() if find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ExportError(
            f"torch.onnx needs {', '.join(missing)}, which {verb} not installed: pip install "
            f"{' '.join(missing)}"
        )


def refuse_existing(path: StrPath) -> None:
    """Refuse a model that is there, as the save would after the trace.

    Args:
        path: as for oe.save().

    Raises:
        ExistsError: there is a model.
    """
    folder, name = target_of(path)
    target = (folder or Path()) / name
    if target.is_file():
        error = ExistsError(f"{target}: exists")
        error.remedies = [Remedy("overwrite", "", "replaces it")]
        raise error
