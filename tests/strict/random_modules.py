"""Modules that are combined at random from the features of the hand-written ones."""

import random

import torch
import torch.nn.functional as F
from torch import nn

from modules import Spec

NAMES = (
    "fc", "proj", "q", "k", "layer_1", "layer.1", "weight", "out", "head", "block", "norm", "in_proj",
    "mask", "body", "mlp", "w", "x", "input", "a_b", "encoder", "model", "module", "base",
)  # fmt: skip


class Add(nn.Module):
    """Adds its own parameter or buffer."""

    def __init__(self, width, name, as_buffer):
        super().__init__()
        self.name = name
        if as_buffer:
            self.register_buffer(name, torch.zeros(width))
        else:
            self.register_parameter(name, nn.Parameter(torch.zeros(width)))

    def forward(self, x):
        return torch.sin(x) + getattr(self, self.name)


class Gate(nn.Module):
    def __init__(self, inner, shape):
        super().__init__()
        self.inner, self.gate = inner, nn.Parameter(torch.ones(shape))

    def forward(self, x):
        return x + self.inner(x) * torch.sigmoid(self.gate)


class Both(nn.Module):
    def __init__(self, left, right, names):
        super().__init__()
        self.names = names
        self.add_module(names[0], left)
        self.add_module(names[1], right)

    def forward(self, x):
        return torch.tanh(getattr(self, self.names[0])(x)) + getattr(self, self.names[1])(x)


class Reuse(nn.Module):
    """Uses a matrix unchanged and transposed."""

    def __init__(self, width, inside):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inside, width))

    def forward(self, x):
        return F.linear(x, self.weight) @ self.weight * 0.25


class Choose(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("permutation", torch.arange(width))

    def forward(self, x):
        return x[..., self.permutation]


class Convolve(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.conv, self.bn = nn.Conv1d(width, width, 3, padding=1, bias=bias), nn.BatchNorm1d(width)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x.transpose(1, 2)))).transpose(1, 2)


class Recur(nn.Module):
    def __init__(self, kind, width):
        super().__init__()
        self.rnn = kind(width, width, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


class Net(nn.Module):
    """A sequence of blocks on [2, 4, width], optionally after an embedding, optionally with a tied head."""

    def __init__(self, seed: int):
        super().__init__()
        draw = random.Random(seed)
        self.width, self.embedded = draw.choice((4, 6, 8)), draw.random() < 0.4
        names = draw.sample([n for n in NAMES if "." not in n], 8)
        self.order = names[2 : 2 + draw.randint(1, 4)]
        if self.embedded:
            self.add_module(names[0], nn.Embedding(9, self.width))
        made = []
        for name in self.order:
            if made and draw.random() < 0.12:
                self.add_module(name, made[-1])  # the same module again: all its keys are tied
            else:
                made.append(self._block(draw, 0))
                self.add_module(name, made[-1])
        self.ends = (names[0], names[1])
        if self.embedded and draw.random() < 0.5:
            head = nn.Linear(self.width, 9, bias=draw.random() < 0.3)
            head.weight = getattr(self, names[0]).weight
        else:
            head = nn.Linear(self.width, draw.choice((3, self.width)))
        self.add_module(names[1], head)
        if draw.random() < 0.2:
            self.spare = nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5))
        self.scale = nn.Parameter(torch.ones(())) if draw.random() < 0.4 else None
        self.names = names

    def _block(self, draw, depth: int) -> nn.Module:
        width, kinds = self.width, 11 if depth == 0 else 7
        kind = draw.randrange(kinds + 1)
        if kind == 0:
            return nn.Linear(width, width, bias=draw.random() < 0.6)
        if kind == 1:
            return nn.LayerNorm(width)
        if kind == 2:
            return nn.PReLU(draw.choice((1, 1, 4)))
        if kind == 3:
            return Add(draw.choice((1, width)), draw.choice(("cls_token", "pos", "bias", "mask", "x", "gamma")),
                       draw.random() < 0.4)  # fmt: skip
        if kind == 4:
            return Reuse(width, draw.choice((width, 5)))
        if kind == 5:
            return nn.Sequential(nn.Linear(width, 5), nn.ReLU(), nn.Linear(5, width))
        if kind == 6:
            return Choose(width)
        if kind == 7:
            return Convolve(width, draw.random() < 0.5)
        if kind == 8:
            return Recur(draw.choice((nn.LSTM, nn.GRU)), width)
        if kind in (9, 10):
            return Gate(self._block(draw, depth + 1), draw.choice(((), (1,), (width,))))
        left, copy = self._block(draw, depth + 1), self._block(draw, depth + 1)
        return Both(left, copy, draw.choice((("q", "k"), ("a", "a_b"), ("left", "right"))))

    def forward(self, x):
        if self.embedded:
            x = getattr(self, self.ends[0])(x)
        for name in self.order:
            x = getattr(self, name)(x)
        x = getattr(self, self.ends[1])(x)
        return x if self.scale is None else x * self.scale


def spec(seed: int) -> Spec:
    """Return the random module for a seed."""
    draw = random.Random(f"inputs {seed}")
    torch.manual_seed(seed)
    sample = Net(seed)

    def inputs():
        return (torch.randint(0, 9, (2, 4)),) if sample.embedded else (torch.randn(2, 4, sample.width),)

    names = draw.choice((None, None, ("x",), ("input",), ("mask",)))
    return Spec(
        f"random_{seed}", lambda: Net(seed), inputs, names, dynamic=bool(names) and draw.random() < 0.3
    )
