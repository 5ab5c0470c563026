"""Changes torch, transformers and modules temporarily."""
