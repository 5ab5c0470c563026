"""Peephole rules on exported graphs: several nodes become one that computes the same."""
