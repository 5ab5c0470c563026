"""Temporary changes of torch, transformers and modules."""
