"""Constructs with element types, special values and random numbers."""

import torch
from row import rand, row


@row("values", "float32, or a runtime with bfloat16 operators")
class HalfPrecision(torch.nn.Module):
    """autocast to bfloat16, and back"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return (x.bfloat16() * 3).float()


@row("values", "two tensors: `torch.view_as_real`")
class ComplexNumbers(torch.nn.Module):
    """complex numbers inside"""

    sets = [(rand(2, 8),), (rand(4, 8),)]

    def forward(self, x):
        return torch.fft.fft(x).abs()


@row("values")
class SortedValues(torch.nn.Module):
    """`sort` and `topk`"""

    sets = [(rand(2, 6),), (rand(4, 6),)]

    def forward(self, x):
        return x.sort(dim=1).values, x.topk(2, dim=1).indices


@row("values")
class UniqueValues(torch.nn.Module):
    """`unique`"""

    sets = [(torch.tensor([3, 1, 3]),), (torch.tensor([5, 5, 2, 1, 0]),)]

    def forward(self, x):
        return x.unique()


@row("values", "your own operator: examples/custom_operator.py")
class ByNumpy(torch.nn.Module):
    """numpy on a tensor"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return torch.from_numpy(x.numpy() + 1)


@row("values", "leave out `float()`: `x.max()` stays a tensor")
class ItemOfATensor(torch.nn.Module):
    """`float(x.max())`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x / float(x.max())


@row("values")
class Integers(torch.nn.Module):
    """int32 and int64 mixed, `//` and `%` of negative numbers"""

    sets = [(torch.tensor([-7, 3, 5]), torch.tensor([2, -2, 3], dtype=torch.int32))] * 2

    def forward(self, x, y):
        return x // y, x % y, x + y


@row("values")
class Booleans(torch.nn.Module):
    """arithmetic with bool tensors"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        mask = x > 0.5
        return mask.sum(1), mask & ~mask, mask * 2.5


@row("values")
class Doubles(torch.nn.Module):
    """float64 inside"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return (x.double() * 1e-9 + 1).log().float()


@row("values")
class Float16(torch.nn.Module):
    """float16 inside"""

    sets = [(rand(2, 3),), (rand(4, 3),)]
    atol = 0.01  # ONNX Runtime may skip a rounding

    def forward(self, x):
        return (x.half() * 3).float()


@row("values")
class UnsignedIntegers(torch.nn.Module):
    """uint8, wrapped at 256"""

    sets = [
        (torch.tensor([250, 3], dtype=torch.uint8),),
        (torch.tensor([255, 0, 9], dtype=torch.uint8),),
    ]

    def forward(self, x):
        return (x + 10).to(torch.int64)


@row("values", "two tensors: `torch.view_as_real`")
class AComplexArgument(torch.nn.Module):
    """a complex argument"""

    sets = [(torch.complex(rand(2, 3), rand(2, 3)),), (torch.complex(rand(4, 3), rand(4, 3)),)]

    def forward(self, x):
        return (x * x).abs()


@row("values")
class RotaryByComplex(torch.nn.Module):
    """rotary embeddings by `view_as_complex`"""

    sets = [(rand(2, 4, 6),), (rand(3, 7, 6),)]

    def forward(self, x):
        angles = torch.arange(x.shape[1])[:, None] * torch.tensor([1.0, 0.1, 0.01])
        turns = torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (3, 2))) * turns).flatten(2)


@row("values")
class RandomNumbers(torch.nn.Module):
    """`rand_like`, where only the size matters"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        return x + torch.rand_like(x) * 0, torch.randn(x.shape[0]) < 99


@row("values", "pass the noise as an argument")
class ASample(torch.nn.Module):
    """`multinomial` with one certain outcome"""

    sets = [(torch.tensor([[0.0, 1.0, 0.0]]),), (torch.tensor([[0.0, 0.0, 1.0]] * 2),)]

    def forward(self, x):
        return x.multinomial(1)


@row("values")
class NotANumber(torch.nn.Module):
    """`isnan`, `nan_to_num` and infinities"""

    sets = [
        (torch.tensor([1.0, float("nan")]),),
        (torch.tensor([float("inf"), 2.0, float("-inf")]),),
    ]

    def forward(self, x):
        return x.isnan(), x.nan_to_num(0.5, 9.0, -9.0)


@row("values")
class Rounded(torch.nn.Module):
    """`round` of halves, `trunc`, `floor`"""

    sets = [(torch.tensor([0.5, 1.5, -2.5]),), (torch.tensor([-0.5, 2.5, 3.7, -3.7]),)]

    def forward(self, x):
        return x.round(), x.trunc(), x.floor()


@row("values")
class ArgumentOfTheMaximum(torch.nn.Module):
    """`argmax` and `max(dim)` of equal values"""

    sets = [(torch.tensor([[1.0, 1.0, 0.0]]),), (torch.tensor([[0.0, 2.0, 2.0]] * 2),)]

    def forward(self, x):
        return x.argmax(1), x.max(1).values


@row("values")
class AStringInside(torch.nn.Module):
    """an f-string that chooses a submodule"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleDict({"layer_1": torch.nn.Linear(3, 4)})

    def forward(self, x):
        return self.layers[f"layer_{x.dim() - 1}"](x)


@row("values")
class ComplexParameter(torch.nn.Module):
    """a complex parameter"""

    sets = [(rand(2, 4),), (rand(5, 4),)]

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.complex(rand(4, 4), rand(4, 4)))

    def forward(self, x):
        return (torch.fft.fft(x) @ self.weight).abs()


@row("values")
class SpectralConvolution(torch.nn.Module):
    """a convolution of Fourier modes: complex `einsum`, written into a slice"""

    sets = [(rand(2, 2, 16),), (rand(3, 2, 16),)]

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.complex(rand(2, 3, 5), rand(2, 3, 5)))

    def forward(self, x):
        modes = torch.fft.rfft(x)
        out = torch.zeros(x.shape[0], 3, 9, dtype=torch.complex64)
        out[..., :5] = torch.einsum("bix,iox->box", modes[..., :5], self.weight)
        return torch.fft.irfft(out, n=16)


@row("values")
class ComplexFunctions(torch.nn.Module):
    """functions of complex values, and products with `1j`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def forward(self, x):
        z = torch.polar(x.abs(), x)
        return (torch.exp(-1j * x) / (z + 2)).abs(), (z**3 + z.sqrt()).imag
