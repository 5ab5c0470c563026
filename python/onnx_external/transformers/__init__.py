"""From a folder of transformers to ONNX, without weights in memory.

```python
import onnx_external as oe

oe.transformers.export("llama/", "out", layout="link")
```
"""

from .exporting import ModelReport, export

__all__ = ["ModelReport", "export"]
