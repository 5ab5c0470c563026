"""Compares the state of a process before and after an export, and simulates Ctrl-C."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.fx.experimental import _config
from torch.fx.experimental.symbolic_shapes import ShapeEnv

PATCHED = (
    nn.Module,
    torch,
    torch.Tensor,
    torch._C,
    torch._export.utils,
    torch.compiler,
    torch.fx.Graph,
    torch.fx.Tracer,
    torch.nn.functional,
    torch.onnx,
    ShapeEnv,
)
"""What exporters exchange attributes of while they trace."""
_GETTERS: dict[str, Callable[[], Any]] = {
    "gradients": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "autocast": lambda: [torch.is_autocast_enabled(each) for each in ("cpu", "cuda")],
    "default type": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "deterministic": torch.are_deterministic_algorithms_enabled,
    "fast path": torch.backends.mha.get_fastpath_enabled,
    "level of functorch": torch._C._functorch.get_dynamic_layer_stack_depth,
    "dispatch modes": torch._C._len_torch_dispatch_stack,
    "function modes": torch._C._len_torch_function_stack,
    "included keys": lambda: str(torch._C._dispatch_tls_local_include_set()),
    "excluded keys": lambda: str(torch._C._dispatch_tls_local_exclude_set()),
    "compiling": lambda: (torch.compiler.is_compiling(), torch.compiler.is_exporting()),
    "context": lambda: {k: v for k, v in vars(torch._guards._TLS).items() if v is not None},
    "sizes vary": lambda: _config.get_config_copy(),
    "dynamo": lambda: sys.modules["torch._dynamo.config"].get_config_copy(),
    "generators": lambda: (
        random.getstate(),
        np.random.get_state()[1].tobytes(),
        torch.get_rng_state().numpy().tobytes(),
    ),
    "filters": lambda: list(warnings.filters),
    "warnings": lambda: warnings.showwarning,
    "streams": lambda: [sys.stdin, sys.stdout, sys.stderr, sys.excepthook, sys.displayhook],
    "environment": lambda: (dict(os.environ), os.getcwd(), list(sys.path), os.umask(os.umask(0))),
    "signals": lambda: [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)],
    "threads": lambda: sorted(each.name for each in threading.enumerate()),
    "limits": lambda: (
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        gc.isenabled(),
        gc.get_threshold(),
    ),
    "open files": lambda: sorted(filter(None, map(_opened, os.listdir("/proc/self/fd")))),
    "temporary files": lambda: sorted(os.listdir(tempfile.gettempdir())),
    "loggers": lambda: {
        name: (each.level, each.disabled, each.propagate, list(each.handlers), list(each.filters))
        for name, each in [("", logging.root), *logging.root.manager.loggerDict.items()]
        if isinstance(each, logging.Logger)
    },
    "patches": lambda: {
        (owner.__name__, name): id(value)
        for owner in PATCHED
        for name, value in vars(owner).items()
        if callable(value) and not isinstance(value, types.ModuleType)
    },
}


def _opened(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:  # the descriptor of the listing itself
        return ""


def process() -> dict[str, Any]:
    """Return the state of the process, by name."""
    return {name: get() for name, get in _GETTERS.items()}


def written(module: nn.Module, beside: dict[str, Any]) -> dict[str, Any]:
    """Return the objects that a module's code may modify, such as classes and globals, by id."""
    found: dict[str, Any] = {}
    for name, each in module.named_modules():
        for attribute, value in vars(each).items():
            found[f"{name}.{attribute}"] = _seen(value)
        for cls in type(each).__mro__:
            if not cls.__module__.startswith(("torch", "builtins")):
                own = {key: value for key, value in vars(cls).items() if not key.startswith("__")}
                found[f"class {cls.__qualname__}"] = _seen(own)
    found["beside it"] = _seen(beside)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        found[f"values of {name}"] = tensor.detach().clone().numpy().tobytes()
        found[f"gradient of {name}"] = tensor.requires_grad, tensor.grad
    return found


def _seen(value: Any) -> Any:
    """Return the content of a value: a number, a text, its items, or the id of any other object."""
    if isinstance(value, (int, float, str, bytes, type(None))):
        return value
    if isinstance(value, dict):
        return {str(key): _seen(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_seen(each) for each in value]
    return id(value), type(value).__name__


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the differences from the earlier state."""
    found = []
    for name in before.keys() | after.keys():
        one, other = before.get(name), after.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            keys = [key for key in one if key in other and one[key] != other[key]]
            found += [f"{name}: {key}: {one[key]!r} {other[key]!r}"[:300] for key in keys]
            gone = one.keys() - other.keys()
            more = other.keys() - one.keys() if name not in ("loggers", "patches") else set()
            found += [f"{name}: {key} {'went' if key in gone else 'came'}" for key in gone | more]
        elif one != other:
            found.append(f"{name}: {one!r:.150} {other!r:.150}")
    return sorted(found)


def calls_of(run: Callable[[], Any]) -> int:
    """Return the number of calls of Python functions in a run."""
    count = 0

    def note(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        with contextlib.suppress(Exception):
            run()
    finally:
        sys.setprofile(None)
    return count


@contextlib.contextmanager
def interrupted_at(number: int) -> Iterator[None]:
    """Raise a KeyboardInterrupt at the call with this number within the context."""
    count = 0

    def interrupt(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"
        if count == number:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        yield
    finally:
        sys.setprofile(None)


def moments(count: int, calls: int) -> list[int]:
    """Return the calls at which to interrupt, each in the middle of one of `count` equal parts."""
    return [calls * (2 * place + 1) // (2 * count) for place in range(count)]


def folder_of(path: Path) -> list[str]:
    """Return the files in a folder."""
    return sorted(each.name for each in path.iterdir()) if path.exists() else []
