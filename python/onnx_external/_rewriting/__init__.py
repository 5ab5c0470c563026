"""Control flow that depends on tensors, rewritten so that it can be exported."""
