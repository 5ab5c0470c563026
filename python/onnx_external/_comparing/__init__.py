"""Runs models on ONNX Runtime, and compares their outputs with a reference."""
