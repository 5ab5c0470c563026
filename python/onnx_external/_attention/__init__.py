"""Fused attention in the graphs of decoders: one operator instead of a dozen."""
