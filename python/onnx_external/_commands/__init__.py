"""The commands written in Python, to which `onnx_external.__main__` dispatches."""
