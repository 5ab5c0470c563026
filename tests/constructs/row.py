"""A row in the table of constructs.

A row is a class with `forward` and `sets`, tuples of arguments that take all its ways, and perhaps
`keywords`, a dict for each set. Its docstring is the text of the row, and `group` the group that it
stands in. `way` says what helps where an exporter refuses it or is wrong.
"""

import torch
from torch import Tensor

ROWS: list = []
REWRITE = "an input set for each branch"

torch.manual_seed(0)


def row(group: str, way: str = ""):
    """Return a decorator that adds a class to the rows."""

    def add(cls: type) -> type:
        cls.group, cls.way = group, way
        ROWS.append(cls)
        return cls

    return add


def rand(*shape: int) -> Tensor:
    return torch.rand(shape)
