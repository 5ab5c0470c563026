"""Fused attention in the graphs of decoders: one operator in the place of a dozen."""
