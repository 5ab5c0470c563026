"""Splits input sets for graphs that accept several tokens after a cache only with batch size 1."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
import transformers

from .._attention.translating import NAME

_SEVERAL = 15
"""The index of the input with which GroupQueryAttention accepts any batch size."""
_BIAS = 10
"""The index of the input that is added to attention scores."""
_TEXTS = ("input_ids", "decoder_input_ids", "inputs_embeds", "decoder_inputs_embeds")
_CACHES = (transformers.DynamicCache, transformers.EncoderDecoderCache)


class FusedAttention(NamedTuple):
    """The requirements of the attention operators in a graph."""

    is_fused: bool
    """True if the graph has attention operators."""
    takes_one_row: bool
    """True if an operator accepts several tokens after a cache only for batch size 1. ONNX
    Runtime's GroupQueryAttention does, unless it gets the lengths of the new tokens."""
    by_lengths: bool
    """True if an operator only uses sequence lengths, and no other mask."""


def attention_of(graph: Any) -> FusedAttention:
    """Return the requirements of the attention operators in a graph."""
    grouped = [node for node in graph.node if node.op_type == NAME]
    standard = [node for node in graph.node if node.op_type == "Attention" and not node.domain]
    return FusedAttention(
        bool(grouped or standard),
        any(not "".join(node.input[_SEVERAL : _SEVERAL + 1]) for node in grouped),
        any(not "".join(node.input[_BIAS : _BIAS + 1]) for node in grouped),
    )


def by_rows(title: str, given: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the inputs of each batch entry, then those of the first new token for the whole batch.

    Inputs with a single token, batch size 1 or no cached tokens are not split.

    Args:
        title: the title of the inputs.
        given: the inputs of a transformers module.
    """
    rows, tokens, past = _sizes(given)
    if rows < 2 or tokens < 2 or not past:
        yield title, dict(given)
        return
    for row in range(rows):
        found = {name: _row(name, value, row, rows) for name, value in given.items()}
        yield f"{title}, row {row + 1}", found
    yield f"{title}, one token", {n: _first(n, v, tokens, past) for n, v in given.items()}


def by_lengths(title: str, given: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the inputs without padding and, for a prompt, also with padding on the right.

    Args:
        title: the title of the inputs.
        given: the inputs of a transformers module.
    """
    _, tokens, past = _sizes(given)
    mask = given.get("attention_mask")
    if not tokens or not isinstance(mask, torch.Tensor):
        yield title, dict(given)
        return
    found = {**given, "attention_mask": torch.ones_like(mask)}
    places = given.get("position_ids")
    if isinstance(places, torch.Tensor):
        found["position_ids"] = torch.arange(past, past + tokens).expand(places.shape).clone()
    yield title, found
    if not past:
        yield f"{title}, padded on the right", {**found, "attention_mask": mask.flip(1)}


def _sizes(given: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the batch size, the number of tokens, and the number of cached tokens."""
    texts = [given[name] for name in reversed(_TEXTS) if given.get(name) is not None]
    caches = [each for each in given.values() if isinstance(each, _CACHES)]
    if not texts or not caches:
        return 0, 0, 0
    return texts[0].shape[0], texts[0].shape[1], int(caches[0].get_seq_length())


def _row(name: str, value: Any, row: int, rows: int) -> Any:
    if isinstance(value, _CACHES):
        found = copy.deepcopy(value)
        found.reorder_cache(torch.tensor([row]))  # which states of layers have, too
        return found
    if isinstance(value, transformers.utils.ModelOutput):
        return type(value)(**{key: _row(key, each, row, rows) for key, each in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(_row(name, each, row, rows) for each in value)
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return value
    if name.endswith("position_ids") and value.dim() == 3:  # for each of several axes
        return value[:, row : row + 1]
    return value[row : row + 1] if value.shape[0] == rows else value


def _first(name: str, value: Any, tokens: int, past: int) -> Any:
    """Return an input up to the first new token; masks also keep the cached tokens."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return value
    if name.endswith("position_ids"):
        return value[..., :1]
    if value.shape[1] == past + tokens and "mask" in name:
        return value[:, : past + 1]
    is_new = name in _TEXTS or not value.is_floating_point()
    return value[:, :1] if is_new and value.shape[1] == tokens else value
