"""Suppresses the output, logs and warnings of exporters."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Iterator

from .._base.progress import no_monitor, only_errors, torch_silent

_LOGGERS = ("onnx_ir", "onnxscript", "torch.onnx", "torch._export", "torch._dynamo")
"""Loggers that warn about intended effects (weights without data), and the parents of loggers that
are created meanwhile."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress messages of the exporter and the optimizer about slots without data.

    The messages include logs, warnings and prints. If a trace fails, torch prints its whole graph,
    and it logs tracebacks of problems that it then solves itself.
    """
    nowhere = io.StringIO()
    with (
        warnings.catch_warnings(),
        no_monitor(),
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        torch_silent(),
        contextlib.ExitStack() as stack,
    ):
        warnings.simplefilter("ignore")
        for name in _LOGGERS:
            stack.enter_context(only_errors(name))
        yield


@contextlib.contextmanager
def silent(everything: bool = False) -> Iterator[None]:
    """Keep exporters' prints and logs off the caller's terminal.

    Args:
        everything: True to also suppress what C++ code writes to standard error.
    """
    before = logging.root.manager.disable
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet())
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        if everything:
            kept = os.dup(2)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 2)
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), 2)
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, before)
        yield
