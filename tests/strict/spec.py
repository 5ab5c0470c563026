"""Small modules, one for each way in which a weight gets another name, value or shape in a graph.

A Spec makes a module and its inputs; both draw from torch's generator, so a seed decides everything.
Outputs are float32 tensors.  Buffers whose last name is in weights.FIXED mean something and are the same in
every copy of a module; all else is random.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

WIDTH = 6  # of most modules; small enough that a thousand saves take seconds


@dataclass(frozen=True)
class Spec:
    """make() gives the module, inputs() its caller's tensors.

    input_names: what torch.onnx.export is told; None leaves the naming to the exporter.
    dynamic: the first dimension of every input is the caller's.
    legacy, modern: which exporters know the module's operators.
    """

    name: str
    make: Callable
    inputs: Callable
    input_names: tuple | None = None
    dynamic: bool = False
    legacy: bool = True
    modern: bool = True
    tolerance: float = 2e-4  # of the outputs, relative to the largest value


SPECS = {}


def spec(inputs, **settings):
    """Return a decorator that registers a class, or a function that makes a module, under its name."""

    def register(make):
        SPECS[make.__name__] = Spec(make.__name__, make, inputs, **settings)
        return make

    return register


def rows(*shape):
    """Return an input maker: one float tensor of this shape."""
    return lambda: (torch.randn(*shape),)


def ids(limit=11, length=5):
    return lambda: (torch.randint(0, limit, (2, length)),)


def param(*shape):
    return nn.Parameter(torch.randn(*shape) * 0.4)


images = rows(2, 3, 8, 8)
vectors = rows(3, WIDTH)
sequences = rows(2, 4, WIDTH)
pairs = lambda: (torch.randn(3, WIDTH), torch.randn(3, WIDTH))
