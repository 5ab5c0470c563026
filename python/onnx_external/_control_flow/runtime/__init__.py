"""What rewritten code calls, and what lies below it."""

from onnx_external._control_flow.runtime.helpers import Runtime

__all__ = ["Runtime"]
