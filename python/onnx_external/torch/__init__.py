"""Exports models larger than memory: the graph is made without weights, which files provide.

```python
import onnx_external as oe

oe.torch.export(make_model, (ids,), "out/model.onnx", weights="model.safetensors")
```
"""

from .._base.meter import Step
from ._export_reports import ExportReport, Source
from ._exporting import export, skeleton
from ._patching.patches import patches
from ._skeleton import Skeleton, Slot
from ._untouched import build

__all__ = [
    "ExportReport",
    "Skeleton",
    "Slot",
    "Source",
    "Step",
    "build",
    "export",
    "patches",
    "skeleton",
]


def __dir__() -> list[str]:
    """List the public names of this package, without its submodules."""
    return sorted({*__all__, *(name for name in globals() if name[:2] == "__")})
