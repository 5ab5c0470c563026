"""D: sizes."""

from __future__ import annotations

import torch
from entries import any_of, entry
from torch import nn
from torch.nn import functional as F

ROWS = ((0,),)


def rows(*sizes: int, width: int = 4):
    return lambda: [(any_of(n, width),) for n in sizes]


def lengths(*sizes: int):
    return lambda: [(any_of(2, n),) for n in sizes]


@entry("even or odd", rows(4, 3, 1, 6), ROWS)
class D01_EvenOdd(nn.Module):
    def forward(self, x):
        if x.shape[0] % 2:
            return x[::2]
        return x[1::2] * 2


@entry("n == 1", rows(3, 1, 2), ROWS)
class D02_IsOne(nn.Module):
    def forward(self, x):
        n = x.size(0)
        if n == 1:
            return x.expand(4, 4) * 2
        return x


@entry("padded to a multiple if needed", lengths(6, 8, 1, 11), ((1,),))
class D03_PadIfNeeded(nn.Module):
    def forward(self, x):
        rest = x.shape[1] % 4
        if rest != 0:
            x = F.pad(x, (0, 4 - rest))
        return x.reshape(x.shape[0], -1, 4).sum(-1)


@entry("pad > 0", lengths(3, 7, 5, 1), ((1,),))
class D04_PadToFive(nn.Module):
    def forward(self, x):
        pad = 5 - x.shape[1]
        if pad > 0:
            x = torch.cat([x, x.new_zeros(x.shape[0], pad)], 1)
        return x[:, :5]


@entry("sizes 0 and 1 as rows", rows(3, 0, 1, 5), ROWS)
class D05_ZeroRows(nn.Module):
    def forward(self, x):
        if x.shape[0] == 0:
            return x.new_ones(1, 4)
        return x.cumsum(0)


@entry(
    "sizes that are equal by chance",
    lambda: [(any_of(3, 4), any_of(3, 4)), (any_of(2, 4), any_of(5, 4)), (any_of(4, 4), any_of(1, 4))],
    ((0,), (0,)),
)
class D06_EqualByChance(nn.Module):
    def forward(self, x, y):
        if x.shape[0] == y.shape[0]:
            return x + y
        return torch.cat([x, y])


@entry("nested tests on sizes", lengths(4, 8, 3, 7, 12), ((1,),))
class D07_Nested(nn.Module):
    def forward(self, x):
        n = x.shape[1]
        if n > 6:
            if n % 2 == 0:
                return x[:, : n // 2]
            return x[:, 1:]
        elif n % 2 == 1:
            return x * 2
        return torch.cat([x, x], 1)


@entry("windows, with a shift if there are several", lengths(4, 8, 12), ((1,),))
class D08_Windows(nn.Module):
    def forward(self, x):
        b, n = x.shape
        windows = n // 4
        if windows > 1:
            x = torch.roll(x, -2, 1)
        y = x.view(b, windows, 4)
        return y.softmax(-1).flatten(1)


@entry("LSTM with a length that varies", lambda: [(any_of(2, n, 4),) for n in (3, 1, 6)], ((1,),))
class D09_Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return y, h, c


@entry("GRU of two directions with a length that varies", lambda: [(any_of(n, 2, 4),) for n in (3, 1, 6)], ROWS)
class D10_Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 3, bidirectional=True)

    def forward(self, x):
        return self.gru(x)[0]


@entry("interpolated only if sizes differ", lambda: [(any_of(1, 2, n, 4),) for n in (6, 4, 9)], ((2,),))
class D11_Interpolate(nn.Module):
    def forward(self, x):
        if x.shape[-2] != 4:
            x = F.interpolate(x, size=(4, 4), mode="bilinear", align_corners=False)
        return x * 2


@entry("the last n or all", lengths(8, 3, 5, 1), ((1,),))
class D12_LastN(nn.Module):
    def forward(self, x):
        n = x.size(-1)
        start = max(0, n - 5)
        return x[:, start:] if start else x + 0.5


@entry("a size test beside a tensor test", rows(3, 1, 5, 2), ROWS)
class D13_SizeAndValue(nn.Module):
    def forward(self, x):
        if x.shape[0] > 2 and x.sum() > 0:
            return x * 2
        if x.shape[0] == 1 or x.max() > 100:
            return x + 1
        return x - 1


@entry("chunks of a size that varies", lengths(8, 5, 3, 1), ((1,),))
class D14_Chunks(nn.Module):
    def forward(self, x):
        total = x.new_zeros(2)
        for start in range(0, x.shape[1], 3):
            total = total * 0.5 + x[:, start : start + 3].sum(1)
        return total


@entry("a mask cached for a length, made longer if needed", lengths(4, 6, 9, 1), ((1,),))
class D15_CachedMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)), persistent=False)

    def forward(self, x):
        n = x.shape[1]
        mask = self.mask
        if n > mask.shape[0]:
            mask = torch.tril(torch.ones(n, n))
        return x @ mask[:n, :n]


@entry("squeeze if the size is one", lengths(4, 1, 3), ((1,),))
class D16_Broadcast(nn.Module):
    def forward(self, x):
        y = x.mean(1, keepdim=True)
        if x.shape[1] == 1:
            y = y * 10
        return x - y


@entry("conv with 'same' padding by size", lambda: [(any_of(1, 2, n),) for n in (5, 6, 3, 9)], ((2,),))
class D17_SamePadding(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 3, stride=2)

    def forward(self, x):
        n = x.shape[-1]
        out = -(-n // 2)
        pad = max((out - 1) * 2 + 3 - n, 0)
        if pad > 0:
            x = F.pad(x, (pad // 2, pad - pad // 2))
        return self.conv(x)


@entry("square or not", lambda: [(any_of(3, 3),), (any_of(2, 3),), (any_of(4, 2),), (any_of(1, 1),)], ((0, 1),))
class D18_Square(nn.Module):
    def forward(self, x):
        h, w = x.shape
        if h > w:
            x = x.t()
        elif h == w:
            x = x + torch.eye(h)
        return x.sum(0)


@entry("a raise on a size", rows(3, 1, 7), ROWS)
class D19_Raise(nn.Module):
    def forward(self, x):
        if x.shape[0] > 64:
            raise ValueError(f"{x.shape[0]} rows are too many")
        return x.softmax(0)


@entry("positions, taken or extended by the last", lengths(4, 8, 6, 1), ((1,),))
class D20_Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(6))

    def forward(self, x):
        n = x.shape[1]
        if n <= 6:
            p = self.positions[:n]
        else:
            p = torch.cat([self.positions, self.positions[-1:].expand(n - 6)])
        return x + p


@entry("a while over a size that halves", lengths(8, 5, 1, 16), ((1,),), refused="(?i)shape|size|grow|round")
class D21_Halving(nn.Module):
    def forward(self, x):
        while x.shape[1] > 1:
            if x.shape[1] % 2:
                x = F.pad(x, (0, 1))
            x = x[:, ::2] + x[:, 1::2]
        return x


@entry("the batch flattened, or not", lambda: [(any_of(2, 3, 4),), (any_of(1, 3, 4),), (any_of(5, 1, 4),)], ((0, 1),))
class D22_Flatten(nn.Module):
    def forward(self, x):
        b, t, d = x.shape
        y = x.reshape(-1, d)
        if b * t > 4:
            y = y * 2
        return y.view(b, t, d)


@entry("match with several sizes, a guard and a name", rows(4, 1, 2, 3, 6, 7), ROWS)
class D23_Match(nn.Module):
    def forward(self, x):
        match x.shape[0]:
            case 1:
                return x * 2
            case 2 | 3:
                y = x + 1
            case n if n > 5:
                y = x - n
            case _:
                y = -x
        return y.abs()


@entry("nothing in no rows", rows(3, 0, 1), ROWS)
class D24_AnyOfNone(nn.Module):
    def forward(self, x):
        if (x > 0).any():
            return x.amax(1)
        return x.sum(1)


@entry(
    "averages over parts of an image, whatever its size",
    lambda: [(any_of(1, 2, h, w),) for h, w in ((8, 8), (6, 9), (13, 7))],
    ((2, 3),),
)
class D25_Averages(nn.Module):
    def forward(self, x):
        outs = []
        for parts in (1, 2, 3):
            if min(x.shape[-2:]) >= 2 * parts:
                outs.append(nn.functional.adaptive_avg_pool2d(x, parts).flatten(1))
        return torch.cat(outs, 1)
