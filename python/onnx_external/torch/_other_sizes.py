"""Generates inputs of other sizes than the example's, to test a graph if the caller gives none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._tracing.surroundings import Call
from ._guards import Guard, Sizes

_ONES = 4
"""The maximum number of sizes that are set to 1, one size in each group of calls."""
_GUARDS = 6
"""The maximum number of guards that are deliberately violated."""
_MOST = 64
"""To violate a guard, sizes up to this one, or up to twice the example's size, are tried."""


def other_sizes(sizes: Sizes, example: Call) -> Iterator[list[Call]]:
    """Yield groups of calls; of each group, the first call that the module accepts is used.

    In the first group, all sizes differ from the example's. In each of the next groups, one size is
    1, which conditions and broadcasting may treat differently. Each of the last groups violates a
    guard.
    """
    own = sizes.values(example)
    symbols = [each for each in sizes.symbols if own.get(each, 0) > 0]
    if not symbols:
        return
    every = [
        {each: own[each] + 1 + place for place, each in enumerate(symbols)},
        {each: own[each] + 1 for each in symbols},
        {each: 2 * own[each] for each in symbols},
        {each: 3 * own[each] for each in symbols},
    ]
    yield [resized(sizes, example, own | each) for each in every if _inside(sizes, each)]
    for symbol in symbols[:_ONES]:
        if own[symbol] != 1 and _inside(sizes, {symbol: 1}):
            yield [resized(sizes, example, own | {symbol: 1})]
    for guard in sizes.guards[:_GUARDS]:
        breaking = [own | each for each in _breaking(guard, own, symbols)]
        yield [resized(sizes, example, each) for each in breaking]


def _inside(sizes: Sizes, values: Mapping[Any, int]) -> bool:
    """Return whether the caller's own bounds allow the sizes; guards may be violated."""
    bounds = {name: most for name, (_, most) in sizes.ranges.items()}
    return all(bool(value <= bounds.get(name, value)) for name, value in values.items())


def _breaking(
    guard: Guard, own: Mapping[Any, int], symbols: Sequence[Any]
) -> Iterator[dict[Any, int]]:
    """Yield the sizes closest to the example's that violate a guard, with one size changed."""
    for symbol in symbols:
        if symbol not in guard.expression.free_symbols:
            continue
        size = int(own[symbol])
        near = sorted(range(1, max(2 * size, _MOST) + 1), key=lambda each: abs(each - size))
        for each in near:
            if guard.holds({**own, symbol: _like(own[symbol], each)}) is False:
                yield {symbol: _like(own[symbol], each)}
                break


def _like(size: Any, value: int) -> Any:
    return type(size)(value) if type(size) is int else size - size + value


def resized(sizes: Sizes, example: Call, values: Mapping[Any, int]) -> Call:
    """Return the example call with other sizes.

    The values of the example are repeated or cut off. Floats are multiplied by different factors
    between a half and one.
    """
    leaves, spec = pytree.tree_flatten(example)
    made = list(leaves)
    for place, (leaf, given) in enumerate(zip(leaves, sizes.inputs, strict=False)):
        if isinstance(leaf, torch.Tensor) and given.dims is not None:
            made[place] = _with_sizes(leaf, given.dims, values)
    args, kwargs = pytree.tree_unflatten(made, spec)
    return args, kwargs


def _with_sizes(tensor: torch.Tensor, dims: Sequence[Any], values: Mapping[Any, int]) -> Any:
    found = tensor.detach()
    for place, dim in enumerate(dims):
        size = dim if isinstance(dim, int) else int(dim.xreplace(values))
        before = tensor.shape[place]
        if size != before:
            wanted = torch.arange(max(size, 0), device=tensor.device) % max(before, 1)
            found = found.index_select(place, wanted)
    if not found.is_floating_point():
        return found
    # Repeated rows, and examples of ones, would hide the effects of another branch.
    random = torch.Generator().manual_seed(0)
    return found * (1 - torch.rand(found.shape, generator=random) / 2).to(found)
