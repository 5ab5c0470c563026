"""B: loops."""

from __future__ import annotations

import torch
from entries import any_of, down, entry, number, up
from torch import nn

ROWS = ((0,),)
LENGTHS = lambda: [(any_of(3, 4),), (any_of(1, 4),), (any_of(6, 4),), (any_of(2, 4),)]  # noqa: E731


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.gate = nn.Linear(8, 4)


@entry("over the rows of a tensor", LENGTHS, ROWS)
class B01_Rows(Base):
    def forward(self, x):
        state = torch.zeros(4)
        for row in x:
            state = torch.tanh(self.linear(row) + state)
        return state


@entry("over zip of two tensors", lambda: [(any_of(n, 4), any_of(n, 4)) for n in (3, 1, 5)], ((0,), (0,)))
class B02_Zip(Base):
    def forward(self, x, y):
        total = torch.zeros(4)
        for a, b in zip(x, y):
            total = total * 0.5 + a * b
        return total


@entry("over enumerate of rows", LENGTHS, ROWS)
class B03_Enumerate(Base):
    def forward(self, x):
        total = torch.zeros(4)
        for n, row in enumerate(x):
            total = total + row * n
        return total


@entry("over reversed rows", LENGTHS, ROWS)
class B04_Reversed(Base):
    def forward(self, x):
        state = torch.ones(4)
        for n in reversed(range(x.shape[0])):
            state = state * 0.5 + x[n]
        return state


@entry("over range of a size", LENGTHS, ROWS)
class B05_RangeSize(Base):
    def forward(self, x):
        y = torch.zeros_like(x)
        for n in range(x.shape[0]):
            y[n] = x[n] * 2 + (y[n - 1] if n > 0 else 1)
        return y


@entry(
    "over range of a value",
    lambda: [
        (any_of(2, 4), number(3)),
        (any_of(2, 4), number(0)),
        (any_of(1, 4), number(1)),
        (any_of(3, 4), number(7)),
    ],
    ((0,), ()),
)
class B06_RangeValue(Base):
    def forward(self, x, n):
        for _ in range(n):
            x = torch.tanh(self.linear(x)) + x
        return x


@entry("range with start and step", lambda: [(any_of(7, 4),), (any_of(2, 4),), (any_of(4, 4),)], ROWS)
class B07_RangeStep(Base):
    def forward(self, x):
        total = torch.zeros(4)
        for n in range(1, x.size(0), 2):
            total = total + x[n] - x[n - 1]
        return total


@entry("while on a value", lambda: [(up(2, 4) * 20,), (up(2, 4) * 0.1,), (up(3, 4) * 300,), (down(1, 4),)], ROWS)
class B08_While(Base):
    def forward(self, x):
        while x.abs().max() > 1:
            x = x / 2
        return x


@entry(
    "while with a counter and two tests",
    lambda: [(up(2, 4),), (up(2, 4) * 100,), (up(1, 4) * 4,), (up(1, 4) * 1e9,)],
    ROWS,
)
class B09_WhileCounter(Base):
    def forward(self, x):
        n = 0
        while x.sum() > 10 and n < 8:
            x = x * 0.4
            n += 1
        return x, n * torch.ones(1)


@entry("break", lambda: [(up(4, 4),), (down(4, 4),), (any_of(1, 4),), (torch.cat([up(2, 4), down(3, 4)]),)], ROWS)
class B10_Break(Base):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            if row.sum() < 0:
                break
            total = total + row
        return total


@entry("continue", lambda: [(up(4, 4),), (down(4, 4),), (any_of(1, 4),), (torch.cat([up(2, 4), down(3, 4)]),)], ROWS)
class B11_Continue(Base):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            if row.sum() < 0:
                continue
            total = total + self.linear(row)
        return total


@entry("for/else", lambda: [(up(4, 4),), (torch.cat([up(2, 4), down(3, 4)]),), (down(1, 4),)], ROWS)
class B12_ForElse(Base):
    def forward(self, x):
        found = torch.zeros(4)
        for row in x:
            if row.sum() < 0:
                found = row
                break
        else:
            found = found + 100
        return found


@entry("while/else with break", lambda: [(up(2, 4),), (up(2, 4) * 50,), (up(2, 4) * 4,)], ROWS)
class B13_WhileElse(nn.Module):
    def forward(self, x):
        n = torch.zeros((), dtype=torch.int64)
        while x.sum() > 1:
            x = x * 0.5
            n = n + 1
            if n >= 5:
                x = x - 1
                break
        else:
            x = x + 10
        return x, n


@entry("return inside of a loop", lambda: [(up(4, 4),), (torch.cat([up(2, 4), down(3, 4)]),), (down(1, 4),)], ROWS)
class B14_ReturnInside(Base):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            total = total + row
            if total.sum() < 0:
                return total * 2
        return total - 1


@entry("two carries", LENGTHS, ROWS)
class B15_TwoCarries(Base):
    def forward(self, x):
        h = torch.zeros(4)
        c = torch.ones(4)
        for row in x:
            h, c = torch.tanh(row + c), c * 0.9 + h
        return h + c


@entry("a list of rows, stacked", LENGTHS, ROWS)
class B16_Stack(Base):
    def forward(self, x):
        rows = []
        state = torch.zeros(4)
        for row in x:
            state = torch.sigmoid(self.linear(row) + state)
            rows.append(state)
        return torch.stack(rows)


@entry("a list of slices, concatenated", LENGTHS, ROWS)
class B17_Cat(Base):
    def forward(self, x):
        parts = []
        for n in range(x.shape[0]):
            parts.append(x[n : n + 1] * (n + 1))
        return torch.cat(parts, dim=0)


@entry(
    "a list of rows of other lengths",
    lambda: [(any_of(3, 4), number([2, 4, 1])), (any_of(1, 4), number([3])), (any_of(4, 4), number([1, 1, 4, 2]))],
    ((0,), (0,)),
)
class B18_OtherLengths(nn.Module):
    def forward(self, x, lengths):
        parts = []
        for row, length in zip(x, lengths):
            parts.append(row[:length])
        return torch.cat(parts)


@entry("a comprehension over rows", LENGTHS, ROWS)
class B19_Comprehension(Base):
    def forward(self, x):
        return torch.stack([self.linear(row).softmax(-1) for row in x])


@entry("a comprehension over a range of a size", LENGTHS, ROWS)
class B20_ComprehensionRange(nn.Module):
    def forward(self, x):
        return torch.stack([x[: n + 1].sum(0) for n in range(x.shape[0])])


@entry("a loop in a loop", lambda: [(any_of(2, 3),), (any_of(1, 1),), (any_of(3, 5),)], ((0, 1),))
class B21_Nested(nn.Module):
    def forward(self, x):
        total = torch.zeros(())
        for i in range(x.shape[0]):
            part = torch.zeros(())
            for j in range(x.shape[1]):
                part = part * 0.5 + x[i, j]
            total = total + part * (i + 1)
        return total


@entry("a test in a loop", lambda: [(up(3, 4),), (any_of(1, 4),), (torch.cat([up(2, 4), down(3, 4)]),)], ROWS)
class B22_TestInside(Base):
    def forward(self, x):
        state = torch.zeros(4)
        for row in x:
            if row.sum() > 0:
                state = state + row
            else:
                state = state * 0.5 - self.linear(row)
        return state


@entry("a test in a while loop", lambda: [(up(2, 4),), (up(2, 4) * 30,), (up(1, 4) * 2000,)], ROWS)
class B23_CondInWhile(nn.Module):
    def forward(self, x):
        while x.max() > 1:
            if x.mean() > 5:
                x = x / 4
            else:
                x = x - 1
        return x


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.head = nn.Linear(6, 7)


@entry(
    "greedy decoding, a fixed number of tokens",
    lambda: [(number([1, 2, 3]),), (number([4]),), (number([5, 1, 2, 6, 0]),)],
    ROWS,
)
class B24_GreedyFixed(Words):
    def forward(self, ids):
        for _ in range(4):
            h = self.embed(ids).mean(0)
            ids = torch.cat([ids, self.head(h).argmax(-1, keepdim=True)])
        return ids


@entry(
    "greedy decoding until a token, a growing cat",
    lambda: [(number([1, 2, 3]),), (number([4]),), (number([5, 1, 2, 6, 0]),)],
    ROWS,
    refused="(?i)grow|shape|size|max_iterations|bound",
)
class B25_GreedyUntil(Words):
    def forward(self, ids):
        while ids[-1] != 0 and ids.shape[0] < 9:
            h = self.embed(ids).mean(0)
            ids = torch.cat([ids, self.head(h).argmax(-1, keepdim=True)])
        return ids


@entry("a cell by hand, steps of a batch", lambda: [(any_of(2, n, 4),) for n in (3, 1, 6)], ((1,),))
class B26_Cell(Base):
    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4)
        outputs = []
        for t in range(x.shape[1]):
            z = torch.sigmoid(self.gate(torch.cat([x[:, t], h], -1)))
            h = z * h + (1 - z) * torch.tanh(self.linear(x[:, t]))
            outputs.append(h)
        return torch.stack(outputs, dim=1), h


@entry("nn.LSTMCell in a loop over unbind", lambda: [(any_of(n, 2, 4),) for n in (3, 1, 5)], ROWS)
class B27_LstmCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x):
        h, c = torch.zeros(2, 3), torch.zeros(2, 3)
        for step in x.unbind(0):
            h, c = self.cell(step, (h, c))
        return h, c


@entry("over split chunks", lambda: [(any_of(6, 4),), (any_of(2, 4),), (any_of(4, 4),)], ROWS)
class B28_FixedChunks(Base):
    def forward(self, x):
        y = x.new_zeros(2, 4)
        for part in self.linear(torch.cat([x, x])[:4]).split(2):
            if part.sum() > 0:
                y = y + part
        return y


@entry(
    "a loop over Python's list of modules with a break on a value",
    lambda: [(up(2, 4),), (up(2, 4) * 60,), (down(1, 4),)],
    ROWS,
)
class B29_Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            if x.abs().max() > 5:
                break
            x = layer(x) * 3
        return x


@entry(
    "an integer counted in a loop, as a size after it",
    lambda: [(up(4, 4),), (down(3, 4),), (torch.cat([up(2, 4), down(3, 4)]),)],
    ROWS,
)
class B30_Count(nn.Module):
    def forward(self, x):
        n = 0
        for row in x:
            if row.sum() > 0:
                n += 1
        return x * n


@entry("a cumulative product in place", LENGTHS, ROWS)
class B31_InPlace(nn.Module):
    def forward(self, x):
        y = x.clone()
        for n in range(1, len(y)):
            y[n] *= y[n - 1]
        return y


@entry("while over an index, reading rows", lambda: [(up(5, 4) * 0.3,), (up(1, 4) * 9,), (up(6, 4) * 0.01,)], ROWS)
class B32_WhileIndex(nn.Module):
    def forward(self, x):
        n = 0
        total = torch.zeros(4)
        while n < x.shape[0] and total.sum() < 3:
            total = total + x[n]
            n += 1
        return total


@entry(
    "power iteration until it settles",
    lambda: [(torch.eye(3) * 2 + 0.1,), (torch.diag(number([5.0, 1.0, 0.1])),), (torch.ones(3, 3),)],
)
class B33_PowerIteration(nn.Module):
    def forward(self, a):
        v = torch.ones(3) / 3**0.5
        change = torch.tensor(1.0)
        steps = 0
        while change > 1e-3 and steps < 50:
            w = a @ v
            w = w / w.norm()
            change = (w - v).abs().max()
            v = w
            steps = steps + 1
        return v


@entry("a list of two kinds of results", LENGTHS, ROWS)
class B34_TwoLists(Base):
    def forward(self, x):
        sums, tops = [], []
        for row in x:
            sums.append(row.sum())
            tops.append(row.argmax())
        return torch.stack(sums), torch.stack(tops)


@entry("zero rounds, rows of an empty tensor too", lambda: [(any_of(2, 4),), (any_of(0, 4),), (any_of(5, 4),)], ROWS)
class B35_Empty(nn.Module):
    def forward(self, x):
        total = torch.ones(4)
        for row in x:
            total = total * row
        return total


@entry("a triangle: range of the outer index", lambda: [(any_of(3),), (any_of(1),), (any_of(5),)], ROWS)
class B36_Triangle(nn.Module):
    def forward(self, x):
        total = torch.zeros(())
        for i in range(x.shape[0]):
            for j in range(i):
                total = total + x[i] * x[j]
        return total


@entry("beam: the best of each step, by a test", lambda: [(any_of(n, 3),) for n in (4, 1, 7)], ROWS)
class B37_Viterbi(nn.Module):
    def __init__(self):
        super().__init__()
        self.move = nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        score = x[0]
        back = []
        for t in range(1, x.shape[0]):
            best, where = (score[:, None] + self.move).max(0)
            score = best + x[t]
            back.append(where)
        return score


@entry("a loop in a branch", lambda: [(up(3, 4),), (down(3, 4),), (up(1, 4),), (down(5, 4),)], ROWS)
class B38_LoopInBranch(Base):
    def forward(self, x):
        y = torch.zeros(4)
        if x.sum() > 0:
            for row in x:
                y = y + self.linear(row)
        else:
            y = x.mean(0)
        return y


@entry("sum() and max() over a generator of rows", LENGTHS, ROWS)
class B39_SumGenerator(nn.Module):
    def forward(self, x):
        return sum(row * row for row in x)


@entry(
    "nested break out of an inner loop", lambda: [(any_of(2, 3),), (up(3, 3),), (any_of(4, 3),), (any_of(1, 3),)], ROWS
)
class B40_InnerBreak(nn.Module):
    def forward(self, x):
        total = torch.zeros(())
        for row in x:
            for value in row:
                if value < 0:
                    break
                total = total + value
        return total


EMPTY = lambda: [(any_of(3, 4),), (any_of(0, 4),), (any_of(1, 4),), (any_of(6, 4),)]  # noqa: E731


@entry("rows of an empty tensor: a state, and a list that has an item before", EMPTY, ROWS)
class B41_EmptyList(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, x):
        rows = [torch.ones(5)]
        state = torch.zeros(5)
        for row in x:
            state = torch.sigmoid(self.linear(row) + state)
            rows.append(state)
        return state, torch.cat([torch.stack(rows), torch.ones(1, 5)])


@entry(
    "no rows, or rows of nothing, in two loops",
    lambda: [(any_of(3, 4),), (any_of(0, 2),), (any_of(2, 0),), (any_of(6, 4),)],
    ((0, 1),),
)
class B42_EmptyNested(nn.Module):
    def forward(self, x):
        total, sums = torch.zeros(()), [x.sum(0)]
        for row in x:
            for value in row:
                total = torch.tanh(total + value)
            sums.append(row * total)
        return total, torch.stack(sums)


@entry("a test, a count and a write in a loop over no rows", EMPTY, ROWS)
class B43_EmptyTest(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        n = 0
        for i in range(x.shape[0]):
            if x[i].sum() > 0:
                y[i] = x[i] * 2
                n += 1
        return y, n * torch.ones(1)


@entry("a range from 1 on, over no row and one", EMPTY, ROWS)
class B44_EmptyRange(nn.Module):
    def forward(self, x):
        steps = [torch.ones(4)]
        for i in range(1, len(x)):
            steps.append(x[i] - x[i - 1])
        return torch.stack(steps)


@entry("whole numbers of Python, counted under a test", EMPTY, ROWS)
class B45_CountUnderTest(nn.Module):
    def forward(self, x):
        ups, last, found = 0, -1, False
        for i in range(x.shape[0]):
            if x[i].sum() > 0:
                ups += 1
                last = i
                found = True
            else:
                ups = ups - 2 if x[i].max() > 1 else ups
        return x * ups, torch.tensor([7, 8, 9])[last % 3], x + 1 if found else x - 1


@entry("the index of the largest, by a test", lambda: [(any_of(n, 4),) for n in (4, 1, 7)], ROWS)
class B46_Largest(nn.Module):
    def forward(self, x):
        best, at = x[0].sum(), 0
        for i in range(1, len(x)):
            if x[i].sum() > best:
                best, at = x[i].sum(), i
        return x[at], x[: at + 1].sum(0)


@entry(
    "odd or even until one, in whole numbers",
    lambda: [(number(6),), (number(1),), (number(27),), (number(16),)],
)
class B47_Collatz(nn.Module):
    def forward(self, n):
        n, steps, top = int(n), 0, 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            if n > top:
                top = n
            steps += 1
        return torch.ones(2) * steps, torch.zeros(2, dtype=torch.int64) + top


@entry(
    "the greatest common divisor, with negative numbers",
    lambda: [(number(12), number(18)), (number(-7), number(3)), (number(5), number(0)), (number(9), number(-6))],
)
class B48_Divisor(nn.Module):
    def forward(self, a, b):
        a, b = a.item(), b.item()
        while b:
            a, b = b, a % b
            if b < 0:
                b = -b
        return torch.arange(3) * a, torch.arange(3) + a // 2


WORDS_OF = lambda: [(torch.tensor(each),) for each in ([5, 2, 9, 3, 4], [3], [1, 2], [7, 7, 7])]  # noqa: E731


@entry("tensors of whole numbers under tests, to a word that ends it", WORDS_OF, ROWS)
class B49_Ids(nn.Module):
    def forward(self, ids):
        total = torch.zeros((), dtype=torch.int64)
        seen = torch.zeros(10, dtype=torch.int32)
        for word in ids:
            if word == 3:
                break
            if word % 2 == 0:
                total = total + word // 2
            else:
                total = total * 2 - word
            seen[word] = seen[word] + 1
        return total, seen, total > 4


@entry("bits and remainders of whole numbers in a loop", WORDS_OF, ROWS)
class B50_Bits(nn.Module):
    def forward(self, ids):
        code = torch.tensor(1)
        for word in ids:
            if (code & 1) == 1:
                code = (code ^ word) << 1
            else:
                code = (code | word) - 3
            code = code % 1000
        return code, -code // 7
