"""Text generation with exported decoders, on ONNX Runtime alone."""
