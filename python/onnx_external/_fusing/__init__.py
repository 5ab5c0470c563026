"""Peephole rules for exported graphs; each replaces several nodes with one equivalent node."""
