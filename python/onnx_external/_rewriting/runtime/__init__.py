"""What rewritten code calls, and what lies below it."""

from onnx_external._rewriting.runtime.helpers import Runtime

__all__ = ["Runtime"]
