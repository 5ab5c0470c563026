"""Text generation with exported decoders, which needs only ONNX Runtime and tokenizers."""
