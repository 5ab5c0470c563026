"""Detects models that keep the state of a text in attributes of their modules.

A graph cannot have such a state: it is neither an input nor an output, so each call would lose
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .._base.errors import ExportError

_SHOWN = 3


@contextlib.contextmanager
def refusing_hidden_states(model: Any, given: Mapping[str, Any]) -> Iterator[None]:
    """Raise an error if generate(), run inside the context, leaves state in a model's modules.

    Args:
        model: a transformers model.
        given: the inputs of generate().

    Raises:
        ExportError: there is such state; the message names the attributes.
    """
    before = _held(model)
    yield
    rows = {each.shape[0] for each in given.values() if isinstance(each, torch.Tensor)}
    after = _held(model)
    states = [
        name
        for name, value in after.items()
        if value is not before.get(name) and value.dim() > 1 and value.shape[0] in rows
    ]
    if states:
        more = f" and {len(states) - _SHOWN} more" if len(states) > _SHOWN else ""
        raise ExportError(
            f"{type(model).__name__} keeps the state of a text in its modules "
            f"({', '.join(states[:_SHOWN])}{more}), not in a cache that forward() takes and "
            "returns, so a graph would lose the state after each call; for oe.torch.export, write "
            "a module whose forward() takes and returns the state"
        )


def _held(model: Any) -> dict[str, torch.Tensor]:
    """Return the float tensors in attributes of modules that are not parameters or buffers."""
    kept = _tables()
    return {
        f"{name}.{key}" if name else key: value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and key not in kept
    }


def _tables() -> tuple[str, ...]:
    """Return the attributes that modules recompute in each call from the length of the text."""
    from transformers.exporters import exporter_dynamo

    return tuple(getattr(exporter_dynamo, "_STATEFUL_CACHE_ATTRS", ()))
