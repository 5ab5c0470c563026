"""Provides the functions that rewritten code calls, and their helpers."""

from onnx_external._control_flow.runtime.helpers import Runtime

__all__ = ["Runtime"]
