"""Implements the commands written in Python, which `onnx_external.__main__` calls."""
