"""Detects what to rewrite: the functions that ran, and the conditions that saw tensors."""
