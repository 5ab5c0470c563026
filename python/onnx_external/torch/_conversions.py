"""Loads the functions with which torch.onnx converts operators only once for all exports."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch

from .._base.swapping import exchanged

_read: dict[Any, Any] = {}
"""The loaded registries, by everything on which their content depends."""
_MOST = 4
"""The maximum number of registries to keep."""


@contextlib.contextmanager
def conversions_kept() -> Iterator[None]:
    """Keep torch.onnx from reloading its functions in the context, unless others were registered.

    torch.onnx parses all functions for each export, which takes longer than the export of a small
    module.
    """
    try:
        from torch.onnx._internal.exporter import _registration
        from torch.onnx._internal.exporter._torchlib import _torchlib_registry

        registry = _registration.ONNXRegistry
        read, of_torch = registry.from_torchlib, _torchlib_registry.get_torchlib_ops
        _of_onnxscript()
    except (ImportError, AttributeError):  # another torch, or no onnxscript
        yield
        return

    def kept(*arguments: Any, **options: Any) -> Any:
        # A function is left out while torch lacks its operator, which an import may register later.
        operators = len(torch._C._dispatch_get_all_op_names())
        functions = (*map(id, of_torch()), *_of_onnxscript())
        key = (arguments, *options.items(), operators, functions)
        if key not in _read:
            if len(_read) == _MOST:  # for a process that keeps registering operators
                _read.clear()
            _read[key] = read(*arguments, **options)
        own = copy.copy(_read[key])
        own.functions = {target: list(each) for target, each in own.functions.items()}
        return own

    with exchanged(registry, "from_torchlib", staticmethod(kept)):
        yield


def _of_onnxscript() -> list[int]:
    """Return the ids of the functions that onnxscript has registered so far."""
    from onnxscript.function_libs.torch_lib import ops, registration

    del ops  # imported for its registrations
    return [
        id(function)
        for _, overloads in registration.default_registry.items()
        for function in (*overloads.overloads, *overloads.complex)
    ]
