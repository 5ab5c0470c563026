"""C: Python numbers from tensors."""

from __future__ import annotations

import math
from math import sqrt

import torch
from entries import any_of, down, entry, number, up
from torch import nn

ROWS = ((0,),)


def counts(*values: int):
    return lambda: [(any_of(9, 3), number(n)) for n in values]


@entry(".item() as a size", lambda: [(number(3),), (number(1),), (number(6),)])
class C01_ItemSize(nn.Module):
    def forward(self, n):
        return torch.zeros(n.item(), 2) + 1


@entry("int() as the end of a slice", counts(4, 1, 9, 2), ((), ()))
class C02_IntSlice(nn.Module):
    def forward(self, x, n):
        return x[: int(n)] * 2


@entry("float() in arithmetic", lambda: [(up(2, 3),), (down(2, 3),), (torch.zeros(1, 3),)], ROWS)
class C03_Float(nn.Module):
    def forward(self, x):
        scale = float(x.abs().sum())
        return x * scale + scale**2


@entry("arange by a value", lambda: [(number(3),), (number(1),), (number(6),)])
class C04_Arange(nn.Module):
    def forward(self, n):
        end = int(n)
        return torch.arange(end, dtype=torch.float32) * 0.5


@entry("a mask made of lengths", lambda: [(number([2, 5, 1]),), (number([1]),), (number([4, 4]),)], ROWS)
class C05_Mask(nn.Module):
    def forward(self, lengths):
        top = int(lengths.max())
        return torch.arange(top)[None, :] < lengths[:, None]


@entry(
    ".tolist() unpacked",
    lambda: [(any_of(6, 2), number([2, 4])), (any_of(6, 2), number([1, 2])), (any_of(6, 2), number([0, 6]))],
    ((), ()),
)
class C06_ToList(nn.Module):
    def forward(self, x, ends):
        a, b = ends.tolist()
        return x[a:b]


@entry("len() of a tensor in arithmetic", lambda: [(any_of(2, 3),), (any_of(1, 3),), (any_of(5, 3),)], ROWS)
class C07_Len(nn.Module):
    def forward(self, x):
        return x.sum(0) / len(x) + torch.arange(len(x)).sum()


@entry("a value in a shape and in arithmetic", counts(4, 1, 3), ((), ()))
class C08_Both(nn.Module):
    def forward(self, x, n):
        k = n.item()
        return torch.ones(k, 3) * k


@entry(
    "the number of nonzero elements, as a size",
    lambda: [(number([1, 0, 2]),), (number([0, 0, 3, 0]),), (number([5]),)],
    ROWS,
)
class C09_Nonzero(nn.Module):
    def forward(self, x):
        where = x.nonzero().squeeze(-1)
        k = where.shape[0]
        return torch.arange(k) * 2, where


@entry("repeat by a value", counts(2, 1, 4), ((), ()))
class C10_Repeat(nn.Module):
    def forward(self, x, n):
        return x[:2].repeat(int(n), 1)


@entry("narrow by a value", counts(2, 1, 4), ((), ()))
class C11_Narrow(nn.Module):
    def forward(self, x, n):
        length = n.item()
        return x.narrow(0, 1, length)


@entry(
    "min of a value and a size",
    lambda: [
        (any_of(4, 3), number(2)),
        (any_of(2, 3), number(7)),
        (any_of(5, 3), number(5)),
        (any_of(1, 3), number(1)),
    ],
    ((0,), ()),
)
class C12_MinOfSize(nn.Module):
    def forward(self, x, n):
        k = min(int(n), x.shape[0])
        return x[:k] + 1


@entry("topk by a value", counts(2, 1, 4), ((), ()))
class C13_TopK(nn.Module):
    def forward(self, x, n):
        return torch.topk(x[:, 0], int(n)).values


@entry("round, floor division and modulo of a value", counts(7, 1, 4), ((), ()))
class C14_Modulo(nn.Module):
    def forward(self, x, n):
        k = int(n)
        return x[: k // 2 + 1] * (k % 3)


@entry("a shape computed from sizes", lambda: [(any_of(2, 6),), (any_of(1, 2),), (any_of(3, 4),)], ((0, 1),))
class C15_ShapeArithmetic(nn.Module):
    def forward(self, x):
        b, n = x.shape
        return x.reshape(b * 2, n // 2).transpose(0, 1)


@entry("a number formatted into nothing, then used", lambda: [(up(2, 3),), (down(2, 3),)], ROWS)
class C16_Rounded(nn.Module):
    def forward(self, x):
        return x * round(x.sum().item())


@entry("full with a value out of a tensor", lambda: [(up(2, 3),), (down(1, 3),)], ROWS)
class C17_Full(nn.Module):
    def forward(self, x):
        return torch.full((x.shape[0], 2), x.max().item())


@entry(
    "split by the values of a tensor",
    lambda: [(any_of(6, 2), number([2, 4])), (any_of(6, 2), number([1, 5])), (any_of(6, 2), number([3, 3]))],
    ((), ()),
)
class C18_Split(nn.Module):
    def forward(self, x, sizes):
        a, b = x.split(sizes.tolist())
        return a.sum(0), b * 2


@entry("an index read by a value", counts(0, 8, 3), ((), ()))
class C19_Index(nn.Module):
    def forward(self, x, n):
        row = x[n.item()]
        return row + x[int(n) // 2]


@entry("a write at an index out of a tensor", counts(0, 8, 3), ((), ()))
class C20_IndexWrite(nn.Module):
    def forward(self, x, n):
        y = x.clone()
        y[int(n)] = 1.0
        y[:, n % 3] += 5
        return y


@entry("a test on an item", lambda: [(up(2, 3),), (down(2, 3),), (torch.zeros(1, 3),)], ROWS)
class C21_TestOnItem(nn.Module):
    def forward(self, x):
        top = x.max().item()
        if top > 0:
            return x / top
        return x - top


@entry("a size from a value, and a test on it", counts(2, 1, 6, 9), ((), ()))
class C22_TestOnCount(nn.Module):
    def forward(self, x, n):
        k = int(n)
        if k > 5:
            k = 5
        return x[:k]


@entry("linspace by a value", lambda: [(number(3),), (number(2),), (number(6),)])
class C23_Linspace(nn.Module):
    def forward(self, n):
        return torch.linspace(0, 1, int(n))


@entry("math.sqrt of a value", lambda: [(up(2, 3),), (up(1, 3) * 9,)], ROWS)
class C24_Math(nn.Module):
    def forward(self, x):
        import math

        return x / math.sqrt(x.sum().item()) + math.exp(-float(x.max()))


@entry(
    "int() of a quotient of sizes", lambda: [(any_of(5, 3),), (any_of(2, 3),), (any_of(9, 3),), (any_of(1, 3),)], ROWS
)
class C25_IntOfSizes(nn.Module):
    def forward(self, x):
        half = int(x.shape[0] / 2)
        return x[half:]


@entry("numel in arithmetic", lambda: [(any_of(5, 3),), (any_of(1, 3),)], ROWS)
class C26_Numel(nn.Module):
    def forward(self, x):
        return x.sum() / x.numel() + x.dim()


@entry("floor and ceiling of quotients, of sizes and values", counts(7, 1, 4, 0), ((0,), ()))
class C27_Quotients(nn.Module):
    def forward(self, x, n):
        k = int(n)
        start, size = math.floor(k / 3), math.ceil(x.shape[0] / 4)
        return x[start : start + size], math.ceil(k / 2) * x[:1], int(-k / 2) + int(x.shape[1] / 2)


@entry("round to digits and to whole numbers, of sizes too", lambda: [(up(3, 3),), (down(2, 3) * 9,)], ROWS)
class C28_RoundDigits(nn.Module):
    def forward(self, x):
        value = x.sum().item()
        return x * round(value, 2), round(x.shape[0] / 2) * x, x[: round(x.shape[0] * 0.7)]


@entry(
    "functions of math under names of their own",
    lambda: [(any_of(9, 3), number(n)) for n in (8, 1, 1000, 125)],
    ((0,), ()),
)
class C29_FromMath(nn.Module):
    def forward(self, x, n):
        steps = math.floor(math.log2(n.item())) + int(math.log10(int(n)))
        return x * steps / sqrt(x.shape[1]) + pow(n.item(), 0.5)


@entry(
    "math.isnan as a test",
    lambda: [(up(2, 3),), (number([[float("nan"), 1.0, 2.0]]),), (number([[float("inf"), 1.0, 2.0]]),)],
    ROWS,
)
class C30_IsNan(nn.Module):
    def forward(self, x):
        total = float(x.sum())
        if math.isnan(total) or math.isinf(total):
            return torch.nan_to_num(x)
        return x / math.fabs(total)


@entry(
    "a size by a share of another one, and sqrt of a size",
    lambda: [(any_of(5, 3),), (any_of(2, 3),), (any_of(16, 3),)],
    ROWS,
)
class C31_Share(nn.Module):
    def forward(self, x):
        kept = int(x.shape[0] * 0.5)
        side = int(math.sqrt(x.shape[0]))
        return x[:kept], torch.zeros(side, 2), torch.linspace(-1, 1, x.shape[0]) / math.sqrt(x.shape[0])
