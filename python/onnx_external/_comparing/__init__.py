"""Running models on ONNX Runtime, and comparing their outputs with those of a reference."""
