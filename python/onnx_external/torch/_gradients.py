"""Traces modules whose forward computes gradients, including the operators that compute them.

torch.export traces a module's calls before autograd sees them, and fails where autograd runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from .._base.swapping import exchanged


@contextlib.contextmanager
def gradients_noted(gradients: list[str]) -> Iterator[None]:
    """Record inside the context what computes gradients: autograd or torch.func."""
    from torch._functorch import eager_transforms

    with contextlib.ExitStack() as stack:
        for owner, name in (
            (torch.autograd, "_engine_run_backward"),
            (eager_transforms, "_grad_increment_nesting"),
            (eager_transforms, "_jvp_increment_nesting"),
        ):
            if hasattr(owner, name):  # else another torch
                noted = _noted(gradients, name, getattr(owner, name))
                stack.enter_context(exchanged(owner, name, noted))
        yield


def _noted(found: list[str], name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        found.append(name)
        return plain(*args, **kwargs)

    return call


def traced_behind_autograd(module: nn.Module, args: Any, **options: Any) -> Any:
    """Trace a module at the level below autograd, including the operators of gradients.

    Args:
        module: the module.
        args: the positional inputs.
        options: `kwargs` and `dynamic_shapes` of torch.export.export.
    """
    from torch.export import _trace

    return _trace._export(module, args, strict=False, pre_dispatch=False, **options)


def without_derivatives(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program in which derivatives are replaced by operators that torch.onnx supports."""
    scatter = torch.ops.aten.diagonal_scatter.default
    used = {node.target for node in program.graph.nodes if node.op == "call_function"}
    used = {each for each in used if "backward" in str(each) or each is scatter}
    known = torch._decomp.decomposition_table
    found = {each: known[each] for each in used if each in known} | {scatter: _diagonal_scatter}
    return program.run_decompositions(found) if used else program


def derivative_translations() -> dict[Any, Callable[..., Any]]:
    """Return ONNX functions for those derivatives that torch does not decompose."""
    aten = torch.ops.aten
    return {
        aten.silu_backward.default: _silu_backward,
        aten.mish_backward.default: _mish_backward,
    }


def _silu_backward(gradient: Any, given: Any) -> Any:
    """Return the gradient of x * sigmoid(x)."""
    from onnxscript import opset18 as op

    slope = op.Sigmoid(given)
    value = op.Mul(given, slope)
    return op.Mul(gradient, op.Sub(op.Add(slope, value), op.Mul(value, slope)))


def _mish_backward(gradient: Any, given: Any) -> Any:
    """Return the gradient of x * tanh(softplus(x))."""
    from onnxscript import opset18 as op

    bent, slope = op.Tanh(op.Softplus(given)), op.Mul(given, op.Sigmoid(given))
    bend = op.Sub(slope, op.Mul(slope, op.Mul(bent, bent)))
    return op.Mul(gradient, op.Add(bent, bend))


def _diagonal_scatter(
    given: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """Compute aten.diagonal_scatter without in-place writes, unlike torch's decomposition."""
    rows, columns = given.shape[dim1], given.shape[dim2]
    row = torch.arange(rows, device=given.device)
    column = torch.arange(columns, device=given.device)
    place = (row if offset >= 0 else row + offset).clamp(0, source.shape[-1] - 1)
    values = source.index_select(-1, place).unsqueeze(-1)
    moved = given.movedim((dim1, dim2), (-2, -1))
    found = torch.where(column - row[:, None] == offset, values, moved)
    return found.movedim((-2, -1), (dim1, dim2))
