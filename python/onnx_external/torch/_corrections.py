"""Corrects torch where it traces or decomposes operators differently from its kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .._base.swapping import undoing
from .._tracing.padded_encoders import padding_is_zero
from ._image_translations import nearest_as_eager_rounds


@contextlib.contextmanager
def torch_corrected() -> Iterator[None]:
    """Correct torch inside the context, for a trace or a conversion, which decomposes operators."""
    with padding_is_zero(), fake_quantization_traced(), nearest_as_eager_rounds():
        yield


@contextlib.contextmanager
def fake_quantization_traced() -> Iterator[None]:
    """Make fake quantization traceable if its parameters are tensors and sizes are dynamic.

    If all sizes are known, torch determines the shapes by running the operator on zeros.
    """
    name = "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
    try:
        from torch._subclasses.fake_impls import op_implementations_dict as known

        operator = getattr(torch.ops.aten, name).default
    except (ImportError, AttributeError):  # another torch
        yield
        return

    def shapes(mode: Any, _: Any, values: torch.Tensor, *__: Any) -> tuple[torch.Tensor, ...]:
        with mode:
            return torch.empty_like(values), torch.empty_like(values, dtype=torch.bool)

    if operator in known:
        yield
        return
    with undoing(lambda: known.pop(operator, None)):
        known[operator] = shapes
        yield
