"""Disables switches in configs that are for training, saving memory or GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import transformers

_PLAIN = {
    "return_dict": True,
    "torchscript": False,
    "gradient_checkpointing": False,
    "chunk_size_feed_forward": 0,  # which saves memory, and fixes lengths
}
"""The value of each switch for inference."""
_ATTENTION = "_attn_implementation_internal"
"""The attribute of a config for the attention kernel; its property would also change nested
configs."""


def without_switches(config: Any, made_by: Any) -> list[str]:
    """Disable the switches in a config, and return a note on them.

    Args:
        config: the config of the model, which is changed, like the configs nested in it.
        made_by: the class of the model.
    """
    found: dict[str, None] = {}
    for part in configs_in(config):
        for name, plain in _PLAIN.items():
            if vars(part).get(name) not in (None, plain):
                setattr(part, name, plain)
                found[name] = None
        kernel = vars(part).get(_ATTENTION)
        usable = kernel in (None, "eager") or (
            kernel == "sdpa" and getattr(made_by, "_supports_sdpa", True)
        )
        if not usable:
            setattr(part, _ATTENTION, None)
            found[f"attn_implementation={kernel!r}"] = None
    if not found:
        return []
    return [f"config.json: {', '.join(found)} ignored: only for training, memory or a GPU"]


def configs_in(config: Any) -> Iterator[Any]:
    """Yield a config and the configs nested in it."""
    yield config
    for value in list(vars(config).values()):
        if isinstance(value, transformers.PreTrainedConfig):
            yield from configs_in(value)
