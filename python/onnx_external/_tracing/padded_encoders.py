"""Makes a trace of nn.TransformerEncoder zero the padding, as eval mode does.

In eval mode, and without gradients, the encoder uses nested tensors to drop the padding that a
`src_key_padding_mask` marks at the end of sequences, and fills in zeros after the last layer. A
trace takes the other path, which keeps the padding.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from .._base.swapping import exchanged


@contextlib.contextmanager
def padding_is_zero() -> Iterator[None]:
    """Make torch's encoders zero padding in the context wherever eval mode would do so."""
    plain = nn.TransformerEncoder.forward
    with exchanged(nn.TransformerEncoder, "forward", _forward(plain)):
        yield


def _forward(plain: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(plain)
    def forward(
        self: nn.TransformerEncoder,
        src: torch.Tensor,
        mask: torch.Tensor | None = None,
        src_key_padding_mask: torch.Tensor | None = None,
        is_causal: bool | None = None,
    ) -> torch.Tensor:
        given = src, mask, src_key_padding_mask, is_causal
        if not _drops_padding(self, src, mask) or src_key_padding_mask is None:
            return plain(self, *given)
        norm = self.norm
        with exchanged(self, "use_nested_tensor", False), _without_norm(self):
            output = plain(self, *given)
        padding = src_key_padding_mask.ne(0)  # of a mask of floats: 0 or -inf
        output = output.masked_fill((padding & _at_the_end(padding))[..., None], 0.0)
        return output if norm is None else norm(output)

    return forward


def _drops_padding(encoder: Any, src: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Return whether eval mode would use nested tensors if padding is at the end."""
    return bool(
        torch.backends.mha.get_fastpath_enabled()
        and getattr(encoder, "use_nested_tensor", False)
        and not torch.compiler.is_dynamo_compiling()
        and not encoder.layers[0].training
        and src.dim() == 3
        and mask is None
        and not torch.is_autocast_enabled(src.device.type)
    )


@contextlib.contextmanager
def _without_norm(encoder: nn.TransformerEncoder) -> Iterator[None]:
    modules: dict[str, Any] = encoder._modules
    norm = modules.get("norm")
    if norm is None:
        yield
        return
    modules["norm"] = None
    try:
        yield
    finally:
        modules["norm"] = norm


def _at_the_end(padding: torch.Tensor) -> torch.Tensor:
    """Return whether all padding in the whole batch is at the end of sequences."""
    words = padding.logical_not()
    places = torch.arange(padding.shape[1], device=padding.device)
    return (words == (places < words.sum(1, keepdim=True))).all()
