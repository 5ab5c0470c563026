"""Translates pooling and resizing of images where torch.onnx drops an argument."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .._base.swapping import exchanged
from ._exact_translations import operators


def image_translations() -> dict[Any, Callable[..., Any]]:
    """Return this module's ONNX translations, by torch operator."""
    aten = torch.ops.aten
    return {
        aten.avg_pool2d.default: _average_pool,
        aten.avg_pool3d.default: _average_pool,
        aten._upsample_bilinear2d_aa.default: _antialiased("bilinear"),
        aten._upsample_bicubic2d_aa.default: _antialiased("bicubic"),
    }


def _average_pool(
    values: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Return averages over windows, using `divisor_override`, which torch.onnx ignores."""
    from onnxscript.function_libs.torch_lib.ops import nn

    rank = len(values.shape) - 2
    if divisor_override is None:
        of_torch = nn.aten_avg_pool2d if rank == 2 else nn.aten_avg_pool3d
        return of_torch(values, kernel_size, stride, padding, ceil_mode, count_include_pad)
    kernel, pads = _each(kernel_size, rank), _each(padding, rank)
    strides = _each(stride or kernel, rank)
    sizes = values.shape[2:]
    more = map(_missing, sizes, kernel, strides, pads) if ceil_mode else [0] * rank
    ends = [pad + each for pad, each in zip(pads, more, strict=True)]
    op = operators()
    mean = op.AveragePool(
        values, kernel_shape=kernel, strides=strides, pads=[*pads, *ends], count_include_pad=1
    )
    return op.Mul(mean, op.CastLike(math.prod(kernel) / divisor_override, mean))


def _each(given: Sequence[int] | int, rank: int) -> list[int]:
    """Return a list with one number per dimension; torch also accepts one number for all."""
    numbers = [given] if isinstance(given, int) else [*given]
    return numbers * rank if len(numbers) == 1 else numbers


def _missing(size: Any, kernel: int, stride: int, pad: int) -> int:
    """Return the end padding for which rounding down gives the result of rounding up."""
    if not isinstance(size, int):
        raise NotImplementedError("divisor_override with ceil_mode=True and dynamic sizes")
    windows = -(-(size + 2 * pad - kernel) // stride) + 1
    if (windows - 1) * stride >= size + pad:  # the last window would begin in the padding
        windows -= 1
    return max(0, (windows - 1) * stride + kernel - size - 2 * pad)


def _antialiased(mode: str) -> Callable[..., Any]:
    """Return a translation that rejects flags that torch.onnx would ignore."""

    def resize(values: Any, output_size: Any, align_corners: bool, *scales: Any) -> Any:
        from onnxscript.function_libs.torch_lib.ops import nn

        if align_corners:
            raise NotImplementedError("antialias=True with align_corners=True is not supported")
        of_torch = getattr(nn, f"aten__upsample_{mode}2d_aa")
        return of_torch(values, output_size, align_corners, *scales)

    return resize


@contextlib.contextmanager
def nearest_as_eager_rounds() -> Iterator[None]:
    """Make traces of mode="nearest-exact" use the positions that torch's kernels use.

    The kernels multiply by a float32 ratio in float64, and round the product to float32.
    torch.export traces a decomposition that computes in float32.
    """
    from torch._decomp import decompositions

    try:
        plain = decompositions._compute_upsample_nearest_indices
    except AttributeError:  # another torch
        yield
        return

    def indices(values: Any, output_size: Any, scales: Any, exact: bool = False) -> list[Any]:
        if not exact:
            return plain(values, output_size, scales)  # type: ignore[no-any-return]
        rank = len(output_size)
        sizes = values.shape[-rank:]
        found = map(_nearest_places, sizes, output_size, scales or [None] * rank)
        return [each.reshape(-1, *[1] * (rank - at - 1)) for at, each in enumerate(found)]

    with exchanged(decompositions, "_compute_upsample_nearest_indices", indices):
        yield


def _nearest_places(size: Any, count: Any, scale: float | None) -> torch.Tensor:
    """Return, for each position in the result, the nearest position in the resized dimension."""
    middles = torch.arange(count, dtype=torch.float64) + 0.5
    if scale is None:
        ratio = torch.scalar_tensor(size, dtype=torch.float32) / count
    else:
        ratio = torch.scalar_tensor(1.0 / scale, dtype=torch.float32)
    places = (middles * ratio.double()).float().floor().long()
    return places.clamp(max=size - 1)
