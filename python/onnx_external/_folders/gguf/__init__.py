"""Converts a GGUF file's metadata to the files of a transformers folder."""
