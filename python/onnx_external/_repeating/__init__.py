"""Construction of a deep model's graph from that of a shallow one, by repeating layers."""
