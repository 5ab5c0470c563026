"""Attach the weights of any PyTorch checkpoint to an ONNX graph as external data, verified.

```python
import onnx_external as oe

oe.save("graph.onnx", "out/model.onnx", "checkpoint.pt")
assert oe.verify("out/model.onnx", "checkpoint.pt").ok
with oe.open_checkpoint("checkpoint.pt") as checkpoint:
    weight = checkpoint["fc.weight"].numpy()
```
"""

from ._core import version as __version__
from .checkpoint import Checkpoint, Tensor, open_checkpoint
from .errors import (
    CancelledError,
    Error,
    ExistsError,
    FormatError,
    InvalidArgumentError,
    MappingError,
    MismatchError,
    NotFoundError,
    ReadWriteError,
)
from .reports import Finding, InspectedTensor, Inspection, SavedTensor, SaveReport, VerifyReport
from .save import inspect, plan, save, save_model_with_external_data, verify

__all__ = [
    "CancelledError",
    "Checkpoint",
    "Error",
    "ExistsError",
    "Finding",
    "FormatError",
    "InspectedTensor",
    "Inspection",
    "InvalidArgumentError",
    "MappingError",
    "MismatchError",
    "NotFoundError",
    "ReadWriteError",
    "SaveReport",
    "SavedTensor",
    "Tensor",
    "VerifyReport",
    "__version__",
    "inspect",
    "open_checkpoint",
    "plan",
    "save",
    "save_model_with_external_data",
    "verify",
]
