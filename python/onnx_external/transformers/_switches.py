"""Config switches for training, memory or a GPU, which an export disables."""

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
"""The place of the kernel in a config; the property that sets it would also set those of its
parts."""


def without_switches(config: Any, made_by: Any) -> list[str]:
    """Disable the switches, and return the note on them.

    Args:
        config: the config of the model, which is changed, and so are its parts.
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
    return [f"config.json: {', '.join(found)} set aside, which is for training, memory or a GPU"]


def configs_in(config: Any) -> Iterator[Any]:
    """Yield a config, and those of its parts."""
    yield config
    for value in list(vars(config).values()):
        if isinstance(value, transformers.PreTrainedConfig):
            yield from configs_in(value)
