"""Implements torch's operators on complex values with real and imaginary parts as real tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

_aten = torch.ops.aten
_MOST_FACTORS = 8
"""The largest exponent of a power that is written as a product."""
_LEAST_INEXACT = 64
"""The minimum length of a Fourier transform that is not left to ONNX Runtime."""
_BY_LENGTH = 2
"""torch's number for the normalization that divides by the length."""
REAL = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""The types of the parts of complex types."""


def is_complex(value: Any) -> bool:
    """Return whether a value is a complex tensor."""
    return isinstance(value, torch.Tensor) and value.is_complex()


def parts_of(value: Any) -> Iterator[Any]:
    """Yield the real and imaginary part of a complex result, or any other result unchanged."""
    from torch._subclasses.complex_tensor import ComplexTensor

    if isinstance(value, ComplexTensor):
        yield from (value.re, value.im)
    elif is_complex(value):
        pairs = torch.view_as_real(value)
        yield from (pairs.select(-1, 0), pairs.select(-1, 1))
    else:
        yield value


def called(operator_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return an operator's result for arguments in which complex values are ComplexTensors."""
    from torch._subclasses.complex_tensor._ops.common import lookup_complex

    made = _MADE.get(operator_)
    found = NotImplemented if made is None else made(*args, **kwargs)
    if found is not NotImplemented:
        return found
    if kwargs.get("dtype") in REAL and not any(map(is_complex, pytree.tree_leaves(args))):
        return _filled(operator_, args, kwargs)
    if operator_ in _LEFT:
        return _by_torch_onnx(operator_, args, kwargs)
    combined = _COMBINED.get(operator_.overloadpacket)
    if combined is not None and not kwargs and len(args) == 2:
        return combined(*map(_split, args))
    args = pytree.tree_map(_as_complex, args)
    implementation = lookup_complex(operator_, *args, **kwargs)
    if implementation is None:
        return _by_torch_onnx(operator_, args, kwargs)
    return implementation(*args, **kwargs)


def _filled(operator_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a new complex tensor made from a number, or like a real tensor."""
    kwargs = {**kwargs, "dtype": REAL[kwargs["dtype"]]}

    def part(name: str) -> Any:
        each = [getattr(one, name) if isinstance(one, complex) else one for one in args]
        return operator_(*each, **kwargs)

    re = part("real")
    if any(isinstance(each, complex) for each in args):
        return complex_of(re, part("imag"))
    return complex_of(re, torch.zeros_like(re))


def complex_of(re: torch.Tensor, im: torch.Tensor) -> Any:
    """Return the complex value with the given parts, without copying them."""
    from torch._subclasses.complex_tensor import ComplexTensor

    return ComplexTensor(re, im)


def _split(value: Any) -> tuple[Any, Any]:
    """Return the parts of a tensor or number; the second part is None for real values."""
    from torch._subclasses.complex_tensor import ComplexTensor

    if isinstance(value, ComplexTensor):
        return value.re, value.im
    return (value.real, value.imag) if isinstance(value, complex) else (value, None)


def _as_complex(value: Any) -> Any:
    """Convert a real tensor to a complex one; integers are indices, and stay unchanged."""
    is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return complex_of(value, torch.zeros_like(value)) if is_real else value


def _joined(re: torch.Tensor, im: Any) -> Any:
    """Return a complex value made from parts, after broadcasting the imaginary part."""
    if not isinstance(im, torch.Tensor):
        return complex_of(re, torch.full_like(re, im))
    return complex_of(re, im.to(re.dtype).expand(re.shape))


def _sum(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    (a, b), (c, d) = one, other
    return _joined(a + c, d if b is None else b if d is None else b + d)


def _difference(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    (a, b), (c, d) = one, other
    return _joined(a - c, -d if b is None else b if d is None else b - d)


def _product(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    (a, b), (c, d) = one, other
    if b is None:
        return _joined(a * c, a * d)
    if d is None:
        return _joined(a * c, b * c)
    return _joined(a * c - b * d, a * d + b * c)


def _quotient(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    (a, b), (c, d) = one, other
    if d is None:
        return _joined(a / c, b / c)
    size = c * c + d * d
    if b is None:
        return _joined(a * c / size, -a * d / size)
    return _joined((a * c + b * d) / size, (b * c - a * d) / size)


def _power(value: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int) or not 0 < exponent <= _MOST_FACTORS:
        return NotImplemented
    found = value
    for _ in range(exponent - 1):
        found = _product(_split(found), _split(value))
    return found


def _copied(value: Any, source: Any, _: bool = False) -> Any:
    re, im = _split(source)
    im = torch.zeros_like(value.im) if im is None else im.to(value.im.dtype).expand(value.im.shape)
    return complex_of(re.to(value.re.dtype).expand(value.re.shape), im)


def _real_inverse(value: Any, dims: Sequence[int], norm: int, size: Any) -> torch.Tensor:
    """Return the inverse of a one-sided Fourier transform, computed from all frequencies.

    If the length is not constant, ONNX assumes that the result of a DFT has the length of its
    input, and ONNX Runtime gives both the same memory.
    """
    *others, last = dims
    if others:
        value = _transformed(value, others, norm)
    mirrored = size - value.re.shape[last]

    def whole(part: torch.Tensor, sign: int) -> torch.Tensor:
        return torch.cat([part, sign * part.narrow(last, 1, mirrored).flip(last)], last)

    return _transformed(complex_of(whole(value.re, 1), whole(value.im, -1)), [last], norm).re


def _fourier(value: Any, dims: Sequence[int], norm: int, forward: bool) -> Any:
    if not any(_is_inexact(value.shape[dim]) for dim in dims):
        return NotImplemented
    return _transformed(value, dims, norm, forward)


def _real_fourier(value: torch.Tensor, dims: Sequence[int], norm: int, onesided: bool) -> Any:
    whole = complex_of(value, torch.zeros_like(value))
    found = _fourier(whole, dims, norm, True)
    if found is NotImplemented or not onesided:
        return found
    count = value.shape[dims[-1]] // 2 + 1
    return complex_of(*(part.narrow(dims[-1], 0, count) for part in _split(found)))


def _transformed(value: Any, dims: Sequence[int], norm: int, forward: bool = False) -> Any:
    for dim in dims:
        if _is_inexact(value.re.shape[dim]):
            value = _chirped(value, dim % value.dim(), norm, forward)
        else:
            found = _by_torch_onnx(_aten._fft_c2c.default, (value, [dim], norm, forward), {})
            value = complex_of(*parts_of(found))
    return value


def _is_inexact(size: Any) -> bool:
    """Return whether ONNX Runtime's DFT of this length is less exact than torch's.

    Unless the length is a power of two, the error grows with it. Relative to the largest value, it
    is 6e-6 for a length of 100, 8e-5 for 1,000 and 4e-3 for 48,000 (version 1.32).
    """
    return isinstance(size, int) and size >= _LEAST_INEXACT and bool(size & (size - 1))


def _chirped(value: Any, dim: int, norm: int, forward: bool) -> Any:
    """Return a Fourier transform along one dimension, computed by Bluestein's algorithm.

    With `jk = (j*j + k*k - (k-j)**2) / 2`, the transform is a convolution with a chirp, which is
    computed as a product of transforms whose length is a power of two.
    """
    size = value.re.shape[dim]
    padded = 1 << (2 * size - 2).bit_length()
    ones = [1] * (value.dim() - 1 - dim)
    place = torch.arange(size, device=value.re.device)
    half_turns = (place * place + size) % (2 * size) - size  # of 1/size each, from -size to size
    angle = (half_turns.to(value.re.dtype) * (math.pi / size)).reshape([size, *ones])
    re, im = angle.cos(), angle.sin()
    chirp = (re, -im if forward else im)

    def around(part: torch.Tensor) -> torch.Tensor:
        gap = part.new_zeros([padded - 2 * size + 1, *ones])
        return torch.cat([part, gap, part.narrow(0, 1, size - 1).flip(0)])

    def padded_to_length(part: torch.Tensor) -> torch.Tensor:
        after = [0, 0] * (value.dim() - 1 - dim)
        return torch.constant_pad_nd(part, [*after, 0, padded - size])

    given = _product(_split(value), chirp)
    given = complex_of(*map(padded_to_length, _split(given)))
    other = complex_of(around(chirp[0]), around(-chirp[1]))
    product = _product(
        _split(_transformed(given, [dim], 0, True)), _split(_transformed(other, [0], 0, True))
    )
    found = _transformed(product, [dim], _BY_LENGTH, False)
    parts = (part.narrow(dim, 0, size) for part in _split(found))
    re, im = _split(_product(tuple(parts), chirp))
    scale = {0: 1.0, 1: size**-0.5, _BY_LENGTH: 1 / size}[norm]
    return complex_of(re * scale, im * scale)


def _by_torch_onnx(operator_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of an operator that is left to torch.onnx."""

    def whole(value: Any) -> Any:
        if not is_complex(value):
            return value
        return torch.view_as_complex(torch.stack([value.re, value.im], -1))

    return operator_(*pytree.tree_map(whole, args), **kwargs)


INSTEAD: dict[Any, Callable[..., Any]] = {
    _aten.hypot.default: lambda one, other: (one * one + other * other).sqrt(),
    torch.ops.prims.convert_element_type.default: lambda x, kind: _aten._to_copy(x, dtype=kind),
}
"""Replacements for operators in decompositions that torch.onnx does not support."""
_MADE: dict[Any, Callable[..., Any]] = {
    _aten.complex.default: complex_of,
    _aten.polar.default: lambda size, angle: complex_of(size * angle.cos(), size * angle.sin()),
    _aten.copy.default: _copied,
    _aten._fft_c2c.default: _fourier,
    _aten._fft_c2r.default: _real_inverse,
    _aten._fft_r2c.default: _real_fourier,
    _aten.pow.Tensor_Scalar: _power,
    _aten.view_as_complex.default: lambda x: complex_of(x.select(-1, 0), x.select(-1, 1)),
}
_COMBINED: dict[Any, Callable[[tuple[Any, Any], tuple[Any, Any]], Any]] = {
    _aten.add: _sum,
    _aten.sub: _difference,
    _aten.rsub: lambda one, other: _difference(other, one),
    _aten.mul: _product,
    _aten.div: _quotient,
}
"""Operators on two values, one of which may be real or a Python number."""
_LEFT = frozenset({_aten._fft_r2c.default, _aten._fft_c2c.default})
