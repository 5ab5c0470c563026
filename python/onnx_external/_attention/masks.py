"""Describes masks made by transformers by the properties that decide how attention is fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers import masking_utils

from .operator import padding_bias, row_lengths
from .translating import Form

_INTERSECTION = "and_masks.<locals>.and_mask"
_WINDOW = "sliding_window_overlay.<locals>.inner_mask"
_OTHER = -2


@dataclass
class Mask:
    """A mask that transformers made while a model is traced."""

    made: torch.Tensor
    """The mask, [batch, 1, new tokens, all tokens]: booleans, or values to add to the scores."""
    why_not: str
    """The reason why attention with this mask is not fused; "" if it is."""
    bias: torch.Tensor | None = None
    """The bias, which is added to the scores; None if lengths describe the mask completely."""
    last: torch.Tensor | None = None
    total: torch.Tensor | None = None
    window: int = -1
    seen: torch.Tensor | None = None
    """True for tokens that attend to at least one token, [batch, new tokens, 1, 1]; None if the
    bias already decides that."""
    spoiled: torch.Tensor | None = None
    """A value to be added: NaN if lengths do not describe the mask, otherwise 0."""


def mask_of(made: torch.Tensor, given: dict[str, Any], form: Form) -> Mask:
    """Describe a mask in the form that attention needs; one description serves all layers.

    Args:
        made: the mask.
        given: the arguments of the transformers function that made the mask.
        form: the form of attention. The form "lengths" has no bias and allows padding only on the
            right. The standard operator has no window and is not causal itself.
    """
    why_not = _why_not(made, given)
    if why_not:
        return Mask(made, why_not)
    rows, total, dtype = given["batch_size"], given["kv_length"], given["dtype"]
    windows = list(_windows(given.get("mask_function", masking_utils.causal_mask_function)))
    window = windows[0] if windows else -1
    is_plain = len(windows) < 2 and _OTHER not in windows
    padding = given.get("attention_mask")
    is_told = padding is not None and padding.dim() == 2 and padding.shape[1] == total
    if form == "lengths":
        if not is_plain:
            return Mask(made, "its mask is more than a sliding window")
        if not is_told:
            return Mask(made, "sequence lengths are unknown without an attention_mask")
        kind = str(dtype).removeprefix("torch.")
        last, whole, spoiled = row_lengths(padding, given["q_length"], kind)
        return Mask(made, "", None, last, whole, window, spoiled=spoiled)
    if form == "fused" and is_plain and is_told and dtype == torch.float32:
        bias, last, whole = padding_bias(padding, given["q_length"])
        return Mask(made, "", bias, last, whole, window)
    bias = _as_bias(made, dtype)
    last = torch.full((rows,), total - 1, dtype=torch.int32)
    whole = torch.full((1,), total, dtype=torch.int32)
    return Mask(made, "", bias, last, whole, seen=_seen(bias))


def _why_not(made: torch.Tensor, given: dict[str, Any]) -> str:
    if made.dim() != 4:
        return "the dimensions of its mask are not batch, heads, tokens and tokens"
    if not is_causal(given.get("mask_function", masking_utils.causal_mask_function)):
        return "its mask lets tokens see later ones"
    offset = given.get("q_offset", 0)
    if isinstance(offset, torch.Tensor):
        return "its trace computes the number of cached tokens from other values than sizes"
    if given.get("kv_offset", 0) != 0:
        return "its mask covers only a part of the cache"
    if offset + given["q_length"] != given["kv_length"]:
        return "its mask is not for the last tokens"
    return ""


def is_causal(function: Any) -> bool:
    """Return whether a transformers mask function hides all later tokens."""
    if function is masking_utils.causal_mask_function:
        return True
    return any(map(is_causal, _parts(function) or ()))


def _windows(function: Any) -> Iterator[int]:
    """Yield the window sizes in a mask function, and `_OTHER` for any other component."""
    parts = _parts(function)
    if parts is not None:
        for each in parts:
            yield from _windows(each)
    elif getattr(function, "__qualname__", "") == _WINDOW:
        yield from (cell.cell_contents for cell in function.__closure__)
    elif function is not masking_utils.causal_mask_function:
        yield _OTHER


def _parts(function: Any) -> tuple[Callable[..., Any], ...] | None:
    """Return the functions that a mask function intersects; None if it is not an intersection."""
    if getattr(function, "__qualname__", "") != _INTERSECTION:
        return None
    (cell,) = function.__closure__
    return tuple(cell.cell_contents)


def _seen(bias: torch.Tensor) -> torch.Tensor | None:
    """Return, for a float16 bias, which tokens attend to at least one token.

    ONNX Runtime computes a softmax in float32, where the lowest float16 value is an ordinary value,
    so a token that attends to nothing would attend to itself.
    """
    if bias.dtype != torch.float16:
        return None
    return (bias > torch.finfo(bias.dtype).min).any(-1).transpose(1, 2).unsqueeze(-1)


def _as_bias(made: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if made.dtype != torch.bool:
        return made
    return torch.where(made, torch.zeros((), dtype=dtype), torch.finfo(dtype).min)
