"""Rewrites graphs for an older ONNX opset."""
