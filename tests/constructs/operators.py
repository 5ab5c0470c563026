"""Operators of torch and of the user."""

import torch
from row import rand, row


@torch.library.custom_op("constructs::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


class Straight(torch.autograd.Function):
    """The sign function, with the gradient of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@row("operators", "your own operator: examples/custom_operator.py")
class ACustomOperator(torch.nn.Module):
    """an operator made by `torch.library.custom_op`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return twice(x) + 1


@row("operators", "write what it does in forward; gradients do not matter")
class AnAutogradFunction(torch.nn.Module):
    """a `torch.autograd.Function`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return Straight.apply(x)


@row("operators")
class AttentionOperator(torch.nn.Module):
    """`scaled_dot_product_attention`, causal"""

    sets = [(rand(2, 2, 4, 8),), (rand(3, 2, 7, 8),)]

    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


@row("operators")
class AnEinsum(torch.nn.Module):
    """`einsum`"""

    sets = [(rand(2, 4, 3), rand(2, 3, 5)), (rand(3, 7, 3), rand(3, 3, 5))]

    def forward(self, x, y):
        return torch.einsum("bij,bjk->bik", x, y)


@row("operators")
class ACumulativeSum(torch.nn.Module):
    """`cumsum`"""

    sets = [(rand(2, 4),), (rand(3, 7),)]

    def forward(self, x):
        return x.cumsum(1)


@row("operators")
class ACumulativeProduct(torch.nn.Module):
    """`cumprod`"""

    sets = [(rand(2, 4),), (rand(3, 7),)]

    def forward(self, x):
        return x.cumprod(1)


@row("operators")
class AConvolution(torch.nn.Module):
    """a convolution of images of any size"""

    sets = [(rand(1, 3, 8, 8),), (rand(2, 3, 12, 10),)]

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return torch.nn.functional.max_pool2d(self.conv(x), 2)


@row("operators", "your own operator: examples/custom_operator.py")
class ALinalg(torch.nn.Module):
    """`torch.linalg.inv`"""

    sets = [(torch.eye(3) + rand(3, 3) * 0.1,), (torch.eye(3) + rand(3, 3) * 0.2,)]

    def forward(self, x):
        return torch.linalg.inv(x)


@row("operators")
class ABucketize(torch.nn.Module):
    """`bucketize`"""

    sets = [(rand(4),), (rand(7),)]

    def forward(self, x):
        limits = torch.tensor([0.2, 0.5, 0.8])
        return torch.bucketize(x, limits)


@row("operators")
class ASearchSorted(torch.nn.Module):
    """`searchsorted`"""

    sets = [(rand(4),), (rand(7),)]

    def forward(self, x):
        return torch.searchsorted(torch.tensor([0.2, 0.5, 0.8]), x)
