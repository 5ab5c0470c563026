"""What rewritten code calls, and what lies below it."""

from onnx_external.rewriting.runtime.helpers import Runtime

__all__ = ["Runtime"]
