"""In-place writes to parts and views."""

import torch
from row import rand, row


@row("writes")
class WriteByIndex(torch.nn.Module):
    """`x[..., index] = y`"""

    sets = [
        (rand(4, 6), rand(4, 2), torch.tensor([1, 3])),
        (rand(5, 6), rand(5, 2), torch.tensor([0, 5])),
    ]

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


@row("writes")
class AnIndexPut(torch.nn.Module):
    """`x.index_put_((rows, columns), y, accumulate=True)`"""

    sets = [
        (rand(4, 6), torch.tensor([0, 1, 1]), torch.tensor([2, 3, 3]), rand(3)),
        (rand(5, 6), torch.tensor([4, 1, 0]), torch.tensor([0, 0, 5]), rand(3)),
    ]

    def forward(self, x, rows, columns, y):
        return x.clone().index_put_((rows, columns), y, accumulate=True)


@row("writes")
class AScatter(torch.nn.Module):
    """`scatter_add`"""

    sets = [(rand(4, 3), torch.tensor([[0, 1, 1]])), (rand(5, 3), torch.tensor([[4, 1, 0]]))]

    def forward(self, x, index):
        return x.scatter_add(0, index, torch.ones(1, 3))


@row("writes")
class AnAssignedSlice(torch.nn.Module):
    """`x[:, 1:3] = y`"""

    sets = [(rand(4, 6), rand(4, 2)), (rand(5, 6), rand(5, 2))]

    def forward(self, x, y):
        x = x.clone()
        x[:, 1:3] = y
        return x


@row("writes")
class WriteToAnArgument(torch.nn.Module):
    """an argument that is changed in place, and returned"""

    sets = [(rand(4, 6),), (rand(5, 6),)]

    def forward(self, x):
        x += 1
        return x


@row("writes")
class WriteAtAPosition(torch.nn.Module):
    """`buffer[:, position] = x` at a position that is a tensor"""

    sets = [(rand(2, 6), rand(2), torch.tensor(1)), (rand(3, 6), rand(3), torch.tensor(4))]

    def forward(self, buffer, x, position):
        return buffer.index_copy(1, position.reshape(1), x[:, None])


@row("writes")
class WriteToAPartOfAView(torch.nn.Module):
    """`x.view(-1, 2)[:, 0] *= 2`"""

    sets = [(rand(4, 6),), (rand(5, 6),)]

    def forward(self, x):
        x = x.clone()
        x.view(-1, 2)[:, 0] *= 2
        return x


@row("writes")
class AMaskedFill(torch.nn.Module):
    """`masked_fill` and `masked_scatter`"""

    sets = [(rand(4, 6),), (rand(5, 6),)]

    def forward(self, x):
        mask = x > 0.5
        return x.masked_fill(mask, -1.0), x.masked_scatter(mask, torch.arange(30.0))


@row("writes")
class CopyOfALine(torch.nn.Module):
    """`copy_` of a tensor that is broadcast"""

    sets = [(rand(2, 3), rand(3)), (rand(4, 3), rand(3))]

    def forward(self, x, line):
        y = x.clone()
        y.copy_(line)
        return y
