"""Constructs with dynamic sizes."""

import torch
from row import rand, row


@row("dynamic shapes", "pass both arguments with the larger size")
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


@row("dynamic shapes")
class NoRows(torch.nn.Module):
    """a size that is 0 in another call"""

    sets = [(rand(3, 4),), (rand(0, 4),)]

    def forward(self, x):
        return x * 2, x.sum(0)


@row("dynamic shapes")
class OneInAFurtherCall(torch.nn.Module):
    """a size that is 1 in another call"""

    sets = [(rand(3, 4),), (rand(1, 4),)]

    def forward(self, x):
        return x.softmax(0) @ x.T


@row("dynamic shapes")
class HalfOfASize(torch.nn.Module):
    """`x[: x.shape[0] // 2]`"""

    sets = [(rand(4, 3),), (rand(9, 3),)]

    def forward(self, x):
        return x[: x.shape[0] // 2]


@row("dynamic shapes")
class Arange(torch.nn.Module):
    """`torch.arange(x.shape[1])`"""

    sets = [(rand(2, 4),), (rand(3, 7),)]

    def forward(self, x):
        return x + torch.arange(x.shape[1])


@row("dynamic shapes")
class CausalMask(torch.nn.Module):
    """a causal mask with the size of the sequence"""

    sets = [(rand(2, 4, 4),), (rand(3, 7, 7),)]

    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return x.masked_fill(~mask, -1e9).softmax(-1)


@row("dynamic shapes")
class ByUnflatten(torch.nn.Module):
    """`unflatten` and `view(b, t, h, -1)`"""

    sets = [(rand(2, 4, 6),), (rand(3, 7, 6),)]

    def forward(self, x):
        batch, length, _ = x.shape
        return x.view(batch, length, 2, -1).transpose(1, 2), x.unflatten(-1, (3, 2))


@row("dynamic shapes")
class ByExpand(torch.nn.Module):
    """`expand` and `repeat` by a size of another argument"""

    sets = [(rand(1, 3), rand(2, 5)), (rand(1, 3), rand(4, 5))]

    def forward(self, x, y):
        return x.expand(y.shape[0], -1), x.repeat(y.shape[0], 1)


@row("dynamic shapes")
class ByANumberInATensor(torch.nn.Module):
    """`x[: n.item()]`"""

    sets = [(rand(6, 3), torch.tensor(2)), (rand(6, 3), torch.tensor(5))]

    def forward(self, x, n):
        return x[: n.item()]


@row("dynamic shapes")
class NonZero(torch.nn.Module):
    """`nonzero`"""

    sets = [(torch.tensor([0.0, 1.0, 2.0]),), (torch.tensor([0.0, 0.0, 3.0, 0.0, 1.0]),)]

    def forward(self, x):
        return x.nonzero()


@row("dynamic shapes")
class RepeatInterleave(torch.nn.Module):
    """`repeat_interleave` with repeats in a tensor"""

    sets = [(rand(3, 2), torch.tensor([1, 0, 2])), (rand(3, 2), torch.tensor([2, 2, 3]))]

    def forward(self, x, times):
        return x.repeat_interleave(times, 0)


@row("dynamic shapes")
class ByInterpolate(torch.nn.Module):
    """`interpolate` to the size of another image"""

    sets = [(rand(1, 2, 4, 4), rand(1, 2, 8, 6)), (rand(1, 2, 5, 4), rand(1, 2, 10, 9))]

    def forward(self, x, y):
        return torch.nn.functional.interpolate(x, size=y.shape[2:], mode="nearest")


@row("dynamic shapes", "pad to a multiple in the caller")
class PadToAMultiple(torch.nn.Module):
    """padding to a multiple of 4"""

    sets = [(rand(2, 5),), (rand(2, 10),)]

    def forward(self, x):
        return torch.nn.functional.pad(x, (0, -x.shape[1] % 4))
