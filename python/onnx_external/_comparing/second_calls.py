"""Detects modules that keep state from one call to the next."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._base.errors import RunError
from .._control_flow import Places, at_key, state_kept
from .comparing import agree
from .inputs import Given
from .references import ModuleReference
from .values import Value


def first_call(
    reference: ModuleReference, given: Given, what: str, known: Collection[str] = ()
) -> tuple[dict[str, Value], list[str]]:
    """Return a module's result, with a note if a second call gives another result.

    If the module changes any of its state, or objects that its code refers to (except the memory of
    tensors), it is called again, and once more after a call with other values. All changes by these
    calls are undone.

    Args:
        reference: the module.
        given: the inputs.
        what: the name of the input set.
        known: buffers that the module is known to change.
    """
    with state_kept(reference.module) as places:
        # Restoring buffers must not change the results.
        first = {name: each.copy() for name, each in reference.outputs(given, what).items()}
        kept = _changed(places, {name.rpartition(".")[2] for name in known})
        if not kept:
            return first, []
        with torch.random.fork_rng(devices=[]):
            if _agrees(first, reference, given, what):
                with (
                    contextlib.suppress(RunError),
                    reference.within(contextlib.nullcontext(), _turned),
                ):
                    reference.outputs(given, what)
                if _agrees(first, reference, given, what):
                    return first, []
    return first, [
        f"the module returns something else when it is called again, because it keeps "
        f"{', '.join(kept)} from call to call; the graph computes every call like the first one"
    ]


def _agrees(first: dict[str, Value], reference: ModuleReference, given: Given, what: str) -> bool:
    again = reference.outputs(given, what)
    return first.keys() == again.keys() and agree(first, again)


def _turned(call: Any) -> Any:
    """Return the call with the elements of its tensors reversed, so that values remain valid."""
    return pytree.tree_map_only(torch.Tensor, lambda each: each.flip([*range(each.dim())]), call)


def _changed(kept: Iterable[Places], known: Collection[str]) -> list[str]:
    """Return the module's attributes, items and outer variables whose values have changed."""
    found, seen = [], set()
    for places in kept:
        for number, now in places.changes().items():
            place = places.all[number]
            if id(place.owner) in seen:
                continue
            seen.add(id(place.owner))
            keys: Any = [""]
            if isinstance(now, list):
                keys = range(len(now))
            elif isinstance(now, dict):
                keys = now
            changed = [key for key in keys if at_key(now, key) is not at_key(place.before, key)]
            found += [place.named(key) for key in changed[:1] if key not in known]
    return found
