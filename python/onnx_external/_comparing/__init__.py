"""Runs of models on ONNX Runtime, and comparison of their outputs with a reference."""
