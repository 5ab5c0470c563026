"""Attention of decoders, fused into one operator instead of a dozen."""
