"""Constructs of modules, each as small as it can be, with inputs that take all its ways.

A row is a class with `forward` and `sets`. Its docstring is the text of the row, and `group` the
group that it stands in. `way` says what helps where an exporter refuses it or is wrong.
"""

from collections import namedtuple

import torch
from torch import Tensor

ROWS: list = []


def row(group: str, way: str = ""):
    """Adds a class to the rows."""

    def add(cls: type) -> type:
        cls.group, cls.way = group, way
        ROWS.append(cls)
        return cls

    return add


def rand(*shape: int) -> Tensor:
    return torch.rand(shape)


Pair = namedtuple("Pair", ["first", "second"])
REWRITE = "`oe.torch.export` with an input set for each way"


@row("arguments")
class AList(torch.nn.Module):
    """a list of tensors"""

    sets = [([rand(2, 3), rand(2, 3)],), ([rand(4, 3), rand(4, 3)],)]

    def forward(self, parts):
        return parts[0] + parts[1]


@row("arguments")
class ADict(torch.nn.Module):
    """a dict of tensors"""

    sets = [({"a": rand(2, 3), "b": rand(2, 3)},), ({"a": rand(4, 3), "b": rand(4, 3)},)]

    def forward(self, parts):
        return parts["a"] - parts["b"]


@row("arguments")
class ANamedTuple(torch.nn.Module):
    """a NamedTuple"""

    sets = [(Pair(rand(2, 3), rand(2, 3)),), (Pair(rand(4, 3), rand(4, 3)),)]

    def forward(self, pair):
        return pair.first * pair.second


@row("arguments")
class Nested(torch.nn.Module):
    """a dict of a list and a tuple"""

    sets = [({"a": [rand(2), (rand(2), rand(2))]},), ({"a": [rand(3), (rand(3), rand(3))]},)]

    def forward(self, parts):
        first, (second, third) = parts["a"]
        return first + second * third


@row("arguments")
class NoneArgument(torch.nn.Module):
    """an optional tensor that is None"""

    sets = [(rand(2, 3), None), (rand(4, 3), None)]

    def forward(self, x, mask=None):
        return x if mask is None else x * mask


@row("arguments", "make it a tensor, or export once for each number")
class AnInteger(torch.nn.Module):
    """an int that differs from call to call"""

    sets = [(rand(2, 3), 2), (rand(2, 3), 5)]

    def forward(self, x, times):
        return x * times


@row("arguments", "make it a tensor, or export once for each number")
class AFloat(torch.nn.Module):
    """a float that differs from call to call"""

    sets = [(rand(2, 3), 0.5), (rand(2, 3), 1.5)]

    def forward(self, x, scale):
        return x * scale


@row("outputs")
class DictOutput(torch.nn.Module):
    """a dict and a tuple"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return {"sum": x.sum(0), "both": (x + 1, x - 1)}


@row("outputs")
class NoneOutput(torch.nn.Module):
    """None beside a tensor"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x + 1, None


@row("tests", REWRITE)
class TestOnATensor(torch.nn.Module):
    """`if x.sum() > 0`"""

    sets = [(rand(2, 3),), (-rand(4, 3),)]

    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


@row("tests", REWRITE)
class TestOnASize(torch.nn.Module):
    """`if x.shape[0] > 3`"""

    sets = [(rand(2, 3),), (rand(6, 3),)]

    def forward(self, x):
        if x.shape[0] > 3:
            return x * 2
        return x + 1


@row("loops", REWRITE)
class LoopOverRows(torch.nn.Module):
    """`for row in x`, over rows whose number varies"""

    sets = [(rand(2, 3),), (rand(5, 3),)]

    def forward(self, x):
        total = torch.zeros_like(x[0])
        for each in x:
            total = total * 0.5 + each
        return total


@row("loops", REWRITE)
class WhileOnATensor(torch.nn.Module):
    """`while x.max() > 1`"""

    sets = [(rand(3) * 9,), (rand(5) * 99,)]

    def forward(self, x):
        while x.max() > 1:
            x = x / 2
        return x


@row("writes")
class WriteByIndex(torch.nn.Module):
    """`x[..., index] = y`"""

    sets = [(rand(4, 6), rand(4, 2), torch.tensor([1, 3])), (rand(5, 6), rand(5, 2), torch.tensor([0, 5]))]

    def forward(self, x, y, index):
        x = x.clone()
        x[..., index] = y
        return x


@row("writes")
class WriteToAView(torch.nn.Module):
    """`x[:, 0].add_(1)`"""

    sets = [(rand(4, 6),), (rand(5, 6),)]

    def forward(self, x):
        x = x.clone()
        x[:, 0].add_(1)
        return x


@row("writes")
class WriteToAMask(torch.nn.Module):
    """`x[x > limit] = 0`"""

    sets = [(rand(4, 6),), (rand(5, 6),)]

    def forward(self, x):
        x = x.clone()
        x[x > 0.5] = 0
        return x


@row("dynamic shapes", "no way is known: give both arguments the larger size")
class SizeOfOne(torch.nn.Module):
    """a size that is 1 in the example"""

    sets = [(rand(1, 3), rand(4, 3)), (rand(4, 3), rand(4, 3))]

    def forward(self, x, y):
        return x + y


@row("dynamic shapes")
class EqualByChance(torch.nn.Module):
    """two sizes that are equal in the example by chance"""

    sets = [(rand(3, 2), rand(3, 2)), (rand(4, 2), rand(5, 2))]

    def forward(self, x, y):
        return torch.cat([x, y])


@row("dynamic shapes")
class ProductOfSizes(torch.nn.Module):
    """`x.reshape(x.shape[0] * x.shape[1], -1)`"""

    sets = [(rand(2, 3, 4),), (rand(5, 2, 4),)]

    def forward(self, x):
        return x.reshape(x.shape[0] * x.shape[1], -1)


@row("dynamic shapes")
class DependsOnData(torch.nn.Module):
    """`x[x > limit]`: as many values as there are"""

    sets = [(rand(4, 6),), (rand(5, 6),)]

    def forward(self, x):
        return x[x > 0.5]
