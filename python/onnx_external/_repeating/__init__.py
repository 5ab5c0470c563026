"""Builds a deep model's graph by repeating layers of a shallow model's graph."""
