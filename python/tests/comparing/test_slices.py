"""Tests of outputs with large and small parts: 60 planted errors are found, 200 correct outputs
agree.

Small numpy networks compute the correct outputs twice, in the same type but with sums in another
order, like two runtimes.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_external._comparing.comparing import compare

Array = Any
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = [np.dtype(np.float32)] * 3 + [np.dtype(np.float16), BFLOAT16]


def rounded(x: Array, dtype: Any) -> Array:
    return x.astype(dtype).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: list[Callable[[Array], Array]] = [
    lambda x: np.maximum(x, 0), np.tanh, lambda x: x * sigmoid(x), lambda x: np.clip(x, 0, 6),
    lambda x: np.float32(0.5) * x * (1 + np.tanh(np.float32(0.79788) * (x + 0.044715 * x**3))),
]  # fmt: skip


class Net:
    """A residual network with normalized layers in one type, and heads for its features."""

    def __init__(self, random: Any, dtype: Any, width: int, depth: int) -> None:
        self.dtype, self.activation = dtype, ACTIVATIONS[random.integers(len(ACTIVATIONS))]
        scale = width**-0.5

        def weight() -> Array:
            return rounded(scale * random.standard_normal((width, width)), dtype)

        self.layers = [(weight(), weight(), random.permutation(width)) for _ in range(depth)]

    def features(self, x: Array, other_order: bool) -> Array:
        """Run the network, with sums in another order if requested."""
        x = rounded(x, self.dtype)
        for up, down, order in self.layers:
            y = x - x.mean(-1, keepdims=True)
            y = rounded(y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5), self.dtype)
            order = order if other_order else np.arange(len(order))
            y = rounded(y[..., order] @ up[order], self.dtype)
            y = rounded(self.activation(y), self.dtype)
            x = rounded(x + rounded(y[..., order] @ down[order], self.dtype), self.dtype)
        return x


def head(random: Any, features: Array, kind: str, dtype: Any) -> Callable[[Array], Array]:
    """Return a function that computes one part of an output from features."""
    count = int(random.integers(1, 7))
    weight = rounded(random.standard_normal((features.shape[-1], count)) / 8, dtype)
    size = np.float32(10 ** random.uniform(0, 3.5))
    makes: dict[str, Callable[[Array], Array]] = {
        "pixels": lambda x: sigmoid(x) * size,
        "scores": sigmoid,
        "normals": lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-3),
        "plain": lambda x: x * size / 30,
        "small": lambda x: x / size,
        "depth": lambda x: np.log1p(np.exp(x)) * size,
        "shares": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    }
    return lambda x: rounded(makes[kind](rounded(x @ weight, dtype)), dtype)


KINDS = ["pixels", "scores", "normals", "plain", "small", "depth", "shares"]


def layout(random: Any, parts: list[Array]) -> Array:
    """Concatenate parts along a random axis."""
    whole = np.concatenate(parts, -1)
    if random.random() < 0.3:
        whole = whole.reshape(2, -1, whole.shape[-1])
    return np.moveaxis(whole, -1, random.integers(whole.ndim))


@pytest.mark.parametrize("seed", range(200))
def test_no_sound_output_is_called_wrong(seed: int) -> None:
    random = np.random.default_rng([1, seed])
    dtype = TYPES[seed % len(TYPES)]
    width, depth = int(random.choice([16, 48, 96])), int(random.integers(1, 12))
    rows = 2 * int(random.integers(2, 40))
    net = Net(random, dtype, width, depth)
    x = random.standard_normal((rows, width)).astype(np.float32)
    one, other = net.features(x, False), net.features(x, True)
    kinds = [str(each) for each in random.choice(KINDS, int(random.integers(1, 4)))]
    heads = [head(random, one, kind, dtype) for kind in kinds]
    state = random.bit_generator.state
    want = layout(random, [each(one) for each in heads])
    random.bit_generator.state = state
    got = layout(random, [each(other) for each in heads])
    assert compare("y", got.astype(dtype), want.astype(dtype)).ok, kinds


FAULTS: dict[str, Callable[[Any, Array], Array]] = {
    "flipped": lambda random, x: 1 - x,
    "three percent": lambda random, x: x + 0.03 * np.abs(x).max(),
    "half": lambda random, x: x / 2,
    "shifted": lambda random, x: np.roll(x, 1, 0),
    "one": lambda random, x: np.where(np.arange(x.size).reshape(x.shape) == x.size // 2, 2 * x, x),
    "zeros": lambda random, x: np.zeros_like(x),
}


FINDABLE = {
    "float32": list(FAULTS),
    "float16": ["flipped", "half", "shifted", "zeros"],
    "bfloat16": ["flipped"],
}


@pytest.mark.parametrize("seed", range(60))
def test_every_error_in_a_small_part_is_found(seed: int) -> None:
    random = np.random.default_rng([2, seed])
    dtype = [np.dtype(np.float32), np.dtype(np.float32), np.dtype(np.float16), BFLOAT16][seed % 4]
    rows, size = 2 * int(random.integers(3, 40)), 10 ** random.uniform(1.9, 3.6)
    large = size * random.uniform(0.02, 1, (rows, int(random.integers(1, 9))))
    small = random.uniform(0.1, 0.9, (rows, int(random.choice([1, 2, 3, 20, 80]))))
    faults = FINDABLE[str(dtype)]
    fault = faults[seed // 4 % len(faults)]
    state = random.bit_generator.state
    want = layout(random, [large, small]).astype(dtype)
    random.bit_generator.state = state
    got = layout(random, [large, FAULTS[fault](random, small)]).astype(dtype)
    assert compare("y", want, want).ok
    found = compare("y", got, want)
    assert not found.ok and found.times > 1, (fault, dtype)
    assert found.max_abs is not None and found.max_abs < 2  # not that of the large part
