"""Compares a model's outputs on ONNX Runtime with expected outputs.

```python
import onnx_external as oe

report = oe.validate("out/model.onnx", against=module, inputs=(ids,))
```

onnxruntime, onnx and torch are imported only when they are needed.
"""

from .reports import Validation
from .validating import validate

__all__ = ["Validation", "validate"]
