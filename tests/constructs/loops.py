"""Loops over rows, sizes and layers, and loops until a value is reached."""

import torch
from row import REWRITE, rand, row


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
    """`for i in range(x.shape[0])`, with a condition on each row"""

    sets = [(rand(2, 3),), (rand(5, 3) - 0.5,)]

    def forward(self, x):
        total = torch.zeros(3)
        for i in range(x.shape[0]):
            if x[i].sum() > 0:
                total = total + x[i]
        return total


@row("loops")
class OverLayers(torch.nn.Module):
    """`for layer in self.layers`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@row("loops", REWRITE)
class ABreak(torch.nn.Module):
    """`break` that depends on a value"""

    sets = [(rand(6),), (rand(6) * 9,)]

    def forward(self, x):
        total = torch.zeros(())
        for value in x:
            total = total + value
            if total > 4:
                break
        return total


@row("loops", REWRITE)
class AComprehension(torch.nn.Module):
    """`torch.stack([f(row) for row in x])`"""

    sets = [(rand(2, 3),), (rand(5, 3),)]

    def forward(self, x):
        return torch.stack([row.sum() * row for row in x])


@row("loops", REWRITE)
class ZippedRows(torch.nn.Module):
    """`for a, b in zip(x, y)`"""

    sets = [(rand(2, 3), rand(2, 3)), (rand(5, 3), rand(5, 3))]

    def forward(self, x, y):
        total = torch.zeros(3)
        for a, b in zip(x, y):
            total = total * a + b
        return total


@row("loops")
class AFixedNumber(torch.nn.Module):
    """`for i in range(4)`"""

    sets = [(rand(2, 3),), (rand(5, 3),)]

    def forward(self, x):
        for i in range(4):
            x = x * 0.5 + i
        return x


@row("loops", "`for part in x.reshape(-1, 2, x.shape[1])`, with an input set of another size")
class ASplit(torch.nn.Module):
    """`for part in x.split(2)`"""

    sets = [(rand(4, 3),), (rand(8, 3),)]

    def forward(self, x):
        total = torch.zeros(2, 3)
        for part in x.split(2):
            total = total * 0.5 + part
        return total


@row("loops", REWRITE)
class ARecurrence(torch.nn.Module):
    """a recurrence over time by hand"""

    sets = [(rand(2, 4, 3),), (rand(2, 7, 3),)]

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRUCell(3, 5)

    def forward(self, x):
        state = torch.zeros(x.shape[0], 5)
        for i in range(x.shape[1]):
            state = self.cell(x[:, i], state)
        return state


@row("loops", REWRITE)
class AListOfRows(torch.nn.Module):
    """a list that grows in a loop over rows"""

    sets = [(rand(2, 3),), (rand(5, 3),)]

    def forward(self, x):
        rows = []
        for row in x:
            rows.append(row / row.max())
        return torch.stack(rows)


@row("loops")
class ByWhileLoop(torch.nn.Module):
    """`torch.while_loop`"""

    sets = [(rand(3) * 9,), (rand(5) * 99,)]

    def forward(self, x):
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda x: x.max() > 1, lambda x: (x / 2,), (x,))[0]


@row("loops")
class ByScan(torch.nn.Module):
    """`scan` of torch"""

    sets = [(rand(4, 3),), (rand(7, 3),)]

    def forward(self, x):
        from torch._higher_order_ops.scan import scan

        def add(total, row):
            return total + row, total * row

        return scan(add, torch.zeros(3), x, dim=0)[1]


@row("loops", "`torch.vmap`, or a loop over rows and `oe.torch.export`")
class ByMap(torch.nn.Module):
    """`map` of torch"""

    sets = [(rand(4, 3),), (rand(7, 3),)]

    def forward(self, x):
        from torch._higher_order_ops.map import map

        return map(lambda row: row * row.sum(), x)


@row("loops")
class ByVmap(torch.nn.Module):
    """`torch.vmap`"""

    sets = [(rand(4, 3),), (rand(7, 3),)]

    def forward(self, x):
        return torch.vmap(lambda row: row * row.sum())(x)
