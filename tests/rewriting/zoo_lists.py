"""F: growing lists, windows, indexing, and algorithms written in plain Python."""

from __future__ import annotations

import math
from collections import deque

import torch
import torch.nn.functional as F
from entries import any_of, down, entry, number, up
from torch import nn

ROWS = ((0,),)
LENGTHS = lambda: [(any_of(n, 3),) for n in (3, 1, 5)]  # noqa: E731
CHOICES = lambda: [(up(2, 3), number(n)) for n in (0, 2, 1, -1)]  # noqa: E731


@entry("a list reversed in place, and its ends", LENGTHS, ROWS)
class F01_Reverse(nn.Module):
    def forward(self, x):
        outs, h = [torch.ones(3)], torch.zeros(3)
        for row in x:
            h = h * 0.5 + row
            outs.append(h)
        outs.reverse()
        return torch.stack(outs), outs[-1], outs[0]


@entry("two lists, one backwards, zipped", LENGTHS, ROWS)
class F02_Zipped(nn.Module):
    def forward(self, x):
        forth, back, h = [], [], torch.zeros(3)
        for row in x:
            h = h * 0.5 + row
            forth.append(h)
        h = torch.zeros(3)
        for t in range(x.shape[0] - 1, -1, -1):
            h = h * 0.5 + x[t]
            back.append(h)
        return torch.stack([torch.cat([p, q]) for p, q in zip(forth, back[::-1])])


@entry("items taken from both ends", lambda: [(any_of(n, 3),) for n in (3, 2, 5)], ROWS)
class F03_Pop(nn.Module):
    def forward(self, x):
        outs, h = [], torch.zeros(3)
        for row in x:
            h = h * 0.5 + row
            outs.append(h)
        last, first = outs.pop(), outs.pop(0)
        outs.insert(0, last)
        return torch.stack(outs), first, torch.stack(outs[1:] + [first])


@entry("items put in front, two a round", LENGTHS, ROWS)
class F04_Front(nn.Module):
    def forward(self, x):
        outs, h = [torch.ones(3)], torch.zeros(3)
        for row in x:
            h = h * 0.5 + row
            outs.insert(0, h)
            outs.insert(0, -h)
        outs.append(h * 3)
        return torch.stack(outs)


@entry("a list that is made anew by each round, from its last item", LENGTHS, ROWS)
class F05_Anew(nn.Module):
    def forward(self, x):
        outs = [x[0]]
        first = outs
        for row in x:
            outs = outs + [outs[-1] * 0.5 + row]
        return torch.stack(outs), len(first)


@entry("the last item of a list, under a test", lambda: [(up(3, 3),), (torch.cat([up(2, 3), down(2, 3)]),)], ROWS)
class F06_Last(nn.Module):
    def forward(self, x):
        outs = [torch.zeros(3)]
        for row in x:
            if row.sum() > 1:
                outs.append(outs[-1] + row)
            else:
                outs.append(outs[-1] * 0.5)
        return torch.stack(outs)


@entry("+= of two items", LENGTHS, ROWS)
class F07_Extended(nn.Module):
    def forward(self, x):
        outs = []
        for row in x:
            outs += [row, -row]
        return torch.stack(outs)


@entry("a deque of the last three rows", LENGTHS, ROWS)
class F08_Deque(nn.Module):
    def forward(self, x):
        last = deque([torch.zeros(3)] * 3, maxlen=3)
        total = torch.zeros(3)
        for row in x:
            last.append(row)
            total = total + torch.stack(list(last)).mean(0)
        return total


@entry("cells of several layers, a step each", LENGTHS, ROWS)
class F09_Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.GRUCell(3, 3) for _ in range(2))

    def forward(self, x):
        states, outs = [torch.zeros(1, 3) for _ in self.cells], []
        for t in range(x.shape[0]):
            y = x[t : t + 1]
            for i, cell in enumerate(self.cells):
                states[i] = cell(y, states[i])
                y = states[i]
            outs.append(y)
        return torch.cat(outs), states[0]


@entry("nn.GRU, a step at a time", lambda: [(any_of(2, n, 4),) for n in (3, 1, 6)], ((1,),))
class F10_Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 4, batch_first=True)

    def forward(self, x):
        h, outs = torch.zeros(1, 2, 4), []
        for t in range(x.shape[1]):
            y, h = self.gru(x[:, t : t + 1], h)
            outs.append(y)
        return torch.cat(outs, 1), h


@entry(
    "rows cut to their lengths, padded again",
    lambda: [(any_of(2, 8, 3), number([3, 8])), (any_of(1, 8, 3), number([5])), (any_of(3, 8, 3), number([1, 2, 3]))],
    ((0,), (0,)),
)
class F11_Padded(nn.Module):
    def forward(self, x, lengths):
        parts = [x[i, :n] for i, n in enumerate(lengths)]
        return nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=-1.0)


@entry("a layer by its number", CHOICES, ((0,), ()))
class F12_Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Tanh(), nn.Identity()])

    def forward(self, x, which):
        return self.layers[int(which)](x) * [0.1, 0.5, 2.0][which.item()]


@entry(
    "boxes that overlap a better one are dropped",
    lambda: [(torch.rand(n, 4).cumsum(1), torch.rand(n)) for n in (6, 1, 9)],
    ((0,), (0,)),
)
class F13_Suppression(nn.Module):
    def forward(self, boxes, scores):
        order = scores.argsort(descending=True)
        keep = torch.ones(boxes.shape[0], dtype=torch.bool)
        for i in range(boxes.shape[0]):
            a = boxes[order[i]]
            for j in range(i + 1, boxes.shape[0]):
                b = boxes[order[j]]
                width = (torch.min(a[2], b[2]) - torch.max(a[0], b[0])).clamp(min=0)
                inter = width * (torch.min(a[3], b[3]) - torch.max(a[1], b[1])).clamp(min=0)
                both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
                if keep[i] and inter / (both - inter) > 0.5:
                    keep[j] = False
        return order, keep


@entry("the best path, read backwards (Viterbi)", lambda: [(any_of(n, 5),) for n in (4, 1, 7)], ROWS)
class F14_Path(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Parameter(torch.randn(5, 5))

    def forward(self, emissions):
        score, history = emissions[0], []
        for t in range(1, emissions.shape[0]):
            score, best = (score[:, None] + self.steps + emissions[t][None]).max(dim=0)
            history.append(best)
        last = score.argmax()
        path = [last]
        for best in reversed(history):
            last = best[last]
            path.append(last)
        path.reverse()
        return torch.stack(path), score.max()


@entry("neighbours are exchanged until all is sorted", lambda: [(any_of(n),) for n in (4, 1, 6)], ROWS)
class F15_Sort(nn.Module):
    def forward(self, x):
        x = x.clone()
        for i in range(x.shape[0]):
            for j in range(x.shape[0] - 1):
                if x[j] > x[j + 1]:
                    kept = x[j].clone()
                    x[j] = x[j + 1]
                    x[j + 1] = kept
        return x


@entry("scaled until rows and columns sum to one (Sinkhorn)", lambda: [(any_of(n, 4),) for n in (4, 1, 6)], ROWS)
class F16_Scaled(nn.Module):
    def forward(self, cost):
        kernel = torch.exp(-cost)
        u, v = torch.ones(cost.shape[0]), torch.ones(cost.shape[1])
        error, rounds = math.inf, 0
        while rounds < 30 and error > 1e-3:
            before = u
            v = 1.0 / (kernel.t() @ u)
            u = 1.0 / (kernel @ v)
            error = (u - before).abs().max().item()
            rounds += 1
        return u[:, None] * kernel * v


@entry("centers, until they stay (k-means)", lambda: [(any_of(n, 2),) for n in (8, 5, 12)], ROWS)
class F17_Centers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        centers = self.start
        for _ in range(4):
            nearest = torch.cdist(x, centers).argmin(1)
            hot = F.one_hot(nearest, 3).to(x.dtype)
            new = (hot.T @ x) / hot.sum(0).clamp(min=1)[:, None]
            if torch.allclose(new, centers, atol=1e-5):
                break
            centers = new
        return centers, nearest


@entry(
    "the distance of two texts (Levenshtein)",
    lambda: [(number([1, 2, 3]), number([1, 3])), (number([1]), number([2])), (number([4, 4, 2, 1]), number([4, 1]))],
    ((0,), (0,)),
)
class F18_Distance(nn.Module):
    def forward(self, a, b):
        before = torch.arange(b.shape[0] + 1)
        for i in range(a.shape[0]):
            now = torch.zeros_like(before)
            now[0] = i + 1
            for j in range(b.shape[0]):
                cost = (a[i] != b[j]).long()
                now[j + 1] = torch.min(torch.min(now[j], before[j + 1]) + 1, before[j] + cost)
            before = now
        return before[-1]


@entry("a beam of two, ended by a word", lambda: [(any_of(1, 4),), (any_of(1, 4) * 5,), (any_of(1, 4) - 3,)])
class F19_Beam(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, start):
        h, scores = start.repeat(2, 1), torch.tensor([0.0, -1e9])
        texts = torch.zeros(2, 1, dtype=torch.long)
        for _ in range(4):
            logits = self.out(torch.tanh(h + self.words(texts[:, -1]))).log_softmax(-1)
            scores, flat = (scores[:, None] + logits).view(-1).topk(2)
            texts = torch.cat([texts[flat // 5], (flat % 5)[:, None]], 1)
            h = h[flat // 5]
            if (texts[:, -1] == 0).all():
                break
        return texts, scores


@entry(
    "len() of a list beside a test of a tensor",
    lambda: [(up(2, 3),), (up(3, 3) * 9,)],
    ROWS,
    refused="grows in each iteration",
)
class F20_Until(nn.Module):
    def forward(self, x):
        outs = []
        while x.sum() > 1 and len(outs) < 5:
            x = x * 0.5
            outs.append(x.sum())
        return torch.stack(outs)


@entry("a round ends the loop by the length of a list that it has added to", LENGTHS, ROWS)
class F21_Enough(nn.Module):
    def forward(self, x):
        outs = [x[0] * 0]
        for i in range(x.shape[0]):
            if x[i].sum() < 0:
                continue
            outs.append(x[i] / len(outs))
            if len(outs) == 3:
                break
        return torch.stack(outs), len(outs)


@entry("a round of a loop over rows computes with the length of a list", LENGTHS, ROWS)
class F22_Numbered(nn.Module):
    def forward(self, x):
        outs, total = [], x[0] * 0
        for row in x:
            if row.max() > 0.5:
                outs.append(row * (1 + len(outs)))
            total = total + len(outs)
        return torch.stack(outs).sum(0) + total if outs else total
