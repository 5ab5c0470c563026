"""The commands that are written in Python; `onnx_external.__main__` dispatches to them."""
