"""Derives the shapes and types of the results of a torch.cond from those of its branches.

torch compares the strides of the results of both branches to find a common order, and does so for
the sizes of the example: `Min(2, n) > 1` becomes a guard of the whole graph. If the results are
contiguous, as in rewritten code, no comparison is needed.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch._prims_common import make_contiguous_strides_for
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from onnx_external._base.swapping import exchanged
from onnx_external._tracing.chosen import define, definition_by_outer_test, expression_of


@contextlib.contextmanager
def results_need_no_guards() -> Iterator[None]:
    """Merge contiguous results of a torch.cond without guards inside the context."""
    try:
        # The package has a function of the module's name.
        operators = importlib.import_module("torch._higher_order_ops.cond")
        plain = operators._merge_output
    except (ImportError, AttributeError):  # another torch, which may do it otherwise
        yield
        return

    def merge(one: Any, other: Any, mode: Any) -> Any:
        if _alike(one, other) and mode.shape_env is not None:
            return _merged(one, other, mode)
        return plain(one, other, mode)

    with exchanged(operators, "_merge_output", merge):
        yield


def _alike(one: Any, other: Any) -> bool:
    """Return whether both values are contiguous tensors that differ only in sizes."""
    if type(one) is not FakeTensor or type(other) is not FakeTensor:
        return False
    kinds = [(each.dtype, each.device, each.layout, each.dim()) for each in (one, other)]
    return kinds[0] == kinds[1] and one.layout == torch.strided and all(map(_plain, (one, other)))


def _plain(tensor: torch.Tensor) -> bool:
    strides = make_contiguous_strides_for(tensor.shape)
    return (
        not tensor.is_quantized
        and not tensor.is_conj()
        and statically_known_true(tensor.storage_offset() == 0)
        and all(
            statically_known_true(one == other)
            for one, other in zip(strides, tensor.stride(), strict=True)
        )
    )


def _merged(one: torch.Tensor, other: torch.Tensor, mode: Any) -> torch.Tensor:
    sizes = [_size(a, b, mode.shape_env) for a, b in zip(one.shape, other.shape, strict=True)]
    strides = [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
    with mode:
        return torch.empty_strided(sizes, strides, dtype=one.dtype, device=one.device)


def _size(one: Any, other: Any, environment: Any) -> Any:
    """Return the common size, or a new size that is known only in the graph."""
    pair = [expression_of(each) for each in (one, other)]
    if pair[0] == pair[1] and not any(free_unbacked_symbols(each) for each in pair):
        return one
    found = environment.create_unbacked_symint()
    bounds = [environment.bound_sympy(each) for each in pair]
    least = max(0, min(each.lower for each in bounds))
    most = max(each.upper for each in bounds)
    environment.constrain_symbol_range(found.node.expr, least, most)
    define(found, definition_by_outer_test(one, other))
    return found
