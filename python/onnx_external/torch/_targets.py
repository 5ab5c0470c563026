"""Checks the object to export: a module, a function that makes one, or a torch program."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import nn

from .._base.errors import Error, ExportError, WrongTypeError
from .._base.meter import Meter
from ._training_mode import refuse_training
from ._untouched import build

Program: TypeAlias = torch.export.ExportedProgram | torch.onnx.ONNXProgram
Target: TypeAlias = nn.Module | Program | Callable[[], nn.Module]
"""An object that can be exported. A function is called to make a module, whose parameters take no
memory."""

_MAY_BE = (
    "a target is a module in eval mode, a function without arguments that makes one, or what "
    "torch.export.export returned"
)


def checked_target(target: Any) -> Target:
    """Return the object to export, without wrappers that are only for training or compiling.

    Raises:
        TypeError: the object is not a target; the message says what it is, and what to pass.
    """
    target = unwrapped(target)
    if fault := _fault(target):
        raise WrongTypeError(f"target: {fault}; {_MAY_BE}")
    found: Target = target
    return found


def unwrapped(target: Any) -> Any:
    """Return the module inside DataParallel, DistributedDataParallel or torch.compile wrappers."""
    parallel = nn.DataParallel, nn.parallel.DistributedDataParallel
    while True:
        if isinstance(target, parallel):
            target = target.module
        elif isinstance(target, nn.Module) and isinstance(_original(target), nn.Module):
            target = _original(target)
        else:
            return target


def _original(module: nn.Module) -> Any:
    """Return the module that was passed to torch.compile."""
    return module._modules.get("_orig_mod") if type(module).__name__ == "OptimizedModule" else None


def _fault(target: Any) -> str:
    """Return the reason why an object can never be exported; "" if it may be."""
    if isinstance(target, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return (
            "a TorchScript module (torch.jit) has no code that torch.export could trace; give the "
            "module from which it was made, with weights=scripted.state_dict()"
        )
    if isinstance(target, (nn.Module, torch.export.ExportedProgram, torch.onnx.ONNXProgram)):
        return ""
    if isinstance(target, (str, os.PathLike)):
        return (
            f"{os.fspath(target)!r} is a path, and files of weights have no code; give the module, "
            f"and weights={os.fspath(target)!r}"
        )
    if isinstance(target, Mapping):
        return (
            "a dict is not a module: a state dict has no code; give its module, and "
            "weights=state_dict"
        )
    if not callable(target):
        return f"{_called(target)} is not a module"
    return _fault_of_function(target)


def _fault_of_function(function: Any) -> str:
    try:
        taken = inspect.signature(function)
    except (TypeError, ValueError):  # it has no signature
        return ""
    try:
        taken.bind()
    except TypeError:
        parameters = ", ".join(taken.parameters)
        told = f"{_called(function)} takes ({parameters})"
        if isinstance(getattr(function, "__self__", None), nn.Module):
            return f"{told}: it is a method of a module; give the module itself"
        if inspect.isclass(function):
            return f"{told}: it is a class; give lambda: {function.__name__}(...).eval()"
        return told
    return ""


def _called(value: Any) -> str:
    """Return the name of a value as used in messages."""
    if value is None:
        return "None"
    name = getattr(value, "__qualname__", "")
    return name.rpartition("<locals>.")[2] or f"a value of type {type(value).__name__}"


def made_of(target: Target, meter: Meter) -> tuple[nn.Module | Program, bool]:
    """Return the object to trace, and whether the caller's function has just made it.

    Args:
        target: a result of `checked_target`.
        meter: measures the step.

    Raises:
        ExportError: the function raised an exception, which is the cause of the error.
        TypeError: the function returned something other than a module.
        InvalidArgumentError: the module is in training mode.
    """
    is_made = not isinstance(
        target, (nn.Module, torch.export.ExportedProgram, torch.onnx.ONNXProgram)
    )
    if is_made:
        with meter.step("build"):
            target = _built(target)
    refuse_training(target, is_made)
    return target, is_made


def _built(make: Any) -> Any:
    try:
        made = unwrapped(build(make))
    except Error:
        raise
    except Exception as error:
        raise ExportError(
            f"target: {_called(make)}() raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, nn.Module):
        raise WrongTypeError(
            f"target: {_called(make)}() returned {_called(made)}, not a module; {_MAY_BE}"
        )
    if fault := _fault(made):
        raise WrongTypeError(f"target: what {_called(make)}() returned: {fault}; {_MAY_BE}")
    return made
