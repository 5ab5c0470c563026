"""Applies patches while rewritten code is traced, and always undoes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.fx import Tracer

from onnx_external._base.swapping import exchanged
from onnx_external._control_flow.runtime.outer import state_kept
from onnx_external._control_flow.runtime.sizes import largest_in_pairs
from onnx_external._control_flow.runtime.state import State
from onnx_external._control_flow.runtime.switches import switches_left_out
from onnx_external._control_flow.runtime.torch_functions import TorchFunctions
from onnx_external._control_flow.values import is_fake
from onnx_external._tracing.assuming import branches_assume_tests
from onnx_external._tracing.chosen import decided_by_definitions
from onnx_external._tracing.empty_sizes import left_to_graph
from onnx_external._tracing.results import results_need_no_guards


@contextmanager
def tracing(state: State, module: nn.Module | None) -> Iterator[None]:
    """Represent scalars as tensors, and disable gradients, inside the context.

    Writes of the trace to the module and its objects are undone afterwards.

    These changes apply only to the calling thread.
    """
    with ExitStack() as undone:
        undone.callback(torch._C._set_grad_enabled, torch.is_grad_enabled())
        torch._C._set_grad_enabled(False)
        undone.callback(_forget, state)
        if module is not None:
            undone.enter_context(state_kept(module))
        undone.enter_context(branches_assume_tests())
        undone.enter_context(results_need_no_guards())
        undone.enter_context(decided_by_definitions())
        undone.enter_context(largest_in_pairs())
        undone.enter_context(left_to_graph(state.empty_sizes))
        undone.enter_context(_sample_rows())
        undone.enter_context(_calls_left())
        undone.enter_context(TorchFunctions(state))
        undone.enter_context(switches_left_out())
        yield


@contextmanager
def _sample_rows() -> Iterator[None]:
    """Keep scan from using its first row as a sample in the context, as there may be no rows."""
    scan = sys.modules.get("torch._higher_order_ops.scan")  # the package has a function scan
    plain = getattr(scan, "first_slice_copy", None)
    if plain is None:  # another torch
        yield
        return

    def row(tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        if not is_fake(tensor):
            return plain(tensor, dim)
        return tensor.new_empty([size for at, size in enumerate(tensor.shape) if at != dim])

    with exchanged(scan, "first_slice_copy", row):
        yield


@contextmanager
def _calls_left() -> Iterator[None]:
    """Keep a trace's module stack correct in the context if an exception ends a call.

    Without this correction, torch would assume that the trace is still in the module that was left.
    A call that runs up to a condition ends with an exception, and so does a call whose exception
    the code handles.
    """
    plain = Tracer.call_module

    def call_module(self: Tracer, *given: Any, **rest: Any) -> Any:
        around = len(self.module_stack)
        try:
            return plain(self, *given, **rest)
        except BaseException:
            while len(self.module_stack) > around:
                self.module_stack.popitem()
            raise

    with exchanged(Tracer, "call_module", call_module):
        yield


def _forget(state: State) -> None:
    """Release all tensors of the trace."""
    for each in (state.tables, state.keys, state.followed, state.bounds, state.choices, state.kept):
        each.clear()
    state.loops = 0
