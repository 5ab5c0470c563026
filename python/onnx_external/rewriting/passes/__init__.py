"""From a function's tree to a tree in which chosen tests and loops are calls of the runtime."""
