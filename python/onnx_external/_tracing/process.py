"""Restores the state of the process after an export, even after errors.

torch and transformers restore most of this state themselves, but not after an error in a
transformation, or if Ctrl-C interrupts the restoring.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import random
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch

from .._base.swapping import all_undone, undoing

_Undo: TypeAlias = Callable[[], None]

_FLAGS = (
    ("torch.compiler", "_is_compiling_flag"),
    ("torch.compiler", "_is_exporting_flag"),
    ("torch.compiler", "_is_non_strict_tracing_flag"),
    ("torch.fx._symbolic_trace", "_is_fx_tracing_flag"),
    ("torch.fx.traceback", "current_meta"),
    ("torch.fx.traceback", "current_replay_node"),
    ("torch.fx.traceback", "should_preserve_node_meta"),
    ("sys", "stdout"),
    ("sys", "stderr"),
    ("sys", "excepthook"),
    ("threading", "excepthook"),
    ("warnings", "showwarning"),
    ("warnings", "_showwarnmsg_impl"),
)
"""The attributes of Python modules whose values are restored."""
_CONFIGS = ("torch._dynamo.config", "torch._functorch.config", "torch.fx.experimental._config")
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM")
_OBJECTS = 50_000
"""The number of new objects between two searches for reference cycles. A trace creates many more,
and nearly all of them are in use until it ends. With Python's default of 700, the searches take up
to a third of the export of a small module.
"""


@contextlib.contextmanager
def process_kept() -> Iterator[None]:
    """Restore the state of the process and the thread when the context ends.

    The state includes contexts of `exchanged` that are still open; torch's modes, mode stacks,
    flags, defaults and configurations; random number generators; loggers, warning filters, streams,
    signal handlers, environment variables and the current folder. All is restored even if there is
    a second interruption.
    """
    undo: list[_Undo] = [keep() for keep in _KEPT]
    keys = torch._C._ForceDispatchKeyGuard(
        torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    )
    try:
        with keys, all_undone(), _cycles_searched_seldom():
            try:
                yield
            except BaseException as error:
                if not isinstance(error, Exception):
                    # Contexts that Ctrl-C kept from ending would end with the traceback, later.
                    traceback.clear_frames(error.__traceback__)
                raise
    finally:
        try:
            _call(undo)
        finally:
            _call(undo)


@contextlib.contextmanager
def _cycles_searched_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    with undoing(lambda: gc.set_threshold(*before)):
        if before[0]:  # else it does not search at all
            gc.set_threshold(max(before[0], _OBJECTS), *before[1:])
        yield


def _call(undo: list[_Undo]) -> None:
    for each in undo:
        with contextlib.suppress(Exception):  # the others have to be restored all the same
            each()


def _keep_transforms() -> _Undo:
    """Return a function that removes functorch transforms that an error has left behind."""
    functorch = torch._C._functorch
    depth = functorch.get_dynamic_layer_stack_depth()

    def undo() -> None:
        if functorch.get_dynamic_layer_stack_depth() > depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)

    return undo


def _keep_stack(kind: str) -> _Undo:
    """Return a function that restores the stack of "dispatch" or "function" modes."""
    size = getattr(torch._C, f"_len_torch_{kind}_stack")
    at = getattr(torch._C, f"_get_{kind}_stack_at")
    pop = getattr(torch._C, f"_pop_torch_{kind}_stack")
    push = getattr(torch._C, f"_push_on_torch_{kind}_stack")
    before = [at(place) for place in range(size())]

    def undo() -> None:
        now = [at(place) for place in range(size())]
        if len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True)):
            return
        for _ in now:
            pop()
        for mode in before:
            push(mode)

    return undo


def _keep_modes() -> _Undo:
    from torch.backends import mha

    kept: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
        (torch.is_grad_enabled, torch._C._set_grad_enabled),
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
        (mha.get_fastpath_enabled, mha.set_fastpath_enabled),
    ]
    for device in ("cpu", "cuda"):
        read, write = torch.is_autocast_enabled, torch.set_autocast_enabled
        kept.append((partial(read, device), partial(write, device)))
    return _unless_as_before([(get, set_, get()) for get, set_ in kept])


def _unless_as_before(kept: list[tuple[Callable[[], Any], Callable[[Any], Any], Any]]) -> _Undo:
    def undo() -> None:
        for get, put, before in kept:
            if get() != before:
                put(before)

    return undo


def _keep_flags() -> _Undo:
    places = [(importlib.import_module(name), flag) for name, flag in _FLAGS]
    before = [(place, flag, vars(place)[flag]) for place, flag in places if flag in vars(place)]

    def undo() -> None:
        for place, flag, value in before:
            if vars(place).get(flag) is not value:
                setattr(place, flag, value)

    return undo


def _keep_context() -> _Undo:
    """Return a function that restores the state of torch's tracing and compiling in this thread."""
    from torch import _guards

    context = getattr(_guards, "_TLS", None)
    before = dict(vars(context)) if context is not None else {}

    def undo() -> None:
        if context is not None and vars(context) != before:
            vars(context).clear()
            vars(context).update(before)

    return undo


def _keep_configs() -> _Undo:
    """Return a function that restores the values in torch's configuration modules."""
    found = [sys.modules[name] for name in _CONFIGS if name in sys.modules]
    before = [(config, config.get_config_copy()) for config in found]

    def undo() -> None:
        for config, values in before:
            now = config.get_config_copy()
            for name, value in values.items():
                if now.get(name) != value:
                    setattr(config, name, value)

    return undo


def _keep_memory() -> _Undo:
    """Return a function that clears torch's references to a trace, which would keep its graph."""
    from torch.fx.experimental import proxy_tensor, symbolic_shapes

    proxies = vars(proxy_tensor).get("_FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT", {})
    before = dict(proxies)
    caches = [each for each in vars(symbolic_shapes.ShapeEnv).values() if _is_cache(each)]

    def undo() -> None:
        proxies.clear()
        proxies.update(before)
        for each in caches:
            each.cache_clear()
        tracker = getattr(sys.modules.get(_OF_GENERATORS), "PhiloxStateTracker", None)
        for name in _STATES if tracker is not None else ():
            if name in vars(tracker):
                delattr(tracker, name)

    return undo


_OF_GENERATORS = "torch._functorch._aot_autograd.graph_capture_wrappers"
_STATES = ("running_state", "fwd_state", "bwd_state")
"""The names of random state in a trace, which each trace creates anew."""


def _is_cache(value: Any) -> bool:
    return hasattr(value, "cache_clear")


def _keep_generators() -> _Undo:
    import numpy as np

    python, arrays, tensors = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def undo() -> None:
        random.setstate(python)
        np.random.set_state(arrays)
        torch.set_rng_state(tensors)
        if devices:
            torch.cuda.set_rng_state_all(devices)

    return undo


def _keep_loggers() -> _Undo:
    before = {
        each: (each.level, each.disabled, each.propagate, list(each.handlers), list(each.filters))
        for each in [logging.root, *logging.root.manager.loggerDict.values()]
        if isinstance(each, logging.Logger)
    }

    def undo() -> None:
        for each, (level, disabled, propagate, handlers, filters) in before.items():
            if each.level != level:
                each.setLevel(level)
            each.disabled, each.propagate = disabled, propagate
            if each.handlers != handlers:
                each.handlers[:] = handlers
            if each.filters != filters:
                each.filters[:] = filters

    return undo


def _keep_warnings() -> _Undo:
    before, filters = warnings.filters, list(warnings.filters)

    def undo() -> None:
        if warnings.filters is not before or list(before) != filters:
            warnings.filters = before
            before[:] = filters  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]

    return undo


def _keep_surroundings() -> _Undo:
    """Return a function that restores environment, folder, import path and signal handlers."""
    environment, folder, path = dict(os.environ), _folder(), list(sys.path)
    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    own = threading.current_thread() is threading.main_thread()  # others may not set handlers
    handlers = {number: signal.getsignal(number) for number in numbers} if own else {}

    def undo() -> None:
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        if folder and _folder() != folder:
            os.chdir(folder)
        sys.path[:] = path
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)

    return undo


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it is removed
        return ""


_KEPT: tuple[Callable[[], _Undo], ...] = (
    _keep_transforms,
    lambda: _keep_stack("dispatch"),
    lambda: _keep_stack("function"),
    _keep_modes,
    _keep_flags,
    _keep_context,
    _keep_configs,
    _keep_memory,
    _keep_generators,
    _keep_loggers,
    _keep_warnings,
    _keep_surroundings,
)
"""Functions that save the state and return how to restore it, in the order of restoring."""
