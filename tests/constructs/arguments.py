"""Constructs in the arguments of forward."""

import enum
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import torch
from row import rand, row


@dataclass
class Both:
    first: torch.Tensor
    second: torch.Tensor


Pair = namedtuple("Pair", ["first", "second"])
Mode = enum.Enum("Mode", ["ADD", "SUB"])


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


@row("arguments", "pass a tensor, or export once for each value")
class AnInteger(torch.nn.Module):
    """an int that differs from call to call"""

    sets = [(rand(2, 3), 2), (rand(2, 3), 5)]

    def forward(self, x, times):
        return x * times


@row("arguments", "pass a tensor, or export once for each value")
class AFloat(torch.nn.Module):
    """a float that differs from call to call"""

    sets = [(rand(2, 3), 0.5), (rand(2, 3), 1.5)]

    def forward(self, x, scale):
        return x * scale


@row("arguments", "export once for each value")
class ABool(torch.nn.Module):
    """a bool that decides a condition, the same in all calls"""

    sets = [(rand(2, 3), True), (rand(4, 3), True)]

    def forward(self, x, negate):
        return -x if negate else x


@row("arguments", "export once for each value")
class AString(torch.nn.Module):
    """a string that decides a condition, the same in all calls"""

    sets = [(rand(2, 3), "mean"), (rand(4, 3), "mean")]

    def forward(self, x, how):
        return x.mean(1) if how == "mean" else x.sum(1)


@row("arguments", "pass its name or its value")
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


@row("arguments")
class OneTensor(torch.nn.Module):
    """a tensor"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x * 2


@row("arguments")
class ATuple(torch.nn.Module):
    """a tuple of tensors"""

    sets = [((rand(2, 3), rand(2, 3)),), ((rand(4, 3), rand(4, 3)),)]

    def forward(self, pair):
        first, second = pair
        return first - second


@row("arguments")
class ADefault(torch.nn.Module):
    """a default value that no call overrides"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x, scale=2.0, mask=None):
        return x * scale if mask is None else x * mask


@row("arguments")
class AKeyword(torch.nn.Module):
    """a tensor passed by keyword"""

    sets = [(rand(2, 3),), (rand(4, 3),)]
    keywords = [{"y": rand(2, 3)}, {"y": rand(4, 3)}]

    def forward(self, x, *, y):
        return x + y


@row("arguments", "name the arguments in the signature")
class Keywords(torch.nn.Module):
    """`**kwargs`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]
    keywords = [{"a": rand(2, 3), "b": rand(2, 3)}, {"a": rand(4, 3), "b": rand(4, 3)}]

    def forward(self, x, **kwargs):
        return x + kwargs["a"] * kwargs["b"]


@row("arguments", "register the class with torch.utils._pytree: examples/own_class.py")
class ADataclass(torch.nn.Module):
    """a dataclass"""

    sets = [(Both(rand(2, 3), rand(2, 3)),), (Both(rand(4, 3), rand(4, 3)),)]

    def forward(self, both):
        return both.first + both.second


@row("arguments")
class ACache(torch.nn.Module):
    """a list of pairs of keys and values, as in old caches"""

    sets = [
        (rand(2, 1, 3), [(rand(2, 4, 3), rand(2, 4, 3))]),
        (rand(3, 1, 3), [(rand(3, 6, 3), rand(3, 6, 3))]),
    ]

    def forward(self, x, cache):
        (keys, values), *_ = cache
        keys = torch.cat([keys, x], 1)
        return (x @ keys.transpose(1, 2)).softmax(-1) @ torch.cat([values, x], 1), keys


@row("arguments", "a list with a fixed length, or one stacked tensor")
class AListOfSomeLength(torch.nn.Module):
    """a list whose length differs from call to call"""

    sets = [([rand(3)] * 2,), ([rand(3)] * 4,)]

    def forward(self, parts):
        return sum(parts)


@row("arguments")
class AnIntThatStays(torch.nn.Module):
    """an int that is the same in all calls"""

    sets = [(rand(2, 3), 2), (rand(4, 3), 2)]

    def forward(self, x, times):
        return x * times
