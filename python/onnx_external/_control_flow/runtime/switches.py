"""Keeps gradient and autocast switches that have no effect out of traces.

Traces record such switches as operators. torch moves the code between two switches into a subgraph,
and loses existing subgraphs of branches and loops in it ('<lambda>' object has no attribute
'true_graph_0'). Switches that have no effect in a graph are therefore not recorded: those of
gradients, and autocast if it is switched off where it is already off.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode

from onnx_external._base.swapping import exchanged


@contextmanager
def switches_left_out() -> Iterator[None]:
    """Keep switches without effect out of this thread's traces inside the context."""
    plain = PreDispatchTorchFunctionMode.__torch_function__
    caller, left_out = threading.get_ident(), _LeftOut()

    def seen(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if threading.get_ident() == caller and left_out.has(func, args):
            return None
        return plain(self, func, types, args, kwargs)

    with exchanged(PreDispatchTorchFunctionMode, "__torch_function__", seen):
        yield


class _LeftOut:
    """Decides which calls to omit; autocast switches nest, so it records those still open."""

    def __init__(self) -> None:
        self.off = {each for each in ("cpu", "cuda") if not torch.is_autocast_enabled(each)}
        self.open: list[bool] = []
        """For each autocast that was entered and not left, whether it is in the graph."""

    def has(self, func: Any, args: Any) -> bool:
        """Return whether to omit a call from the trace."""
        if func is torch._C._set_grad_enabled:
            return True
        if func is torch.amp._enter_autocast:
            device, _, enabled, *_ = args
            self.open.append(bool(enabled) or any(self.open) or device not in self.off)
            return not self.open[-1]
        return func is torch.amp._exit_autocast and bool(self.open) and not self.open.pop()
