"""Attach the weights of any PyTorch checkpoint to an ONNX graph as external data, verified.

```python
import onnx_external as oe

oe.save("graph.onnx", "out/model.onnx", "checkpoint.pt")
assert oe.verify("out/model.onnx", "checkpoint.pt").ok
with oe.open_checkpoint("checkpoint.pt") as checkpoint:
    weight = checkpoint["fc.weight"].numpy()
```
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._base.errors import (
    Error,
    ExistsError,
    ExportError,
    FormatError,
    InvalidArgumentError,
    MappingError,
    MismatchError,
    NotFoundError,
    ReadWriteError,
    RewriteError,
    RunError,
    UnmergeableError,
    WrongTypeError,
)
from ._base.options import Layout, Mapping, Quantize
from ._core import PickledValue
from ._core import version as __version__
from ._saving.cut import cut, cut_bytes
from ._saving.reports import (
    CutReport,
    Finding,
    InspectedTensor,
    Inspection,
    SavedModel,
    SavedTensor,
    SaveReport,
    VerifyReport,
)
from ._saving.save import save, save_model_with_external_data
from ._saving.verify import inspect, verify
from ._sources.checkpoint import Checkpoint, Tensor, open_checkpoint
from ._sources.classes import register_class, unregister_class
from ._sources.gguf import gguf_metadata

if TYPE_CHECKING:
    from . import torch as torch
    from . import transformers as transformers
    from ._diagnosis import Diagnosis, ModuleDiagnosis, Status, diagnose
    from ._diagnosis.export_diagnosing import diagnose_export
    from ._diagnosis.export_reports import ExportDiagnosis
    from ._generation.generating import generate
    from ._saving.plans import Plan, plan
    from ._saving.writer import Writer
    from ._validation import Validation, validate

# Names that are imported when they are first asked for, and where they are: what few programs use
# does not make `import onnx_external` longer.
_LATER = {
    "Diagnosis": "_diagnosis",
    "ModuleDiagnosis": "_diagnosis",
    "Status": "_diagnosis",
    "ExportDiagnosis": "_diagnosis.export_reports",
    "diagnose": "_diagnosis",
    "diagnose_export": "_diagnosis.export_diagnosing",
    "generate": "_generation.generating",
    "Plan": "_saving.plans",
    "plan": "_saving.plans",
    "Writer": "_saving.writer",
    "Validation": "_validation",
    "validate": "_validation",
}

__all__ = [
    "Checkpoint",
    "CutReport",
    "Diagnosis",
    "Error",
    "ExistsError",
    "ExportDiagnosis",
    "ExportError",
    "Finding",
    "FormatError",
    "InspectedTensor",
    "Inspection",
    "InvalidArgumentError",
    "Layout",
    "Mapping",
    "MappingError",
    "MismatchError",
    "ModuleDiagnosis",
    "NotFoundError",
    "PickledValue",
    "Plan",
    "Quantize",
    "ReadWriteError",
    "RewriteError",
    "RunError",
    "SaveReport",
    "SavedModel",
    "SavedTensor",
    "Status",
    "Tensor",
    "UnmergeableError",
    "Validation",
    "VerifyReport",
    "Writer",
    "WrongTypeError",
    "__version__",
    "cut",
    "cut_bytes",
    "diagnose",
    "diagnose_export",
    "generate",
    "gguf_metadata",
    "inspect",
    "open_checkpoint",
    "plan",
    "register_class",
    "save",
    "save_model_with_external_data",
    "unregister_class",
    "validate",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import the names that few programs use, and the subpackages that need torch, on first use."""
    if name in ("torch", "transformers"):
        return import_module(f".{name}", __name__)
    if name in _LATER:
        globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names that this package offers, including those that are imported on first use."""
    return sorted({*__all__, "torch", "transformers", *(n for n in globals() if n[:2] == "__")})
