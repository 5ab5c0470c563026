"""Peephole rules on exported graphs: several nodes become one equivalent node."""
