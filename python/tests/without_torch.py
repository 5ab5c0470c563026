"""A plugin of pytest (`-p without_torch`): torch and what needs it are as if not installed."""

import sys

for _each in ("torch", "transformers", "onnxruntime", "onnxscript", "onnx_ir"):
    sys.modules[_each] = None  # type: ignore[assignment]
