"""Defines attention over a growing cache as a single torch operator.

The operator can be run, infers shapes in a trace, and becomes one ONNX node (`translating.py`).
"""

from __future__ import annotations

import torch


@torch.library.custom_op("onnx_external::cached_attention", mutates_args=())  # type: ignore[untyped-decorator]
def cached_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    past_key: torch.Tensor,
    past_value: torch.Tensor,
    bias: torch.Tensor | None,
    last: torch.Tensor,
    total: torch.Tensor,
    sinks: torch.Tensor | None,
    scale: float,
    softcap: float,
    window: int,
    spoiled: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Let each new token attend to the cached tokens and to the new tokens.

    A token attends to itself and to the tokens before it, if the window and the bias allow it. The
    result for a token that attends to nothing is zero.

    Args:
        query: [batch, heads, new tokens, size].
        key: [batch, heads of the cache, new tokens, size].
        value: same shape as `key`.
        past_key: [batch, heads of the cache, cached tokens, size].
        past_value: same shape as `past_key`.
        bias: added to the scores; broadcasts to [batch, heads, new tokens, all tokens].
        last: int32 [batch], the index of the last token of each batch entry.
        total: int32 [1], the number of tokens, cached and new.
        sinks: [heads], one additional score per head in the sum of the softmax, which belongs to no
            token.
        scale: the scale of the scores.
        softcap: the bound of the scores before the bias is added; 0 for none.
        window: the largest number of tokens that a token attends to; -1 means all.
        spoiled: added to all new values: 0, or NaN to make the result invalid.

    Returns:
        The result, [batch, new tokens, heads, size], and the longer caches.
    """
    value = value if spoiled is None else value + spoiled
    present_key = torch.cat([past_key, key], 2)
    present_value = torch.cat([past_value, value], 2)
    each = query.shape[1] // key.shape[1]
    scores = query @ present_key.repeat_interleave(each, 1).transpose(2, 3) * scale
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    place = torch.arange(past_key.shape[2], present_key.shape[2], device=query.device)[:, None]
    other = torch.arange(present_key.shape[2], device=query.device)
    seen = other <= place
    if window >= 0:
        seen = seen & (other > place - window)
    if bias is not None:
        scores = scores + bias
        seen = seen & (bias > torch.finfo(bias.dtype).min)
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        more = sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, more.to(scores.dtype)], -1)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)[..., : present_key.shape[2]]
    result = weights @ present_value.repeat_interleave(each, 1)
    return result.transpose(1, 2).contiguous(), present_key, present_value


@cached_attention.register_fake
def _(  # type: ignore[no-untyped-def]
    query, key, value, past_key, past_value, bias, last, total, sinks, scale, softcap, window,
    spoiled=None,
):  # fmt: skip
    batch, heads, tokens, size = query.shape
    longer = past_key.shape[2] + key.shape[2]
    return (
        query.new_empty(batch, tokens, heads, size),
        key.new_empty(batch, key.shape[1], longer, size),
        value.new_empty(batch, value.shape[1], longer, size),
    )


@torch.library.custom_op("onnx_external::row_lengths", mutates_args=())  # type: ignore[untyped-decorator]
def row_lengths(
    mask: torch.Tensor, tokens: int, like: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the sequence lengths in a batch in which padding may only be on the right.

    After the first call, the cache may contain padding behind the tokens of that call, because ONNX
    Runtime's operator overwrites it. New tokens may be padded only in calls without a cache.

    Args:
        mask: bool [batch, all tokens], true for tokens that are not padding.
        tokens: the number of new tokens.
        like: the torch float type of the third result.

    Returns:
        The index of the last token of each batch entry, int32 [batch]; the number of all tokens,
        int32 [1]; NaN if an entry is padded in any other way or has no new token, otherwise 0.
    """
    cached = mask.shape[1] - tokens
    new = mask[:, cached:].to(torch.int32)
    count = new.sum(1)
    over = (count - (tokens - 1 - new.flip(1).argmax(1))) * mask[:, 0]
    is_right = (over - cached * (tokens - count)).amin() == 1
    spoiled = torch.where(is_right, 0.0, torch.nan).to(getattr(torch, like))
    last = (mask.sum(1) - 1).to(torch.int32)
    return last, torch.full((1,), mask.shape[1], dtype=torch.int32), spoiled


@row_lengths.register_fake
def _(mask, tokens, like):  # type: ignore[no-untyped-def]
    return (
        mask.new_empty(mask.shape[:1], dtype=torch.int32),
        mask.new_empty(1, dtype=torch.int32),
        mask.new_empty((), dtype=getattr(torch, like)),
    )


@torch.library.custom_op("onnx_external::padding_bias", mutates_args=())  # type: ignore[untyped-decorator]
def padding_bias(
    mask: torch.Tensor, tokens: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make a bias that hides only padding, because the attention operator itself is causal.

    Args:
        mask: bool [batch, all tokens], true for tokens that are not padding.
        tokens: the number of new tokens.

    Returns:
        The bias, float32 [batch, 1, new tokens, all tokens]; the index of the last token, int32
        [batch]; the number of all tokens, int32 [1].
    """
    rows, count = mask.shape
    bias = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    return (
        bias[:, None, None].expand(rows, 1, tokens, count).contiguous(),
        torch.full((rows,), count - 1, dtype=torch.int32),
        torch.full((1,), count, dtype=torch.int32),
    )


@padding_bias.register_fake
def _(mask, tokens):  # type: ignore[no-untyped-def]
    rows, count = mask.shape
    return (
        mask.new_empty((rows, 1, tokens, count), dtype=torch.float32),
        mask.new_empty(rows, dtype=torch.int32),
        mask.new_empty(1, dtype=torch.int32),
    )
