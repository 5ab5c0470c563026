"""Finding what is to be rewritten: the functions that ran, and the tests that saw tensors."""
