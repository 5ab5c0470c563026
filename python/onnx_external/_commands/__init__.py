"""The commands that are written in Python; `onnx_external.__main__` is their front door."""
