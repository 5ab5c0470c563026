"""Makes a single graph for a decoder, which reads a prompt and then continues it.

transformers.exporters make two graphs: one without a cache for the prompt, and one with a cache.
However, the graph with a cache can also read a prompt if the cache is empty, and runtimes that
generate text expect a single graph.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any, Literal

import transformers
from transformers import cache_utils

from ..torch._guards import Guard, Sizes
from ._loading import told

Graphs = Literal["one", "two"]
"""The number of graphs into which a decoder is exported."""
_GROWING = ("DynamicLayer", "DynamicSlidingWindowLayer")
"""The classes of cache layers that grow with each token."""


def cache_for(model: Any) -> dict[str, Any]:
    """Return the argument of generate() for a cache in which every layer keeps the whole text.

    transformers truncates the cache of a layer with a sliding window, so its length would differ in
    a trace; the mask applies the window anyway. For other caches, the result is empty.
    """
    taken = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in taken else "past_key_values"
    if model.config.is_encoder_decoder or name not in taken:
        return {}
    config = model.config.get_text_config(decoder=True)
    try:
        usual = transformers.DynamicCache(config=config)
    except Exception:  # a config that it does not know has a cache of its own
        return {}
    kinds = {type(layer).__name__ for layer in usual.layers}
    slides = "DynamicSlidingWindowLayer" in kinds and kinds <= set(_GROWING)
    return {name: transformers.DynamicCache()} if slides else {}


def prompt_of(prefill: Mapping[str, Any], decode: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the inputs of a prompt for the graph with a cache, including an empty cache.

    Args:
        prefill: the inputs of the prompt, without a cache.
        decode: the inputs of the steps after it.

    Returns:
        The inputs; None if the graph with a cache needs inputs that a prompt does not have.
    """
    found: dict[str, Any] = {}
    for name, value in decode.items():
        if isinstance(value, transformers.DynamicCache):
            found[name] = _emptied(value)
            if found[name] is None:
                return None
        elif name in prefill:
            found[name] = copy.deepcopy(prefill[name])
        elif value is not None:
            return None
    caches = [name for name in found if isinstance(found[name], transformers.DynamicCache)]
    words = decode.get("input_ids")
    return found if len(caches) == 1 and words is not None and words.shape[1] > 1 else None


def _emptied(cache: Any) -> Any:
    """Return a copy of a cache without tokens; None if a layer keeps other state."""
    found = copy.deepcopy(cache)
    for layer in found.layers:
        if type(layer).__name__ not in _GROWING:
            return None
        if not layer.is_initialized:
            return None
        layer.keys, layer.values = layer.keys[..., :0, :], layer.values[..., :0, :]
    return found


def unfit_for_prompts(sizes: Sizes, module: Any, prompt: Mapping[str, Any]) -> list[Guard]:
    """Return the assumptions of a trace with a cache that an empty cache violates.

    Assumptions in the code of the cache are not included: the shapes of its keys state the same.
    """
    own = f"{cache_utils.__file__}:"
    broken = sizes.broken(((), prepared(module, prompt)))
    return [each for each in broken if not each.where.startswith(own)]


def prepared(module: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a trace, some of which are computed from those of the model."""
    from transformers.exporters.utils import prepare_for_export

    with told("transformers cannot prepare its inputs"):
        _, found, _ = prepare_for_export(module, copy.deepcopy(dict(given)))
    return dict(found)
