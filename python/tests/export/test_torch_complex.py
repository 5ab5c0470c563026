"""Tests of complex values in modules, for which torch.onnx has few operators."""

from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.13")  # for complex decompositions
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


class Functions(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        z = torch.complex(x, x + 1)
        return (
            z * torch.arange(3),
            z + x.double(),
            (z - 2j).abs(),
            x / z + z / 2,
            z**2 - z.sqrt(),
            torch.exp(-1j * x).real,
            torch.ones(3, dtype=torch.complex64) * z.conj(),
            torch.linalg.vector_norm(z, dim=-1),
        )


class Writes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(5, 4, dtype=torch.complex64))
        self.register_buffer("line", torch.polar(torch.ones(4), torch.arange(4.0)))

    def forward(self, i: Any, x: Any) -> Any:
        z = torch.view_as_complex(x).clone()
        z[:, 0] = 1 + 2j
        z[1:] = self.line
        z = torch.where(x[..., 0] > 0, z, z.conj())
        kept = z[z.abs() > 1].sum()
        return torch.cat([self.table[i], z]).sum(0), torch.stack([z, z]).transpose(0, 1), kept


class Spectral(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 3, 5, dtype=torch.complex64))

    def forward(self, x: Any) -> Any:
        modes = torch.fft.rfft(x)
        out = torch.zeros(x.shape[0], 3, 9, dtype=torch.complex64)
        out[..., :5] = torch.einsum("bix,iox->box", modes[..., :5], self.weight)
        y = torch.fft.irfft(out, n=16)
        return (torch.fft.fft(y) * 1j).real if x.sum() > 0 else y


class Lengths(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        modes = torch.fft.rfft2(x, norm="ortho")
        return torch.fft.irfft2(modes, s=x.shape, norm="ortho"), torch.fft.irfft(modes, n=10)


def complex_input(*sizes: int) -> Any:
    return torch.randn(*sizes, dtype=torch.complex64)


class Inputs(torch.nn.Module):
    def forward(self, z: Any, w: Any) -> Any:
        return (z @ w).exp(), z.sum(0, keepdim=True)


CASES = {
    "functions": (Functions, [(torch.randn(2, 3),), (torch.randn(4, 3),)]),
    "writes": (
        Writes,
        [
            (torch.tensor([1, 2]), torch.randn(3, 4, 2)),
            (torch.tensor([1, 2, 0]), torch.randn(2, 4, 2)),
        ],
    ),
    "a spectral convolution, and a branch": (
        Spectral,
        [(torch.rand(2, 2, 16),), (-torch.rand(3, 2, 16),)],
    ),
    "transforms of any length": (Lengths, [(torch.rand(3, n),) for n in (8, 13, 7)]),
    "inputs": (Inputs, [(complex_input(n, 3), complex_input(3, 3)) for n in (2, 4)]),
}


@pytest.mark.parametrize("name", CASES)
def test_complex_values_are_computed_in_real_numbers(name: str, tmp_path: Path) -> None:
    kind, sets = CASES[name]
    path = tmp_path / "model.onnx"
    report = oe.torch.export(kind(), sets[0], path, input_sets=sets[1:], fsync=False)
    assert report.checked == len(sets)
    assert {each.dtype for each in oe.inspect(path).tensors} <= {"float32", "int64", "bool"}


LENGTHS = {
    "rfft": (lambda x: torch.fft.rfft(x).abs(), (3, 1000)),
    "fft, a dimension in the middle": (
        lambda x: torch.fft.fft(x, dim=1, norm="ortho"),
        (2, 300, 3),
    ),
    "ifft": (lambda x: torch.fft.ifft(torch.complex(x, x * 2), dim=-2), (2, 900, 3)),
    "rfft2": (lambda x: torch.fft.rfft2(x, norm="forward"), (2, 70, 500)),
    "irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=999), (3, 999)),
    "stft": (
        lambda x: torch.stft(x, 1000, 250, window=torch.hann_window(1000), return_complex=True),
        (2, 3000),
    ),
}


class Transform(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", LENGTHS)
def test_a_transform_is_exact_where_its_length_is_no_power_of_two(
    name: str, tmp_path: Path
) -> None:
    import numpy as np
    import onnxruntime

    function, shape = LENGTHS[name]
    x = torch.randn(*shape)
    oe.torch.export(Transform(function).eval(), x, tmp_path, check=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    wanted = function(x)
    wanted = torch.view_as_real(wanted).numpy() if wanted.is_complex() else wanted.numpy()
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() < 2e-6 * np.abs(wanted).max()
