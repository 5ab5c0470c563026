"""Fuses attention while a transformers decoder is traced.

A transformers model looks up its attention function in one interface, and its mask functions in
another interface. During a trace, this module makes both lookups return its own functions.
Attention is fused if its keys and values are the ones that the cache has just concatenated, and if
all its other arguments are known. In all other cases, the original function runs.
"""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from transformers import cache_utils, masking_utils, modeling_utils

from .._base.swapping import exchanged
from .._folders.models import STEPS
from .masks import Mask, mask_of
from .operator import cached_attention
from .translating import STANDARD_OPSET, Form, translations

_SAME = {"dropout", "scaling", "is_causal", "softcap", "s_aux", "position_bias"}
"""Arguments of attention functions that affect the result, and are supported."""
_NEEDLESS = {
    "cache_position", "deterministic", "layer_idx", "logits_to_keep", "num_items_in_batch",
    "output_attentions", "output_hidden_states", "output_router_logits", "past_key_values",
    "position_ids", "return_dict", "sliding_window", "use_cache",
}  # fmt: skip
"""Arguments that attention does not need. `sliding_window` is among them because the mask contains
the window."""
_MULTIPLE = 8
"""The number that must divide the size of an attention head."""
_UNUSED = "its code does not pass the keys of its cache to transformers' attention interface"
_TRACED = "attention is traced, not fused"
ONE_ROW = (
    "attention uses ONNX Runtime's GroupQueryAttention (1.23 or newer), which takes several tokens "
    "after a cache only for a batch size of 1; attention='traced' avoids this operator"
)
STANDARD = (
    "attention uses the Attention operator of ONNX 23, which ONNX Runtime supports since 1.23, and "
    "computes correctly with softcap since 1.27"
)
RIGHT = (
    "attention uses sequence lengths, so inputs may be padded only on the right; if a sequence is "
    "padded elsewhere, all outputs are NaN"
)


class _Update(NamedTuple):
    """The input and the result of one update of a cache layer."""

    layer: Any
    past: tuple[torch.Tensor, torch.Tensor]
    new: tuple[torch.Tensor, torch.Tensor]
    made: tuple[torch.Tensor, torch.Tensor]


@dataclass
class Fusing:
    """Fuses the attention layers of decoders.

    Args:
        form: the form in which attention is written to the graph.
    """

    form: Form = "fused"
    why_not: dict[str, list[str]] = field(default_factory=dict)
    """For each graph, the reasons why attention was not fused in its last trace, one reason for
    each layer of the cache; "" if it was fused."""
    refused: dict[str, str] = field(default_factory=dict)
    """The graphs that are traced without fused attention, with the reason."""

    @property
    def by_lengths(self) -> bool:
        """True if attention uses sequence lengths in place of masks."""
        return self.form == "lengths"

    def fuses(self, name: str) -> bool:
        """Return whether to fuse attention in a graph, where possible."""
        takes_cache = name in ("model", *STEPS)
        return self.form != "traced" and takes_cache and name not in self.refused

    def has_fused(self, name: str) -> bool:
        """Return whether attention was fused in the last trace of a graph."""
        return "" in self.why_not.get(name, ())

    def refuse(self, name: str, why: str) -> None:
        """From now on, trace the attention of this graph without fusing it."""
        self.refused[name] = why
        self.why_not.pop(name, None)

    def rename(self, old: str, new: str) -> None:
        """Change the name under which the state of a graph is stored."""
        named: tuple[dict[str, Any], ...] = (self.why_not, self.refused)
        for found in named:
            if old in found:
                found[new] = found.pop(old)

    def translations(self, name: str) -> Mapping[Any, Callable[..., Any]]:
        """Return the translations that torch.onnx.export needs for a trace of the graph."""
        return translations(self.form) if self.fuses(name) else {}

    def opset(self, name: str) -> int:
        """Return the ONNX opset version that a graph needs for its attention; 0 means any."""
        return STANDARD_OPSET if self.form == "standard" and self.fuses(name) else 0

    def notes(self) -> list[tuple[str, str]]:
        """Return notes by graph: the limits of its fused attention, or why it is not fused."""
        found = [(name, f"{_TRACED}, since {why}") for name, why in self.refused.items()]
        for name in filter(self.has_fused, self.why_not):
            found.append((name, STANDARD if self.form == "standard" else ONE_ROW))
            found += [(name, RIGHT)] if self.by_lengths else []
        for name, each in self.why_not.items():
            reasons = Counter(filter(None, each))
            where = f"in {sum(reasons.values())} of {len(each)} layers " if "" in each else ""
            found += [(name, f"{where}{_TRACED}: {why}") for why, _ in reasons.most_common(1)]
        return found

    @contextlib.contextmanager
    def tracing(self, name: str) -> Iterator[None]:
        """Fuse the attention of a graph that is traced inside the context."""
        if not self.fuses(name):
            yield
            return
        trace = _Trace(self.form)
        interface, masks = modeling_utils.AttentionInterface, masking_utils.AttentionMaskInterface
        layer = cache_utils.DynamicLayer
        with (
            exchanged(interface, "get_interface", trace.attending(interface.get_interface)),
            exchanged(masks, "__getitem__", trace.masking(masks.__getitem__)),
            exchanged(layer, "update", trace.updating(layer.update)),
        ):
            yield
        self.why_not[name] = list(trace.why_not.values())


class _Trace:
    """The state of one trace of a graph."""

    def __init__(self, form: Form) -> None:
        self.why_not: dict[int, str] = {}
        """The reasons, by the id of the cache layer."""
        self._form = form
        self._updates: dict[int, _Update] = {}
        """The recorded cache updates, by the id of the key tensor that each update returned."""
        self._masks: dict[int, Mask] = {}
        """The recorded masks, by the id of the mask's tensor."""
        self._is_spoiled = False

    def updating(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement for a cache layer's `update` method that also records the result."""

        def update(
            layer: Any,
            key_states: torch.Tensor,
            value_states: torch.Tensor,
            *args: Any,
            **more: Any,
        ) -> Any:
            past = (layer.keys, layer.values) if layer.is_initialized else None
            made = plain(layer, key_states, value_states, *args, **more)
            if past is not None and past[0].dim() == 4:
                found = _Update(layer, past, (key_states, value_states), tuple(made))
                self._updates[id(made[0])] = found
                self.why_not[id(layer)] = _UNUSED
            return made

        return update

    def masking(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Return a lookup of mask functions that also records the masks that they make."""

        def get(interface: Any, name: str) -> Any:
            make = plain(interface, name)
            return partial(self._mask, make) if name in ("sdpa", "eager") else make

        return get

    def _mask(self, make: Callable[..., Any], *args: Any, **given: Any) -> Any:
        if args or "dtype" not in given:
            return make(*args, **given)
        made = make(**{**given, "allow_is_causal_skip": False})
        if isinstance(made, torch.Tensor):
            self._masks[id(made)] = mask_of(made, given, self._form)
        return made

    def attending(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement for the lookup of attention functions, which returns `_attend`.

        If `_attend` cannot fuse the attention, it calls the function that transformers would have
        found.
        """

        def get(interface: Any, name: str, default: Callable[..., Any]) -> Any:
            return partial(self._attend, name, plain(interface, name, default))

        return get

    def _attend(
        self,
        name: str,
        plain: Callable[..., Any],
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *rest: Any,
        **given: Any,
    ) -> Any:
        update = self._updates.get(id(key))
        if update is not None:
            mask = self._masks.get(id(attention_mask))
            why_not = _why_not(name, plain, module, query, update, value, mask, rest, given)
            if self._form == "standard" and given.get("s_aux") is not None:
                why_not = why_not or "ONNX's Attention has no sinks"
            self.why_not[id(update.layer)] = why_not
            if not why_not:
                assert mask is not None
                return self._fused(query, update, mask, given), None
        return plain(module, query, key, value, attention_mask, *rest, **given)

    def _fused(
        self, query: torch.Tensor, update: _Update, mask: Mask, given: Mapping[str, Any]
    ) -> torch.Tensor:
        bias, scale, (key, value) = mask.bias, given.get("scaling"), update.new
        if bias is not None:
            position = given.get("position_bias")
            bias = (bias if position is None else bias + position).to(query.dtype)
        # The values of one layer suffice: a product with NaN is NaN, and all that follows.
        spoiled = None if self._is_spoiled else mask.spoiled
        self._is_spoiled = self._is_spoiled or spoiled is not None
        result, *longer = cached_attention(
            query,
            key,
            value,
            *update.past,
            bias,
            mask.last,
            mask.total,
            given.get("s_aux"),
            float(query.shape[-1] ** -0.5 if scale is None else scale),
            float(given.get("softcap") or 0.0),
            mask.window,
            spoiled,
        )
        update.layer.keys, update.layer.values = longer
        if mask.seen is not None:
            result = torch.where(mask.seen, result, torch.zeros_like(result))
        return result


def _why_not(
    name: str,
    plain: Callable[..., Any],
    module: Any,
    query: torch.Tensor,
    update: _Update,
    value: torch.Tensor,
    mask: Mask | None,
    rest: Any,
    given: Mapping[str, Any],
) -> str:
    """Return why attention does not match the fused operator; "" if it does."""
    key, new = update.made[0], update.new
    if value is not update.made[1] or update.layer.keys is not key:
        return "it does not attend to the content of its cache"
    if mask is None:
        return "its mask was not made by transformers"
    if mask.why_not:
        return mask.why_not
    odd = [each for each in given if each not in _SAME | _NEEDLESS]
    odd = [each for each in odd if given[each] is not None and given[each] is not False]
    if rest or odd:
        return f"its attention also takes {', '.join(odd) or 'more'}"
    if given.get("dropout") and module.training:
        return "it applies dropout"
    return (
        _why_not_sizes(module, query, *new)
        or _why_not_function(name, plain, module, given)
        or _why_not_bias(mask, given)
        or _why_not_lengths(query, update, mask)
    )


def _why_not_sizes(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> str:
    if any(each.dim() != 4 or each.dtype != query.dtype for each in (query, key, value)):
        return "its queries, keys and values are of different types"
    heads, others, size = query.shape[1], key.shape[1], query.shape[3]
    if not all(isinstance(each, int) for each in (heads, others, size)):
        return "its heads vary"
    if key.shape[3] != size or value.shape[3] != size or value.shape[1] != others:
        return "its queries, keys and values have different sizes"
    if size % _MULTIPLE:
        return f"the size of its heads, {size}, is not a multiple of {_MULTIPLE}"
    each = getattr(module, "num_key_value_groups", heads // others)
    if each * others != heads:
        return "its heads do not share keys evenly"
    return ""


def _why_not_function(
    name: str, plain: Callable[..., Any], module: Any, given: Mapping[str, Any]
) -> str:
    """Return why the model's attention function may not be equivalent; "" if it is."""
    taken = inspect.signature(plain).parameters
    scale = given.get("scaling")
    if scale is not None and not isinstance(scale, (int, float)):
        return "the scale of its scores is computed"
    if name == "sdpa":
        if plain is not modeling_utils.sdpa_attention_forward:
            return "its model defines its own attention function"
        odd = [each for each in ("softcap", "s_aux") if given.get(each) is not None]
        return f"its function ignores {odd[0]}" if odd else ""
    if name != "eager":
        return f"its function for attention is {name}"
    if scale is None:
        return "its function chooses the scale of scores itself"
    odd = [
        each
        for each in ("softcap", "position_bias")
        if given.get(each) is not None and each not in taken
    ]
    if odd:
        return f"its function ignores {odd[0]}"
    if given.get("s_aux") is not getattr(module, "sinks", None):
        return "its sinks are not the sinks of its module"
    return ""


def _why_not_bias(mask: Mask, given: Mapping[str, Any]) -> str:
    by_lengths = mask.bias is None
    if by_lengths and given.get("position_bias") is not None:
        return "it adds a position bias, which lengths do not determine"
    return ""


def _why_not_lengths(query: torch.Tensor, update: _Update, mask: Mask) -> str:
    """Return why the lengths of queries, keys and mask do not match; "" if they match.

    In a trace, these comparisons also record which dynamic sizes are equal.
    """
    past, new = update.past[0], update.new[0]
    if past.shape[0] != query.shape[0] or new.shape[2] != query.shape[2]:
        return "its keys and queries belong to different tokens"
    if past.shape[2] + new.shape[2] != mask.made.shape[-1]:
        return "its mask and its cache differ in length"
    return ""
