"""Fuses the attention in decoders into one operator instead of a dozen."""
