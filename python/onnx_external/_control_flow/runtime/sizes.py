"""Examines sizes that depend on tensors, some of which torch.cond cannot handle."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from onnx_external._base.swapping import exchanged
from onnx_external._control_flow.runtime.state import quietly


def is_free(size: Any) -> bool:
    """Return whether a size depends on a tensor's values, and not only on the input shapes."""
    return isinstance(size, torch.SymInt) and bool(free_unbacked_symbols(size))


def may_be_zero(size: Any) -> bool:
    """Return whether a size may be 0, which e.g. Dim("rows", min=1) excludes."""
    if not isinstance(size, torch.SymInt):
        return bool(size == 0)
    # A comparison would not do: torch takes it that no size of an input is 0.
    return not bool(size.node.shape_env.bound_sympy(size.node.expr).lower >= 1)


def size_of(tensor: torch.Tensor, most: Any = None) -> Any:
    """Return the value of a 0-d tensor as a size, with its known bounds."""
    found = number_of(tensor)
    torch._check(found >= 0)
    if most is not None:
        torch._check(found <= most)
    return found


def number_of(tensor: torch.Tensor) -> Any:
    """Return the value of a 0-d tensor as an integer that is known only in the graph."""
    with torch._C.DisableTorchFunction():
        return tensor.to(torch.int64).item()


def is_simple(size: Any) -> bool:
    """Return whether the strides of a tensor with this size contain the size, not Max(1, size).

    If the size may be 0, the strides contain Max(1, size), with which torch.cond fails.
    """
    if not isinstance(size, torch.SymInt):
        return True
    stride = quietly(lambda: torch.empty((2, size)).stride(0))
    return isinstance(stride, torch.SymInt) and bool(stride.node.expr == size.node.expr)


@contextlib.contextmanager
def largest_in_pairs() -> Iterator[None]:
    """Make traces record maxima and minima of sizes as binary operators in the context.

    If such an operator occurs again in a branch, torch would record its own function for it, which
    torch's check of programs rejects.
    """
    plain = getattr(proxy_tensor, "_sym_register", None)
    pairs = {
        getattr(proxy_tensor, "_nary_sym_max", None): torch.sym_max,
        getattr(proxy_tensor, "_nary_sym_min", None): torch.sym_min,
    }
    if plain is None or None in pairs:  # another torch
        yield
        return

    def register(tracer: Any, function: Any, args: Any, out: Any) -> None:
        if function in pairs:
            function = pairs[function]
            args = (functools.reduce(function, args[:-1]), args[-1])
        plain(tracer, function, args, out)

    with exchanged(proxy_tensor, "_sym_register", register):
        yield
