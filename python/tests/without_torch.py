"""A pytest plugin (`-p without_torch`) that hides torch and all packages that need torch."""

import sys

for _each in ("torch", "transformers", "onnxruntime", "onnxscript", "onnx_ir"):
    sys.modules[_each] = None  # type: ignore[assignment]
