"""Generating text with exported decoders, on ONNX Runtime alone."""
