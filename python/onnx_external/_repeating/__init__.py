"""The graph of a deep model from that of a shallow one, whose layers are repeated."""
