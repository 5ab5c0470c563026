"""Changes of torch, transformers and modules that last as long as a context."""
