"""Checks the arguments of an export early, before the time-consuming trace."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .._base.argument_types import are_names, path_of, wrong_type
from .._base.errors import InvalidArgumentError, checkpoint_is
from .._sources.checkpoint import Checkpoint, open_checkpoint
from .._sources.weights import given_sources
from ._opsets import asked

_NAMES = ("input_names", "output_names")
_TABLE = "custom_translation_table"


def extra_of(extra: Any) -> dict[str, torch.Tensor]:
    """Return the given values of buffers and constants as tensors.

    Raises:
        WrongTypeError: `extra` is not a dict of tensors by name.
    """
    if extra is None:
        return {}
    if not isinstance(extra, Mapping) or not all(isinstance(name, str) for name in extra):
        raise wrong_type("extra", "a dict of tensors by name, or None", extra)
    return {name: _tensor(name, value) for name, value in extra.items()}


def _tensor(name: str, value: Any) -> torch.Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise wrong_type(f"extra: {name}", "a tensor", value) from None


def check_weights(weights: Any, max_expand: int) -> None:
    """Raise an error if weights cannot be opened.

    Args:
        weights: as for oe.save(), or a module; a stream is not read.
        max_expand: as for `Layout`.

    Raises:
        Error: the error that oe.save() would raise after the trace.
    """
    if weights is None or isinstance(weights, (nn.Module, Checkpoint)) or hasattr(weights, "read"):
        return
    if isinstance(weights, (str, os.PathLike)):
        path = path_of("weights", weights)
        with checkpoint_is("weights"), open_checkpoint(path, max_expand=max_expand):
            return
    if isinstance(weights, (Mapping, bytes)) or not isinstance(weights, Sequence):
        given_sources("weights", weights)
        return
    for each in weights:
        check_weights(each, max_expand)


def check_onnx_options(options: Mapping[str, Any] | None) -> None:
    """Raise an error if torch.onnx.export does not accept an option.

    Raises:
        InvalidArgumentError: torch.onnx.export has no such option, or no such opset version.
        WrongTypeError: an option has a value of the wrong type.
    """
    options = options or {}
    known = inspect.signature(torch.onnx.export).parameters
    for name, value in options.items():
        if name not in known:
            raise InvalidArgumentError(f"onnx_options: torch.onnx.export has no {name}")
        if name in _NAMES and value is not None and not are_names(value):
            raise wrong_type(f"onnx_options: {name}", "a list of names", value)
        if name == _TABLE and value is not None and not isinstance(value, Mapping):
            raise wrong_type(f"onnx_options: {name}", "a dict of functions by operator", value)
    asked(options)
