"""Conditions on values, sizes and Python objects."""

import torch
from row import REWRITE, rand, row


@row("branches", REWRITE)
class TestOnATensor(torch.nn.Module):
    """`if x.sum() > 0`"""

    sets = [(rand(2, 3),), (-rand(4, 3),)]

    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


@row("branches", REWRITE)
class TestOnASize(torch.nn.Module):
    """`if x.shape[0] > 3`"""

    sets = [(rand(2, 3),), (rand(6, 3),)]

    def forward(self, x):
        if x.shape[0] > 3:
            return x * 2
        return x + 1


@row("branches", REWRITE)
class TestOnTwoSizes(torch.nn.Module):
    """`if x.shape[0] == y.shape[0]`"""

    sets = [(rand(3, 2), rand(3, 2)), (rand(4, 2), rand(5, 2))]

    def forward(self, x, y):
        if x.shape[0] == y.shape[0]:
            return x + y
        return torch.cat([x, y])


@row("branches")
class ByCond(torch.nn.Module):
    """`torch.cond`"""

    sets = [(rand(2, 3),), (-rand(4, 3),)]

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


@row("branches", REWRITE)
class AnElif(torch.nn.Module):
    """`if`, `elif` and `else` on values"""

    sets = [(rand(3) + 2,), (rand(3),), (rand(3) - 5,)]

    def forward(self, x):
        if x.mean() > 1:
            y = x * 2
        elif x.mean() > 0:
            y = x + 1
        else:
            y = -x
        return y


@row("branches", REWRITE)
class AConditionalExpression(torch.nn.Module):
    """`a if x.any() else b`"""

    sets = [(torch.tensor([0.0, 1.0]),), (torch.zeros(3),)]

    def forward(self, x):
        return x + 1 if x.any() else x - 1


@row("branches", REWRITE)
class BooleanOperators(torch.nn.Module):
    """`and`, `or` and `not` of tensors"""

    sets = [(rand(3), rand(3)), (-rand(4), rand(4)), (-rand(4), -rand(4))]

    def forward(self, x, y):
        if x.sum() > 0 and not y.sum() < 0 or y.max() > 2:
            return x + y
        return x - y


@row("branches")
class ATestOnAType(torch.nn.Module):
    """`if x.dtype == torch.float32`, `isinstance`, `x.dim()`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        if x.dtype == torch.float32 and isinstance(x, torch.Tensor) and x.dim() == 2:
            return x * 2
        return x


@row("branches")
class ATestOnAnAttribute(torch.nn.Module):
    """a test on an attribute of the module"""

    sets = [(rand(2, 3),), (rand(4, 3),)]
    twice = True

    def forward(self, x):
        return x * 2 if self.twice else x


@row("branches")
class ANoneTest(torch.nn.Module):
    """`if mask is not None`"""

    sets = [(rand(2, 3), rand(2, 3)), (rand(4, 3), rand(4, 3))]

    def forward(self, x, mask=None):
        return x * mask if mask is not None else x


@row(
    "branches",
    'the default leaves the assertion out of the graph; `asserts="refuse"` makes it an error',
)
class AnAssertion(torch.nn.Module):
    """`assert x.min() >= 0`, if the assertion holds"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        assert x.min() >= 0, "a negative number"
        return x.sqrt()


@row("branches")
class AMatch(torch.nn.Module):
    """`match` on a size"""

    sets = [(rand(1, 3),), (rand(2, 3),), (rand(5, 3),)]

    def forward(self, x):
        match x.shape[0]:
            case 1:
                return x + 1
            case 2:
                return x * 2
            case _:
                return x - 1


@row("branches", "`torch.where`, or results of the same type")
class BranchesOfTwoTypes(torch.nn.Module):
    """branches whose results have different types"""

    sets = [(rand(2, 3),), (-rand(4, 3),)]

    def forward(self, x):
        if x.sum() > 0:
            return x > 0.5
        return x


@row("branches")
class ByWhere(torch.nn.Module):
    """`torch.where`"""

    sets = [(rand(2, 3),), (-rand(4, 3),)]

    def forward(self, x):
        return torch.where(x > 0.5, x, -x)


@row("branches", REWRITE)
class BranchesOfTwoSizes(torch.nn.Module):
    """branches whose results have different sizes"""

    sets = [(rand(4, 3),), (-rand(6, 3),)]

    def forward(self, x):
        if x.sum() > 0:
            return x[:2]
        return x[1:]


@row("branches", REWRITE)
class SampledInABranch(torch.nn.Module):
    """`grid_sample` in a branch"""

    sets = [(rand(1, 2, 4, 4), rand(1, 3, 3, 2)), (-rand(2, 2, 4, 4), rand(2, 3, 3, 2))]

    def forward(self, x, grid):
        if x.sum() > 0:
            return torch.nn.functional.grid_sample(x, grid, align_corners=False)
        return -x[:, :, :3, :3]
