"""Constructs of modules, each as small as it can be, with inputs that take all its ways.

A row is a class with `forward` and `sets`. Its docstring is the text of the row, and `group` the
group that it stands in. `way` says what helps where an exporter refuses it or is wrong.
"""

import enum
from collections import OrderedDict, namedtuple

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
Mode = enum.Enum("Mode", ["ADD", "SUB"])
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


@row("arguments", "export once for each value")
class ABool(torch.nn.Module):
    """a bool that decides a test, the same in all calls"""

    sets = [(rand(2, 3), True), (rand(4, 3), True)]

    def forward(self, x, negate):
        return -x if negate else x


@row("arguments", "export once for each value")
class AString(torch.nn.Module):
    """a string that decides a test, the same in all calls"""

    sets = [(rand(2, 3), "mean"), (rand(4, 3), "mean")]

    def forward(self, x, how):
        return x.mean(1) if how == "mean" else x.sum(1)


@row("arguments", "give its name or its number")
class AnEnum(torch.nn.Module):
    """an Enum"""

    sets = [(rand(2, 3), Mode.ADD), (rand(4, 3), Mode.ADD)]

    def forward(self, x, mode):
        return x + 1 if mode is Mode.ADD else x - 1


@row("arguments")
class StarArguments(torch.nn.Module):
    """`*args`"""

    sets = [(rand(2, 3), rand(2, 3), rand(2, 3)), (rand(4, 3), rand(4, 3), rand(4, 3))]

    def forward(self, *parts):
        return torch.cat(parts, 1)


@row("arguments")
class AnOrderedDict(torch.nn.Module):
    """an OrderedDict"""

    sets = [(OrderedDict(a=rand(2, 3), b=rand(2, 3)),), (OrderedDict(a=rand(4, 3), b=rand(4, 3)),)]

    def forward(self, parts):
        return parts["a"] - parts["b"]


@row("arguments")
class NotUsed(torch.nn.Module):
    """a tensor that has no effect"""

    sets = [(rand(2, 3), rand(2, 3)), (rand(4, 3), rand(4, 3))]

    def forward(self, x, unused):
        return x + 1


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


@row("outputs")
class AnInputAsOutput(torch.nn.Module):
    """an argument, handed on"""

    sets = [(rand(2, 3), rand(2, 3)), (rand(4, 3), rand(4, 3))]

    def forward(self, x, y):
        return x, x + y


@row("outputs")
class ASizeAsOutput(torch.nn.Module):
    """a size beside a tensor"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x + 1, x.shape[0]


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


@row("tests", REWRITE)
class TestOnTwoSizes(torch.nn.Module):
    """`if x.shape[0] == y.shape[0]`"""

    sets = [(rand(3, 2), rand(3, 2)), (rand(4, 2), rand(5, 2))]

    def forward(self, x, y):
        if x.shape[0] == y.shape[0]:
            return x + y
        return torch.cat([x, y])


@row("tests")
class ByCond(torch.nn.Module):
    """`torch.cond`"""

    sets = [(rand(2, 3),), (-rand(4, 3),)]

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


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


@row("loops", REWRITE)
class RangeOfASize(torch.nn.Module):
    """`for i in range(x.shape[0])`, with a test on each row"""

    sets = [(rand(2, 3),), (rand(5, 3) - 0.5,)]

    def forward(self, x):
        total = torch.zeros(3)
        for i in range(x.shape[0]):
            if x[i].sum() > 0:
                total = total + x[i]
        return total


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


@row("modules")
class CalledTwice(torch.nn.Module):
    """a submodule that is called twice"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(torch.relu(self.linear(x)))


@row("modules")
class ABufferThatChanges(torch.nn.Module):
    """a buffer that counts the calls"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls = self.calls + 1
        return x * 2


@row("modules")
class Parametrized(torch.nn.Module):
    """weight norm as a parametrization"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4))

    def forward(self, x):
        return self.linear(x)


@row("modules")
class Hooked(torch.nn.Module):
    """a forward hook that changes the result"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.linear.register_forward_hook(lambda module, args, result: result * 2)

    def forward(self, x):
        return self.linear(x)


@row("values")
class HalfPrecision(torch.nn.Module):
    """autocast to bfloat16, and back"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return (x.bfloat16() * 3).float()


@row("values", "two tensors: `torch.view_as_real`")
class ComplexNumbers(torch.nn.Module):
    """complex numbers inside"""

    sets = [(rand(2, 8),), (rand(4, 8),)]

    def forward(self, x):
        return torch.fft.fft(x).abs()


@row("values")
class SortedValues(torch.nn.Module):
    """`sort` and `topk`"""

    sets = [(rand(2, 6),), (rand(4, 6),)]

    def forward(self, x):
        return x.sort(dim=1).values, x.topk(2, dim=1).indices


@row("values")
class UniqueValues(torch.nn.Module):
    """`unique`"""

    sets = [(torch.tensor([3, 1, 3]),), (torch.tensor([5, 5, 2, 1, 0]),)]

    def forward(self, x):
        return x.unique()


@row("values", "an operator of your own: examples/custom_operator.py")
class ByNumpy(torch.nn.Module):
    """numpy on a tensor"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return torch.from_numpy(x.numpy() + 1)


@row("values", "one tensor less: `x.max()` stays a tensor")
class ItemOfATensor(torch.nn.Module):
    """`float(x.max())`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x / float(x.max())
