"""Constructs in the return value of forward."""

import torch
from arguments import Both, Pair
from row import rand, row


@row("outputs")
class DictOutput(torch.nn.Module):
    """a dict and a tuple"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return {"sum": x.sum(0), "both": (x + 1, x - 1)}


@row("outputs")
class NoneOutput(torch.nn.Module):
    """None next to a tensor"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x + 1, None


@row("outputs")
class AnInputAsOutput(torch.nn.Module):
    """an argument, returned unchanged"""

    sets = [(rand(2, 3), rand(2, 3)), (rand(4, 3), rand(4, 3))]

    def forward(self, x, y):
        return x, x + y


@row("outputs")
class ASizeAsOutput(torch.nn.Module):
    """a size next to a tensor"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x + 1, x.shape[0]


@row("outputs")
class AListOut(torch.nn.Module):
    """a list of tensors"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return [x + 1, x - 1]


@row("outputs")
class ANamedTupleOut(torch.nn.Module):
    """a NamedTuple"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return Pair(x + 1, x - 1)


@row("outputs", "register the class with torch.utils._pytree: examples/own_class.py")
class ADataclassOut(torch.nn.Module):
    """a dataclass"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return Both(x + 1, x - 1)


@row("outputs")
class TheSameTwice(torch.nn.Module):
    """the same tensor twice"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        y = x + 1
        return y, y


@row("outputs")
class AParameterOut(torch.nn.Module):
    """a parameter, returned unchanged"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(rand(3))

    def forward(self, x):
        return x * self.weight, self.weight


@row("outputs")
class AConstantOut(torch.nn.Module):
    """a tensor that depends on no input"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x + 1, torch.ones(3)


@row("outputs", "split the result in the caller")
class AsManyAsRows(torch.nn.Module):
    """one tensor per row (`x.unbind()`)"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x.unbind()


@row("outputs", "`oe.torch.export` makes it an output")
class ANumberOut(torch.nn.Module):
    """a number next to a tensor (`return y, 3`)"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x + 1, 3
