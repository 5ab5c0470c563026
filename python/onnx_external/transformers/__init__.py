"""Exports transformers model folders to ONNX without loading their weights into memory.

```python
import onnx_external as oe

oe.transformers.export("llama/", "out", layout="link")
```
"""

import torch

from ._export_reports import ModelReport
from ._exporting import export

__all__ = ["ModelReport", "export"]

# torch lists the functions that make tensors when it first needs them, for good. from_pretrained()
# replaces torch.linspace for a while: if it came first, torch.device("meta") would never again
# apply to the real one.
with torch.device("meta"):
    torch.empty(0)


def __dir__() -> list[str]:
    """List the public names of this package, without its submodules."""
    return sorted({*__all__, *(name for name in globals() if name[:2] == "__")})
