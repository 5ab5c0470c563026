"""Chooses the weights that fill a skeleton, and saves the result."""

from __future__ import annotations

import os
from collections import abc
from collections.abc import Set
from typing import Any

from torch import nn

from .._base.errors import NotFoundError
from .._base.options import StrPath, Weights
from .._saving.reports import SaveReport
from .._saving.save import save_again
from .._saving.transposing import Learned
from .._sources.checkpoint import open_checkpoint
from ._plain_saving import save_alone
from ._skeleton import Skeleton


def ties_for(made: Skeleton, keys: Set[str]) -> dict[str, str]:
    """Return, for slots whose own name is not a key, another name of the tensor that is a key."""
    return {
        slot: next(name for name in names if name in keys)
        for slot, names in made.ties.items()
        if slot not in keys and not keys.isdisjoint(names)
    }


def keys_of(weights: Weights) -> set[str]:
    """Return the keys of a checkpoint in any form that oe.save() takes."""
    if isinstance(weights, abc.Mapping):
        return set(weights)
    if isinstance(weights, nn.Module):
        return set(weights.state_dict())
    if not isinstance(weights, (str, os.PathLike)):
        return {name for one in weights for name in keys_of(one)}
    with open_checkpoint(weights) as checkpoint:
        return set(checkpoint)


def save_skeleton(
    made: Skeleton, path: StrPath, weights: Weights | None, learned: Learned, **options: Any
) -> SaveReport:
    """Save a skeleton with its weights; `learned` has the plans of earlier saves of both."""
    graph = made.SerializeToString() if options.get("layout") == "link" else made
    try:
        return save_again(learned, graph, path, weights, **options)
    except NotFoundError:
        if weights is not None or made.slots:
            raise
    return save_alone(made, path, options)  # there is nothing to store beside the graph
