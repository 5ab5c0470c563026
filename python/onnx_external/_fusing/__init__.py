"""Peephole rules for exported graphs, each replacing several nodes with one equivalent node."""
